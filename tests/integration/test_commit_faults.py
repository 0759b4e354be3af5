#!/usr/bin/python3
"""A commit that fails by an I/O error, beside which its grants are signed: none of them exists for anybody.

The fault is the kernel's: no file of the gateway may grow or be written (RLIMIT_FSIZE), so the commit's one
write fails with EFBIG. What is signed meanwhile is found in the gateway's memory, and shown to the door."""

import contextlib
import json
import resource
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

import processes
from bot import Bot
from canary import TOKEN
from gateway import Gateway
from metrics import Metrics
from waiting import wait_for

AT_ONCE = 64
SHOWN = 12  # to the door
CONFIG = {
    "lease": {"per_session": AT_ONCE + 1, "per_user": AT_ONCE + 1, "ttl_seconds": 600, "ttl_max_seconds": 900},
    "metrics": {"enabled": True},
}
PAGE, FRAME_HEAD, LOG_HEAD = 4096, 24, 32  # of SQLite's log


class CommitFaults(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, CONFIG)
        self.pool = ThreadPoolExecutor(AT_ONCE)
        self.addCleanup(self.pool.shutdown)
        self.chat = self.gateway.new_chat()["chat_id"]
        self.sandbox, self.grant = self.gateway.open(self.chat, lease={})
        self.client = self.gateway.connect(self.grant)

    @contextlib.contextmanager
    def fault(self, at=0):
        """Nothing can be written to any file from this byte on. What runs already has no part in it."""
        pid = self.gateway.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (at, before[1]))
        try:
            yield
        finally:
            if self.gateway.process.poll() is None:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

    def at_once(self, path, **options):
        """(status, headers, answer) of POSTs that are sent together; `path`: by number."""
        barrier = threading.Barrier(AT_ONCE)

        def one(i):
            self.gateway.connection()
            barrier.wait()
            body = {} if path else {"session_id": self.sandbox["session_id"]}
            headers = {name: f"{value}-{i}" for name, value in options.items()}
            return self.gateway.rest("POST", path(i) if path else "/leases", body, headers=headers)

        return list(self.pool.map(one, range(AT_ONCE)))

    def grants(self, **headers):
        return self.at_once(None, **{name.replace("_", "-"): value for name, value in headers.items()})

    def assert_internal(self, status, answer):
        self.assertEqual((status, answer.get("code")), (500, "internal"), answer)
        self.assertNotIn("eyJ", json.dumps(answer))

    def leases(self):
        path = f"/leases?session_id={self.sandbox['session_id']}&limit=200"
        return self.gateway.expect(200, "GET", path)["items"]

    def signed_in_memory(self):
        return {match.group().decode() for text in processes.memory(self.gateway.process.pid)
                for match in TOKEN.finditer(text)}

    def assert_not_let_in(self, token, *codes):
        client = self.gateway.dial(self.grant["endpoint"], token)
        self.addCleanup(client.close)
        self.assertIn(client.wait_closed(30), codes)
        answer = self.gateway.expect(200, "POST", "/leases/introspect", {"token": token})
        self.assertEqual(answer, {"active": False})

    def talk(self, client):
        client.send_text("hello")
        self.assertEqual(client.recv(30)[1].decode().strip(), "hello")

    def errors(self, before):
        since = Metrics.of(self.gateway).since(before)
        return since["leasehold_store_commit_errors_total"]

    def events(self):
        bot = Bot(self, self.gateway, self.gateway.admin_key)
        newest = bot.subscribe("all")
        bot.subscribe("all", since=0)
        found = []
        while not found or found[-1]["seq"] < newest:
            found.append(bot.event())
        return found

    def test_what_was_signed_for_nothing_is_shown_to_nobody_and_lets_nobody_in(self):
        gateway = self.gateway
        before = Metrics.of(gateway)
        path = f"/leases/{self.grant['lease']['lease_id']}"
        with self.fault():
            for _ in range(3):
                for status, _, answer in self.grants(Idempotency_Key="k"):
                    self.assert_internal(status, answer)
            made = self.signed_in_memory() - {self.grant["token"]}
            self.assertTrue(made, "nothing was signed beside a commit")
            made = set(sorted(made)[:SHOWN])
            status, _, answer = gateway.rest("POST", path + "/renew", {"ttl_s": 900})
            self.assert_internal(status, answer)
            status, _, answer = gateway.rest("DELETE", path)
            self.assert_internal(status, answer)
            for token in made:  # 4503: it waits for a word of the gateway that is never said
                self.assert_not_let_in(token, 4401, 4503)
            self.talk(self.client)
            since = Metrics.of(gateway).since(before)
            self.assertGreaterEqual(since["leasehold_store_commit_errors_total"], 5)
            self.assertEqual(since["leasehold_store_commits_total"], 0)
            self.assertEqual(since["leasehold_lease_grants_total"], 0)
        self.assertEqual([l["expires_at"] for l in self.leases()], [self.grant["lease"]["expires_at"]])

        answers = self.grants(Idempotency_Key="k")
        self.assertEqual({s for s, _, _ in answers}, {201}, answers)
        self.assertEqual({h.get("Idempotent-Replayed") for _, h, _ in answers}, {None})
        tokens = {a["token"] for _, _, a in answers}
        self.assertEqual(len(tokens), AT_ONCE)
        self.assertFalse(tokens & made)
        status, _, answer = gateway.rest("POST", "/leases", {"session_id": self.sandbox["session_id"]})
        self.assertEqual((status, answer["code"]), (429, "lease_quota_exceeded"))
        for token in made:
            self.assert_not_let_in(token, 4401)
        self.talk(gateway.connect(answers[0][2]))
        self.talk(self.client)
        gateway.expect(202, "DELETE", path)
        self.assertEqual(self.client.wait_closed(30), 4403)
        self.assert_the_record_is_whole()

    def assert_the_record_is_whole(self):
        """Nothing of what failed, and nothing is missing for it."""
        events = self.events()
        self.assertEqual([e["seq"] for e in events], list(range(events[0]["seq"], events[-1]["seq"] + 1)))
        granted = [e["data"]["lease_id"] for e in events if e["event"] == "lease.granted"]
        leases = {l["lease_id"] for l in self.leases()}
        self.assertEqual(len(granted), AT_ONCE + 1)
        self.assertEqual(set(granted), leases)
        self.gateway.kill9()
        self.gateway.start()
        self.assertEqual({l["lease_id"] for l in self.leases()}, leases)
        self.assertEqual(self.gateway.stop(), 0)
        done = self.gateway.run_program("leasehold", "audit-verify", "--config", self.gateway.config)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_commit_that_is_torn_in_its_middle_is_none_also_after_a_kill(self):
        gateway = self.gateway
        leases = [answer["lease"] for _, _, answer in self.grants()]
        told = {l["lease_id"]: l["expires_at"] for l in leases}

        def renewals():
            paths = [f"/leases/{l['lease_id']}/renew" for l in leases]
            failed = 0
            for lease, (status, _, answer) in zip(leases, self.at_once(lambda i: paths[i])):
                if status == 200:
                    told[lease["lease_id"]] = answer["lease"]["expires_at"]
                else:
                    self.assert_internal(status, answer)
                    failed += 1
            return failed

        for frames in (1.5, 2, 2.01, 5.3):
            used = LOG_HEAD + Metrics.of(gateway)["leasehold_store_wal_pages"] * (PAGE + FRAME_HEAD)
            with self.fault(int(used + frames * (PAGE + FRAME_HEAD))):
                wait_for(self, "a commit that fails", renewals)
            self.assertEqual({l["lease_id"]: l["expires_at"] for l in self.leases() if l["lease_id"] in told}, told)
            if frames == 2:
                self.assertEqual(renewals(), 0)
        gateway.kill9()
        gateway.start()
        self.assertEqual({l["lease_id"]: l["expires_at"] for l in self.leases() if l["lease_id"] in told}, told)
        self.assertEqual(renewals(), 0)
        self.talk(self.client)


if __name__ == "__main__":
    unittest.main()
