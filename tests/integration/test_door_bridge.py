"""A real leasedoor whose agent's side is played by the test: bridges, and what a hostile sandbox may do."""

import os
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import door_fixture
from door_fixture import DoorTest, FakeAgent, connection, hand_over
from waiting import PATIENCE_S, wait_for
from ws import OP_BINARY, OP_CLOSE, OP_CONT, OP_PING, OP_PONG, OP_TEXT, WsClosed, WsConn

DIAL, DIAL_FAILED, CONN = 4, 5, 6
FIN, TEXT, BINARY, CLOSE, PING = 0x80, 1, 2, 8, 9


def setUpModule():
    door_fixture.require()


def frame(kind, payload=b"", length=None):
    return struct.pack(">BI", kind, len(payload) if length is None else length) + payload


def ws_frame(first, payload=b"", length=None):
    """As a server sends it, or would not."""
    size = len(payload) if length is None else length
    if size < 126:
        head = struct.pack(">BB", first, size)
    elif size < 65536:
        head = struct.pack(">BBH", first, 126, size)
    else:
        head = struct.pack(">BBQ", first, 127, size)
    return head + payload


class BridgeTest(DoorTest):
    def start(self, transport="ws:7000/x", **options):
        self.kind = transport.split(":")[0]
        self.bridged = self.door(transport=transport, **options)
        self.link = self.bridged.agent(hello=b"\x02" + self.kind.encode())
        return self.bridged

    def dialled(self, timeout=PATIENCE_S):
        kind, payload = self.link.recv(timeout)
        self.assertEqual((kind, len(payload)), (DIAL, 4))
        return payload

    def join(self, number):
        """The agent's end of a connection handed over under that number."""
        near, far = connection(self.kind)
        with near, hand_over(self.bridged.agent_path, number, near):
            pass
        far.settimeout(PATIENCE_S)
        self.addCleanup(far.close)
        return WsConn(far, is_client=False)

    def assert_gone(self, sock):
        """The door has closed its end."""
        sock.settimeout(PATIENCE_S)
        try:
            while sock.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass

    def connect(self, **claims):
        """(client, the agent's connection) of a new client."""
        token = self.bridged.grant(**claims)
        client = self.bridged.open(token)
        conn = self.join(self.dialled())
        self.assertIn(b'"ready"', client.recv()[1])
        return client, conn


class Bridges(BridgeTest):
    def test_ready_is_said_once_the_connection_stands(self):
        self.start()
        client = self.bridged.open(self.bridged.grant())
        number = self.dialled()
        with self.assertRaises(TimeoutError):
            client.recv(0.3)
        conn = self.join(number)
        self.assertIn(b'"ready"', client.recv()[1])
        conn.send_text(b"hello")
        self.assertEqual(client.recv(), (OP_TEXT, b"hello"))

    def test_a_dial_that_fails_is_4503(self):
        self.start()
        client = self.bridged.open(self.bridged.grant())
        self.link.frame(DIAL_FAILED, self.dialled())
        self.assertEqual(client.wait_closed(), 4503)

    def test_a_dial_that_is_not_answered_is_4503(self):
        self.start()
        client = self.bridged.open(self.bridged.grant())
        number = self.dialled()
        self.assertEqual(client.wait_closed(), 4503)
        self.assert_gone(self.join(number).sock)
        self.assert_bridges()

    def assert_bridges(self):
        client, conn = self.connect()
        conn.send_binary(b"still")
        self.assertEqual(client.recv(), (OP_BINARY, b"still"))
        client.close()

    def test_pieces_keep_their_first_and_last_both_ways(self):
        self.start()
        client, conn = self.connect()
        client.send_frame(OP_TEXT, b"one ", fin=False)
        client.send_frame(OP_CONT, b"two", fin=True)
        client.send_binary(b"")
        self.assertEqual(conn.recv_frame(), (False, OP_TEXT, b"one "))
        self.assertEqual(conn.recv_frame(), (True, OP_CONT, b"two"))
        self.assertEqual(conn.recv_frame(), (True, OP_BINARY, b""))
        conn.send_frame(OP_TEXT, b"thr", fin=False)
        self.assertEqual(client.recv_frame(), (False, OP_TEXT, b"thr"))
        conn.send_frame(OP_CONT, b"ee", fin=False)
        self.assertEqual(client.recv_frame(), (False, OP_CONT, b"ee"))
        conn.send_frame(OP_CONT, b"", fin=True)
        self.assertEqual(client.recv_frame(), (True, OP_CONT, b""))

    def test_the_agents_pings_are_answered_and_its_pongs_are_nothing(self):
        self.start()
        client, conn = self.connect()
        conn.send_frame(OP_PONG, b"unasked")
        conn.send_frame(OP_TEXT, b"a", fin=False)
        conn.send_frame(OP_PING, b"x" * 125)
        self.assertEqual(conn.recv_frame(), (True, OP_PONG, b"x" * 125))
        conn.send_frame(OP_CONT, b"b")
        self.assertEqual(client.recv(), (OP_TEXT, b"ab"))

    def test_a_close_of_the_agent_is_answered_and_reaches_the_client(self):
        self.start()
        client, conn = self.connect()
        conn.send_text(b"bye")
        conn.send_close(4321, "tired")
        self.assertEqual(client.recv(), (OP_TEXT, b"bye"))
        self.assertEqual(client.wait_closed(), 4321)
        self.assertEqual(conn.recv_frame(), (True, OP_CLOSE, struct.pack(">H", 4321)))
        self.assert_gone(conn.sock)

    def test_an_agent_that_goes_on_after_the_end_is_left(self):
        self.start()
        client, conn = self.connect()
        client.send_close(1000)
        self.assertEqual(conn.recv_frame()[1], OP_CLOSE)
        before = self.bridged.descriptors()
        with self.assertRaises(OSError):
            while True:
                conn.send_raw(b"x" * 65536)
        self.assertLess(self.bridged.descriptors(), before)

    def test_the_close_of_a_client_follows_what_it_said(self):
        self.start()
        client, conn = self.connect()
        client.send_text("bye")
        client.send_close(4321, "tired")
        self.assertEqual(client.wait_closed(), 4321)
        self.assertEqual(conn.recv_frame(), (True, OP_TEXT, b"bye"))
        self.assertEqual(conn.recv_frame(), (True, OP_CLOSE, struct.pack(">H", 4321) + b"tired"))
        self.assert_gone(conn.sock)

    def test_bytes_are_counted_and_told_to_the_gateway(self):
        self.start("tcp:7000")
        client, conn = self.connect(mc=1)
        client.send_binary(b"x" * 1000)
        self.assertEqual(conn.sock.recv(1000), b"x" * 1000)
        conn.send_raw(b"y" * 300)
        self.assertEqual(client.recv(), (OP_BINARY, b"y" * 300))
        conn.close()
        self.assertEqual(client.wait_closed(), 1000)
        said = self.bridged.gateway.wait("CLOSE")
        self.assertEqual((said["bytes_in"], said["bytes_out"], said["code"]), (1000, 300, 1000))
        self.assertEqual(self.bridged.gateway.wait("ACTIVITY", bytes_in=1000)["bytes_out"], 300)

    def test_what_the_agent_said_last_comes_before_4411(self):
        for transport in ("tcp:7000", "ws:7000/x"):
            with self.subTest(transport):
                self.start(transport)
                client, conn = self.connect()
                last = os.urandom(60000)
                if transport == "tcp:7000":
                    conn.send_raw(last)
                else:
                    conn.send_binary(last)
                self.link.exit(0)
                self.link.close()
                conn.close()
                got = b""
                with self.assertRaises(WsClosed) as closed:
                    while True:
                        got += client.recv()[1]
                self.assertEqual((got, closed.exception.code), (last, 4411))

    def test_a_connection_that_outlives_the_agent_ends_with_it(self):
        self.start("tcp:7000")
        client, conn = self.connect()
        self.link.exit(0)
        self.link.close()
        self.assertEqual(client.wait_closed(), 4411)
        self.assert_gone(conn.sock)

    def test_an_end_before_the_agents_is_not_taken_for_another(self):
        self.start("tcp:7000")
        client, conn = self.connect()
        conn.send_raw(b"last")
        conn.close()
        self.assertEqual(client.recv()[1], b"last")
        self.link.exit(0)
        self.link.close()
        self.assertEqual(client.wait_closed(), 4411)

    def test_after_a_revocation_nothing_passes(self):
        self.start("tcp:7000")
        claims = self.bridged.claims()
        self.bridged.allow(claims)
        client = self.bridged.open(self.bridged.key.sign({**claims, "rq": self.bridged.gateway.seq}))
        conn = self.join(self.dialled())
        client.recv()
        self.bridged.gateway.op("REVOKE", jti=claims["jti"], code=4403)
        try:
            client.send_binary(b"late")
            conn.send_raw(b"late")
        except OSError:
            pass
        with self.assertRaises(WsClosed) as closed:
            client.recv()
        self.assertEqual(closed.exception.code, 4403)
        try:
            self.assertEqual(conn.sock.recv(100), b"")
        except ConnectionResetError:
            pass


class Tls(BridgeTest):
    """The same under TLS, where OpenSSL has buffers of its own on the way."""

    def start_tls(self):
        files = tempfile.mkdtemp(prefix="bridge-tls-")
        self.addCleanup(shutil.rmtree, files)
        key, cert = os.path.join(files, "key.pem"), os.path.join(files, "cert.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert,
                        "-subj", "/CN=door", "-days", "2"], check=True, capture_output=True)
        with open(key, encoding="ascii") as key_text, open(cert, encoding="ascii") as cert_text:
            self.start("tcp:7000", key_pem=key_text.read(), cert_pem=cert_text.read())
        self.bridged.url = self.bridged.url.replace("ws:", "wss:")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.load_verify_locations(cert)

    def connect_tls(self):
        client = self.bridged.open(self.bridged.grant(), ssl_context=self.context)
        conn = self.join(self.dialled())
        self.assertIn(b'"ready"', client.recv()[1])
        return client, conn

    def test_16_mib_pass_each_way(self):
        self.start_tls()
        client, conn = self.connect_tls()
        data = os.urandom(16 << 20)
        sender = threading.Thread(target=client.send_binary, args=(data,), daemon=True)
        sender.start()
        got = bytearray()
        conn.sock.settimeout(PATIENCE_S)
        while len(got) < len(data):
            got += conn.sock.recv(1 << 18)
        self.assertEqual(bytes(got), data)
        sender.join(PATIENCE_S)
        sender = threading.Thread(target=conn.send_raw, args=(data,), daemon=True)
        sender.start()
        got = bytearray()
        while len(got) < len(data):
            got += client.recv()[1]
        self.assertEqual(bytes(got), data)

    def test_a_client_that_does_not_read_pauses_the_agent(self):
        self.start_tls()
        client, conn = self.connect_tls()
        conn.sock.settimeout(2)
        sent = 0
        with self.assertRaises(TimeoutError):
            while sent < 64 << 20:
                sent += conn.sock.send(b"x" * 65536)
        self.assert_idle(self.bridged)
        got = 0
        while got < sent:
            got += len(client.recv()[1])
        self.assertEqual(got, sent)

    def test_an_agent_that_does_not_read_pauses_the_client(self):
        self.start_tls()
        client, conn = self.connect_tls()
        client.sock.settimeout(2)
        sent = 0
        with self.assertRaises((TimeoutError, ssl.SSLError)):
            while sent < 64 << 20:
                client.send_binary(b"x" * 65536)
                sent += 65536
        self.assert_idle(self.bridged)
        got = 0
        conn.sock.settimeout(PATIENCE_S)
        while got < sent:
            got += len(conn.sock.recv(1 << 18))


class Hostile(BridgeTest):
    """Whoever is in the sandbox can reach agent.sock and say anything there."""

    def assert_bridges(self):
        self.assertTrue(self.bridged.alive(), self.bridged.log())
        client, conn = self.connect()
        conn.send_binary(b"still")
        self.assertEqual(client.recv(), (OP_BINARY, b"still"))
        client.close()

    def test_connections_with_a_wrong_number_or_none_are_closed(self):
        self.start()
        client, conn = self.connect()
        for said in (frame(CONN, b"\xff\xff\xff\xff"), frame(CONN, b"\0\0\0\1"),
                     frame(CONN, b"\0\0\0\2"), frame(CONN, b"", length=2**31) + b"xxxx",
                     frame(7, b"\3hi!"), frame(1, b"\2ws!"), b"GET / HTTP/1.1\r\n\r\n"):
            with self.subTest(said[:12]):
                stranger = FakeAgent(self.bridged.agent_path, hello=None)
                self.addCleanup(stranger.close)
                stranger.raw(said)
                stranger.wait_ended()
        conn.send_text(b"mine")
        self.assertEqual(client.recv(), (OP_TEXT, b"mine"))
        client.close()
        self.assert_bridges()

    def brought(self, *things):
        """What becomes of a dial that is answered with these."""
        client = self.bridged.open(self.bridged.grant())
        number = self.dialled()
        said = hand_over(self.bridged.agent_path, number, *things)
        self.assert_gone(said)
        said.close()
        with self.assertRaises(TimeoutError):
            client.recv(0.2)
        self.join(number)
        self.assertIn(b'"ready"', client.recv()[1])
        client.close()

    def test_a_descriptor_that_is_no_connection_of_an_agent_is_left(self):
        self.start()
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        near, far = connection("unix")
        read, write = os.pipe()
        nothing = os.open("/dev/null", os.O_RDWR)
        for thing in (listener, datagram, near, read, nothing, None):
            with self.subTest(thing):
                self.brought(*([thing] if thing is not None else []))
        for thing in (listener, datagram, near, far):
            thing.close()
        for fd in (read, write, nothing):
            os.close(fd)
        self.assert_bridges()

    def test_more_descriptors_than_one_are_none_and_stay_with_nobody(self):
        self.start()
        near, far = connection()
        before = self.bridged.descriptors()
        for count in (2, 3, 50):
            self.brought(*[near] * count)
        near.close()
        wait_for(self, "its end", lambda: self.gone(far))
        wait_for(self, "as few descriptors", lambda: self.bridged.descriptors() <= before)

    def gone(self, sock):
        sock.settimeout(0.05)
        try:
            return sock.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True

    def test_another_process_than_leaseinit_brings_nothing(self):
        self.start()
        client = self.bridged.open(self.bridged.grant())
        number = self.dialled()
        near, far = connection()
        child = os.fork()
        if child == 0:
            try:
                hand_over(self.bridged.agent_path, number, near).recv(1)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        near.close()
        self.assert_gone(far)
        with self.assertRaises(TimeoutError):
            client.recv(0.2)
        self.join(number)
        self.assertIn(b'"ready"', client.recv()[1])

    def test_a_setting_that_makes_calls_wait_is_taken_off(self):
        self.start("tcp:7000")
        client = self.bridged.open(self.bridged.grant())
        near, far = connection()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
        near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 20)
        near.setblocking(True)
        with near, hand_over(self.bridged.agent_path, self.dialled(), near):
            pass
        self.assertIn(b'"ready"', client.recv()[1])
        far.sendall(b"x")
        self.assertEqual(client.recv()[1], b"x")
        client.close()
        far.close()
        self.assert_serves_raw()

    def assert_serves_raw(self):
        client, conn = self.connect()
        conn.send_raw(b"still")
        self.assertEqual(client.recv(), (OP_BINARY, b"still"))
        client.close()

    def test_silent_connections_are_few_and_end(self):
        self.start()
        before = self.bridged.descriptors()
        silent = []
        for _ in range(200):
            s = socket.socket(socket.AF_UNIX)
            s.connect(self.bridged.agent_path)
            s.settimeout(PATIENCE_S)
            silent.append(s)
            self.addCleanup(s.close)
        self.assertLess(self.bridged.descriptors() - before, 12)
        for s in silent:
            self.assertEqual(s.recv(1), b"")
        wait_for(self, "as few descriptors", lambda: self.bridged.descriptors() <= before)
        self.assert_bridges()

    def test_frames_that_are_no_messages_end_their_client_alone_with_1011(self):
        self.start()
        other, other_conn = self.connect()
        for said in (ws_frame(FIN | 3), ws_frame(0x40 | FIN | TEXT, b"x"), ws_frame(FIN, b"x"),
                     ws_frame(TEXT, b"x") + ws_frame(FIN | TEXT, b"y"),
                     ws_frame(TEXT, b"x") + ws_frame(FIN | BINARY, b"y"),
                     ws_frame(FIN | TEXT, b"\xff"),
                     ws_frame(TEXT, b"\xe2\x82") + ws_frame(FIN),
                     ws_frame(FIN | BINARY, length=(16 << 20) + 1),
                     ws_frame(FIN | BINARY, length=2**63), bytes([FIN | TEXT, 126, 0, 5]) + b"short",
                     bytes([FIN | TEXT, 0x81, 0, 0, 0, 0]) + b"m",
                     ws_frame(PING, b""), ws_frame(FIN | PING, b"x" * 126), ws_frame(FIN | 11),
                     ws_frame(FIN | CLOSE, b"\3"), ws_frame(FIN | CLOSE, struct.pack(">H", 4403)),
                     ws_frame(FIN | CLOSE, struct.pack(">H", 1006)),
                     ws_frame(FIN | CLOSE, struct.pack(">H", 70)), b"HTTP/1.1 200 OK\r\n\r\n"):
            with self.subTest(said[:12]):
                client, conn = self.connect()
                conn.send_raw(said)
                self.assertEqual(client.wait_closed(), 1011)
                self.assert_gone(conn.sock)
        other_conn.send_text(b"mine")
        self.assertEqual(other.recv(), (OP_TEXT, b"mine"))

    def test_a_message_without_end_is_cut_at_16_mib(self):
        self.start()
        client, conn = self.connect()
        threading.Thread(target=self.pour, args=(conn,), daemon=True).start()
        got = 0
        with self.assertRaises(WsClosed) as closed:
            while True:
                got += len(client.recv_frame()[2])
                if client.close_code is None and got > 17 << 20:
                    self.fail("it goes on")
        self.assertEqual(closed.exception.code, 1006)

    def pour(self, conn):
        try:
            conn.send_frame(OP_BINARY, b"x" * 65536, fin=False)
            while True:
                conn.send_frame(OP_CONT, b"x" * 65536, fin=False)
        except OSError:
            pass

    def test_a_link_that_says_what_it_may_not_ends_the_sandbox(self):
        for said in (frame(2, b"a line"), frame(7, b"\3hi"), frame(DIAL, b"\0\0\0\1"),
                     frame(DIAL_FAILED, b"\0\0\1"), frame(CONN, b"\0\0\0\1")):
            with self.subTest(said[:12]):
                self.start()
                client, _ = self.connect()
                self.link.raw(said)
                self.assertEqual(client.wait_closed(), 4411)

    def test_answers_to_dials_that_never_were_are_nothing(self):
        self.start()
        client, conn = self.connect()
        for number in range(2000):
            self.link.frame(DIAL_FAILED, struct.pack(">I", number))
        conn.send_text(b"mine")
        self.assertEqual(client.recv(), (OP_TEXT, b"mine"))
        client.close()
        self.assert_bridges()

    def test_a_flood_of_empty_pieces_costs_its_own_client_only(self):
        self.start()
        client, conn = self.connect()
        other, other_conn = self.connect()
        conn.send_frame(OP_BINARY, fin=False)
        empty = (ws_frame(0) + ws_frame(FIN | PING)) * 5000
        for _ in range(20):
            conn.send_raw(empty)
        other_conn.send_text(b"mine")
        self.assertEqual(other.recv(), (OP_TEXT, b"mine"))
        conn.send_frame(OP_CONT, b"end")
        self.assertEqual(client.recv(), (OP_BINARY, b"end"))

    def test_a_client_that_talks_before_ready_is_read_after_it(self):
        self.start("tcp:7000")
        client = self.bridged.open(self.bridged.grant())
        number = self.dialled()
        client.send_binary(b"early")
        time.sleep(0.2)
        conn = self.join(number)
        self.assertEqual(conn.sock.recv(100), b"early")


if __name__ == "__main__":
    unittest.main()
