"""GET /sandboxes/{id}/logs: what the agent says on its standard error, whole, in part, and as it comes."""

import datetime
import http.client
import os
import signal
import socket
import subprocess
import threading
import time
import unittest
import urllib.parse
import uuid

import processes
from gateway import BIN, Gateway
from waiting import PATIENCE_S, until, wait_equal

# Says each line on stderr and answers with it; "flood N" says N lines of 100 bytes, "burst N" the same
# at once; "exit" ends.
AGENT = """
import sys
for line in sys.stdin:
    word, _, n = line.strip().partition(" ")
    if word == "exit":
        print("last words", file=sys.stderr, flush=True)
        sys.exit(3)
    if word == "flood":
        for i in range(int(n)):
            sys.stderr.write(f"{i:099}\\n")
        sys.stderr.flush()
    elif word == "burst":
        sys.stderr.buffer.write(b"".join(b"%099d\\n" % i for i in range(int(n))))
        sys.stderr.flush()
    else:
        sys.stderr.write(line)
        sys.stderr.flush()
    print(line, end="", flush=True)
"""
PROFILE = {
    "name": "default",
    "command": ["/usr/bin/python3", "-c", AGENT],
    "transport": "stdio",
    "limits": {"memory_bytes": 268435456, "cpus": 2.0, "pids": 256},
    "network": "none",
    "record_history": False,
}


class Follower:
    """A followed log, read in a thread of its own."""

    def __init__(self, test, gateway, path):
        address = urllib.parse.urlsplit(gateway.url)
        self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        test.addCleanup(self.connection.close)
        test.addCleanup(self.leave)  # before that: who reads would be waited for
        self.connection.request(
            "GET", "/api/v1" + path, headers={"Authorization": f"Bearer {gateway.admin_key}"}
        )
        self.socket = self.connection.sock
        self.response = self.connection.getresponse()
        self.data = b""
        self.failure = None
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        try:
            while piece := self.response.read1(65536):
                self.data += piece
        except Exception as failure:
            self.failure = failure

    def leave(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has ended
            pass

    def wait_for(self, data):
        if not until(lambda: data in self.data):
            raise AssertionError(f"no {data!r} in {self.data[-200:]!r}")

    def wait_end(self):
        self.thread.join(PATIENCE_S)
        if self.thread.is_alive():
            raise AssertionError("the log goes on")
        if self.failure:
            raise self.failure
        return self.data


class Logs(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, {"profiles": [PROFILE]})
        self.chat = self.gateway.new_chat()["chat_id"]
        self.sandbox, grant = self.gateway.open(self.chat, lease={})
        self.path = f"/sandboxes/{self.sandbox['session_id']}/logs"
        self.client = self.gateway.connect(grant)
        self.addCleanup(self.client.close)

    def say(self, *lines):
        for line in lines:
            self.client.send_text(line)
            self.client.recv()

    def logs(self, query="", **options):
        status, headers, body = self.gateway.rest("GET", self.path + query, **options)
        self.assertEqual(status, 200, body)
        self.assertEqual(headers["Content-Type"], "text/plain; charset=utf-8")
        return body

    def eventually(self, wanted, query=""):
        """leasekeep writes what it reads from a pipe: soon, not at once."""
        wait_equal(self, wanted, lambda: self.logs(query))

    def test_all_or_the_last_lines(self):
        self.say("one", "two", "three")
        self.eventually(b"one\ntwo\nthree\n")
        self.assertEqual(self.logs("?tail=2"), b"two\nthree\n")
        self.assertEqual(self.logs("?tail=0"), b"")
        self.assertEqual(self.logs("?tail=99"), b"one\ntwo\nthree\n")

    def test_since_a_moment(self):
        self.say("before")
        self.eventually(b"before\n")
        time.sleep(0.3)
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        time.sleep(0.3)
        self.say("after")
        self.eventually(b"before\nafter\n")
        since = urllib.parse.quote(now.replace("+00:00", "Z"))
        self.assertEqual(self.logs(f"?since={since}"), b"after\n")
        self.assertEqual(self.logs("?since=2099-01-01T00:00:00.000Z"), b"")

    def test_the_newest_of_a_flood_is_kept(self):
        self.say("flood 20000")
        self.eventually(b"%099d\n" % 19999, "?tail=1")
        lines = self.logs().splitlines()[1:]
        self.assertGreaterEqual(len(lines), 5000)
        self.assertEqual([int(line) for line in lines], list(range(20000 - len(lines), 20000)))

    def test_follow_goes_on_until_the_sandbox_is_stopped(self):
        self.say("one")
        self.eventually(b"one\n")
        follower = Follower(self, self.gateway, self.path + "?follow=true&tail=1")
        follower.wait_for(b"one\n")
        self.say("two")
        follower.wait_for(b"two\n")
        self.say("flood 9000")  # two rotations at most
        follower.wait_for(b"%099d\n" % 8999)
        self.gateway.expect(200, "DELETE", self.path.removesuffix("/logs"))
        data = follower.wait_end()
        expected = b"one\ntwo\n" + b"".join(b"%099d\n" % i for i in range(9000))
        self.assertEqual(data, expected)

    def test_what_a_follower_missed_is_told_where_it_is_missing(self):
        follower = Follower(self, self.gateway, self.path + "?follow=true")
        self.say("one")
        follower.wait_for(b"one\n")
        for lines in (3000, 40000):
            self.gateway.process.send_signal(signal.SIGSTOP)
            self.say(f"burst {lines}")
            self.gateway.process.send_signal(signal.SIGCONT)
            follower.wait_for(b"%099d\n" % (lines - 1))
        told = b"leasehold: the agent said more than is kept before it could be read: a part is missing here\n"
        self.gateway.expect(200, "DELETE", self.path.removesuffix("/logs"))
        whole, *rest = follower.wait_end().split(told)
        self.assertEqual(whole[:4 + 300000], b"one\n" + b"".join(b"%099d\n" % i for i in range(3000)))
        self.assertEqual(len(rest), 1)
        before = [int(line) for line in whole[4 + 300000:].splitlines() if len(line) == 99]
        behind = [int(line) for line in rest[0].splitlines() if len(line) == 99]
        self.assertEqual(before, list(range(len(before))))
        self.assertEqual(behind, list(range(40000 - len(behind), 40000)))
        self.assertGreaterEqual(len(behind), 5000)

    def test_follow_sees_the_last_words_of_an_agent_that_dies(self):
        follower = Follower(self, self.gateway, self.path + "?follow=true")
        self.client.send_text("exit")
        self.assertEqual(follower.wait_end(), b"last words\n")

    def test_a_gateway_that_stops_ends_what_is_followed(self):
        follower = Follower(self, self.gateway, self.path + "?follow=true")
        self.say("one")
        follower.wait_for(b"one\n")
        begin = time.monotonic()
        self.assertEqual(self.gateway.stop(), 0)
        self.assertEqual(follower.wait_end(), b"one\n")
        self.assertLess(time.monotonic() - begin, 8)

    def test_followers_that_leave_take_their_descriptors_with_them(self):
        def descriptors():
            """Without the store's, which opens more when it first has something to read."""
            found = processes.descriptors(self.gateway.process.pid)
            return sum("leasehold.db" not in name for name in found)

        before = descriptors()
        followers = [Follower(self, self.gateway, self.path + "?follow=true") for _ in range(8)]
        self.say("one")
        for follower in followers:
            follower.wait_for(b"one\n")
        for follower in followers:
            follower.leave()
        end = time.monotonic() + PATIENCE_S
        while descriptors() > before and time.monotonic() < end:
            self.say("more")
            time.sleep(0.1)
        self.assertLessEqual(descriptors(), before)

    def test_who_may_not_see_the_sandbox_sees_no_log(self):
        self.gateway.expect(403, "GET", self.path, key=self.gateway.new_key("viewer"))
        stranger = self.gateway.new_key(allowed_users=[str(uuid.uuid4())])
        self.gateway.expect(404, "GET", self.path, key=stranger)
        self.gateway.expect(404, "GET", f"/sandboxes/{uuid.uuid4()}/logs")
        self.gateway.expect(422, "GET", self.path + "?tail=-2")
        self.gateway.expect(422, "GET", self.path + "?since=yesterday")

    def test_of_an_ended_session_there_is_none(self):
        self.gateway.expect(200, "DELETE", self.path.removesuffix("/logs"))
        problem = self.gateway.expect(409, "GET", self.path)
        self.assertEqual(problem["code"], "session_not_running")

    def test_leasectl_shows_and_follows(self):
        session = self.sandbox["session_id"]
        self.say("one", "two")
        self.eventually(b"one\ntwo\n")
        shown = self.gateway.ctl("sandbox", "logs", session, "--tail", "1")
        self.assertEqual((shown.returncode, shown.stdout, shown.stderr), (0, "two\n", ""))
        env = {**os.environ, "LEASEHOLD_URL": self.gateway.url, "LEASEHOLD_KEY": self.gateway.admin_key}
        command = [os.path.join(BIN, "leasectl"), "sandbox", "logs", session, "--follow"]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as following:
            self.assertEqual([following.stdout.readline() for _ in "12"], ["one\n", "two\n"])
            self.gateway.expect(200, "DELETE", self.path.removesuffix("/logs"))
            self.assertEqual(following.communicate(timeout=PATIENCE_S)[0], "")
        self.assertEqual(following.returncode, 0)
        gone = self.gateway.ctl("sandbox", "logs", session)
        self.assertEqual((gone.returncode, gone.stdout), (1, ""))
        self.assertIn("session_not_running", gone.stderr)
        self.assertEqual(self.gateway.ctl("sandbox", "logs", str(uuid.uuid4())).returncode, 3)


if __name__ == "__main__":
    unittest.main()
