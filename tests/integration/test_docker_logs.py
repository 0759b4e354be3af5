#!/usr/bin/python3
"""Logs of containers, where the engine keeps but a part, in pieces, by a clock that may be set: nothing is lost
without a word, nothing is told twice. What a real engine cannot be made to answer, a proxy before it does."""

import datetime
import struct
import threading
import time
import unittest
import urllib.parse

from docker import Docker, busybox
from engine_proxy import EngineProxy, answer
from engines import SHELL
from test_logs import Follower
from waiting import wait_for

GAP = b"a part is missing here"
PIECE = 16384
HOUR = 3600 * 10**9


class FakeLog:
    """What an engine answers for a container's log, as far as it is asked for."""

    def __init__(self):
        self.lock = threading.Lock()
        self.kept = []  # (nanoseconds, text)
        self.asked = 0
        self.now = time.time_ns()

    def say(self, *texts, ns=None):
        """Lines, or pieces of one when they have the same time."""
        with self.lock:
            for text in texts:
                self.now += 1000
                self.kept.append((self.now if ns is None else ns, text))

    def lose(self, n):
        with self.lock:
            del self.kept[:n]

    def replace(self, kept):
        with self.lock:
            self.kept = kept

    def rule(self, method, path, query):
        if not path.endswith("/logs"):
            return None
        asked = dict(urllib.parse.parse_qsl(query))
        seconds, _, rest = asked.get("since", "0.0").partition(".")
        since = int(seconds) * 10**9 + int(rest)
        with self.lock:
            self.asked += 1
            kept = self.kept[-int(asked["tail"]) :] if "tail" in asked else self.kept
            body = b"".join(self.frame(ns, text) for ns, text in kept if ns >= since)
        return answer(200, body, "application/vnd.docker.raw-stream")

    @staticmethod
    def frame(ns, text):
        day = datetime.datetime.fromtimestamp(ns // 10**9, datetime.timezone.utc)
        payload = f"{day:%Y-%m-%dT%H:%M:%S}.{ns % 10**9:09}Z ".encode() + text
        return b"\x02\0\0\0" + struct.pack(">I", len(payload)) + payload


class OnDocker(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.docker = Docker()
        cls.addClassCleanup(cls.docker.cleanup)
        cls.docker.image("lh/busybox", busybox())

    def start(self, url=None):
        profiles = [{"name": "default", "command": SHELL}]
        self.gateway = self.docker.gateway(self, {"profiles": profiles}, url=url)
        sandbox, grant = self.gateway.open(self.gateway.new_chat()["chat_id"], lease={})
        self.path = f"/sandboxes/{sandbox['session_id']}/logs"
        return grant

    def logs(self, query=""):
        return self.gateway.rest("GET", self.path + query)[2]

    def follow(self, query=""):
        return Follower(self, self.gateway, f"{self.path}?follow=true{query}")

    def ended(self, follower):
        self.gateway.expect(200, "DELETE", self.path.removesuffix("/logs"))
        return follower.wait_end()


class Faked(OnDocker):
    def setUp(self):
        self.log = FakeLog()
        proxy = EngineProxy(self, self.docker.socket)
        proxy.query_rule = self.log.rule
        self.start(proxy.url)

    def let_read(self):
        """What is there now has been looked at, and what it led to asked for."""
        asked = self.log.asked
        wait_for(self, "a look", lambda: self.log.asked > asked + 4)

    def outgrow(self, pieces, later, told):
        """A line of which `pieces` were read and `later` are what is left."""
        self.log.say(b"first\n")
        begun = self.log.now + 1000
        self.log.say(*pieces, ns=begun)
        follower = self.follow()
        wait_for(self, "its beginning", lambda: len(follower.data) == sum(map(len, [b"first\n", *pieces])))
        self.log.replace([(begun, piece) for piece in later])
        follower.wait_for(GAP)
        self.log.now = begun
        self.log.say(b"end\n")
        follower.wait_for(b"end\n")
        data = self.ended(follower)
        self.assertEqual(data.count(GAP), 1)
        self.assertEqual(data.partition(GAP)[2].strip(), b"".join([*told, b"end"]))

    def test_a_line_that_outgrows_what_is_kept_is_told_to_have(self):
        pieces = [b"%05d" % i * (PIECE // 5) for i in range(200)]
        self.outgrow(pieces[:10], pieces[100:164], pieces[100:164])

    def test_so_is_one_whose_pieces_are_all_alike(self):
        self.outgrow([b"x" * PIECE] * 10, [b"x" * PIECE] * 64, [b"x" * PIECE] * 54)

    def test_a_line_that_grows_and_is_kept_is_told_once_and_whole(self):
        for before in ([], [b"before\n"]):
            self.log.replace([])
            self.log.say(*before)
            begun = self.log.now + 1000
            follower = self.follow()
            for n in (1, 2, 7):
                self.log.say(*[b"x" * 1000] * n, ns=begun)
                wait_for(self, "pieces", lambda n=n: follower.data.endswith(b"x" * 1000 * n))
                self.let_read()
            self.assertEqual(follower.data, b"".join(before) + b"x" * 10000)
            self.log.now = begun
            follower.leave()

    def test_lines_of_a_clock_that_was_set_back_are_seen_at_once_and_each_once(self):
        self.log.say(b"one\n", b"two\n")
        follower = self.follow()
        follower.wait_for(b"two\n")
        self.log.now -= HOUR
        self.log.say(b"three\n")
        follower.wait_for(b"three\n")
        self.log.say(b"four\n")
        follower.wait_for(b"four\n")
        self.let_read()
        other = self.follow()
        other.wait_for(b"four\n")
        self.log.now += 2 * HOUR
        self.log.say(b"five\n")
        for each in (follower, other):
            each.wait_for(b"five\n")
        self.let_read()
        self.assertEqual(self.ended(follower), b"one\ntwo\nthree\nfour\nfive\n")
        self.assertEqual(other.wait_end(), b"one\ntwo\nthree\nfour\nfive\n")

    def test_what_a_clock_set_back_and_a_full_log_took_is_told(self):
        self.log.say(b"one\n", b"two\n")
        follower = self.follow()
        follower.wait_for(b"two\n")
        self.log.replace([])
        self.log.now -= HOUR
        self.log.say(b"nine\n", b"ten\n")
        follower.wait_for(b"ten\n")
        self.let_read()
        data = self.ended(follower)
        self.assertTrue(data.endswith(GAP + b"\nnine\nten\n"), data)

    def test_a_tail_of_nothing_yet_loses_nothing_that_comes(self):
        for tail in (0, 1):
            self.log.replace([])
            follower = self.follow(f"&tail={tail}")
            self.let_read()
            self.log.say(b"one\n", b"two\n")
            follower.wait_for(b"two\n")
            self.assertEqual(follower.data, b"one\ntwo\n")
            follower.leave()


class Real(OnDocker):
    def setUp(self):
        grant = self.start()
        self.client = self.gateway.connect(grant)
        self.addCleanup(self.client.close)

    def run_in(self, line):
        self.client.send_text(f"{line}; echo done")
        self.assertEqual(self.client.recv(60)[1], b"done")

    def test_a_tail_counts_lines_whatever_their_length(self):
        self.run_in("echo short >&3; head -c 100000 /dev/zero | tr '\\0' x >&3; echo >&3; echo last >&3")
        long = b"x" * 100000 + b"\n"
        wait_for(self, "all", lambda: self.logs() == b"short\n" + long + b"last\n")
        self.assertEqual(self.logs("?tail=1"), b"last\n")
        self.assertEqual(self.logs("?tail=2"), long + b"last\n")
        self.assertEqual(self.logs("?tail=3"), b"short\n" + long + b"last\n")
        self.assertEqual(self.logs("?tail=0"), b"")

    def test_of_a_line_without_end_all_is_told_or_that_it_is_not(self):
        follower = self.follow()
        self.run_in("echo begin >&3; for i in 1 2 3 4; do head -c 3000000 /dev/zero | tr '\\0' x >&3; sleep 0.2; done")
        self.run_in("echo >&3; echo end >&3")
        follower.wait_for(b"end\n")
        data = self.ended(follower)
        self.assertTrue(GAP in data or data.count(b"x") == 12000000, (len(data), data[:100]))


if __name__ == "__main__":
    unittest.main()
