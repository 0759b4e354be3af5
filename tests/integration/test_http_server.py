"""The gateway's server, by itself: tests/support/echo_server.c answers what it was asked.

Every test ends with a server that still answers, idles, and goes down without a complaint (under
sanitizers: without a leak).
"""

import functools
import json
import os
import random
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import processes
from waiting import PATIENCE_S, wait_equal, wait_for
from ws import (
    OP_BINARY,
    OP_CLOSE,
    OP_CONT,
    OP_PING,
    OP_PONG,
    OP_TEXT,
    WsClient,
    WsHandshakeError,
    frame,
)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LEASEHOLD_BIN") or os.path.join(ROOT, "build", "release", "bin")
FUZZ_ROUNDS = int(os.environ.get("LEASEHOLD_FUZZ_ROUNDS", "60"))  # connections of each seed
MIB = 1024 * 1024
HEAD_MAX = 16 * 1024
MASK = b"\1\2\3\4"
MALFORMED, NO_LENGTH = (400, "malformed_request"), (411, "length_required")
TOO_LARGE = (413, "too_large")
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def masked(opcode, payload=b"", fin=True, rsv=0):
    """A frame as a client has to send it."""
    return frame(opcode, payload, fin, MASK, rsv)


def djb2(data):
    value = 5381
    for byte in data:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def trusting():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class EchoServer:
    def __init__(self, tls=False, descriptors=None):
        self.directory = tempfile.TemporaryDirectory(prefix="lh-echo-")
        self.run_dir = self.directory.name
        self.tls = tls
        command = [os.path.join(BIN, "echo_server"), self.run_dir, "0"]
        if tls:
            command += self.make_certificate()
        limit = None
        if descriptors:
            limit = functools.partial(
                resource.setrlimit, resource.RLIMIT_NOFILE, (descriptors, descriptors)
            )
        self.log = open(os.path.join(self.run_dir, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, text=True, preexec_fn=limit
        )
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(self.stop() or self.logged())
        self.port = int(self.url.rsplit(":", 1)[1])

    def make_certificate(self):
        cert, key = (os.path.join(self.run_dir, name) for name in ("cert.pem", "key.pem"))
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
            + ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", cert],
            check=True,
            capture_output=True,
        )
        return [cert, key]

    @property
    def control(self):
        return os.path.join(self.run_dir, "control.sock")

    def logged(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8") as log:
            return log.read()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        code = self.process.wait(30)
        self.process.stdout.close()
        return code

    def close(self):
        self.log.close()
        self.directory.cleanup()


class Client:
    """Raw bytes to the server, and its answers read strictly."""

    def __init__(self, server, timeout=60, local=False):
        if local:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(server.control)
        else:
            self.sock = socket.create_connection(("127.0.0.1", server.port))
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(timeout)
        if server.tls and not local:
            self.sock = trusting().wrap_socket(self.sock)
        self.rest = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def more(self):
        data = self.sock.recv(65536)
        self.rest += data
        return bool(data)

    def answer(self, head_only=False):
        """(status, headers, body), or None when the server has closed instead."""
        while b"\r\n\r\n" not in self.rest:
            if not self.more():
                if self.rest:
                    raise AssertionError(f"cut in a head: {self.rest!r}")
                return None
        head = self.taken(self.rest.index(b"\r\n\r\n") + 4)[:-4]
        lines = head.decode("ascii").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        assert version == "HTTP/1.1", lines[0]
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, line
            headers[name.lower()] = value
        length = 0 if head_only else int(headers.get("content-length", "0"))
        while len(self.rest) < length:
            assert self.more(), "cut in a body"
        return int(status), headers, self.taken(length)

    def taken(self, length):
        data = bytes(self.rest[:length])
        del self.rest[:length]
        return data

    def ask(self, data):
        self.send(data)
        return self.answer()

    def sends_no_more(self):
        """Of the TCP connection: Python's TLS cannot end one direction alone."""
        with socket.socket(fileno=os.dup(self.sock.fileno())) as tcp:
            tcp.shutdown(socket.SHUT_WR)

    def ended(self):
        """Waits for the end of the connection; what came before it."""
        try:
            while self.more():
                pass
        except ConnectionResetError:
            pass
        return bytes(self.rest)


def request(method, path, body=None, headers=()):
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b"")


class ServerCase(unittest.TestCase):
    tls = False
    descriptors = None

    def setUp(self):
        self.server = EchoServer(self.tls, self.descriptors)
        self.addCleanup(self.server.close)
        self.addCleanup(self.assert_ends_well)

    def assert_ends_well(self):
        if self.server.process.poll() is None:
            self.assert_answers()
            self.assert_idle()
            code = self.server.stop()
        else:
            code = self.server.process.returncode
        self.assertEqual(code, 0, self.server.logged())
        self.assertNotIn("ERROR", self.server.logged())
        self.assertFalse(os.path.exists(self.server.control))

    def assert_answers(self):
        with Client(self.server) as c:
            self.assertEqual(c.ask(request("GET", "/stat"))[0], 200)

    def assert_idle(self):
        """It neither runs nor waits for a CPU. Who spins does one of the two all the time."""
        pid = self.server.process.pid
        wait_for(self, "a moment in which it does nothing", lambda: processes.is_idle(pid))

    def stat(self):
        with Client(self.server) as c:
            return json.loads(c.ask(request("GET", "/stat"))[2])

    def assert_echo(self, answer, method, path, body=b""):
        self.assertIsNotNone(answer, (method, path, len(body)))
        status, _, text = answer
        self.assertEqual(status, 200, text)
        got = json.loads(text)
        want = {"method": METHODS.index(method), "path": path, "n": len(body), "h": djb2(body)}
        self.assertEqual({k: got[k] for k in want}, want)

    def assert_refused(self, data, status, code, **more):
        with Client(self.server) as c:
            got = c.ask(data)
            self.assertIsNotNone(got, data[:80])
            self.assertEqual((got[0], json.loads(got[2])["code"]), (status, code), data[:80])
            self.assertEqual(got[1]["connection"], "close")
            self.assertEqual(c.ended(), b"", more)


class Requests(ServerCase):
    def test_each_method_with_and_without_a_body(self):
        with Client(self.server) as c:
            for method in METHODS:
                for body in (None, b"", b"x", b"\0\1\r\n\r\n" * 100, b"y" * 70000):
                    c.send(request(method, "/r/m", body))
                    if method == "HEAD":
                        status, headers, _ = c.answer(head_only=True)
                        self.assertEqual(status, 200)
                        self.assertGreater(int(headers["content-length"]), 0)
                    else:
                        self.assert_echo(c.answer(), method, "/r/m", body or b"")

    def test_an_unknown_method_is_handed_up(self):
        with Client(self.server) as c:
            self.assertEqual(json.loads(c.ask(request("BREW", "/r/1"))[2])["method"], 7)

    def test_the_path_arrives_as_it_was_sent(self):
        with Client(self.server) as c:
            for path in (
                *("/r/a%2fb", "/r/%2e%2e/x", "/r/../x", "//r///x"),
                *("/r/%25%34%31", "/r/~!$&'()*+,;=:@"),
            ):
                self.assertEqual(json.loads(c.ask(request("GET", path))[2])["path"], path)
            self.assert_echo(c.ask(request("GET", "http://h:1/r/abs")), "GET", "/r/abs")
            got = json.loads(c.ask(request("GET", "/r/q?a=1&b=%20?c"))[2])
            self.assertEqual((got["path"], got["query"]), ("/r/q", "a=1&b=%20?c"))

    def test_late_answers_by_lane_and_inbox(self):
        def one(n):
            with Client(self.server) as c:
                for i in range(50):
                    path = f"/lane/{n}-{i}"
                    self.assert_echo(c.ask(request("POST", path, b"b")), "POST", path, b"b")

        threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.stat()["open"], 1)

    def test_a_process_that_ends_wakes_the_loop(self):
        with Client(self.server) as c:
            for i in range(10):
                self.assert_echo(c.ask(request("GET", f"/child/{i}")), "GET", f"/child/{i}")

    def test_large_answers_come_whole(self):
        with Client(self.server) as c:
            for size in (1, 32767, 32768, 32769, 65536, 5 * MIB):
                status, headers, body = c.ask(request("GET", f"/r/1?size={size}"))
                self.assertEqual((status, len(body)), (200, size))
                self.assertEqual(body[:26], bytes(range(97, 97 + min(size, 26))))

    def test_an_answer_without_a_body(self):
        with Client(self.server) as c:
            status, headers, body = c.ask(request("DELETE", "/r/1?empty"))
            self.assertEqual((status, body), (204, b""))
            self.assertNotIn("content-length", headers)
            self.assert_echo(c.ask(request("GET", "/r/2")), "GET", "/r/2")

    def test_connection_close_and_http_1_0(self):
        closing = request("GET", "/r/1", headers=["Connection: keep-alive, Close"])
        for data in (closing, b"GET /r/1 HTTP/1.0\r\n\r\n"):
            with Client(self.server) as c:
                status, headers, _ = c.ask(data)
                self.assertEqual((status, headers["connection"]), (200, "close"))
                self.assertEqual(c.ended(), b"")

    def test_expect_100_continue(self):
        head = b"POST /r/1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
        head += b"Content-Length: %d\r\n\r\n"
        with Client(self.server) as c:
            self.assertEqual(c.ask(head % 5)[0], 100)
            self.assert_echo(c.ask(b"hello"), "POST", "/r/1", b"hello")
            self.assert_echo(c.ask(head % 5 + b"hello"), "POST", "/r/1", b"hello")
        self.assert_refused(head % (2 * MIB), *TOO_LARGE)

    def test_the_unix_socket_serves_the_same(self):
        with Client(self.server, local=True) as c:
            answer = c.ask(request("POST", "/r/u", b"1"))
            self.assert_echo(answer, "POST", "/r/u", b"1")
            self.assertEqual(json.loads(answer[2])["peer"], "unix")
        self.assertEqual(os.stat(self.server.control).st_mode & 0o777, 0o660)

    def test_numbers_are_never_used_again(self):
        seen = set()
        for _ in range(20):
            with Client(self.server) as c:
                seen.add(json.loads(c.ask(request("GET", "/r/1"))[2])["conn"])
        self.assertEqual(len(seen), 20)


class Refusals(ServerCase):
    def test_bodies_need_content_length(self):
        chunked = ["Transfer-Encoding: chunked"]
        body = b"5\r\nhello\r\n0\r\n\r\n"
        self.assert_refused(request("POST", "/r", None, chunked) + body, *NO_LENGTH)
        self.assert_refused(request("POST", "/r", b"", chunked), *NO_LENGTH)
        twice = ["transfer-encoding: gzip, chunked"]
        self.assert_refused(request("PUT", "/r", None, twice), *NO_LENGTH)

    def test_content_length_is_one_number(self):
        for lines in (
            ["Content-Length: 5", "Content-Length: 5"],
            ["Content-Length: 5", "content-length: 6"],
            ["Content-Length: 5, 5"],
            ["Content-Length: 5 5"],
            ["Content-Length: -1"],
            ["Content-Length: +5"],
            ["Content-Length: abc"],
            ["Content-Length: 0x5"],
            ["Content-Length: 5."],
            ["Content-Length:"],
            ["Content-Length : 5"],
        ):
            self.assert_refused(request("POST", "/r", None, lines) + b"hello", *MALFORMED)

    def test_what_is_over_the_cap_is_refused_before_it_is_read(self):
        for length in (MIB + 1, 2**63, 2**64, 10**40):
            line = f"Content-Length: {length}"
            self.assert_refused(request("POST", "/r", None, [line]), *TOO_LARGE)
        with Client(self.server) as c:
            self.assert_echo(c.ask(request("POST", "/r", b"x" * MIB)), "POST", "/r", b"x" * MIB)

    def test_a_refusal_reaches_a_peer_that_still_sends(self):
        for _ in range(10):
            with Client(self.server) as c:
                got = c.ask(request("PUT", "/r", b"z" * (4 * MIB)))
                self.assertEqual(got[0], 413)

    def test_paths(self):
        for path in (
            *("/r/%00", "/r/a%00b", "/r/%zz", "/r/%", "/r/%4", "/r/%4g"),
            *("/r?q=%zz", "/r?%00", "/r#f", "r", "*"),
        ):
            self.assert_refused(request("GET", path), *MALFORMED)
        for raw in (b"/r/\x00x", b"/r/\x7f", b"/r/\xc3\xa4", b"/r/\x01", b"/a b", b""):
            self.assert_refused(b"GET " + raw + b" HTTP/1.1\r\nHost: x\r\n\r\n", *MALFORMED)

    def test_request_lines(self):
        for line in (
            *(b"GET", b"GET /r", b"GET  /r HTTP/1.1", b"GET /r HTTP/1.1 ", b" GET /r HTTP/1.1"),
            *(b"GET /r HTTP/1.2", b"GET /r HTTP/2.0", b"GET /r http/1.1", b"PRI * HTTP/2.0"),
            *(b"G(T /r HTTP/1.1", b"\x16\x03\x01\x02", b"CONNECT h:1 HTTP/1.1"),
        ):
            self.assert_refused(line + b"\r\nHost: x\r\n\r\n", *MALFORMED)

    def test_header_lines(self):
        for line in (
            *(b"Na me: x", b": x", b"Name", b"Name : x", b"Name: a\rb", b"Name: a\nB: c"),
            *(b"Name: a\x00b", b"Name: a\x1fb", b"Name: a\r\n folded"),
            *(b"Host: y", b"Authorization: a\r\nAuthorization: b"),
        ):
            self.assert_refused(b"GET /r HTTP/1.1\r\nHost: x\r\n" + line + b"\r\n\r\n", *MALFORMED)
        self.assert_refused(b"GET /r HTTP/1.1\r\n\r\n", *MALFORMED)
        self.assert_refused(b"GET /r HTTP/1.1\nHost: x\n\n\r\n\r\n", *MALFORMED)
        many = "".join(f"A{i}: b\r\n" for i in range(120)).encode()
        self.assert_refused(b"GET /r HTTP/1.1\r\nHost: x\r\n" + many + b"\r\n", *MALFORMED)

    def test_heads_up_to_16_kib(self):
        base = len(request("GET", "/r", None, ["X: "]))
        with Client(self.server) as c:
            line = "X: " + "y" * (HEAD_MAX - base)
            self.assert_echo(c.ask(request("GET", "/r", None, [line])), "GET", "/r")
        self.assert_refused(request("GET", "/r", None, [line + "y"]), *TOO_LARGE)
        self.assert_refused(b"G" * 100000, *TOO_LARGE)
        self.assert_refused(b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", *TOO_LARGE)

    def test_an_upgrade_to_something_else_is_a_plain_request(self):
        with Client(self.server) as c:
            lines = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA"]
            self.assert_echo(c.ask(request("GET", "/r/h2", None, lines)), "GET", "/r/h2")


class Connections(ServerCase):
    def test_a_get_and_a_put_in_one_segment(self):
        # libwebsockets' own parser would spin on this for ever.
        for _ in range(3000):
            with Client(self.server) as c:
                c.send(request("GET", "/r/1?now") + request("PUT", "/r/2?now", b"12345"))
                self.assert_echo(c.answer(), "GET", "/r/1")
                self.assert_echo(c.answer(), "PUT", "/r/2", b"12345")

    def test_pipelined_requests_are_answered_in_order(self):
        with Client(self.server) as c:
            bodies = [b"%d" % i * (i * 997 % 3000) for i in range(200)]
            data = b"".join(request("POST", f"/r/{i}", body) for i, body in enumerate(bodies))
            sender = threading.Thread(target=c.send, args=(data,))
            sender.start()
            for i, body in enumerate(bodies):
                self.assert_echo(c.answer(), "POST", f"/r/{i}", body)
            sender.join()

    def test_a_slow_head_and_body(self):
        with Client(self.server) as c:
            for byte in request("POST", "/r/slow", b"abc"):
                c.send(bytes([byte]))
                time.sleep(0.002)
            self.assert_echo(c.answer(), "POST", "/r/slow", b"abc")

    def test_a_peer_that_goes_while_its_request_is_pending(self):
        for _ in range(50):
            c = Client(self.server)
            c.send(request("POST", "/r/1?delay=300", b"x"))
            c.sock.close()
        wait_equal(self, 1, lambda: self.stat()["open"])

    def test_a_peer_that_resets(self):
        for _ in range(50):
            c = Client(self.server)
            c.send(request("GET", "/r/1?size=1000000"))
            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            c.sock.close()
        wait_equal(self, 1, lambda: self.stat()["open"])

    def test_what_a_peer_has_sent_before_it_closes_with_unread_input_counts(self):
        for local in (False, True):
            c = Client(self.server, local=local)
            c.send(request("GET", "/r/1?now"))
            wait_for(self, "an answer that is not read", lambda: c.sock.recv(1, socket.MSG_PEEK))
            self.server.process.send_signal(signal.SIGSTOP)
            c.send(b"BAD\r\n\r\n")
            c.sock.close()
            self.server.process.send_signal(signal.SIGCONT)
        wait_equal(self, 2, lambda: self.stat()["refused"])

    def test_a_peer_that_closes_its_sending_side_still_gets_its_answers(self):
        for local in (False, True):
            for path in ("/r/1?now", "/r/1?delay=200", "/lane/1"):
                with Client(self.server, local=local) as c:
                    c.send(request("GET", path) + request("POST", "/r/2", b"xyz"))
                    c.sends_no_more()
                    self.assert_echo(c.answer(), "GET", path.partition("?")[0])
                    self.assert_echo(c.answer(), "POST", "/r/2", b"xyz")
                    if local or not self.tls:  # to TLS such an end is an error
                        self.assertEqual(c.ended(), b"")
            with Client(self.server, local=local) as c:
                c.send(request("GET", "/r/1?size=20000000"))
                c.sends_no_more()
                self.assertEqual(len(c.answer()[2]), 20000000)
        wait_equal(self, 1, lambda: self.stat()["open"])

    def test_input_while_output_is_stuck_costs_no_cpu(self):
        for local in (False, True):
            with Client(self.server, local=local) as c:
                c.send(request("GET", "/r/1?size=50000000"))
                self.assert_idle()
                c.send(request("GET", "/r/2"))
                self.assert_idle()
                self.assert_answers()
                self.assertEqual(len(c.answer()[2]), 50000000)
                self.assert_echo(c.answer(), "GET", "/r/2")

    def test_a_pending_request_takes_no_endless_input(self):
        with Client(self.server, timeout=1) as c:
            c.send(request("GET", "/r/1?delay=3000"))
            sent = 0
            try:
                while sent < 64 * MIB:
                    sent += c.sock.send(request("GET", "/r/2") * 1000)
            except (TimeoutError, ConnectionError):
                pass
            self.assertLess(sent, 64 * MIB)
            self.assert_idle()

    def test_draining(self):
        with Client(self.server) as idle, Client(self.server) as busy:
            self.assert_echo(idle.ask(request("GET", "/r/1")), "GET", "/r/1")
            busy.send(request("GET", "/r/2?delay=2000"))
            wait_equal(self, 2, lambda: self.stat()["open"])  # it, and the question
            self.server.process.send_signal(signal.SIGHUP)
            self.assertEqual(idle.ended(), b"")
            with self.assertRaises(OSError):
                Client(self.server)
            answer = busy.answer()
            self.assert_echo(answer, "GET", "/r/2")
            self.assertEqual(answer[1]["connection"], "close")
        self.assertEqual(self.server.wait(), 0)

    def test_an_answer_is_whole_when_more_was_sent_behind_its_request(self):
        size, behind = 3 * MIB, request("GET", "/r/2") * 1500
        for local in (False, True):
            for path in (f"/r/1?size={size}", f"/r/1?size={size}&delay=50"):
                with Client(self.server, local=local) as c:
                    c.send(request("GET", path, headers=["Connection: close"]) + behind)
                    self.assertEqual(len(c.answer()[2]), size)
                    self.assertFalse(c.more())  # an end, and no reset

    def assert_whole_while_it_drains(self, client, size):
        """What is read last lies in the buffers for a while, with the server done with it."""
        last = MIB
        while len(client.rest) < size - last:
            client.more()
        time.sleep(0.5)
        status, headers, body = client.answer()
        self.assertEqual((status, headers["connection"], len(body)), (200, "keep-alive", size))
        self.assertFalse(client.more())  # an end, and no reset

    def test_an_answer_under_way_when_it_drains_is_whole_in_spite_of_what_is_behind(self):
        size = 20 * MIB
        with Client(self.server) as c, Client(self.server, local=True) as local:
            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
            for client in (c, local):
                client.send(request("GET", f"/r/1?size={size}"))
                client.more()
                client.send(request("GET", "/r/2") * 100)  # stays unread until it is answered
            self.server.process.send_signal(signal.SIGHUP)
            for client in (c, local):
                self.assert_whole_while_it_drains(client, size)
        self.assertEqual(self.server.wait(), 0)

    def test_a_peer_that_goes_on_sending_does_not_hold_up_the_end(self):
        with Client(self.server) as c:
            self.assert_echo(c.ask(request("GET", "/r/1")), "GET", "/r/1")
            self.server.process.send_signal(signal.SIGHUP)
            with self.assertRaises(OSError):
                while True:
                    c.send(b"x" * 1000)
                    time.sleep(0.005)
            self.assertEqual(self.server.wait(), 0)

    def test_what_is_sent_behind_an_answer_is_read_for_a_moment_only(self):
        with Client(self.server) as c:
            c.send(request("GET", "/r/1?now", headers=["Connection: close"]))
            self.assert_echo(c.answer(), "GET", "/r/1")
            with self.assertRaises(OSError):
                for _ in range(300):
                    c.send(b"x" * MIB)
        wait_equal(self, 1, lambda: self.stat()["open"])

    def test_random_bytes(self):
        dice = random.Random(7)
        words = [b"GET ", b"/r ", b"HTTP/1.1", b"\r\n", b"Host: x", b"\r\n\r\n", b"\0", b"%"]
        words += [b"Content-Length: 3", b"Connection: Upgrade", b"Upgrade: websocket"]

        def part():
            return dice.choice(words) if dice.random() < 0.8 else dice.randbytes(dice.randrange(40))

        for _ in range(FUZZ_ROUNDS * 3):
            with Client(self.server, timeout=0.05) as c:
                parts = [part() for _ in range(dice.randrange(1, 30))]
                try:
                    c.send(b"".join(parts))
                    if dice.random() < 0.3:
                        c.answer()
                except (OSError, AssertionError):
                    pass


class SlowPeers:
    """Head, body, unread answer, idle, all at once and beside the other tests: it takes half a minute."""

    def __init__(self):
        self.server = EchoServer()
        self.cut_s = {}
        self.idle_answer = None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        clients = [Client(self.server, timeout=45) for _ in range(4)]
        head, body, unread, idle = clients
        begin = time.monotonic()
        idle.ask(request("GET", "/r/1"))
        body.send(request("POST", "/r", None, ["Content-Length: 100"]))
        unread.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.send(request("GET", "/r/1?size=50000000"))
        dripping = {"head": (head, b"G"), "body": (body, b"x")}
        while (dripping or self.idle_answer is None) and not self.stopped.wait(0.5):
            for name, (c, data) in list(dripping.items()):
                if self.is_cut(c, data):
                    self.cut_s[name] = time.monotonic() - begin
                    del dripping[name]
            # Longer than a head may take, and not so long as a connection may be idle.
            if self.idle_answer is None and time.monotonic() - begin > 32:
                self.idle_answer = idle.ask(request("GET", "/r/2"))
        self.stopped.wait()  # `unread` is open until the test has looked
        for c in clients:
            c.sock.close()

    @staticmethod
    def is_cut(c, data):
        try:
            c.send(data)
            c.sock.settimeout(0.5)
            return c.sock.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True


SLOW = []


def setUpModule():
    SLOW.append(SlowPeers())


def tearDownModule():
    for slow in SLOW:
        slow.stopped.set()
        slow.thread.join()
        if slow.server.process.poll() is None:
            slow.server.stop()
        slow.server.close()


class ZDeadlines(ServerCase):
    """The last of all: SlowPeers has begun before the first."""

    def setUp(self):
        self.server = SLOW[0].server
        self.addCleanup(self.assert_ends_well)

    def test_slow_peers_are_cut(self):
        slow = SLOW[0]
        wait_equal(self, True, lambda: slow.idle_answer is not None, 90)
        wait_equal(self, {"head", "body"}, lambda: set(slow.cut_s), 90)
        for took in slow.cut_s.values():
            self.assertGreater(took, 25)
        self.assert_echo(slow.idle_answer, "GET", "/r/2")
        wait_equal(self, 1, lambda: self.stat()["open"])
        slow.stopped.set()
        slow.thread.join()


class Descriptors(ServerCase):
    descriptors = 128

    def test_running_out_rests_and_recovers(self):
        socks = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(400)]
        wait_equal(self, True, lambda: "accept_paused" in self.server.logged())
        self.assert_idle()
        for sock in socks:
            sock.close()
        self.assert_answers()


class DescriptorsTaken(ServerCase):
    """Others of the process have taken those that were meant for connections."""

    def test_running_out_rests_and_recovers(self):
        resource.prlimit(self.server.process.pid, resource.RLIMIT_NOFILE, (40, 40))
        socks = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(100)]
        wait_equal(self, True, lambda: "Too many open files" in self.server.logged())
        self.assert_idle()
        for sock in socks:
            sock.close()
        self.assert_answers()


class Fuzz(ServerCase):
    """Sequential and pipelined requests in random segments: no wrong answer, no hang."""

    def test_keep_alive(self):
        threads, faults = [], []
        for seed in range(8):
            thread = threading.Thread(target=self.guarded, args=(seed, faults))
            threads.append(thread)
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])

    def guarded(self, seed, faults):
        try:
            self.run_one(random.Random(seed))
        except Exception as fault:  # told by the test
            faults.append(f"seed {seed}: {fault!r}")

    def run_one(self, dice):
        n = 0
        for _ in range(FUZZ_ROUNDS):
            with Client(self.server) as c:
                for _ in range(dice.randrange(1, 8)):
                    batch = []
                    for _ in range(dice.choice([1, 1, 1, 2, 5])):
                        n += 1
                        batch.append(self.pick(dice, n))
                    self.exchange(dice, c, batch)

    @staticmethod
    def pick(dice, n):
        method = dice.choice(["GET", "GET", "DELETE", "PUT", "POST", "PATCH"])
        body = None
        if method not in ("GET", "DELETE") or dice.random() < 0.1:
            body = dice.randbytes(dice.choice([0, 1, 5, 20, 300, 5000, 70000]))
        how = dice.choice(["/r/", "/r/", "/lane/"])
        return method, f"{how}{n}", dice.choice(["", "?now", "?delay=3"]), body

    def exchange(self, dice, c, batch):
        self.in_segments(dice, c, b"".join(request(m, p + q, b) for m, p, q, b in batch))
        for method, path, _, body in batch:
            self.assert_echo(c.answer(), method, path, body or b"")

    @staticmethod
    def in_segments(dice, c, data):
        while data:
            n = dice.choice([1, 2, 7, 50, 500, 5000, len(data), len(data), len(data)])
            c.send(data[:n])
            data = data[n:]
            if dice.random() < 0.15:
                time.sleep(dice.random() * 0.002)


class TlsRequests(Requests):
    tls = True


class TlsFuzz(Fuzz):
    tls = True


class TlsConnections(ServerCase):
    tls = True

    def test_a_peer_that_closes_its_sending_side_still_gets_its_answers(self):
        Connections.test_a_peer_that_closes_its_sending_side_still_gets_its_answers(self)

    def test_a_refusal_reaches_a_peer_that_still_sends(self):
        with Client(self.server) as c:
            self.assertEqual(c.ask(request("PUT", "/r", b"z" * (2 * MIB)))[0], 413)

    def test_the_end_of_the_stream_is_told(self):
        wait_for(self, "an end that is told at once", lambda: self.end_s() < 1)

    def end_s(self):
        """How long the end of the stream took. Told by the end of the connection alone, it is an error, and
        takes two seconds however quick the machine is."""
        with socket.create_connection(("127.0.0.1", self.server.port)) as sock:
            with trusting().wrap_socket(sock, suppress_ragged_eofs=False) as c:
                c.settimeout(PATIENCE_S)
                begin = time.monotonic()
                c.sendall(request("GET", "/r/1?now", headers=["Connection: close"]))
                while c.recv(65536):
                    pass
                return time.monotonic() - begin

    def test_plain_bytes_and_half_a_handshake(self):
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"", os.urandom(500)):
            with socket.create_connection(("127.0.0.1", self.server.port)) as sock:
                sock.sendall(data)
                time.sleep(0.05)

    def test_old_versions_are_refused(self):
        context = trusting()
        with warnings.catch_warnings(action="ignore"):
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with socket.create_connection(("127.0.0.1", self.server.port)) as sock:
            with self.assertRaises(OSError):
                context.wrap_socket(sock)


class WebSockets(ServerCase):
    control, bots = "leasehold.control.v1", "leasehold.v1"

    def open(self, protocol=bots, local=False, path="/api/v1/ws"):
        scheme = "wss" if self.tls else "ws"
        c = WsClient.connect(
            self.server.control if local else f"{scheme}://127.0.0.1:{self.server.port}",
            path=path,
            protocols=[protocol],
            ssl_context=trusting() if self.tls else None,
        )
        self.addCleanup(c.sock.close)
        self.assertEqual(c.recv(), (OP_TEXT, protocol.encode()))
        return c

    def refused(self, **more):
        with self.assertRaises(WsHandshakeError) as refusal:
            self.open(**more)
        return refusal.exception.status

    def test_each_subprotocol_at_its_own_door(self):
        self.open(self.bots)
        self.open(self.control, local=True)
        self.assertEqual(self.refused(protocol=self.control), 400)
        self.assertEqual(self.refused(protocol=self.bots, local=True), 400)
        self.assertEqual(self.refused(protocol="chat"), 400)
        self.assertEqual(self.refused(path="/refuse"), 403)

    def test_messages_and_fragments(self):
        c = self.open()
        for size in (0, 1, 125, 126, 65535, 65536, 256 * 1024):
            c.send_text("m" * size)
            self.assertEqual(c.recv(), (OP_TEXT, b"m" * size))
        c.sock.sendall(masked(OP_TEXT, b"ab", fin=False) + masked(OP_PING, b"p"))
        c.sock.sendall(masked(OP_CONT, b"", fin=False) + masked(OP_CONT, b"cd"))
        self.assertEqual(self.frames(c, 2), [(OP_PONG, b"p"), (OP_TEXT, b"abcd")])

    @staticmethod
    def frames(c, n):
        return [c.recv_frame()[-2:] for _ in range(n)]

    def test_frames_in_single_bytes(self):
        c = self.open()
        for byte in masked(OP_TEXT, b"x" * 130):
            c.sock.sendall(bytes([byte]))
        self.assertEqual(c.recv(), (OP_TEXT, b"x" * 130))

    def closed_with(self, data, **more):
        c = self.open(**more)
        c.sock.sendall(data)
        return c.wait_closed()

    def test_what_is_against_the_protocol(self):
        self.assertEqual(self.closed_with(frame(OP_TEXT, b"x")), 1002)  # not masked
        self.assertEqual(self.closed_with(masked(OP_TEXT, b"x", rsv=4)), 1002)
        self.assertEqual(self.closed_with(masked(3, b"x")), 1002)
        self.assertEqual(self.closed_with(masked(OP_PING, b"x" * 126)), 1002)
        self.assertEqual(self.closed_with(masked(OP_PING, b"", fin=False)), 1002)
        self.assertEqual(self.closed_with(masked(OP_CONT, b"x")), 1002)
        halves = masked(OP_TEXT, b"x", fin=False) + masked(OP_TEXT, b"")
        self.assertEqual(self.closed_with(halves), 1002)
        long_form, over_2_63 = b"\x81\xfe\x00\x01", b"\x81\xff\xff" + b"\0" * 7
        self.assertEqual(self.closed_with(long_form + MASK + b"x"), 1002)
        self.assertEqual(self.closed_with(over_2_63 + MASK), 1002)
        self.assertEqual(self.closed_with(masked(OP_BINARY, b"x")), 1003)

    def test_messages_over_the_cap(self):
        self.assertEqual(self.closed_with(b"\x81\xff" + (2**62).to_bytes(8, "big") + MASK), 1009)
        self.assertEqual(self.closed_with(masked(OP_TEXT, b"x" * (256 * 1024 + 1))), 1009)
        first, more = (masked(opcode, b"x" * 65536, fin=False) for opcode in (OP_TEXT, OP_CONT))
        self.assertEqual(self.closed_with(first + more * 4), 1009)
        big = b"x" * (2 * MIB)
        c = self.open(self.control, local=True)
        c.sock.sendall(masked(OP_TEXT, big))
        self.assertEqual(c.recv(), (OP_TEXT, big))

    def test_close_codes_arrive(self):
        for code in (1000, 1013, 4401):
            c = self.open()
            c.send_text(f"close {code}")
            self.assertEqual(c.wait_closed(), code)
        c = self.open()
        c.sock.sendall(masked(OP_CLOSE, (1000).to_bytes(2, "big")))
        self.assertEqual(c.wait_closed(), 1000)
        wait_equal(self, 4, lambda: self.stat()["closed"])

    def test_a_peer_that_ignores_the_close(self):
        c = self.open()
        c.send_text("close 4403")
        time.sleep(0.2)
        wait_equal(self, 1, lambda: self.stat()["closed"])

    def test_a_slow_reader_is_closed_with_1013(self):
        c = self.open()
        c.send_text("flood 2000")
        time.sleep(0.5)
        self.assertEqual(c.wait_closed(), 1013)
        wait_equal(self, 1, lambda: self.stat()["closed"])

    def test_a_flood_below_the_cap_arrives(self):
        c = self.open(self.control, local=True)
        c.send_text("flood 100")
        for _ in range(100):
            self.assertEqual(len(c.recv()[1]), 65536)

    def test_handshakes_that_are_none(self):
        base = ["Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Protocol: {self.bots}"]
        key, version = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13"
        self.assert_refused(request("GET", "/ws", None, [*base, key]), *MALFORMED)
        self.assert_refused(request("GET", "/ws", None, [*base, version]), *MALFORMED)
        self.assert_refused(request("POST", "/ws", None, [*base, key, version]), *MALFORMED)
        self.assert_refused(request("GET", "/ws", None, [*base[:2], key, version]), *MALFORMED)
        self.assert_refused(request("GET", "/ws", b"body", [*base, key, version]), *MALFORMED)

    def test_a_server_that_ends_with_sockets_open(self):
        for _ in range(5):
            self.open()
        with Client(self.server) as c:
            c.send(request("GET", "/r/1?delay=5000"))
            time.sleep(0.1)
            self.assertEqual(self.server.stop(), 0)

    def test_random_frames(self):
        dice = random.Random(11)
        for _ in range(FUZZ_ROUNDS * 3):
            c = self.open()
            for _ in range(dice.randrange(1, 10)):
                opcode = dice.choice([0, 1, 1, 2, 8, 9, 10])
                payload = dice.randbytes(dice.randrange(200))
                data = bytearray(masked(opcode, payload, fin=dice.random() < 0.7))
                if dice.random() < 0.2:
                    data[dice.randrange(2)] ^= 1 << dice.randrange(8)
                try:
                    c.sock.sendall(data)
                except OSError:
                    break
            c.sock.close()


class TlsWebSockets(WebSockets):
    tls = True


class Start(unittest.TestCase):
    def run_it(self, run_dir, port, *more):
        return subprocess.run(
            [os.path.join(BIN, "echo_server"), run_dir, str(port), *more],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def test_a_port_in_use_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with tempfile.TemporaryDirectory() as run_dir:
                done = self.run_it(run_dir, port)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"127.0.0.1:{port}", done.stderr)
        self.assertIn("in use", done.stderr)

    def test_a_path_that_is_too_long_is_named(self):
        with tempfile.TemporaryDirectory() as top:
            run_dir = os.path.join(top, "d" * 100)
            os.mkdir(run_dir)
            done = self.run_it(run_dir, 0)
        self.assertEqual(done.returncode, 1)
        self.assertIn("run_dir", done.stderr)
        self.assertIn("107", done.stderr)

    def test_certificates_that_do_not_serve_are_named(self):
        with tempfile.TemporaryDirectory() as run_dir:
            broken = os.path.join(run_dir, "x.pem")
            done = self.run_it(run_dir, 0, broken, broken)
            self.assertEqual(done.returncode, 1)
            self.assertIn(broken, done.stderr)
            with open(broken, "w", encoding="ascii") as file:
                file.write("nonsense")
            done = self.run_it(run_dir, 0, broken, broken)
            self.assertEqual(done.returncode, 1)
            self.assertIn(broken, done.stderr)

    def test_a_stale_socket_is_replaced_and_a_file_is_not(self):
        with tempfile.TemporaryDirectory() as run_dir:
            path = os.path.join(run_dir, "control.sock")
            with open(path, "w", encoding="ascii"):
                pass
            done = self.run_it(run_dir, 0)
            self.assertEqual(done.returncode, 1)
            self.assertIn("control.sock", done.stderr)


if __name__ == "__main__":
    unittest.main()
