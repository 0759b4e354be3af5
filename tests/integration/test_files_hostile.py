"""Files beside an agent that attacks its own directory, kills in the middle of uploads, a full disk."""

import hashlib
import http.client
import json
import os
import random
import subprocess
import threading
import time
import unittest

from files import FileClient, recount
from gateway import BIN, Gateway
from loop_disk import mount_data
from waiting import wait_equal

RACE_S = float(os.environ.get("LEASEHOLD_RACE_S", "5"))
MIB = 1024 * 1024
SECRET = b"SECRET of another user\n" * 20


def stamped(size, rng):
    """Content that says itself whether it is whole."""
    body = rng.randbytes(size)
    return b"api:" + hashlib.sha256(body).hexdigest().encode() + body


def is_whole(content):
    if content in (b"", b"agent"):  # the agent's, or one it has just made
        return True
    return content[:4] == b"api:" and hashlib.sha256(content[68:]).hexdigest().encode() == content[4:68]


class Races(unittest.TestCase):
    """Nothing outside is read or written, whatever stands under a name from one moment to the next."""

    maxDiff = None

    def setUp(self):
        self.gateway = Gateway.for_test(self)
        self.client = FileClient(self.gateway)
        self.secret = os.path.join(self.gateway.dir, "secret")
        with open(self.secret, "wb") as file:
            file.write(SECRET)
        os.chmod(self.secret, 0o600)
        self.faults = []
        self.whole = 0

    def start_agent(self):
        command = [os.path.join(BIN, "file_racer"), self.client.files, self.secret]
        agent = subprocess.Popen(command, stdin=subprocess.PIPE)

        def end():
            agent.stdin.close()
            self.assertEqual(agent.wait(30), 0)

        self.addCleanup(lambda: agent.poll() is None and end())
        return end

    def check(self, what, status, good, body):
        if status not in good:
            self.faults.append((what, status, body[:300]))
        if b"SECRET" in body or b"SQLite" in body:
            self.faults.append((what, "reads what is not its own"))

    def one(self, rng):
        name = f"n{rng.randrange(6)}"
        what = rng.choice(("put", "put", "get", "get", "range", "list", "delete", "form", "clear"))
        path, missing = self.client.path(name), (404, 409)
        if what == "put":
            size = rng.choice((0, 100, 300_000))
            got = self.client.ask("PUT", path, stamped(size, rng))
            self.check(what, got[0], (200, 201, 409), got[2])
        elif what == "form":
            status, body = self.client.form(name, stamped(5000, rng))
            self.check(what, status, (200, 201, 409), json.dumps(body).encode())
        elif what in ("get", "range"):
            headers = {"Range": "bytes=0-99999"} if what == "range" else {}
            got = self.client.ask("GET", path, headers=headers)
            self.check(what, got[0], (200, 206, 416, *missing), got[2])
            if got[0] == 200:
                self.whole += 1
                if not is_whole(got[2]):
                    self.faults.append((what, "torn", got[2][:100]))
        elif what == "list":
            got = self.client.ask("GET", self.client.base)
            self.check(what, got[0], (200,), got[2])
        elif what == "delete":
            got = self.client.ask("DELETE", path)
            self.check(what, got[0], (204, *missing), got[2])
        else:
            got = self.client.ask("DELETE", self.client.base)
            self.check(what, got[0], (200, 409), got[2])

    def work(self, seed, until):
        rng = random.Random(seed)
        while time.monotonic() < until:
            try:
                self.one(rng)
            except (http.client.IncompleteRead, ConnectionResetError):
                pass  # a file became shorter while it was sent: the connection breaks

    def test_every_operation_against_renames_links_and_pipes(self):
        self.client.put("n0", b"warm")
        before = len(os.listdir(f"/proc/{self.gateway.process.pid}/fd"))
        end = self.start_agent()
        until = time.monotonic() + RACE_S
        threads = [threading.Thread(target=self.work, args=(n, until)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        end()
        failed = [e for e in self.gateway.log_lines("request") if e.get("status") == 500]
        self.assertEqual((self.faults[:5], failed[:5]), ([], []))
        self.assertGreater(self.whole, 0)
        with open(self.secret, "rb") as file:
            self.assertEqual(file.read(), SECRET)
        self.assertEqual(os.stat(self.secret).st_mode & 0o777, 0o600)
        self.client.put("last", b"1")
        self.assertEqual(self.client.strays(), [])
        after = len(os.listdir(f"/proc/{self.gateway.process.pid}/fd"))
        self.assertLess(after, before + 10)
        self.assertEqual(self.gateway.log_lines("gateway_crash"), [])


class Kills(unittest.TestCase):
    """kill -9 in the middle of long uploads: what was answered is there and whole, the rest is not."""

    ROUNDS = 6

    def setUp(self):
        self.gateway = Gateway.for_test(self)
        self.client = FileClient(self.gateway)
        self.rng = random.Random(7)
        self.acked = {}
        self.tried = {}

    def upload(self, rng):
        while True:
            name = f"k{rng.randrange(5)}-{threading.get_ident() % 97}"
            body = rng.randbytes(rng.choice((1000, 400_000, 3 * MIB)))
            self.tried.setdefault(name, set()).add(hashlib.sha256(body).hexdigest())
            try:
                status, made = self.client.put(name, body)
            except (OSError, http.client.HTTPException, ValueError):
                return
            if status in (200, 201):
                self.acked[name] = made["sha256"]
                self.tried[name] = {made["sha256"]}

    def test_rounds(self):
        for n in range(self.ROUNDS):
            threads = [
                threading.Thread(target=self.upload, args=(random.Random(n * 10 + k),))
                for k in range(4)
            ]
            for thread in threads:
                thread.start()
            time.sleep(self.rng.uniform(0.1, 0.6))
            self.gateway.kill9()
            for thread in threads:
                thread.join()
            self.gateway.start()
            self.assert_whole()
        self.assertGreater(len(self.acked), 0)
        self.client.put("sweeps", b"1")
        self.assertEqual(self.client.strays(), [])
        user = self.client.chat["user_id"]
        wait_equal(self, 0, lambda: self.client.used() - recount(self.gateway, user))

    def assert_whole(self):
        rows = {item["name"]: item for item in self.client.list("?limit=200")}
        self.assertEqual(set(self.acked) - set(rows), set())
        for name in os.listdir(self.client.files):
            with open(os.path.join(self.client.files, name), "rb") as file:
                digest = hashlib.sha256(file.read()).hexdigest()
            self.assertIn(digest, self.tried[name], name)
            self.assertEqual(rows[name]["sha256"], digest)
            self.acked[name] = digest
            self.tried[name] = {digest}


class FullDisk(unittest.TestCase):
    """A small file system of its own: ext4 in a file."""

    SIZE = 48 * MIB

    def setUp(self):
        self.gateway = Gateway.for_test(self, start=False)
        self.data = mount_data(self, self.gateway, self.SIZE, "mkfs.ext4", "-q")
        self.gateway.start()
        self.client = FileClient(self.gateway)

    def test_a_put_that_does_not_fit_is_507_and_leaves_nothing(self):
        body = os.urandom(4 * MIB)
        self.assertEqual(self.client.put("kept", body)[0], 201)
        free = os.statvfs(self.data)
        status, _, text = self.client.ask(
            "PUT", self.client.path("huge"), bytes(free.f_bavail * free.f_frsize + 8 * MIB)
        )
        self.assertEqual((status, json.loads(text)["code"]), (507, "storage_full"))
        self.assertEqual((self.client.names(), self.client.strays()), (["kept"], []))
        self.assertEqual(self.client.get("kept")[2], body)
        self.assertEqual(self.client.put("next", body)[0], 201)
        self.assertEqual(self.client.get("next")[2], body)
        self.assertEqual(self.client.used(), recount(self.gateway, self.client.chat["user_id"]))


if __name__ == "__main__":
    unittest.main()
