#!/usr/bin/python3
"""An engine that answers late, wrongly or not at all: clear errors,
everything undone, and nothing ended on the strength of an error."""

import os
import time
import unittest

from docker import Docker, busybox
from engine_proxy import HANG, LOSE, EngineProxy, answer
from waiting import wait_for


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.docker = Docker()
        cls.addClassCleanup(cls.docker.cleanup)
        cls.docker.image("lh/busybox", busybox())

    def start(self, **overrides):
        self.proxy = EngineProxy(self, self.docker.socket)
        overrides.setdefault("sandbox", {}).setdefault("cleanup_interval_seconds", 1)
        self.gateway = self.docker.gateway(self, overrides, url=self.proxy.url)
        self.chat = self.gateway.new_chat()["chat_id"]

    def spoil(self, method, ending, verdict):
        self.proxy.rule = lambda m, p: verdict if m == method and p.endswith(ending) else None

    def assert_opens(self):
        sandbox, grant = self.gateway.open(self.chat, lease={})
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        client.send_text("hello")
        self.assertEqual(client.recv()[1], b"hello")
        self.assertEqual(len(self.docker.of_gateway(self.gateway)), 1)
        return sandbox

    def refused(self):
        answered = self.gateway.expect(503, "POST", "/sandboxes", {"chat_id": self.chat})
        self.assertEqual(answered["code"], "sandbox_start_failed")
        return answered["detail"]

    def nothing_left(self):
        left = [n for n in os.listdir(self.gateway.run_dir) if len(n) == 36]
        return not (self.docker.of_gateway(self.gateway) or self.gateway.sandboxes_left() or left)

    def status(self, sandbox):
        return self.gateway.expect(200, "GET", f"/sandboxes/{sandbox['session_id']}")["status"]

    def test_a_creation_whose_answer_is_lost_is_found_and_used(self):
        self.start()
        self.spoil("POST", "/containers/create", LOSE)
        self.assert_opens()

    def test_a_creation_that_is_answered_with_garbage_is_found_and_used(self):
        self.start()
        done = []

        def rule(method, path):
            if method == "POST" and path.endswith("/containers/create") and not done:
                done.append(True)
                return answer(201, b"<html>")
            return None

        self.proxy.rule = rule
        self.assertIn("not understood", self.refused())
        self.assertTrue(self.nothing_left())
        self.assert_opens()

    def test_a_start_whose_answer_is_lost_is_a_start(self):
        self.start()
        self.spoil("POST", "/start", LOSE)
        self.assert_opens()

    def test_a_start_that_hangs_is_given_up_and_undone(self):
        self.start(sandbox={"start_timeout_seconds": 8})
        self.spoil("POST", "/start", HANG)
        self.refused()
        self.assertTrue(self.nothing_left())
        self.proxy.rule = lambda method, path: None
        self.assert_opens()

    def test_garbage_instead_of_an_inspection_is_a_clear_error(self):
        self.start()
        for garbage in (b"<html>", b"{}", b"[]", b'{"Id":7}', b'{"Id":"x"', b""):
            self.proxy.rule = lambda method, path: (
                answer(200, garbage)
                if method == "GET" and "/containers/" in path and path.endswith("/json")
                and not path.endswith("/containers/json") else None
            )  # fmt: skip
            self.refused()
        self.proxy.rule = lambda method, path: None
        self.assertTrue(self.nothing_left())
        self.assert_opens()

    def test_a_slow_engine_is_waited_for(self):
        self.start()

        def rule(_method, path):
            if not path.endswith("/events"):
                time.sleep(0.7)

        self.proxy.rule = rule
        self.assert_opens()

    def test_a_list_that_fails_or_lies_ends_nothing(self):
        self.start()
        sandbox = self.assert_opens()
        for lie in (answer(500, b'{"message":"out of order"}'), answer(200, b"[]"),
                    answer(200, b"null"), answer(200, b'[{"Id":"x"}]'), answer(200, b"{")):  # fmt: skip
            self.spoil("GET", "/containers/json", lie)
            time.sleep(1.3)
            self.assertEqual(self.status(sandbox), "running")
        self.assertTrue(self.gateway.log_lines("sandbox_list_failed"))
        self.assertEqual(len(self.docker.of_gateway(self.gateway)), 1)

    def test_a_stop_that_the_engine_refuses_is_told_and_tried_again(self):
        self.start()
        sandbox = self.assert_opens()
        self.proxy.rule = lambda method, path: (
            answer(500, b'{"message":"device busy"}') if method == "DELETE" else None
        )
        path = f"/sandboxes/{sandbox['session_id']}"
        answered = self.gateway.expect(500, "POST", path + "/stop", {})
        self.assertEqual(answered["code"], "sandbox_stop_failed")
        self.assertEqual(self.status(sandbox), "stopping")
        self.proxy.rule = lambda method, path: None
        wait_for(self, "the end", lambda: self.status(sandbox) == "stopped")
        self.assertTrue(self.nothing_left())


    def test_nothing_new_starts_when_the_old_one_cannot_be_ended(self):
        self.start(sandbox={"ttl_seconds": 1, "cleanup_interval_seconds": 60})
        sandbox = self.assert_opens()
        time.sleep(1.2)
        self.proxy.rule = lambda method, path: (
            answer(500, b'{"message":"device busy"}') if method == "DELETE" else None
        )
        answered = self.gateway.expect(500, "POST", "/sandboxes", {"chat_id": self.chat})
        self.assertEqual(answered["code"], "sandbox_stop_failed")
        found = self.gateway.expect(200, "GET", f"/sandboxes?chat_id={self.chat}")["items"]
        self.assertEqual([s["session_id"] for s in found], [sandbox["session_id"]])
        self.proxy.rule = lambda method, path: None
        self.assertNotEqual(self.assert_opens()["session_id"], sandbox["session_id"])


if __name__ == "__main__":
    unittest.main()
