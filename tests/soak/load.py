"""The load of the kill rounds: clients that use everything and remember what was acknowledged."""

import http.client
import json
import threading
import time
import traceback
import urllib.parse
import uuid
from collections import Counter

from ws import WsClosed, WsError

CALL_S = 60
READY_S = 10
ECHO_S = 10
CHATS_MAX = 3  # with a sandbox, of one worker
CUT_S = 5

# What a call may be answered while parts are being killed. Anything else is a fault.
EXCUSED = {
    "busy",
    "engine_unavailable",
    "idempotency_in_progress",
    "lease_terminal",
    "not_found",  # the chat's session is being replaced
    "sandbox_start_failed",
    "sandbox_stop_failed",
    "session_not_running",
}


class Away(Exception):
    """The gateway did not answer: whether the call took effect nobody knows."""


class Connection:
    """A connection to a door under one lease."""

    def __init__(self, client, lease_id, session_id):
        self.client, self.lease_id, self.session_id = client, lease_id, session_id

    def echo(self, text, timeout=ECHO_S):
        """True: it came back. False: the connection ended, or nothing came."""
        deadline = time.monotonic() + timeout
        try:
            self.client.send_text(text)
            while time.monotonic() < deadline:
                if self.client.recv(deadline - time.monotonic())[1].decode() == text:
                    return True
        except (WsClosed, OSError):  # TimeoutError is one
            pass
        return False

    def is_cut(self, timeout=CUT_S):
        """It has ended, and a probe sent now does not come back."""
        probe = f"probe {uuid.uuid4()}"
        if self.echo(probe, timeout):
            return False
        return self.client.close_code is not None

    def close(self):
        self.client.close()


class Ledger:
    """What was acknowledged. All members under the lock; ids never leave it again."""

    def __init__(self):
        self.lock = threading.Lock()
        self.chats, self.keys, self.sessions, self.stopped = set(), set(), set(), set()
        self.leases = {}  # lease → session
        self.revoked = {}  # lease → session
        self.connections = []  # also the dead ones of revoked leases
        self.faults = []
        self.statuses = Counter()
        self.echoes = 0

    def fault(self, text):
        with self.lock:
            self.faults.append(text)

    def grant(self, grant):
        with self.lock:
            self.leases[grant["lease"]["lease_id"]] = grant["lease"]["session_id"]

    def add(self, name, value):
        with self.lock:
            getattr(self, name).add(value)

    def summary(self):
        return (
            f"{len(self.chats)} chats, {len(self.keys)} keys, {len(self.sessions)} sessions,"
            f" {len(self.stopped)} stopped, {len(self.leases)} leases, {len(self.revoked)} revoked,"
            f" {self.echoes} echoes"
        )

    def answers(self):
        return ", ".join(f"{name}: {n}" for name, n in sorted(self.statuses.items()))

    def clients(self):
        with self.lock:
            return list(self.connections)


class Worker(threading.Thread):
    """One bot with users and chats of its own."""

    def __init__(self, gateway, ledger, stopping, rng):
        super().__init__(daemon=True)
        self.gateway, self.ledger, self.stopping, self.rng = gateway, ledger, stopping, rng
        self.user = str(uuid.uuid4())
        self.key = gateway.new_key("bot", allowed_users=[self.user])
        self.http, self.http_url = None, None
        self.chats = []
        self.live = []  # connections believed to be up
        self.crash = None

    # -- calls -----------------------------------------------------------------------------------

    def call_once(self, name, path, body):
        """A POST that is sent again, after the death of the gateway too, until it is answered: what
        it makes must be there exactly once."""
        again = str(uuid.uuid4())
        while True:
            try:
                status, answer = self.call(name, "POST", path, body, again=again)
            except Away:
                time.sleep(0.02)
                continue
            if answer.get("code") != "idempotency_in_progress":
                return status, answer
            time.sleep(0.02)

    def call(self, name, method, path, body=None, key=None, again=None):
        """(status, body). Away: no answer. Unexpected answers are faults."""
        headers = {"Idempotency-Key": again} if again else {}
        try:
            status, answer = self.exchange(method, path, body, key or self.key, headers)
        except (OSError, http.client.HTTPException) as error:
            self.drop_http()
            raise Away() from error
        code = answer.get("code", "") if status >= 400 else ""
        with self.ledger.lock:
            self.ledger.statuses[f"{name} {status}{' ' + code if code else ''}"] += 1
        if status >= 400 and code not in EXCUSED:
            self.ledger.fault(f"{name}: {method} {path}: {status} {answer}")
        return status, answer

    def exchange(self, method, path, body, key, more):
        if self.http_url != self.gateway.url:
            self.drop_http()
            self.http_url = self.gateway.url
            address = urllib.parse.urlsplit(self.http_url)
            self.http = http.client.HTTPConnection(address.hostname, address.port, timeout=CALL_S)
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **more}
        self.http.request(method, "/api/v1" + path, data, headers)
        response = self.http.getresponse()
        return response.status, json.loads(response.read() or b"{}")

    def drop_http(self):
        if self.http:
            self.http.close()
        self.http_url = None

    # -- life ------------------------------------------------------------------------------------

    def run(self):
        actions = (
            (self.make_chat, 2),
            (self.make_key, 1),
            (self.open, 5),
            (self.grant, 5),
            (self.renew, 4),
            (self.revoke, 4),
            (self.talk, 10),
            (self.stop, 1),
        )
        choices, weights = zip(*actions)
        try:
            while not self.stopping.is_set():
                try:
                    self.rng.choices(choices, weights)[0]()
                except Away:
                    time.sleep(0.02)
        except Exception:  # pylint: disable=broad-except
            self.crash = traceback.format_exc()
        self.drop_http()

    def make_chat(self):
        status, chat = self.call_once("chat", "/chats", {"user_id": self.user})
        if status == 201:
            self.ledger.add("chats", chat["chat_id"])
            if len(self.chats) < CHATS_MAX:
                self.chats.append(chat["chat_id"])

    def make_key(self):
        body = {"name": "of the load", "role": "viewer"}
        status, made = self.call("key", "POST", "/api-keys", body, self.gateway.admin_key)
        if status == 201:
            self.ledger.add("keys", made["api_key"]["key_id"])

    def open(self):
        if not self.chats:
            return
        body = {"chat_id": self.rng.choice(self.chats), "lease": {"max_connections": 2}}
        status, answer = self.call("open", "POST", "/sandboxes", body)
        if status in (200, 201):
            self.ledger.add("sessions", answer["sandbox"]["session_id"])
            self.granted(answer["grant"])

    def grant(self):
        if not self.chats:
            return
        body = {"chat_id": self.rng.choice(self.chats)}
        status, grant = self.call_once("grant", "/leases", body)
        if status == 201:
            self.granted(grant)

    def granted(self, grant):
        self.ledger.grant(grant)
        if self.rng.random() < 0.6:
            self.connect(grant)

    def connect(self, grant):
        lease = grant["lease"]
        try:
            client = self.gateway.connect(grant, timeout=READY_S)
        except (OSError, WsError, WsClosed):
            return  # its door was killed, or is not live while the gateway is away
        connection = Connection(client, lease["lease_id"], lease["session_id"])
        with self.ledger.lock:
            self.ledger.connections.append(connection)
        self.live.append(connection)

    def some(self):
        """A connection that was up a moment ago."""
        self.live = [c for c in self.live if c.client.close_code is None]
        return self.rng.choice(self.live) if self.live else None

    def renew(self):
        connection = self.some()
        if connection:
            body = {"ttl_s": self.rng.randint(60, 300)}
            self.call("renew", "POST", f"/leases/{connection.lease_id}/renew", body)

    def revoke(self):
        connection = self.some()
        if not connection:
            return
        lease_id = connection.lease_id
        wait = self.rng.choice(("", "?wait_ms=0", "?wait_ms=3000"))
        status, answer = self.call("revoke", "DELETE", f"/leases/{lease_id}{wait}")
        if status not in (200, 202):
            return
        with self.ledger.lock:
            self.ledger.revoked[lease_id] = connection.session_id
        self.live.remove(connection)
        confirmed = status == 200 and answer["revoked"]
        if confirmed and connection.echo(f"probe {uuid.uuid4()}", 2):
            self.ledger.fault(f"a byte passed after the confirmed revocation of {lease_id}")

    def talk(self):
        connection = self.some()
        if connection and connection.echo(f"{self.name} {uuid.uuid4()}"):
            with self.ledger.lock:
                self.ledger.echoes += 1

    def stop(self):
        connection = self.some()
        if not connection:
            return
        session = connection.session_id
        status, _ = self.call("stop", "POST", f"/sandboxes/{session}/stop", {"grace_s": 2})
        if status == 200:
            self.ledger.add("stopped", session)
