"""A real leasedoor between a gateway, an agent and clients made of Python.

    door = Door()                     # its own run directory, key and gateway; started
    token = door.grant()              # GRANT pushed and acknowledged
    client = door.connect(token)      # WsClient that has had its `ready`
    agent = door.agent()              # connected, HELLO said
    door.close()
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest
import uuid

import processes
import ws
from waiting import PATIENCE_S, wait_for

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LEASEHOLD_BIN", os.path.join(ROOT, "build/release/bin"))
ISSUER, NODE = "https://leasehold.example", "node-test"
UID = GID = 10002
AGENT_GID = 10001
LINK_HELLO, LINK_LINE, LINK_EXIT, LINK_CONN = 1, 2, 3, 6
PROTOCOL = "leasehold.door.v1"
STALE_S, SEAL_S = 600, 3600  # a machine that stands still for a while is no gateway that is silent


def program(name):
    path = os.path.join(BIN, name)
    if not os.access(path, os.X_OK):
        raise AssertionError("%s is missing: build it or set LEASEHOLD_BIN" % path)
    return path


def require():
    """Fails with what is missing; a skipped test proves nothing."""
    if os.geteuid() != 0:
        raise AssertionError("needs root: the door drops to a uid of its own")
    program("leasedoor")
    program("mint_token")


class Key:
    """A signing key, and tokens of any kind signed with it."""

    def __init__(self, directory, name="key"):
        self.path = os.path.join(directory, name + ".pem")
        self._run("generate", self.path)
        self.public = json.loads(self._run("public", self.path))

    def sign(self, claims, header=None):
        extra = [json.dumps(header, separators=(",", ":"))] if header else []
        text = claims if isinstance(claims, str) else json.dumps(claims, separators=(",", ":"))
        return self._run("sign", self.path, text, *extra).strip()

    def prove(self, challenge, session, jti):
        """The answer to a door's challenge."""
        sig = self._run("raw", self.path, "%s.%s.%s" % (challenge["nonce"], session, jti)).strip()
        jwk = {"kty": "EC", "crv": "P-256", "x": self.public["x"], "y": self.public["y"]}
        return {"type": "proof", "jwk": jwk, "sig": sig}

    @staticmethod
    def _run(*args):
        done = subprocess.run([program("mint_token"), *args], check=True, capture_output=True)
        return done.stdout.decode()


class FakeGateway:
    """Listens on control.sock, keeps the log of one session and says what a gateway would."""

    def __init__(self, path, keys, stale_s, seal_s):
        self.path = path
        self.keys, self.stale_s, self.seal_s = list(keys), stale_s, seal_s
        self.seq = 1
        self.allow = {}  # jti → entry
        self.received = []  # (monotonic, message)
        self.hellos = []
        self.answer_hello = True
        self.ping_every = 0.5
        self.clock_ms = lambda: int(time.time() * 1000)
        self._changed = threading.Condition()
        self._lock = threading.Lock()
        self._conn = None
        self._server = None
        self.listen()
        self._stopping = threading.Event()
        threading.Thread(target=self._ping_loop, daemon=True).start()

    # -- being there or not ------------------------------------------------------------------------

    def listen(self):
        self._server = ws.WsServer(self.path, protocols=["leasehold.control.v1"])
        os.chmod(self.path, 0o666)
        threading.Thread(target=self._accept_loop, args=(self._server,), daemon=True).start()

    def vanish(self):
        """As if killed: socket and connection gone, the log kept."""
        server, self._server = self._server, None
        server.sock.shutdown(socket.SHUT_RDWR)
        server.close()
        with self._lock:
            conn, self._conn = self._conn, None
        if conn:
            conn.sock.shutdown(socket.SHUT_RDWR)
            conn.close()

    def close(self):
        self._stopping.set()
        if self._server:
            self.vanish()

    def _accept_loop(self, server):
        while True:
            try:
                conn = server.accept(timeout=600)
            except (OSError, ws.WsError):
                if server is not self._server:
                    return
                continue
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn):
        try:
            while True:
                _, text = conn.recv(timeout=600)
                self._note(conn, json.loads(text))
        except (ws.WsClosed, ws.WsError, OSError, ValueError):
            with self._lock:
                if self._conn is conn:
                    self._conn = None
            conn.close()

    def _note(self, conn, message):
        if message["t"] == "HELLO":
            with self._lock:
                self._conn = conn
            self.hellos.append((conn, message))
            if self.answer_hello:
                self.snapshot()
        with self._changed:
            self.received.append((time.monotonic(), message))
            self._changed.notify_all()

    def _ping_loop(self):
        while not self._stopping.wait(self.ping_every):
            if self.ping_every < 100:
                self.send({"t": "PING", "now": self.clock_ms()})

    # -- talking -----------------------------------------------------------------------------------

    def send(self, message):
        with self._lock:
            if self._conn:
                try:
                    self._conn.send_text(json.dumps(message))
                except OSError:
                    pass

    def send_text(self, text):
        with self._lock:
            self._conn.send_text(text)

    def wait(self, kind, timeout=PATIENCE_S, **members):
        """The first message of that kind, received or still to come, with these members."""

        def find():
            return next((m for _, m in self.received
                         if m["t"] == kind and all(m.get(k) == v for k, v in members.items())),
                        None)

        with self._changed:
            self._changed.wait_for(find, timeout)
            found = find()
        if not found:
            raise AssertionError("no %s %s among %s" % (kind, members, self.received[-8:]))
        return found

    def wait_ack(self, seq, timeout=PATIENCE_S):
        def find():
            return next((m for _, m in self.received if m["t"] == "ACK" and m["seq"] >= seq), None)

        with self._changed:
            self._changed.wait_for(find, timeout)
            found = find()
        if not found:
            raise AssertionError("seq %d was not acknowledged" % seq)
        return found

    def snapshot(self):
        self.send({"t": "SNAPSHOT", "seq": self.seq, "now": self.clock_ms(),
                   "stale_s": self.stale_s, "seal_s": self.seal_s,
                   "allow": list(self.allow.values()), "keys": self.keys})

    def op(self, op, ack=True, **members):
        self.seq += 1
        if op == "GRANT":
            self.allow[members["jti"]] = dict(members)
        elif op == "EXTEND":
            self.allow[members["jti"]]["exp"] = members["exp"]
        elif op == "REVOKE":
            self.allow.pop(members["jti"], None)
        elif op == "REVOKE_ALL":
            self.allow.clear()
        elif op == "KEYS":
            self.keys = members["keys"]
        self.send({"t": "OP", "seq": self.seq, "op": op, **members})
        return self.wait_ack(self.seq) if ack else None


class FakeAgent:
    """What leaseinit is to the door: connects to agent.sock and speaks agent_link.h."""

    def __init__(self, path, hello=b"\x02stdio"):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(path)
        self._rest = bytearray()
        self._send_lock = threading.Lock()
        if hello is not None:
            self.frame(LINK_HELLO, hello)

    def frame(self, kind, payload=b"", length=None):
        size = len(payload) if length is None else length
        self.raw(struct.pack(">BI", kind, size) + payload)

    def raw(self, data):
        with self._send_lock:
            self.sock.sendall(data)

    def line(self, text):
        self.frame(LINK_LINE, text.encode() if isinstance(text, str) else text)

    def exit(self, code=0, number=0):
        self.frame(LINK_EXIT, bytes([code, number]))

    def recv(self, timeout=PATIENCE_S):
        """(kind, payload) of the next frame."""
        deadline = time.monotonic() + timeout
        while True:
            if len(self._rest) >= 5:
                kind, size = struct.unpack(">BI", self._rest[:5])
                if len(self._rest) >= 5 + size:
                    payload = bytes(self._rest[5 : 5 + size])
                    del self._rest[: 5 + size]
                    return kind, payload
            self.sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = self.sock.recv(1 << 18)
            if not data:
                raise EOFError("the door closed the link")
            self._rest += data

    def recv_line(self, timeout=PATIENCE_S):
        kind, payload = self.recv(timeout)
        if kind != LINK_LINE:
            raise AssertionError("frame %d, not a line" % kind)
        return payload

    def echo_forever(self):
        """Sends every line back, from a thread, until the link ends."""

        def run():
            try:
                while True:
                    self.line(self.recv_line(timeout=600))
            except (OSError, EOFError):
                pass

        threading.Thread(target=run, daemon=True).start()
        return self

    def wait_ended(self, timeout=PATIENCE_S):
        deadline = time.monotonic() + timeout
        try:
            while True:
                self.recv(deadline - time.monotonic())
        except (EOFError, ConnectionError):
            self.close()

    def close(self):
        self.sock.close()


def connection(kind="tcp"):
    """Both ends of a connection as an agent has one: (the one to hand over, the agent's)."""
    if kind == "unix":
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        near = socket.create_connection(listener.getsockname())
        return near, listener.accept()[0]


def hand_over(path, number, *socks):
    """What leaseinit does with a connection to the agent: CONN and the descriptor, then it is done.
    Returns the socket on which it was said."""
    conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    conn.settimeout(PATIENCE_S)
    conn.connect(path)
    said = struct.pack(">BI", LINK_CONN, len(number)) + number
    if socks:
        socket.send_fds(conn, [said], [s if isinstance(s, int) else s.fileno() for s in socks])
    else:
        conn.sendall(said)
    return conn


class Door:
    def __init__(self, stale_s=STALE_S, seal_s=SEAL_S, origins=(), start=True, **spec):
        self.directory = tempfile.mkdtemp(prefix="leasedoor-")
        os.chmod(self.directory, 0o711)
        self.session = str(uuid.uuid4())
        self.ep = 7
        self.secret = os.urandom(32).hex()
        box = os.path.join(self.directory, self.session, "box")
        os.makedirs(box)
        os.chmod(os.path.dirname(box), 0o711)
        self.agent_path = os.path.join(box, "agent.sock")
        self.key = Key(self.directory)
        self.spec = {"session_id": self.session, "ep": self.ep, "secret": self.secret,
                     "issuer": ISSUER, "node": NODE, "uid": UID, "gid": GID,
                     "agent_gid": AGENT_GID, "leeway_s": 5, "ttl_max_s": 900, "stale_s": stale_s,
                     "seal_s": seal_s, "transport": "stdio", "origins": list(origins), **spec}
        self.gateway = FakeGateway(os.path.join(self.directory, "control.sock"),
                                   [self.key.public], stale_s, seal_s)
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(128)
        self.port = self.listener.getsockname()[1]
        self.url = "ws://127.0.0.1:%d/" % self.port
        self.log_path = os.path.join(self.directory, self.session, "door.log")
        self.process = None
        self._open = []  # agents and clients to close in the end
        if start:
            self.start()

    # -- the process -------------------------------------------------------------------------------

    def start(self, wait=True, descriptors=1024):
        read, write = os.pipe()
        # Far from 3 and 4, so that bash can put them there without stepping on either.
        spec_fd = fcntl.fcntl(read, fcntl.F_DUPFD, 50)
        listen_fd = fcntl.fcntl(self.listener.fileno(), fcntl.F_DUPFD, 50)
        command = 'ulimit -n %d; exec "$0" 3<&%d 4<&%d %d<&- %d<&-' % (
            descriptors, spec_fd, listen_fd, spec_fd, listen_fd)
        sanitizers = {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(["/bin/bash", "-c", command, program("leasedoor")],
                                            cwd=self.directory, env=sanitizers, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=log,
                                            pass_fds=(spec_fd, listen_fd), start_new_session=True)
        for fd in (read, spec_fd, listen_fd):
            os.close(fd)
        with os.fdopen(write, "wb") as pipe:
            pipe.write(json.dumps(self.spec).encode())
        self.listener.close()  # the door's copy is the only one now
        if wait:
            self.gateway.wait_ack(self.gateway.seq)

    def alive(self):
        return self.process.poll() is None

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def cpu_seconds(self):
        return processes.cpu_seconds(self.process.pid)

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def close(self):
        self.gateway.close()
        if self.process and self.alive():
            self.process.send_signal(signal.SIGKILL)
        if self.process:
            self.process.wait()
        for thing in self._open:
            thing.close()
        self.listener.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- leases ------------------------------------------------------------------------------------

    def claims(self, jti=None, ttl=120, scope=("read", "write"), use="multi", mc=1, **changes):
        now = self.gateway.clock_ms() // 1000
        claims = {"iss": ISSUER, "aud": "door:" + self.session, "sub": str(uuid.uuid4()),
                  "chat": str(uuid.uuid4()), "node": NODE, "sid": self.session, "ep": self.ep,
                  "jti": jti or str(uuid.uuid4()), "scope": list(scope), "iat": now, "nbf": now,
                  "exp": now + ttl, "mex": now + 3600, "rq": self.gateway.seq, "use": use,
                  "mc": mc}
        claims.update(changes)
        return claims

    def allow(self, claims, ack=True):
        return self.gateway.op("GRANT", ack=ack, jti=claims["jti"], exp=claims["exp"],
                               scope=claims["scope"], mc=claims["mc"], use=claims["use"])

    def grant(self, **claims):
        claims = self.claims(**claims)
        self.allow(claims)
        claims["rq"] = self.gateway.seq
        return self.key.sign(claims)

    # -- the two sides -----------------------------------------------------------------------------

    def agent(self, **options):
        agent = FakeAgent(self.agent_path, **options)
        self._open.append(agent)
        if options.get("hello", b"\x02stdio") is not None:
            self.gateway.wait("AGENT", agent="up")
        return agent

    def open(self, token=None, protocols=(PROTOCOL,), **options):
        """A client after the upgrade."""
        headers = dict(options.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = "Bearer " + token
        client = ws.WsClient.connect(self.url, headers=headers, protocols=protocols, **options)
        self._open.append(client)
        return client

    def connect(self, token, **options):
        """A client after its `ready`."""
        client = self.open(token, **options)
        _, text = client.recv()
        client.ready = json.loads(text)
        if client.ready["type"] != "ready":
            raise AssertionError("not ready: %s" % text)
        return client

    def refused(self, token=None, **options):
        """The close code that a token gets."""
        client = self.open(token, **options)
        try:
            return client.wait_closed()
        finally:
            client.close()


class DoorTest(unittest.TestCase):
    def door(self, **options):
        door = Door(**options)
        self.addCleanup(door.close)
        return door

    def assert_idle(self, door):
        """It does next to nothing now or soon, and does not spin."""
        wait_for(self, "a moment in which it does nothing", lambda: processes.is_idle(door.process.pid))

    def assert_serves(self, door):
        """A fresh lease still gets through to the agent and back."""
        self.assertTrue(door.alive(), door.log())
        client = door.connect(door.grant())
        self.assertEqual(client.ready["session_id"], door.session)
        client.close()
