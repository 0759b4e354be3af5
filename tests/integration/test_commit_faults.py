#!/usr/bin/python3
"""A commit that fails by an I/O error, beside which its grants are signed: none of them exists for anybody.

The faults are the kernel's: no file of the gateway may be written (RLIMIT_FSIZE), so that the one write of
the commit fails with EFBIG, whole or in its middle; and a disk that finds no room for what it has taken, so
that the sync behind that write fails. What was signed meanwhile is found in the gateway's memory, and shown
to the door."""

import contextlib
import json
import os
import resource
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

import processes
from bot import Bot
from canary import TOKEN
from gateway import Gateway
from loop_disk import ThinDisk
from metrics import Metrics
from waiting import wait_for

AT_ONCE = 64
SHOWN = 12  # to the door
PAGE, FRAME_HEAD, LOG_HEAD = 4096, 24, 32  # of SQLite's log


class Case(unittest.TestCase):
    def make(self, quota, start=True):
        lease = {"per_session": quota, "per_user": quota, "ttl_seconds": 600, "ttl_max_seconds": 900}
        self.gateway = Gateway.for_test(self, {"lease": lease, "metrics": {"enabled": True}}, start=start)
        self.pool = ThreadPoolExecutor(AT_ONCE)
        self.addCleanup(self.pool.shutdown)

    def begin(self):
        chat = self.gateway.new_chat()["chat_id"]
        self.sandbox, self.grant = self.gateway.open(chat, lease={})
        self.client = self.gateway.connect(self.grant)

    def ask(self, path="/leases", key=None):
        """(status, headers, answer) of a grant, or of a renewal."""
        body = {"session_id": self.sandbox["session_id"]} if path == "/leases" else {}
        return self.gateway.rest("POST", path, body, headers={"Idempotency-Key": key} if key else {})

    def at_once(self, asks):
        """Answers to what is sent together; `asks`: the arguments of each."""
        barrier = threading.Barrier(AT_ONCE)

        def one(args):
            self.gateway.connection()
            barrier.wait()
            return self.ask(*args)

        return list(self.pool.map(one, asks))

    def grants(self, key):
        return self.at_once([("/leases", f"{key}-{i}") for i in range(AT_ONCE)])

    def assert_refused(self, answer, status=500, code="internal"):
        got, _, problem = answer
        self.assertEqual((got, problem.get("code")), (status, code), problem)
        self.assertNotIn("eyJ", json.dumps(problem))

    def leases(self):
        """Times of expiry by id."""
        path, found = f"/leases?session_id={self.sandbox['session_id']}&limit=200", {}
        cursor = ""
        while cursor is not None:
            page = self.gateway.expect(200, "GET", path + (cursor and f"&cursor={cursor}"))
            found.update({lease["lease_id"]: lease["expires_at"] for lease in page["items"]})
            cursor = page["next_cursor"]
        return found

    def talk(self, client):
        client.send_text("hello")
        self.assertEqual(client.recv(30)[1].decode().strip(), "hello")

    def events(self):
        bot = Bot(self, self.gateway, self.gateway.admin_key)
        newest = bot.subscribe("all")
        bot.subscribe("all", since=0)
        found = []
        while not found or found[-1]["seq"] < newest:
            found.append(bot.event())
        bot.ws.close()
        return found

    def assert_the_record_is_whole(self, n):
        """Of so many leases, before and after a kill: nothing of what failed, and nothing is missing for it."""
        leases = self.leases()
        self.assertEqual(len(leases), n)
        for _ in range(2):
            events = self.events()
            seqs = [event["seq"] for event in events]
            self.assertEqual(seqs, list(range(seqs[0], seqs[-1] + 1)))
            granted = [event["data"]["lease_id"] for event in events if event["event"] == "lease.granted"]
            self.assertEqual(sorted(granted), sorted(leases))
            self.assertEqual(self.leases(), leases)
            self.gateway.kill9()
            self.gateway.start()
        self.assertEqual(self.gateway.stop(), 0)
        done = self.gateway.run_program("leasehold", "audit-verify", "--config", self.gateway.config)
        self.assertEqual(done.returncode, 0, done.stderr)


class WriteFaults(Case):
    def setUp(self):
        self.make(AT_ONCE + 1)
        self.begin()

    @contextlib.contextmanager
    def fault(self, at=0):
        """Nothing can be written to any file from this byte on. What runs already has no part in it."""
        pid = self.gateway.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (at, before[1]))
        try:
            yield
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

    def signed_in_memory(self):
        """Tokens that nobody was told."""
        found = {
            match.group().decode()
            for text in processes.memory(self.gateway.process.pid)
            for match in TOKEN.finditer(text)
        }
        return sorted(found - {self.grant["token"]})

    def assert_not_let_in(self, token, *codes):
        client = self.gateway.dial(self.grant["endpoint"], token)
        self.addCleanup(client.close)
        self.assertIn(client.wait_closed(30), codes)
        answer = self.gateway.expect(200, "POST", "/leases/introspect", {"token": token})
        self.assertEqual(answer, {"active": False})

    def refused(self):
        """What was signed for nothing, while no commit succeeds."""
        path = f"/leases/{self.grant['lease']['lease_id']}"
        self.assert_refused(self.ask(path + "/renew"))  # what was on its way to the disk is counted
        before = Metrics.of(self.gateway)
        for _ in range(3):
            for answer in self.grants("k"):
                self.assert_refused(answer)
        signed = self.signed_in_memory()
        self.assert_refused(self.ask(path + "/renew"))
        self.assert_refused(self.gateway.rest("DELETE", path))
        self.assertTrue(signed, "nothing was signed beside a commit")
        for token in signed[:SHOWN]:  # 4503: the door waits for a word of the gateway that is never said
            self.assert_not_let_in(token, 4401, 4503)
        self.talk(self.client)
        since = Metrics.of(self.gateway).since(before)
        self.assertGreaterEqual(since["leasehold_store_commit_errors_total"], 5)
        self.assertEqual(since["leasehold_store_commits_total"], 0)
        self.assertEqual(since["leasehold_lease_grants_total"], 0)
        return signed

    def test_what_was_signed_for_nothing_is_shown_to_nobody_and_lets_nobody_in(self):
        gateway, lease = self.gateway, self.grant["lease"]
        with self.fault():
            signed = self.refused()
        self.assertEqual(self.leases(), {lease["lease_id"]: lease["expires_at"]})
        answers = self.grants("k")
        self.assertEqual([status for status, _, _ in answers], [201] * AT_ONCE, answers)
        self.assertEqual({headers.get("Idempotent-Replayed") for _, headers, _ in answers}, {None})
        tokens = {answer["token"] for _, _, answer in answers}
        self.assertEqual(len(tokens - set(signed)), AT_ONCE)
        self.assert_refused(self.ask(), 429, "lease_quota_exceeded")
        for token in signed[:SHOWN]:
            self.assert_not_let_in(token, 4401)
        self.talk(gateway.connect(answers[0][2], timeout=30))
        self.talk(self.client)
        gateway.expect(202, "DELETE", f"/leases/{lease['lease_id']}")
        self.assertEqual(self.client.wait_closed(30), 4403)
        self.assert_the_record_is_whole(AT_ONCE + 1)

    def test_a_commit_that_is_torn_in_its_middle_is_none_also_after_a_kill(self):
        ids = [answer["lease"]["lease_id"] for _, _, answer in self.grants("k")]
        told = self.leases()

        def renewals():
            """How many failed."""
            failed = 0
            answers = self.at_once([(f"/leases/{lease_id}/renew",) for lease_id in ids])
            for lease_id, answer in zip(ids, answers):
                if answer[0] == 200:
                    told[lease_id] = answer[2]["lease"]["expires_at"]
                else:
                    self.assert_refused(answer)
                    failed += 1
            return failed

        for frames in (1.5, 2, 2.01, 5.3):
            pages = Metrics.of(self.gateway)["leasehold_store_wal_pages"] + frames
            with self.fault(int(LOG_HEAD + pages * (PAGE + FRAME_HEAD))):
                wait_for(self, "a commit that fails", renewals)
            self.assertEqual(self.leases(), told)
            if frames == 2:
                self.assertEqual(renewals(), 0)
        self.gateway.kill9()
        self.gateway.start()
        self.assertEqual(self.leases(), told)
        self.assertEqual(renewals(), 0)
        self.talk(self.client)


class SyncFaults(Case):
    """What failed stands in the log as a whole. It comes true if the gateway ends before it has written over
    it, and was shown to nobody even so."""

    def setUp(self):
        self.make(1000, start=False)
        if os.geteuid() != 0:
            self.skipTest("mounts a file system")
        self.disk = ThinDisk(self, self.gateway, 48)
        self.gateway.start()
        self.begin()

    def grant_till_some_fail(self):
        """The leases that were told."""
        told = {self.grant["lease"]["lease_id"]}

        def fail():
            answers = self.grants(f"k{len(told)}")
            refused = [answer for answer in answers if answer[0] != 201]
            for answer in refused:
                self.assert_refused(answer, 507, "storage_full")
            told.update(answer["lease"]["lease_id"] for status, _, answer in answers if status == 201)
            return refused

        wait_for(self, "a commit that fails", fail)
        return told

    def test_what_cannot_be_synced_is_refused_and_goes_on_when_there_is_room(self):
        with self.disk.used_up():
            told = self.grant_till_some_fail()
            self.assert_refused(self.ask(), 507, "storage_full")
            self.talk(self.client)
            self.assertEqual(set(self.leases()), told)
        status, _, answer = self.ask()
        self.assertEqual(status, 201, answer)
        self.talk(self.gateway.connect(answer, timeout=30))
        self.assertEqual(set(self.leases()), told | {answer["lease"]["lease_id"]})
        self.assert_the_record_is_whole(len(told) + 1)

    def test_after_a_kill_there_is_what_was_told_and_at_most_the_last_commit_beside_it(self):
        with self.disk.used_up():
            told = self.grant_till_some_fail()
            self.gateway.kill9()
        self.gateway.start()
        leases = set(self.leases())
        self.assertLessEqual(told, leases)
        self.assertLessEqual(len(leases - told), AT_ONCE)
        self.assert_the_record_is_whole(len(leases))


if __name__ == "__main__":
    unittest.main()
