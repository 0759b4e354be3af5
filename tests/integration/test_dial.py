"""leaseinit's transports tcp, unix and ws below a real leasekeep, with the door played by the test."""

import os
import struct
import threading
import time
import unittest

import agents
import keep_sandbox
from fake_door import Ended
from keep_sandbox import SandboxTest, wait_until

DIAL, DIAL_FAILED, CONN, TEXT, BINARY, CLOSE = 4, 5, 6, 7, 8, 9
FIN, FIRST = 1, 2
# An agent that accepts, says the given bytes and then nothing more.
SAYS = (
    "import socket, sys, time\n"
    "s = socket.socket()\n"
    "s.bind(('127.0.0.1', 7000))\n"
    "s.listen(8)\n"
    "kept = []\n"
    "while True:\n"
    "    c, _ = s.accept()\n"
    "    kept.append(c)\n"
    "    try:\n"
    "        c.sendall(sys.argv[1].encode('latin-1'))\n"
    "    except OSError:\n"
    "        pass\n"
)


def setUpModule():
    keep_sandbox.require()


def says(text):
    return ["/usr/bin/python3", "-I", "-c", SAYS, text]


class Conn:
    """The door's end of a client's connection."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(10)

    def take(self, size):
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                raise EOFError(data)
            data += piece
        return data

    def frame(self):
        kind, size = struct.unpack(">BI", self.take(5))
        return kind, self.take(size)

    def send(self, kind, payload):
        self.sock.sendall(struct.pack(">BI", kind, len(payload)) + payload)

    def ended(self):
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionResetError:
            pass
        self.sock.close()


class DialTest(SandboxTest):
    def run_with(self, command, transport, **spec):
        self.sandbox.start(command, transport=transport, **spec)
        self.assertEqual(self.sandbox.door.accept(20), transport.split(":")[0])

    def dial(self, number):
        self.sandbox.door.send(struct.pack(">I", number), kind=DIAL)

    def joined(self, number):
        self.sandbox.door.listener.settimeout(10)
        sock, _ = self.sandbox.door.listener.accept()
        self.addCleanup(sock.close)
        conn = Conn(sock)
        self.assertEqual(conn.frame(), (CONN, struct.pack(">I", number)))
        return conn

    def connect(self, number):
        self.dial(number)
        return self.joined(number)

    def refused(self, number):
        self.dial(number)
        self.assertEqual(self.sandbox.door.frame(15), (DIAL_FAILED, struct.pack(">I", number)))


class Dial(DialTest):
    def test_hello_comes_once_the_agent_listens(self):
        late = ["/bin/sh", "-c", 'sleep 1; exec "$@"', "sh", *agents.stream_agent("tcp", 7000)]
        started = time.monotonic()
        self.run_with(late, "tcp:7000")
        self.assertGreater(time.monotonic() - started, 1)

    def test_each_number_gets_a_connection_of_its_own(self):
        self.run_with(agents.stream_agent("unix", "/tmp/a.sock"), "unix:/tmp/a.sock")
        conns = {number: self.connect(number) for number in (7, 0, 2**32 - 1)}
        for number, conn in conns.items():
            conn.sock.sendall(b"number %d" % number)
        for number, conn in conns.items():
            self.assertEqual(conn.take(len(b"number %d" % number)), b"number %d" % number)

    def test_an_agent_that_has_gone_deaf_is_a_dial_that_fails(self):
        script = ("import socket, time\n"
                  "s = socket.socket()\ns.bind(('127.0.0.1', 7000))\ns.listen(8)\n"
                  "s.accept()\ns.close()\ntime.sleep(600)\n")
        self.run_with(["/usr/bin/python3", "-I", "-c", script], "tcp:7000")
        wait_until(lambda: self.fails(1), 10)

    def fails(self, number):
        """The listener may close a moment after the look at it."""
        self.dial(number)
        self.sandbox.door.listener.settimeout(0.5)
        try:
            sock, _ = self.sandbox.door.listener.accept()
            sock.close()
            return False
        except TimeoutError:
            return self.sandbox.door.frame(10)[0] == DIAL_FAILED

    def test_there_are_64_places_and_a_freed_one_is_taken_again(self):
        self.run_with(agents.stream_agent("tcp", 7000), "tcp:7000")
        conns = [self.connect(number) for number in range(64)]
        self.refused(64)
        conns[5].sock.close()

        def again():
            self.dial(65)
            self.sandbox.door.listener.settimeout(0.3)
            try:
                sock, _ = self.sandbox.door.listener.accept()
            except TimeoutError:
                self.sandbox.door.frame(10)
                return None
            return sock

        sock = wait_until(again, 10)
        self.addCleanup(sock.close)
        conns[63].sock.sendall(b"still")
        self.assertEqual(conns[63].take(5), b"still")

    def test_a_door_that_breaks_the_protocol_ends_the_sandbox(self):
        for kind, payload in ((DIAL, b"\0\0\0"), (DIAL, b"\0\0\0\0\0"), (DIAL, b""),
                              (2, b"a line"), (CONN, b"\0\0\0\1"), (200, b"x")):
            with self.subTest((kind, payload)):
                self.setUp()
                self.run_with(agents.stream_agent("tcp", 7000), "tcp:7000")
                self.sandbox.door.send(payload, kind=kind)
                with self.assertRaises(Ended):
                    self.sandbox.door.frame(10)
                self.assertEqual(self.sandbox.wait(), 0)

    def test_what_the_agent_said_before_its_end_comes_before_exit(self):
        self.run_with(agents.stream_agent("tcp", 7000), "tcp:7000")
        conn = self.connect(1)
        conn.sock.sendall(b"x" * 50000)
        self.assertEqual(conn.take(50000), b"x" * 50000)
        conn.sock.sendall(b"!exit")
        self.assertEqual(self.sandbox.door.until_exit(), ([], (3, 0)))
        conn.ended()
        self.assertEqual(self.sandbox.ended()[:3] if self.sandbox.wait() == 0 else None,
                         ("exited", 3, 0))

    def test_descendants_that_go_on_talking_do_not_keep_the_sandbox(self):
        # The agent ends; its child holds the connection and floods it.
        script = ("import os, socket, time\n"
                  "s = socket.socket()\ns.bind(('127.0.0.1', 7000))\ns.listen(8)\n"
                  "s.accept()\nc, _ = s.accept()\n"
                  "if os.fork() > 0:\n    c.recv(1)\n    os._exit(4)\n"
                  "os.setsid()\n"
                  "while True:\n    c.sendall(b'x' * 65536)\n")
        self.run_with(["/usr/bin/python3", "-I", "-c", script], "tcp:7000")
        conn = self.connect(1)
        self.assertTrue(conn.take(1 << 20))
        conn.sock.sendall(b"!")
        reader = threading.Thread(target=conn.ended, daemon=True)
        reader.start()
        try:
            self.assertEqual(self.sandbox.door.until_exit(20)[1], (4, 0))
        except Ended:  # the time for the last words was over before there was an end of them
            pass
        self.assertEqual(self.sandbox.wait(20), 0)
        self.assertEqual(self.sandbox.ended()[:3], ("exited", 4, 0))

    def test_nothing_of_a_link_frame_that_is_wrong_reaches_the_agent(self):
        self.run_with(agents.ws_agent(7000), "ws:7000/")
        for kind, payload in ((TEXT, b""), (TEXT, b"x" * 65538), (CLOSE, b"x"), (CONN, b"\0\0\0\1"),
                              (2, b"x")):
            with self.subTest((kind, len(payload))):
                conn = self.connect(1)
                try:
                    conn.send(kind, payload)
                except OSError:
                    pass
                conn.ended()
        conn = self.connect(2)
        conn.send(TEXT, bytes([FIRST | FIN]) + b"fine")
        got = b""
        while True:
            kind, payload = conn.frame()
            got += payload[1:]
            if payload[0] & FIN:
                break
        self.assertEqual(got, b"fine")


class Handshake(DialTest):
    def test_an_agent_that_speaks_no_websocket_is_a_dial_that_fails(self):
        for answer in ("hello\r\n\r\n", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                       "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                       "Connection: Upgrade\r\nSec-WebSocket-Accept: wrong\r\n\r\n",
                       "x" * 20000):
            with self.subTest(answer[:30]):
                self.setUp()
                self.run_with(says(answer), "ws:7000/x")
                self.refused(1)

    def test_an_agent_that_never_answers_the_handshake_is_given_up(self):
        self.run_with(says(""), "ws:7000/x")
        self.refused(1)

    def test_a_probe_alone_does_not_shake_hands(self):
        self.run_with(agents.ws_agent(7000), "ws:7000/x")
        conn = self.connect(9)
        conn.send(BINARY, bytes([FIRST | FIN]) + b"hi")
        self.assertEqual(conn.frame()[0], BINARY)
        self.assertEqual(self.note("connections"), "1")

    def note(self, name):
        with open(os.path.join(self.sandbox.chat, name), encoding="ascii") as text:
            return text.read()


if __name__ == "__main__":
    unittest.main()
