"""Quotas of open leases: exact, also under many at once, freed by every end, kept over a crash."""

import threading
import unittest

from gateway import Gateway
from waiting import wait_equal

LIMITS = {"lease": {"per_session": 3, "per_user": 4, "global_max": 6}}


class Quota(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, LIMITS)
        self.user = self.gateway.new_chat()["user_id"]
        self.session = self.new_session(self.user)

    def new_session(self, user=None):
        chat = self.gateway.new_chat(user)
        return self.gateway.open(chat["chat_id"])[0]["session_id"]

    def ask(self, session=None, **members):
        body = {"session_id": session or self.session, **members}
        return self.gateway.rest("POST", "/leases", body)

    def grant(self, session=None, **members):
        status, _, answer = self.ask(session, **members)
        self.assertEqual(status, 201, answer)
        return answer["lease"]["lease_id"]

    def assert_refused(self, session=None):
        status, headers, problem = self.ask(session)
        self.assertEqual((status, problem["code"]), (429, "lease_quota_exceeded"))
        self.assertTrue(headers["Retry-After"].isdigit())

    def test_of_a_session_of_a_user_and_in_all(self):
        for _ in range(3):
            self.grant()
        self.assert_refused()
        second = self.new_session(self.user)
        self.grant(second)
        self.assert_refused(second)
        others = self.new_session()
        self.grant(others)
        self.grant(others)
        self.assert_refused(others)

    def test_many_at_once_get_exactly_as_many_as_there_may_be(self):
        statuses, start = [], threading.Barrier(16)

        def ask():
            start.wait()
            statuses.append(self.ask()[0])

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(statuses), [201] * 3 + [429] * 13)

    def test_revocation_and_expiry_make_room(self):
        ids = [self.grant() for _ in range(2)]
        self.grant(ttl_s=6)
        self.assert_refused()
        self.gateway.expect((200, 202), "DELETE", f"/leases/{ids[0]}")
        self.grant()
        wait_equal(self, 201, lambda: self.ask()[0])
        self.assert_refused()

    def test_the_end_of_a_session_makes_room(self):
        for _ in range(3):
            self.grant()
        self.gateway.expect(200, "POST", f"/sandboxes/{self.session}/stop", {})
        session = self.new_session(self.user)
        for _ in range(3):
            self.grant(session)
        self.assert_refused(session)

    def test_a_renewal_takes_no_room(self):
        ids = [self.grant() for _ in range(3)]
        for lease_id in ids:
            self.gateway.expect(200, "POST", f"/leases/{lease_id}/renew", {})
        self.assert_refused()

    def test_a_crash_forgets_none(self):
        for _ in range(3):
            self.grant()
        self.gateway.kill9()
        self.gateway.start()
        self.assert_refused()

    def test_a_sandbox_opened_with_a_lease_counts_as_well(self):
        chat = self.gateway.new_chat(self.user)
        for _ in range(3):
            self.gateway.open(chat["chat_id"], lease={})
        body = {"chat_id": chat["chat_id"], "lease": {}}
        problem = self.gateway.expect(429, "POST", "/sandboxes", body)
        self.assertEqual(problem["code"], "lease_quota_exceeded")


if __name__ == "__main__":
    unittest.main()
