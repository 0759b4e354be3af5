"""The transports tcp, unix and ws through the running daemon: bytes, backpressure, cuts and ends."""

import glob
import hashlib
import os
import random
import socket
import threading
import time
import unittest

import agents
from gateway import Gateway
from waiting import PATIENCE_S, wait_for
from ws import OP_BINARY, OP_TEXT, WsClosed

PORT = 7000
WS_PATH = "/agent?of=chat"
UNIX_PATH = "/workspace/chat/agent.sock"
PROFILES = [
    {"name": "tcp", "transport": f"tcp:{PORT}", "command": agents.stream_agent("tcp", PORT)},
    {"name": "unix", "transport": f"unix:{UNIX_PATH}",
     "command": agents.stream_agent("unix", UNIX_PATH)},
    {"name": "ws", "transport": f"ws:{PORT}{WS_PATH}", "command": agents.ws_agent(PORT)},
]
CONFIG = {"profiles": PROFILES, "sandbox": {"default_profile": "tcp"}}
SIZES = [1, 2, 125, 126, 127, 4096, 65535, 65536, 65537, 1 << 20, 16 << 20]


def largest_buffer(which):
    with open(f"/proc/sys/net/ipv4/{which}", encoding="ascii") as text:
        return int(text.read().split()[2])


# What may lie in the kernel's buffers on the way: two connections', as large as they may grow, and
# those of the door and the agent.
ON_THE_WAY = 2 * (largest_buffer("tcp_rmem") + largest_buffer("tcp_wmem")) + (8 << 20)
# Of a process that holds a few bounded buffers. Under sanitizers memory is kept after its release.
SANITIZED = any(name in os.environ.get("LEASEHOLD_BIN", "") for name in ("asan", "tsan"))
RSS_GROWTH = (64 << 20) if SANITIZED else (4 << 20)


def text_of(size):
    """Valid UTF-8 of exactly this many bytes, with characters of every length."""
    unit = "aé→𝄞".encode()
    return unit * (size // len(unit)) + b"x" * (size % len(unit))


def send_fragmented(client, opcode, payload):
    cuts = sorted(random.randint(0, len(payload)) for _ in range(random.randint(0, 9)))
    edges = [0, *cuts, len(payload)]
    client.send_fragments(opcode, [payload[a:b] for a, b in zip(edges, edges[1:])])


def in_background(work, *args):
    thread = threading.Thread(target=work, args=args, daemon=True)
    thread.start()
    return thread


def read_bytes(client, size, timeout=60):
    """So many bytes of binary messages, for transports that know no messages."""
    got = bytearray()
    while len(got) < size:
        opcode, payload = client.recv(timeout)
        if opcode != OP_BINARY:
            raise AssertionError("raw bytes came as text")
        got += payload
    return bytes(got)


def rss_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as text:
        for line in text:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise AssertionError(f"{pid} has no memory")


class TransportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls, CONFIG)

    def setUp(self):
        self.chat = self.gateway.new_chat()

    def open(self, profile, **lease):
        self.sandbox, grant = self.gateway.open(
            self.chat["chat_id"], lease=lease, profile=profile
        )
        self.addCleanup(self.stop, self.sandbox["session_id"])
        return grant

    def stop(self, session):
        self.gateway.rest("POST", f"/sandboxes/{session}/stop", {"grace_s": 0})

    def connect(self, profile, **lease):
        client = self.gateway.connect(self.open(profile, **lease))
        self.addCleanup(client.close)
        return client

    def run_file(self, name):
        path = os.path.join(self.gateway.run_dir, self.sandbox["session_id"], name)
        with open(path, encoding="ascii") as text:
            return text.read()

    def process(self, name):
        """`door.pid` or, for leaseinit, `keep.init`."""
        return int(self.run_file(name).split()[0])

    def note(self, name):
        """What the agent noted; "" before it did."""
        pattern = os.path.join(self.gateway.dir, "**", self.chat["chat_id"], "files", name)
        for path in glob.glob(pattern, recursive=True):
            with open(path, encoding="utf-8") as text:
                return text.read()
        return ""

    def wait_note(self, name, wanted):
        wait_for(self, f"{name}, is {self.note(name)!r}", lambda: wanted(self.note(name)))
        return self.note(name)

    def wait_still(self, value, still_s=1.0, timeout=60):
        """Waits until a number stops growing."""
        deadline = time.monotonic() + timeout
        last, since = value(), time.monotonic()
        while time.monotonic() < deadline:
            time.sleep(0.05)
            now = value()
            if now != last:
                last, since = now, time.monotonic()
            elif now and time.monotonic() - since > still_s:
                return now
        self.fail(f"it goes on without end: {value()}")


class Bytes(TransportTest):
    def check_stream(self, profile):
        client = self.connect(profile)
        for size in SIZES:
            for opcode in (OP_BINARY, OP_TEXT):
                sent = os.urandom(size) if opcode == OP_BINARY else text_of(size)
                if sent.startswith(b"!"):
                    sent = b"." + sent[1:]
                sender = in_background(send_fragmented, client, opcode, sent)
                got = read_bytes(client, size)
                sender.join(60)
                self.assertEqual(hashlib.sha256(got).digest(), hashlib.sha256(sent).digest())

    def test_tcp_carries_every_size_byte_for_byte(self):
        self.check_stream("tcp")

    def test_unix_carries_every_size_byte_for_byte(self):
        self.check_stream("unix")

    def test_ws_carries_every_message_of_either_kind_byte_for_byte_and_in_fragments(self):
        client = self.connect("ws")
        for size in [0, *SIZES]:
            for opcode in (OP_BINARY, OP_TEXT):
                sent = os.urandom(size) if opcode == OP_BINARY else text_of(size)
                send_fragmented(client, opcode, sent)
                got_opcode, got = client.recv(60)
                self.assertEqual((got_opcode, len(got)), (opcode, size))
                self.assertEqual(hashlib.sha256(got).digest(), hashlib.sha256(sent).digest())

    def test_many_small_messages_keep_their_edges_and_order(self):
        client = self.connect("ws")
        sent = [os.urandom(random.randint(0, 300)) for _ in range(2000)]
        sender = in_background(lambda: [client.send_binary(m) for m in sent])
        for wanted in sent:
            self.assertEqual(client.recv(), (OP_BINARY, wanted))
        sender.join(30)

    def test_eight_clients_have_a_connection_each_and_never_meet(self):
        for profile in ("tcp", "unix", "ws"):
            with self.subTest(profile):
                self.chat = self.gateway.new_chat()
                grant = self.open(profile, max_connections=8)
                clients = [self.gateway.connect(grant) for _ in range(8)]
                failures = []

                def talk(number, client, failures=failures):
                    mine = bytes([number]) * 70000
                    try:
                        for _ in range(20):
                            client.send_binary(mine)
                            if read_bytes(client, len(mine)) != mine:
                                failures.append(number)
                    except (WsClosed, OSError) as why:
                        failures.append((number, why))

                threads = [in_background(talk, i, c) for i, c in enumerate(clients)]
                for thread in threads:
                    thread.join(60)
                self.assertFalse(any(t.is_alive() for t in threads), "one waits for ever")
                self.assertEqual(failures, [])
                # One of them was the look whether it accepts any; ws does not count that one.
                self.assertIn(self.note("connections"), ("8", "9"))
                for client in clients:
                    client.close()

    def test_the_agent_sees_the_path_and_itself_as_host(self):
        client = self.connect("ws")
        client.send_text("!path")
        self.assertEqual(client.recv()[1].decode(), f"{WS_PATH} 127.0.0.1:{PORT}")

    def test_a_ping_of_the_agent_is_answered(self):
        client = self.connect("ws")
        client.send_text("!ping")
        self.assertEqual(client.recv(), (OP_TEXT, b"pong"))


class Backpressure(TransportTest):
    """Whoever does not take holds up who sends, at constant memory in between."""

    def memory(self):
        return {name: rss_bytes(self.process(name)) for name in ("door.pid", "keep.init")}

    def assert_bounded(self, before):
        for name, now in self.memory().items():
            self.assertLess(now - before[name], RSS_GROWTH, name)

    def check_slow_client(self, profile):
        client = self.connect(profile)
        before = self.memory()
        client.send_text("!flood")
        sent = self.wait_still(lambda: int(self.note("sent") or 0))
        self.assertLess(sent, ON_THE_WAY)
        self.assert_bounded(before)
        got = read_bytes(client, 2 * sent)  # it goes on, and nothing is lost
        for at in range(0, len(got) - 8, 8192):
            self.assertEqual(int.from_bytes(got[at : at + 8], "big"), at // 8)
        self.assert_bounded(before)

    def test_a_client_that_does_not_read_pauses_the_agent_on_tcp(self):
        self.check_slow_client("tcp")

    def test_a_client_that_does_not_read_pauses_the_agent_on_unix(self):
        self.check_slow_client("unix")

    def test_a_client_that_does_not_read_pauses_the_agent_on_ws(self):
        self.check_slow_client("ws")

    def check_slow_agent(self, profile):
        client = self.connect(profile)
        before = self.memory()
        client.send_text("!stall")
        self.wait_note("connections", bool)
        time.sleep(0.2)
        sent = 0
        client.sock.settimeout(2)
        piece = os.urandom(65536)
        with self.assertRaises(socket.timeout):
            while sent < 2 * ON_THE_WAY:
                client.send_binary(piece)
                sent += len(piece)
        self.assertLess(sent, ON_THE_WAY)
        self.assert_bounded(before)

    def test_an_agent_that_does_not_read_pauses_the_client_on_tcp(self):
        self.check_slow_agent("tcp")

    def test_an_agent_that_does_not_read_pauses_the_client_on_unix(self):
        self.check_slow_agent("unix")

    def test_an_agent_that_does_not_read_pauses_the_client_on_ws(self):
        self.check_slow_agent("ws")

    def test_a_client_that_is_held_up_holds_up_no_other(self):
        grant = self.open("ws", max_connections=2)
        slow, fast = self.gateway.connect(grant), self.gateway.connect(grant)
        slow.send_text("!flood")
        self.wait_still(lambda: int(self.note("sent") or 0))
        for _ in range(20):
            fast.send_binary(b"y" * 100000)
            self.assertEqual(fast.recv(), (OP_BINARY, b"y" * 100000))
        slow.close()
        fast.close()


class Cut(TransportTest):
    def revoke(self, grant):
        lease = grant["lease"]["lease_id"]
        answer = self.gateway.expect(200, "DELETE", f"/leases/{lease}?wait_ms=5000")
        self.assertEqual(answer["unconfirmed"], [])

    def check_revoke_while_sending(self, profile):
        grant = self.open(profile)
        client = self.gateway.connect(grant)
        stop = threading.Event()

        def send():
            try:
                while not stop.is_set():
                    client.send_binary(b"z" * 30000)
                    time.sleep(0.001)
            except OSError:
                pass

        # It goes on reading: the code of a reader that does not may be lost in a full socket.
        reader = in_background(client.wait_closed, 60)
        sender = in_background(send)
        self.wait_note("received", lambda text: int(text or 0) > 300000)
        self.revoke(grant)
        # What had passed the door before may still arrive in the sandbox: as long as it comes at all.
        self.wait_still(lambda: int(self.note("received") or 0))
        reader.join(PATIENCE_S)
        self.assertEqual(client.close_code, 4403)
        stop.set()
        sender.join(PATIENCE_S)
        client.close()

    def test_a_revocation_in_the_middle_of_a_transfer_cuts_tcp(self):
        self.check_revoke_while_sending("tcp")

    def test_a_revocation_in_the_middle_of_a_transfer_cuts_unix(self):
        self.check_revoke_while_sending("unix")

    def test_a_revocation_in_the_middle_of_a_transfer_cuts_ws(self):
        self.check_revoke_while_sending("ws")

    def test_a_flood_to_a_client_that_does_not_read_is_cut_too(self):
        grant = self.open("ws")
        client = self.gateway.connect(grant)
        client.send_text("!flood")
        sent = self.wait_still(lambda: int(self.note("sent") or 0))
        self.revoke(grant)
        got = 0
        with self.assertRaises(WsClosed):
            while True:
                got += len(client.recv()[1])
        self.assertLessEqual(got, max(sent, self.wait_still(lambda: int(self.note("sent")))))

    def test_read_alone_cannot_send_and_write_alone_receives_nothing(self):
        grant = self.open("ws", scope=["read"])
        client = self.gateway.connect(grant)
        client.send_text("no")
        self.assertEqual(client.wait_closed(), 4430)
        writer = self.gateway.expect(
            201, "POST", "/leases",
            {"session_id": self.sandbox["session_id"], "scope": ["write"]},
        )
        client = self.gateway.connect(writer)
        for _ in range(5):
            client.send_binary(b"w" * 100000)
        self.wait_note("received", lambda text: text == "500000")
        with self.assertRaises(TimeoutError):
            client.recv(0.5)
        client.close()

    def test_text_that_is_not_utf8_and_messages_too_long_are_refused(self):
        grant = self.open("ws")
        client = self.gateway.connect(grant)
        client.send_frame(OP_TEXT, b"\xe2\x82", fin=False)
        client.send_frame(0, b"\x41")
        self.assertEqual(client.wait_closed(), 1007)
        client = self.gateway.connect(grant)
        try:
            client.send_binary(bytes((16 << 20) + 1))
        except OSError:
            pass
        self.assertIn(client.wait_closed(), (4409, 1006))


class Ends(TransportTest):
    def check_end_of_stream(self, profile):
        client = self.connect(profile)
        client.send_text("!end")
        self.assertEqual(client.wait_closed(), 1000)
        self.assertEqual(
            self.gateway.expect(200, "GET", f"/sandboxes/{self.sandbox['session_id']}")["status"],
            "running",
        )

    def test_the_end_of_a_tcp_connection_closes_its_client_alone(self):
        self.check_end_of_stream("tcp")

    def test_the_end_of_a_unix_connection_closes_its_client_alone(self):
        self.check_end_of_stream("unix")

    def test_the_close_codes_of_the_agent_are_the_clients(self):
        grant = self.open("ws")
        # Codes of the door's own stay its own: no agent says "revoked" in its name.
        for said, heard in ((1000, 1000), (1001, 1001), (1013, 1013), (3000, 3000), (4001, 4001),
                            (4999, 4999), (4403, 1011), (4411, 1011), (1005, 1011), (999, 1011)):
            with self.subTest(said):
                client = self.gateway.connect(grant)
                client.send_text(f"!close {said} because")
                with self.assertRaises(WsClosed) as closed:
                    client.recv()
                self.assertEqual((closed.exception.code, closed.exception.reason), (heard, ""))
                client.close()

    def test_an_agent_that_breaks_off_or_breaks_the_protocol_ends_its_client_with_1011(self):
        grant = self.open("ws")
        for order in ("!end", "!masked", "!bad-text", "!too-long"):
            with self.subTest(order):
                client = self.gateway.connect(grant)
                client.send_text(order)
                self.assertEqual(client.wait_closed(), 1011)

    def test_the_agent_hears_the_code_and_reason_of_a_client(self):
        client = self.connect("ws")
        client.send_close(4242, "had enough")
        client.wait_closed()
        self.wait_note("code", lambda text: text == "4242 had enough")

    def test_the_agent_hears_of_a_client_that_vanishes(self):
        client = self.connect("ws")
        client.send_text("hello")
        client.recv()
        client.close()
        self.wait_note("code", lambda text: text.startswith("1001"))

    def test_the_end_of_the_agent_is_4411_for_all(self):
        for profile in ("tcp", "unix", "ws"):
            with self.subTest(profile):
                self.chat = self.gateway.new_chat()
                grant = self.open(profile, max_connections=2)
                first, second = self.gateway.connect(grant), self.gateway.connect(grant)
                first.send_text("!exit")
                self.assertEqual([first.wait_closed(), second.wait_closed()], [4411, 4411])

    def test_more_clients_than_the_transport_bears_are_told_to_try_again(self):
        grant = self.open("tcp", max_connections=8)
        session = {"session_id": self.sandbox["session_id"], "max_connections": 8}
        grants = [grant, *(self.gateway.expect(201, "POST", "/leases", session) for _ in range(7))]
        clients = [self.gateway.connect(g) for g in grants for _ in range(8)]
        extra = self.gateway.expect(201, "POST", "/leases", session)
        client = self.gateway.dial(extra["endpoint"], extra["token"])
        self.assertEqual(client.wait_closed(), 4503)
        clients[0].send_text("still here")
        self.assertEqual(read_bytes(clients[0], 10), b"still here")
        clients.pop().close()
        self.wait_admitted(extra).close()
        for client in clients:
            client.close()

    def wait_admitted(self, grant, timeout=PATIENCE_S):
        """A place is free once the agent has let go of it."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.gateway.connect(grant)
            except WsClosed as closed:
                self.assertEqual(closed.code, 4503)
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)


class Start(unittest.TestCase):
    def check_start_fails(self, command, transport, timeout_s, *reasons):
        gateway = Gateway.for_test(self, {
            "profiles": [{"name": "default", "command": command, "transport": transport}],
            "sandbox": {"start_timeout_seconds": timeout_s, "default_profile": "default"},
        })
        chat = gateway.new_chat()
        status, _, body = gateway.rest("POST", "/sandboxes", {"chat_id": chat["chat_id"]})
        self.assertEqual((status, body["code"]), (503, "sandbox_start_failed"), body)
        for reason in reasons:
            self.assertIn(reason, body["detail"])
        self.assertEqual(gateway.sandboxes_left(), [])
        left = [n for n in os.listdir(gateway.run_dir) if "-" in n]
        self.assertEqual(left, [])

    def test_an_agent_that_does_not_listen_in_time_is_no_sandbox_and_leaves_nothing(self):
        for transport in ("tcp:7000", "ws:7000/", "unix:/tmp/agent.sock"):
            with self.subTest(transport):
                self.check_start_fails(["/bin/sleep", "600"], transport, 3,
                                       "does not accept connections", transport)

    def test_an_agent_that_ends_before_it_listens_is_told_as_such(self):
        self.check_start_fails(["/bin/sh", "-c", "exit 5"], "tcp:7000", 20, "exited(5)")

    def test_an_agent_may_take_its_time_to_listen(self):
        slow = ["/bin/sh", "-c", 'sleep 1; exec "$@"', "sh", *agents.stream_agent("tcp", 7000)]
        gateway = Gateway.for_test(self, {
            "profiles": [{"name": "default", "command": slow, "transport": "tcp:7000"}]})
        _, grant = gateway.open(gateway.new_chat()["chat_id"], lease={})
        client = gateway.connect(grant)
        client.send_binary(b"hello")
        self.assertEqual(client.recv(), (OP_BINARY, b"hello"))
        client.close()

    def test_leasectl_connect_writes_the_bytes_of_the_agent_as_they_are(self):
        gateway = Gateway.for_test(self, CONFIG)
        for profile, wanted in (("tcp", "raw bytes"), ("ws", "raw bytes\n")):
            with self.subTest(profile):
                chat = gateway.new_chat()
                done = gateway.ctl("connect", chat["chat_id"], "--profile", profile,
                                   input="raw bytes\n")
                self.assertEqual((done.returncode, done.stdout), (0, wanted), done.stderr)


if __name__ == "__main__":
    unittest.main()
