"""Bodies in pieces, by the server alone: tests/support/echo_server.c takes and sends them."""

import json
import socket
import time

from test_http_server import MIB, Client, ServerCase, djb2, request
from waiting import wait_equal

PIECE = 256 * 1024
RSS_AIR = 24 * MIB


def pattern(size):
    """What /out/ sends: 100,000 bytes at a time, each piece from 'a' on."""
    block = bytes(97 + i % 26 for i in range(26000))
    piece = (block * 4)[:100000]
    whole, rest = divmod(size, len(piece))
    return piece * whole + piece[:rest]


class Streams(ServerCase):
    def answer_in(self, body, query="", headers=()):
        with Client(self.server) as c:
            status, _, text = c.ask(request("PUT", "/in/1" + query, body, headers))
            self.assertEqual(status, 200)
            return json.loads(text)

    def rss(self):
        with open(f"/proc/{self.server.process.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * 4096

    def test_a_body_arrives_whole_in_bounded_pieces(self):
        for size in (0, 1, PIECE - 1, PIECE, PIECE + 1, MIB + 17):
            body = bytes(i * 7 % 251 for i in range(1000)) * (size // 1000 + 1)
            body = body[:size]
            got = self.answer_in(body)
            self.assertEqual((got["n"], got["h"]), (size, djb2(body)))
            self.assertLessEqual(got["pieces"], size // PIECE + 1)

    def test_requests_follow_each_other_on_one_connection(self):
        with Client(self.server) as c:
            for size in (5, 300000, 0, 70000):
                self.assertEqual(json.loads(c.ask(request("PUT", "/in/1", b"x" * size))[2])["n"], size)
                self.assert_echo(c.ask(request("GET", "/r/2")), "GET", "/r/2")
            c.send(request("PUT", "/in/1", b"y" * 300000) + request("GET", "/r/3"))
            self.assertEqual(json.loads(c.answer()[2])["n"], 300000)
            self.assert_echo(c.answer(), "GET", "/r/3")

    def test_what_is_not_taken_is_not_read(self):
        before = self.rss()
        with Client(self.server, timeout=1) as c:
            c.send(b"PUT /in/1?lazy=3000 HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
            sent = 0
            with self.assertRaises(socket.timeout):
                while sent < 90 * MIB:
                    sent += c.sock.send(b"z" * MIB)
            self.assertLess(self.rss() - before, RSS_AIR)

    def test_a_slow_taker_gets_everything(self):
        body = b"q" * MIB
        self.assertEqual(self.answer_in(body, "?lazy=20")["h"], djb2(body))

    def test_100_continue_comes_when_the_body_is_wanted(self):
        with Client(self.server) as c:
            head = b"PUT /in/1?lazy=300 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            begin = time.monotonic()
            self.assertEqual(c.ask(head + b"Content-Length: 5\r\n\r\n")[0], 100)
            self.assertGreater(time.monotonic() - begin, 0.2)
            self.assertEqual(json.loads(c.ask(b"hello")[2])["h"], djb2(b"hello"))
        with Client(self.server) as c:
            head = b"PUT /in/1?early HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            status, headers, _ = c.ask(head + b"Content-Length: 5\r\n\r\n")
            self.assertEqual((status, headers["connection"]), (200, "close"))

    def test_an_answer_in_the_middle_of_the_body_reaches_a_peer_that_still_sends(self):
        for query, pieces in (("?early", 0), ("?stop=1", 1)):
            with Client(self.server) as c:
                c.send(request("PUT", "/in/1" + query, b"x" * (8 * MIB)))
                status, headers, text = c.answer()
                self.assertEqual((status, headers["connection"]), (200, "close"))
                self.assertEqual(json.loads(text)["pieces"], pieces)
                self.assertEqual(c.ended(), b"")

    def test_a_peer_that_goes_away_is_told_once(self):
        for n in range(1, 4):
            with Client(self.server) as c:
                c.send(request("PUT", "/in/1", b"x" * 400000)[:-1])
                # Closing may reset the connection, and with that what has not been read yet.
                wait_equal(self, 2, lambda: self.stat()["open"])
            wait_equal(self, n, lambda: self.stat()["gone"])
        with Client(self.server) as c:
            c.send(request("GET", "/out/1?out=50000000"))
            c.sock.recv(1000)
        wait_equal(self, 4, lambda: self.stat()["gone"])
        wait_equal(self, 1, lambda: self.stat()["open"])

    def test_answers_of_known_length(self):
        with Client(self.server) as c:
            for size in (1, 99999, 100000, 100001, 3 * MIB):
                for way in ("", "&pipe") if not self.tls else ("",):
                    status, headers, body = c.ask(request("GET", f"/out/1?out={size}{way}"))
                    self.assertEqual((status, headers["content-length"]), (200, str(size)))
                    self.assertTrue(body == pattern(size), (size, way))
            self.assert_echo(c.ask(request("GET", "/r/2")), "GET", "/r/2")

    def test_answers_of_unknown_length(self):
        with Client(self.server) as c:
            c.send(request("GET", "/out/1?out=250000&unknown"))
            _, headers, _ = c.answer(head_only=True)
            self.assertEqual(headers["transfer-encoding"], "chunked")
            self.assertNotIn("content-length", headers)
            self.assertTrue(self.chunks(c) == pattern(250000))
            self.assert_echo(c.ask(request("GET", "/r/2")), "GET", "/r/2")
        with Client(self.server) as c:
            c.send(b"GET /out/1?out=250000&unknown HTTP/1.0\r\n\r\n")
            _, headers, _ = c.answer(head_only=True)
            self.assertEqual(headers["connection"], "close")
            self.assertNotIn("transfer-encoding", headers)
            self.assertTrue(c.ended() == pattern(250000))

    def chunks(self, c):
        body = b""
        while True:
            while b"\r\n" not in c.rest:
                self.assertTrue(c.more())
            size, _, c.rest = c.rest.partition(b"\r\n")
            size = int(size, 16)
            while len(c.rest) < size + 2:
                self.assertTrue(c.more())
            body += c.rest[:size]
            self.assertEqual(c.rest[size : size + 2], b"\r\n")
            c.rest = c.rest[size + 2 :]
            if size == 0:
                return body

    def test_a_broken_answer_is_seen_as_one(self):
        with Client(self.server) as c:
            c.send(request("GET", "/out/1?out=5000000&cut=200000"))
            _, headers, _ = c.answer(head_only=True)
            self.assertLess(len(c.ended()), int(headers["content-length"]))
        with Client(self.server) as c:
            c.send(request("GET", "/out/1?out=5000000&cut=200000&unknown"))
            c.answer(head_only=True)
            self.assertNotIn(b"\r\n0\r\n\r\n", c.ended())

    def test_head_has_the_length_alone(self):
        with Client(self.server) as c:
            c.send(request("HEAD", "/out/1?out=12345"))
            self.assertEqual(c.answer(head_only=True)[1]["content-length"], "12345")
            self.assert_echo(c.ask(request("GET", "/r/2")), "GET", "/r/2")

    def test_who_does_not_read_is_not_sent_more(self):
        before = self.rss()
        with Client(self.server) as c:
            c.send(request("GET", "/out/1?out=40000000", headers=["Connection: close"]))
            time.sleep(0.5)
            self.assertLess(self.rss() - before, RSS_AIR)
            c.answer(head_only=True)
            got = c.rest + b"".join(iter(lambda: c.sock.recv(MIB), b""))
            self.assertTrue(got == pattern(40000000))

    def test_nobody_listens_to_an_answer_without_an_end(self):
        with Client(self.server) as c:
            c.send(request("GET", "/out/1?out=900000000&unknown"))
            c.sock.recv(1000)
        wait_equal(self, 1, lambda: self.stat()["gone"])


class StreamsByTls(Streams):
    tls = True


