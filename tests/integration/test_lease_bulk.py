"""Bulk revocation: every selector, the guards, many doors, thousands of leases, races."""

import base64
import json
import os
import signal
import threading
import unittest
import uuid

from gateway import Gateway
from waiting import wait_equal, wait_for

MANY = {"lease": {"per_user": 100000, "per_session": 100000}}


def kid_of(grant):
    head = grant["token"].split(".")[0]
    return json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))["kid"]


def door_pid(gateway, session_id):
    with open(os.path.join(gateway.run_dir, session_id, "door.pid"), encoding="ascii") as text:
        return int(text.read().split()[0])


class Bulk(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls, MANY)

    def session(self, user=None, leases=1, key=None):
        """(chat, sandbox, grants) of a running session."""
        chat = self.gateway.new_chat(user)
        sandbox, _ = self.gateway.open(chat["chat_id"])
        self.addCleanup(
            self.gateway.expect, 200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {}
        )
        return chat, sandbox, [self.grant(sandbox, key) for _ in range(leases)]

    def grant(self, sandbox, key=None):
        return self.gateway.expect(
            201, "POST", "/leases", {"session_id": sandbox["session_id"]}, key=key
        )

    def revoke(self, selector, status=200, key=None, **members):
        body = {"selector": selector, "wait_ms": 10000, **members}
        if body["wait_ms"] is None:
            del body["wait_ms"]
        return self.gateway.expect(status, "POST", "/leases/revoke", body, key=key)

    def state(self, grant):
        lease_id = grant["lease"]["lease_id"]
        return self.gateway.expect(200, "GET", f"/leases/{lease_id}")["state"]

    def assert_open(self, *grants):
        self.assertLessEqual({self.state(g) for g in grants}, {"pending", "active"})

    def assert_ended(self, *grants):
        wait_equal(self, {"closed"}, lambda: {self.state(g) for g in grants})

    def test_a_user_loses_all_sessions_and_nobody_else_does(self):
        user = str(uuid.uuid4())
        _, one, of_one = self.session(user, 2)
        _, two, of_two = self.session(user, 1)
        _, _, others = self.session()
        client = self.gateway.connect(of_one[0])
        answer = self.revoke({"user_id": user})
        self.assertEqual((answer["matched"], answer["revoked"]), (3, 3))
        self.assertEqual(answer["unconfirmed"], [])
        doors = {d["session_id"]: d for d in answer["doors"]}
        self.assertEqual(set(doors), {one["session_id"], two["session_id"]})
        self.assertTrue(all(d["acked"] for d in doors.values()))
        self.assertEqual(doors[one["session_id"]]["cut"], 1)
        self.assertEqual(client.wait_closed(), 4403)
        self.assert_ended(*of_one, *of_two)
        self.assert_open(*others)

    def test_a_chat_and_a_session_go_by_their_own_leases(self):
        user = str(uuid.uuid4())
        chat, _, of_chat = self.session(user, 2)
        _, sandbox, of_session = self.session(user, 2)
        self.assertEqual(self.revoke({"chat_id": chat["chat_id"]})["revoked"], 2)
        self.assert_open(*of_session)
        self.assertEqual(self.revoke({"session_id": sandbox["session_id"]})["revoked"], 2)
        self.assert_ended(*of_chat, *of_session)
        again = self.revoke({"chat_id": chat["chat_id"]})
        self.assertEqual(again, {"matched": 0, "revoked": 0, "doors": [], "unconfirmed": []})

    def test_a_dry_run_counts_and_changes_nothing(self):
        user = str(uuid.uuid4())
        _, _, grants = self.session(user, 3)
        answer = self.revoke({"user_id": user}, dry_run=True)
        self.assertEqual(answer, {"matched": 3, "revoked": 0, "doors": [], "unconfirmed": []})
        self.assert_open(*grants)

    def test_another_number_than_expected_changes_nothing(self):
        user = str(uuid.uuid4())
        _, _, grants = self.session(user, 3)
        for wrong in (0, 2, 4):
            problem = self.revoke({"user_id": user}, status=409, expected_count=wrong)
            self.assertEqual(problem["code"], "expected_count_mismatch")
        self.assert_open(*grants)
        self.assertEqual(self.revoke({"user_id": user}, expected_count=3)["revoked"], 3)
        self.assert_ended(*grants)

    def test_a_selector_has_exactly_one_member(self):
        one = str(uuid.uuid4())
        for selector in (
            {},
            {"all": False},
            {"user_id": one, "chat_id": one},
            {"user_id": one, "all": True},
            {"kid": ""},
            {"everything": True},
        ):
            with self.subTest(selector):
                self.revoke(selector, status=422)

    def test_a_nil_id_names_nothing(self):
        _, _, grants = self.session()
        nil = str(uuid.UUID(int=0))
        for name, status in (("user_id", 200), ("session_id", 404), ("chat_id", 404)):
            self.revoke({name: nil}, status=status)
        self.assertEqual(self.revoke({"api_key_id": nil})["matched"], 0)
        self.assert_open(*grants)

    def test_bots_name_no_keys_and_limited_ones_only_their_users(self):
        user = str(uuid.uuid4())
        chat, sandbox, grants = self.session(user, 2)
        bot = self.gateway.new_key()
        for selector in ({"all": True}, {"kid": "x" * 43}, {"api_key_id": str(uuid.uuid4())}):
            problem = self.revoke(selector, status=403, key=bot)
            self.assertEqual(problem["code"], "forbidden")
        limited = self.gateway.new_key(allowed_users=[str(uuid.uuid4())])
        self.assertEqual(self.revoke({"user_id": user}, key=limited)["matched"], 0)
        self.revoke({"chat_id": chat["chat_id"]}, status=404, key=limited)
        self.revoke({"session_id": sandbox["session_id"]}, status=404, key=limited)
        self.revoke({"lease_id": grants[0]["lease"]["lease_id"]}, status=404, key=limited)
        self.assert_open(*grants)
        own = self.gateway.new_key(allowed_users=[user])
        self.assertEqual(self.revoke({"user_id": user}, key=own)["revoked"], 2)

    def test_by_the_api_key_that_issued_them(self):
        made = self.gateway.expect(201, "POST", "/api-keys", {"name": "issuer", "role": "bot"})
        _, sandbox, kept = self.session()
        issued = [self.grant(sandbox, made["key"]) for _ in range(2)]
        answer = self.revoke({"api_key_id": made["api_key"]["key_id"]})
        self.assertEqual((answer["matched"], answer["revoked"]), (2, 2))
        self.assert_ended(*issued)
        self.assert_open(*kept)

    def test_a_revoked_api_key_ends_more_leases_than_one_write_takes(self):
        made = self.gateway.expect(201, "POST", "/api-keys", {"name": "issuer", "role": "bot"})
        _, sandbox, kept = self.session()
        issued = [self.grant(sandbox, made["key"]) for _ in range(300)]
        self.gateway.expect(204, "DELETE", f"/api-keys/{made['api_key']['key_id']}")
        self.assert_ended(issued[0], issued[150], issued[299])
        self.assert_open(*kept)
        answer = self.revoke({"session_id": sandbox["session_id"]}, dry_run=True)
        self.assertEqual(answer["matched"], 1)

    def test_a_door_that_is_silent_leaves_its_leases_named(self):
        user = str(uuid.uuid4())
        _, mute, unheard = self.session(user, 2)
        _, fine, heard = self.session(user, 1)
        pid = door_pid(self.gateway, mute["session_id"])
        os.kill(pid, signal.SIGSTOP)
        try:
            answer = self.revoke({"user_id": user}, status=202, wait_ms=500)
        finally:
            os.kill(pid, signal.SIGCONT)
        acked = {d["session_id"]: d["acked"] for d in answer["doors"]}
        self.assertEqual(acked, {mute["session_id"]: False, fine["session_id"]: True})
        self.assertEqual(
            sorted(answer["unconfirmed"]), sorted(g["lease"]["lease_id"] for g in unheard)
        )
        self.assert_ended(*unheard, *heard)

    def ids(self, query):
        items = self.gateway.expect(200, "GET", f"/leases?{query}")["items"]
        return sorted(l["lease_id"] for l in items)

    def test_leases_are_listed_as_unconfirmed_until_their_door_answers(self):
        user = str(uuid.uuid4())
        _, sandbox, grants = self.session(user, 2)
        _, _, kept = self.session(user, 1)
        expected = sorted(g["lease"]["lease_id"] for g in grants)
        pid = door_pid(self.gateway, sandbox["session_id"])
        os.kill(pid, signal.SIGSTOP)
        try:
            self.revoke({"session_id": sandbox["session_id"]}, status=202, wait_ms=None)
            self.assertEqual(self.ids(f"user_id={user}&state=revoking"), expected)
            wait_equal(self, expected, lambda: self.ids(f"user_id={user}&state=unconfirmed"))
            self.assertEqual(self.ids(f"user_id={user}&state=revoking"), [])
            self.assertEqual({self.state(g) for g in grants}, {"unconfirmed"})
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assert_ended(*grants)
        self.assertEqual(self.ids(f"user_id={user}&state=unconfirmed"), [])
        self.assertEqual(self.ids(f"user_id={user}&state=closed"), expected)
        self.assert_open(*kept)

    def test_without_a_wait_the_answer_comes_once_it_is_durable(self):
        user = str(uuid.uuid4())
        self.session(user, 2)
        status, _, answer = self.gateway.rest(
            "POST", "/leases/revoke", {"selector": {"user_id": user}}
        )
        self.assertEqual((status, answer["revoked"], len(answer["unconfirmed"])), (202, 2, 2))

    def test_a_repeated_request_is_answered_the_same_and_done_once(self):
        user = str(uuid.uuid4())
        self.session(user, 2)
        head = {"Idempotency-Key": str(uuid.uuid4())}
        body = {"selector": {"user_id": user}, "wait_ms": 10000}
        first = self.gateway.expect(200, "POST", "/leases/revoke", body, headers=head)
        again = self.gateway.expect(200, "POST", "/leases/revoke", body, headers=head)
        self.assertEqual(first["revoked"], 2)
        self.assertEqual(first, again)


class BulkOfAll(unittest.TestCase):
    """`all` and a key id take the others' leases: a gateway each."""

    def setUp(self):
        self.gateway = Gateway.for_test(self, MANY)
        chat = self.gateway.new_chat()
        self.sandbox, _ = self.gateway.open(chat["chat_id"])

    def grant(self, expected=201):
        body = {"session_id": self.sandbox["session_id"]}
        return self.gateway.expect(expected, "POST", "/leases", body)

    def revoke(self, selector, **members):
        body = {"selector": selector, "wait_ms": 10000, **members}
        return self.gateway.expect((200, 202), "POST", "/leases/revoke", body)

    def test_by_the_key_that_signed_the_token(self):
        kid = kid_of(self.grant())
        self.assertEqual(self.revoke({"kid": "A" * 43})["matched"], 0)
        self.assertEqual(self.revoke({"kid": kid}, expected_count=1)["revoked"], 1)

    def test_a_thousand_are_ended_in_bounded_writes_and_a_racing_one_either_way(self):
        before = [self.grant()["lease"]["lease_id"] for _ in range(1000)]
        racing, stop = [], threading.Event()

        def issue():
            while not stop.is_set():
                racing.append(self.grant()["lease"]["lease_id"])

        thread = threading.Thread(target=issue)
        thread.start()
        try:
            wait_for(self, "a lease", lambda: racing)
            answer = self.revoke({"all": True})
        finally:
            stop.set()
            thread.join()
        self.assertGreaterEqual(answer["matched"], len(before) + 1)
        self.assertEqual(answer["matched"], answer["revoked"])
        ended, cursor = {}, ""
        while cursor is not None:
            page = self.gateway.expect(200, "GET", f"/leases?limit=200{cursor}")
            ended.update({l["lease_id"]: l["revoked_at"] for l in page["items"]})
            cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
        self.assertTrue(all(ended[lease_id] for lease_id in before))
        self.assertEqual(sum(1 for at in ended.values() if at), answer["revoked"])
        self.assertEqual(set(ended), set(before) | set(racing))
        self.assertEqual(self.revoke({"all": True})["matched"], len(ended) - answer["revoked"])


if __name__ == "__main__":
    unittest.main()
