#!/usr/bin/python3
"""Opens of one chat at the same instant: who does not wait is answered as soon as the start is on record,
whoever began it; it is one start, and nobody is forgotten."""

import json
import socket
import threading
import unittest
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

from gateway import Gateway
from waiting import wait_for

AT_ONCE = 16

# Listens once the test says so by a file, or ends.
HELD = """
import os, socket, sys, time
while not os.path.exists("go"):
    time.sleep(0.02)
if open("go").read() == "fail":
    sys.exit(3)
s = socket.create_server(("127.0.0.1", 7000))
while True:
    s.accept()
"""
STUBBORN = "trap '' TERM; while :; do sleep 1; done"


class Opens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        held = {"transport": "tcp:7000", "command": ["/usr/bin/python3", "-c", HELD]}
        profiles = [
            {"name": "default", **held},
            {"name": "missing", "command": ["/no/such/program"]},
            {"name": "stubborn", "command": ["/bin/sh", "-c", STUBBORN]},
        ]
        cls.gateway = Gateway({"profiles": profiles})
        cls.addClassCleanup(cls.gateway.cleanup)
        cls.pool = ThreadPoolExecutor(AT_ONCE + 2)
        cls.addClassCleanup(cls.pool.shutdown)

    def setUp(self):
        self.chat = self.gateway.new_chat()["chat_id"]
        self.addCleanup(self.end)

    def end(self):
        self.go()
        for sandbox in self.sandboxes():
            if sandbox["status"] in ("starting", "running"):
                self.gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {"grace_s": 0})

    def go(self, word="go"):
        self.gateway.expect((200, 201), "PUT", f"/chats/{self.chat}/files/go", word.encode())

    def sandboxes(self):
        return self.gateway.expect(200, "GET", f"/sandboxes?chat_id={self.chat}")["items"]

    def ask(self, path="/sandboxes", headers=None, **members):
        status, _, answer = self.gateway.rest("POST", path, {"chat_id": self.chat, **members}, headers=headers)
        return status, answer

    def at_once(self, asks):
        """Futures of (status, answer); all are sent together."""
        barrier = threading.Barrier(len(asks))

        def one(members):
            self.gateway.connection().connect()
            barrier.wait()
            return self.ask(**members)

        return [self.pool.submit(one, members) for members in asks]

    def assert_all_told(self, futures, status=202):
        """That they are, while the start is held, is what matters."""
        answers = [f.result(30) for f in futures]
        self.assertEqual({s for s, _ in answers}, {status}, answers)
        [session] = {a["sandbox"]["session_id"] for _, a in answers}
        return session

    def assert_runs(self, session):
        self.go()
        path = f"/sandboxes/{session}"
        wait_for(self, "running", lambda: self.gateway.expect(200, "GET", path)["status"] == "running")
        self.assertEqual([s["session_id"] for s in self.sandboxes()], [session])

    def behind_a_stop(self):
        """Until it is over, no open of the chat gets its turn."""
        sandbox, _ = self.gateway.open(self.chat, profile="stubborn")
        path = f"/sandboxes/{sandbox['session_id']}"
        stop = self.pool.submit(self.gateway.expect, 200, "POST", f"{path}/stop", {"grace_s": 2})
        wait_for(self, "its end begun", lambda: self.gateway.expect(200, "GET", path)["status"] == "stopping")
        return stop

    def test_none_that_does_not_wait_waits_for_the_start_that_another_began(self):
        session = self.assert_all_told(self.at_once([{"wait": False}] * AT_ONCE))
        self.assertEqual(self.sandboxes()[0]["status"], "starting")
        self.assert_runs(session)

    def test_who_stood_in_line_before_the_start_was_on_record_is_told_when_it_is(self):
        stop = self.behind_a_stop()
        session = self.assert_all_told(self.at_once([{"wait": False}] * AT_ONCE))
        stop.result(30)
        self.go()
        path = f"/sandboxes/{session}"
        wait_for(self, "running", lambda: self.gateway.expect(200, "GET", path)["status"] == "running")
        self.assertEqual(len(self.sandboxes()), 2)

    def test_opens_while_the_stop_is_under_way_get_the_new_sandbox_each_in_its_way(self):
        stop = self.behind_a_stop()
        futures = self.at_once([{"lease": {}}, *[{"wait": False}] * 4, {}])
        waiting = [futures[0], futures[-1]]
        self.go()
        old = stop.result(30)
        answers = [f.result(60) for f in futures]
        self.assertEqual(old["status"], "stopped")
        [session] = {a["sandbox"]["session_id"] for _, a in answers}
        self.assertNotEqual(session, old["session_id"])
        self.assertLessEqual({s for s, _ in answers[1:-1]}, {200, 202})
        self.assertLessEqual({f.result()[0] for f in waiting}, {200, 201})
        grant = answers[0][1]["grant"]
        self.assertEqual(grant["lease"]["session_id"], session)
        self.gateway.connect(grant, timeout=60).close()
        path = f"/sandboxes/{session}"
        wait_for(self, "running", lambda: self.gateway.expect(200, "GET", path)["status"] == "running")
        self.assertEqual(len(self.sandboxes()), 2)

    def test_one_that_waits_among_them_waits_alone(self):
        futures = self.at_once([{}, *[{"wait": False}] * (AT_ONCE - 1)])
        session = self.assert_all_told(futures[1:])
        self.assertFalse(futures[0].done())
        self.assert_runs(session)
        status, answer = futures[0].result(30)
        self.assertIn(status, (200, 201))
        self.assertEqual(answer["sandbox"]["session_id"], session)

    def test_the_start_of_one_that_waits_is_theirs_too(self):
        stop = self.behind_a_stop()
        first = self.pool.submit(self.ask, "/create")
        futures = self.at_once([{"wait": False}] * 4)
        stop.result(30)
        session = self.assert_all_told(futures)
        self.go()
        status, answer = first.result(30)
        self.assertEqual((status, answer["session_id"]), (200, session))

    def test_another_idle_time_has_its_turn_behind_the_start(self):
        session = self.assert_all_told(self.at_once([{"wait": False}]))
        later = self.pool.submit(self.ask, wait=False, idle_ttl_s=4321)
        self.assertEqual(self.assert_all_told(self.at_once([{"wait": False}] * 4)), session)
        self.assertFalse(later.done())
        self.assert_runs(session)
        status, answer = later.result(30)
        self.assertEqual((status, answer["sandbox"]["session_id"]), (200, session))

    def test_a_start_that_fails_is_the_one_that_all_were_told_of(self):
        session = self.assert_all_told(self.at_once([{"wait": False}] * AT_ONCE))
        self.go("fail")
        path = f"/sandboxes/{session}"
        wait_for(self, "its end", lambda: self.gateway.expect(200, "GET", path)["status"] == "failed")
        self.assertEqual(self.gateway.expect(200, "GET", path)["reason"], "start_failed")
        wait_for(self, "nothing left", lambda: not self.gateway.sandboxes_left())
        again = self.assert_all_told(self.at_once([{"wait": False}] * 4))
        self.assertNotEqual(again, session)

    def test_starts_that_fail_at_once_leave_nobody_without_an_answer(self):
        futures = self.at_once([{"wait": False, "profile": "missing"}] * AT_ONCE)
        answers = [f.result(60) for f in futures]
        self.assertEqual({s for s, _ in answers}, {202}, answers)
        told = {a["sandbox"]["session_id"] for _, a in answers}
        wait_for(self, "their ends", lambda: {s["status"] for s in self.sandboxes()} == {"failed"})
        self.assertEqual({s["session_id"] for s in self.sandboxes()}, told)
        wait_for(self, "nothing left", lambda: not self.gateway.sandboxes_left())

    def test_clients_that_go_take_nothing_with_them(self):
        stop = self.behind_a_stop()
        url = urllib.parse.urlsplit(self.gateway.url)
        body = json.dumps({"chat_id": self.chat, "wait": False})
        request = (
            f"POST /api/v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self.gateway.admin_key}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        )
        gone = [socket.create_connection((url.hostname, url.port)) for _ in range(6)]
        for client in gone:
            client.sendall(request.encode())
        futures = self.at_once([{"wait": False}] * 6)
        for client in gone:
            client.close()
        stop.result(30)
        session = self.assert_all_told(futures)
        self.go()
        path = f"/sandboxes/{session}"
        wait_for(self, "running", lambda: self.gateway.expect(200, "GET", path)["status"] == "running")
        self.assertEqual(len(self.sandboxes()), 2)

    def test_a_key_of_its_own_answers_each_again_as_it_was_answered(self):
        keyed = [{"wait": False, "headers": {"Idempotency-Key": f"{self.chat}-{i}"}} for i in range(6)]
        session = self.assert_all_told(self.at_once(keyed))
        self.assertEqual(self.assert_all_told(self.at_once(keyed)), session)
        self.assert_runs(session)


if __name__ == "__main__":
    unittest.main()
