"""What is full says so at once, what waits has an end, and nobody can fill what is not theirs."""

import http.client
import json
import os
import signal
import socket
import sqlite3
import threading
import time
import unittest
import urllib.parse
import uuid

import audit
from gateway import DOOR_PROTOCOL, Gateway
from metrics import Metrics
from waiting import PATIENCE_S, until, wait_equal, wait_for

STORE_TRIES_S = 5  # SQLite's own timeout: held shorter than that nothing fails


class StoreLock:
    """Another program in the way of the writer: no write ends while it is held."""

    def __init__(self, gateway):
        self.db = sqlite3.connect(
            os.path.join(gateway.dir, "data", "leasehold.db"),
            isolation_level=None,
            check_same_thread=False,
        )

    def __enter__(self):
        self.db.execute("BEGIN IMMEDIATE")

    def __exit__(self, *_):
        self.db.execute("ROLLBACK")
        self.db.close()


class Sent:
    """A request in a thread of its own; .status is None until it is answered."""

    def __init__(self, gateway, method, path, body=None):
        self.status = self.headers = self.body = None
        self.gateway, self.request = gateway, (method, path, body)
        self.thread = threading.Thread(target=self._send)
        self.thread.start()

    def _send(self):
        status, self.headers, self.body = self.gateway.rest(*self.request)
        self.status = status

    def refused(self):
        return self.status == 503 and self.body.get("code") == "busy"


class FullLanes(unittest.TestCase):
    """Each lane with a queue of one behind its busy threads."""

    def setUp(self):
        self.gateway = Gateway.for_test(
            self, env={"LEASEHOLD_TEST_QUEUE_MAX": "1", "LEASEHOLD_TEST_WRITES_MAX": "100"}
        )

    def fill(self, lane, room, make):
        """`room` + 3 requests: 3 are refused while the others wait; these are then done."""
        before = Metrics.of(self.gateway)
        with StoreLock(self.gateway):
            sent = [self.one(make, i, lane, room) for i in range(room + 3)]
            until(lambda: sum(s.refused() for s in sent) == 3, STORE_TRIES_S - 1)
            refused = [s for s in sent if s.status is not None]
            self.assertEqual([s.status for s in refused], [503] * 3)
            for s in refused:
                self.assertEqual(s.body["code"], "busy")
                self.assertEqual(s.headers["Retry-After"], "1")
            during = Metrics.of(self.gateway)  # has a lane of its own
            self.gateway.expect(200, "GET", "//healthz")
        self.assertEqual(during["leasehold_lane_depth", lane], room)
        self.assertEqual(during.since(before)["leasehold_lane_rejected_total", lane], 3)
        for s in sent:
            s.thread.join()
        done = [s for s in sent if s not in refused]
        self.assertEqual({s.status // 100 for s in done}, {2}, [s.body for s in done])

    def one(self, make, i, lane, room):
        """In their order: the threads of the lane take all but the last of those there is room for."""
        _, taken = self.in_lane(lane)
        sent = Sent(self.gateway, *make(i))
        if i < room - 1:
            until(lambda: self.in_lane(lane) == (i + 1, taken + 1), 1)
        elif i < room:
            until(lambda: self.in_lane(lane)[0] == i + 1, 1)
        return sent

    def in_lane(self, lane):
        """(how many there are, how many have been taken up so far): read with little ado, as the lock is held."""
        text = self.gateway.rest("GET", "//metrics", key="")[2].decode()
        names = f'leasehold_lane_depth{{lane="{lane}"}}', f'leasehold_lane_wait_seconds_count{{lane="{lane}"}}'
        return tuple(int(float(text.partition("\n" + name + " ")[2].split("\n")[0])) for name in names)

    def threads(self, lane):
        return int(Metrics.of(self.gateway)["leasehold_lane_threads", lane])

    def test_read(self):
        self.fill("read", self.threads("read") + 1, lambda i: ("GET", "//readyz"))

    def test_file(self):
        user = str(uuid.uuid4())
        self.fill(
            "file", self.threads("file") + 1, lambda i: ("POST", "/chats", {"user_id": user})
        )

    def test_runtime_counts_those_that_wait_behind_their_chat(self):
        chat = self.gateway.new_chat()["chat_id"]
        self.gateway.open(chat)
        self.fill("runtime", 2, lambda i: ("POST", "/sandboxes", {"chat_id": chat}))

    def test_runtime_with_a_chat_each(self):
        chats = [self.gateway.new_chat()["chat_id"] for _ in range(self.threads("runtime") + 4)]
        self.fill(
            "runtime",
            self.threads("runtime") + 1,
            lambda i: ("POST", "/sandboxes", {"chat_id": chats[i]}),
        )


class FullStore(unittest.TestCase):
    def test_write(self):
        gateway = Gateway.for_test(self, env={"LEASEHOLD_TEST_WRITES_MAX": "1"})
        full = FullLanes()
        full.gateway = gateway
        full.fill(
            "write", 2, lambda i: ("POST", "/api-keys", {"name": f"key {i}", "role": "viewer"})
        )


class Disconnects(unittest.TestCase):
    """A client that goes in the middle of an open leaves nothing behind that nobody knows."""

    def setUp(self):
        self.gateway = Gateway.for_test(self)

    def send_and_go(self, chat, linger_s):
        address = urllib.parse.urlsplit(self.gateway.url)
        body = json.dumps({"chat_id": chat, "lease": {}}).encode()
        head = (
            f"POST /api/v1/sandboxes HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {self.gateway.admin_key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        with socket.create_connection((address.hostname, address.port)) as s:
            s.sendall(head + body)
            time.sleep(linger_s)

    def settled(self):
        m = Metrics.of(self.gateway)
        return m["leasehold_lane_depth", "runtime"] == 0 and m["leasehold_chat_locks"] == 0

    def test_the_next_open_uses_what_was_started(self):
        for linger_s in (0, 0.005, 0.02, 0.05):
            chat = self.gateway.new_chat()["chat_id"]
            self.send_and_go(chat, linger_s)
            sandbox, grant = self.gateway.open(chat, lease={})
            client = self.gateway.connect(grant)
            client.close()
            created = [
                e["session_id"]
                for e in self.gateway.log_lines("sandbox_created")
                if e["chat_id"] == chat
            ]
            self.assertEqual(created, [sandbox["session_id"]])
        self.assertTrue(until(self.settled))
        wait_equal(self, 1, lambda: Metrics.of(self.gateway)["leasehold_connections", "http"])  # this test's own
        m = Metrics.of(self.gateway)
        self.assertEqual(m["sandbox_active_count"], 4)
        self.assertEqual(m["leasehold_doors_live"], 4)
        doors = [p for p in self.gateway.sandboxes_left() if p.name == "leasedoor"]
        self.assertEqual(len(doors), 4)

    def test_a_start_that_fails_for_nobody_leaves_nothing(self):
        self.gateway.edit_config({"profiles": [{"name": "default", "command": ["/no/such"]}]})
        self.gateway.restart()
        chat = self.gateway.new_chat()["chat_id"]
        self.send_and_go(chat, 0)
        until(lambda: Metrics.of(self.gateway)["sandbox_create_total", "error"] == 1)
        self.assertTrue(until(self.settled))
        self.assertEqual(self.gateway.sandboxes_left(), [])
        self.assertEqual(Metrics.of(self.gateway)["sandbox_active_count"], 0)
        self.assertEqual(
            sorted(os.listdir(self.gateway.run_dir)),
            ["control.sock", "leasehold.lock", "local.key", "ready"],
        )


class Strangers(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self)

    def denials_in_audit(self):
        trail = audit.entries(f"{self.gateway.dir}/data/leasehold.db")
        return sum(entry["action"] == "lease.deny" for entry in trail)

    def dropped(self):
        return Metrics.of(self.gateway)["leasehold_audit_dropped_total"]

    def settled(self):
        """How many denials are counted, when none comes any more."""
        count = lambda: Metrics.of(self.gateway)["leasehold_lease_denials_total", "malformed"]
        before = count()
        time.sleep(1)
        return before if count() == before else None

    def test_nobody_at_a_door_fills_the_audit_trail(self):
        chat = self.gateway.new_chat()["chat_id"]
        _, grant = self.gateway.open(chat, lease={})
        address = urllib.parse.urlsplit(grant["endpoint"]["url"])
        begin = time.monotonic()
        while self.dropped() == 0:
            self.assertLess(time.monotonic() - begin, 2 * PATIENCE_S)
            connection = http.client.HTTPConnection(address.hostname, address.port, timeout=PATIENCE_S)
            connection.request(
                "GET",
                "/",
                headers={
                    "Connection": "Upgrade",
                    "Upgrade": "websocket",
                    "Sec-WebSocket-Version": "13",
                    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
                    "Sec-WebSocket-Protocol": DOOR_PROTOCOL,
                    "Authorization": "Bearer nonsense",
                },
            )
            connection.sock.recv(1000)
            connection.close()
        # A door tells of so many a second alone, and the last of them a moment later.
        denied = wait_for(self, "the last of them", self.settled)
        dropped = self.dropped()
        wait_equal(self, denied - dropped, self.denials_in_audit)
        self.assertLessEqual(denied - dropped, 60 + 5 + int(time.monotonic() - begin))  # one a second
        self.assertEqual(len(self.gateway.log_lines("lease.deny")), denied - dropped)

    def test_who_does_not_say_hello_on_the_control_socket_is_counted_and_closed(self):
        strangers = []
        for _ in range(5):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(PATIENCE_S)
            s.connect(os.path.join(self.gateway.run_dir, "control.sock"))
            s.sendall(
                b"GET /api/v1/door HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
                b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                b"Sec-WebSocket-Protocol: leasehold.control.v1\r\n\r\n"
            )
            self.assertTrue(s.recv(1000).startswith(b"HTTP/1.1 101"))
            strangers.append(s)
        m = Metrics.of(self.gateway)
        self.assertEqual(m["leasehold_doors_unknown"], 5)
        self.assertEqual(m["leasehold_connections", "websocket"], 5)
        for s in strangers:
            frame = s.recv(1000)
            self.assertEqual((frame[0], int.from_bytes(frame[2:4], "big")), (0x88, 4401))
            s.close()
        wait_equal(self, 0, lambda: Metrics.of(self.gateway)["leasehold_doors_unknown"])
        self.assertTrue(
            until(lambda: Metrics.of(self.gateway)["leasehold_connections", "websocket"] == 0)
        )


class Addresses(unittest.TestCase):
    """One address may have so many connections; the unix socket is no address."""

    CAP = 4
    HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

    def setUp(self):
        self.gateway = Gateway.for_test(self, {"http": {"max_connections_per_address": self.CAP}})
        self.socks = []
        self.addCleanup(lambda: [s.close() for s in self.socks])

    def dial(self, unix=False):
        sock = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        sock.settimeout(PATIENCE_S)
        url = urllib.parse.urlsplit(self.gateway.url)
        path = os.path.join(self.gateway.run_dir, "control.sock")
        sock.connect(path if unix else (url.hostname, url.port))
        self.socks.append(sock)
        return sock

    def status(self, sock):
        """Of an answer, or 0 when there is none; what is refused is closed."""
        try:
            sock.sendall(self.HEALTH)
            answer = http.client.HTTPResponse(sock)
            answer.begin()
            body = json.loads(answer.read())
        except (http.client.BadStatusLine, ConnectionError):
            return 0
        if answer.status != 200:
            self.assertEqual((answer.status, body["code"]), (429, "rate_limited"))
            self.assertEqual(answer.headers["Connection"], "close")
            self.assertEqual(sock.recv(1), b"")
        return answer.status

    def metric(self):
        sock = self.dial(unix=True)
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = http.client.HTTPResponse(sock)
        answer.begin()
        lines = answer.read().decode().splitlines()
        [value] = [x.split()[1] for x in lines if x.startswith("leasehold_connections_refused_total ")]
        return int(float(value))

    def test_further_connections_of_an_address_are_refused_until_one_has_gone(self):
        held = [self.dial() for _ in range(self.CAP)]
        self.assertEqual([self.status(s) for s in held], [200] * self.CAP)
        self.assertEqual(self.status(self.dial()), 429)
        self.assertEqual([self.status(self.dial(unix=True)) for _ in range(8)], [200] * 8)
        self.assertEqual([self.status(s) for s in held], [200] * self.CAP)  # they go on
        self.assertEqual(self.metric(), 1)
        [line] = self.gateway.log_lines("address_over_connections")
        self.assertEqual(line["address"], "127.0.0.1")
        held.pop().close()
        self.assertTrue(until(lambda: self.status(self.dial()) == 200))

    def test_of_a_flood_most_are_closed_unheard_and_those_that_say_nothing_soon(self):
        held = [self.dial() for _ in range(self.CAP)]
        self.assertEqual([self.status(s) for s in held], [200] * self.CAP)
        begin = time.monotonic()
        flood = [self.dial() for _ in range(60)]
        ends = [s.recv(1) == b"" for s in flood if not self.is_reset(s)]
        self.assertTrue(all(ends))
        self.assertLess(time.monotonic() - begin, 20)  # silent ones at all: 30 s
        self.assertGreater(self.metric(), 60 - 20)
        self.assertEqual([self.status(s) for s in held], [200] * self.CAP)

    @staticmethod
    def is_reset(sock):
        try:
            return sock.recv(1, socket.MSG_PEEK) == b""
        except ConnectionResetError:
            return True


class Watches(unittest.TestCase):
    """Beyond the number of processes that are watched a death is noticed by way of the door."""

    def setUp(self):
        self.gateway = Gateway.for_test(
            self,
            {"sandbox": {"cleanup_interval_seconds": 3600}},
            env={"LEASEHOLD_TEST_WATCHES_MAX": "1"},
        )
        self.sandboxes = [self.gateway.open(self.gateway.new_chat()["chat_id"])[0] for _ in "123"]

    def kill(self, program, sandbox):
        run = os.path.join(self.gateway.run_dir, sandbox["session_id"])
        pid_file = {"leasedoor": "door.pid", "leaseinit": "keep.init"}[program]
        with open(os.path.join(run, pid_file), encoding="ascii") as text:
            os.kill(int(text.read().split()[0]), signal.SIGKILL)

    def test_the_end_of_door_and_of_agent(self):
        m = Metrics.of(self.gateway)
        self.assertEqual(m["leasehold_process_watches"], 1)
        self.assertEqual(m["sandbox_active_count"], 3)
        for program, sandbox in (("leasedoor", self.sandboxes[1]), ("leaseinit", self.sandboxes[2])):
            self.kill(program, sandbox)
            path = f"/sandboxes/{sandbox['session_id']}"
            until(lambda: self.gateway.expect(200, "GET", path)["status"] == "failed")
            self.assertEqual(self.gateway.expect(200, "GET", path)["status"], "failed", program)
        self.assertEqual(Metrics.of(self.gateway)["sandbox_active_count"], 1)


class Shutdown(unittest.TestCase):
    def test_an_end_under_way_does_not_hold_up_the_shutdown(self):
        """The door is stopped, so that its confirmation never comes."""
        gateway = Gateway.for_test(self)
        chat = gateway.new_chat()["chat_id"]
        sandbox, _ = gateway.open(chat, lease={})
        door = next(p for p in gateway.sandboxes_left() if p.name == "leasedoor")
        door.send(signal.SIGSTOP)
        try:
            sent = Sent(gateway, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})
            until(lambda: Metrics.of(gateway)["leasehold_lane_depth", "runtime"] == 1)
            self.assertEqual(gateway.stop(), 0)
        finally:
            if door.alive():
                door.send(signal.SIGCONT)
        sent.thread.join()
        self.assertEqual(sent.status, 200)


if __name__ == "__main__":
    unittest.main()
