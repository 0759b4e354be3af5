"""leaseinit's transports tcp, unix and ws below a real leasekeep, with the door played by the test."""

import errno
import os
import socket
import struct
import time
import unittest

import agents
import keep_sandbox
from fake_door import Ended
from keep_sandbox import SandboxTest
from waiting import PATIENCE_S, until
from ws import OP_TEXT, WsConn

DIAL, DIAL_FAILED, CONN = 4, 5, 6
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
    """A connection to the agent, as leaseinit has handed it over."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(PATIENCE_S)

    def take(self, size):
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                raise EOFError(data)
            data += piece
        return data


class DialTest(SandboxTest):
    def run_with(self, command, transport, **spec):
        self.sandbox.start(command, transport=transport, **spec)
        self.assertEqual(self.sandbox.door.accept(), transport.split(":")[0])

    def dial(self, number):
        self.sandbox.door.send(struct.pack(">I", number), kind=DIAL)

    def joined(self, number):
        self.sandbox.door.listener.settimeout(PATIENCE_S)
        said, _ = self.sandbox.door.listener.accept()
        with said:
            said.settimeout(PATIENCE_S)
            text, fds, flags, _ = socket.recv_fds(said, 100, 4)
            self.assertEqual(text, struct.pack(">BI", CONN, 4) + struct.pack(">I", number))
            self.assertEqual((len(fds), flags & socket.MSG_CTRUNC), (1, 0))
            self.assertEqual(said.recv(1), b"")  # it is done with this one
        sock = socket.socket(fileno=fds[0])
        self.addCleanup(sock.close)
        return Conn(sock)

    def connect(self, number):
        self.dial(number)
        return self.joined(number)

    def refused(self, number):
        self.dial(number)
        self.assertEqual(self.sandbox.door.frame(), (DIAL_FAILED, struct.pack(">I", number)))


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
        until(lambda: self.fails(1))

    def fails(self, number):
        """The listener may close a moment after the look at it."""
        self.dial(number)
        self.sandbox.door.listener.settimeout(0.5)
        try:
            sock, _ = self.sandbox.door.listener.accept()
            sock.close()
            return False
        except TimeoutError:
            return self.sandbox.door.frame()[0] == DIAL_FAILED

    def test_clients_do_not_count_once_their_connections_are_handed_over(self):
        self.run_with(agents.stream_agent("tcp", 7000), "tcp:7000")
        conns = [self.connect(number) for number in range(70)]
        conns[69].sock.sendall(b"still")
        self.assertEqual(conns[69].take(5), b"still")

    def test_an_agent_with_all_its_descriptors_in_flight_is_reached(self):
        script = ("import resource, socket\n"
                  "most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
                  "resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n"
                  "kept = []\n"
                  "try:\n"
                  "    while True:\n"
                  "        kept.append(socket.socketpair())\n"
                  "        socket.send_fds(kept[-1][0], [b'x'], [0] * 250)\n"
                  "except OSError as e:\n"
                  "    why = str(e.errno).encode()\n"
                  "s = socket.socket()\ns.bind(('127.0.0.1', 7000))\ns.listen(8)\n"
                  "while True:\n"
                  "    c, _ = s.accept()\n    kept.append(c)\n    c.send(why)\n")
        self.run_with(["/usr/bin/python3", "-I", "-c", script], "tcp:7000")
        self.assertEqual(self.connect(1).take(3), b"%d" % errno.ETOOMANYREFS)

    def test_64_are_on_their_way_at_once(self):
        self.run_with(says(""), "ws:7000/x")
        for number in range(64):
            self.dial(number)
        self.refused(64)

    def test_a_door_that_breaks_the_protocol_ends_the_sandbox(self):
        for kind, payload in ((DIAL, b"\0\0\0"), (DIAL, b"\0\0\0\0\0"), (DIAL, b""),
                              (2, b"a line"), (CONN, b"\0\0\0\1"), (200, b"x")):
            with self.subTest((kind, payload)):
                self.setUp()
                self.run_with(agents.stream_agent("tcp", 7000), "tcp:7000")
                self.sandbox.door.send(payload, kind=kind)
                with self.assertRaises(Ended):
                    self.sandbox.door.frame()
                self.assertEqual(self.sandbox.wait(), 0)

    def test_the_exit_of_the_agent_is_told_beside_its_connections(self):
        self.run_with(agents.stream_agent("tcp", 7000), "tcp:7000")
        conn = self.connect(1)
        conn.sock.sendall(b"x" * 50000)
        self.assertEqual(conn.take(50000), b"x" * 50000)
        conn.sock.sendall(b"!exit")
        self.assertEqual(self.sandbox.door.until_exit(), ([], (3, 0)))
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
        self.assertEqual(self.sandbox.door.until_exit()[1], (4, 0))
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[:3], ("exited", 4, 0))


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

    def test_not_a_byte_behind_the_handshake_is_taken(self):
        # An agent that talks at once, in one segment with its answer.
        script = ("import base64, hashlib, socket, time\n"
                  "s = socket.socket()\ns.bind(('127.0.0.1', 7000))\ns.listen(8)\nkept = []\n"
                  "while True:\n"
                  "    c, _ = s.accept()\n    kept.append(c)\n    head = b''\n"
                  "    while b'\\r\\n\\r\\n' not in head:\n"
                  "        more = c.recv(1000)\n        head += more\n"
                  "        if not more:\n            break\n"
                  "    else:\n"
                  "        key = head.split(b'Sec-WebSocket-Key: ')[1].split(b'\\r')[0]\n"
                  "        key += b'258EAFA5-E914-47DA-95CA-C5AB0DC85B11'\n"
                  "        key = base64.b64encode(hashlib.sha1(key).digest())\n"
                  "        said = b'HTTP/1.1 101 Hi\\r\\nUpgrade: websocket\\r\\nConnection: upgrade'\n"
                  "        said += b'\\r\\nSec-WebSocket-Accept: ' + key + b'\\r\\n\\r\\n'\n"
                  "        said += b'\\x81\\x05early'\n"
                  "        for part in (said[:50], said[50:90], said[90:]):\n"
                  "            c.sendall(part)\n            time.sleep(0.1)\n")
        self.run_with(["/usr/bin/python3", "-I", "-c", script], "ws:7000/x")
        self.assertEqual(self.connect(1).take(7), b"\x81\x05early")

    def test_a_probe_alone_does_not_shake_hands(self):
        self.run_with(agents.ws_agent(7000), "ws:7000/x")
        conn = WsConn(self.connect(9).sock, is_client=True)
        conn.send_text("hi")
        self.assertEqual(conn.recv()[0], OP_TEXT)
        self.assertEqual(self.note("connections"), "1")

    def note(self, name):
        with open(os.path.join(self.sandbox.chat, name), encoding="ascii") as text:
            return text.read()


if __name__ == "__main__":
    unittest.main()
