"""API keys: listed, changed, revoked; what a key may not any more ends at once."""

import datetime
import threading
import unittest
import uuid

import audit
from gateway import Gateway
from waiting import wait_for


def key_id_of(text):
    return text.split("_")[1]


class Keys(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)

    def setUp(self):
        self.users = [str(uuid.uuid4()) for _ in range(2)]

    def patch(self, key, status=200, **members):
        return self.gateway.expect(status, "PATCH", f"/api-keys/{key_id_of(key)}", members)

    def session(self, user, key, **lease):
        chat = self.gateway.new_chat(user)["chat_id"]
        answer = self.gateway.expect(
            201, "POST", "/sandboxes", {"chat_id": chat, "lease": lease}, key=key
        )
        return chat, answer["grant"]

    def ended(self, grant):
        lease = self.gateway.expect(200, "GET", f"/leases/{grant['lease']['lease_id']}")
        return None if lease["revoked_at"] is None else lease["revoked_reason"]

    def test_keys_are_listed_without_their_secrets(self):
        made = [self.gateway.new_key(allowed_users=self.users), self.gateway.new_key("viewer")]
        listed, cursor = [], ""
        while cursor is not None:
            page = self.gateway.expect(200, "GET", f"/api-keys?limit=2{cursor}")
            listed += page["items"]
            cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
        by_id = {k["key_id"]: k for k in listed}
        self.assertEqual(len(by_id), len(listed))
        first, second = (by_id[key_id_of(key)] for key in made)
        self.assertEqual((first["role"], first["allowed_users"]), ("bot", self.users))
        self.assertEqual((second["role"], second["allowed_users"]), ("viewer", None))
        for key in made:
            self.assertNotIn(key.split("_", 2)[2], str(listed))
        self.gateway.expect(403, "GET", "/api-keys", key=made[0])

    def test_a_revoked_key_is_forgotten_at_once_and_its_leases_are_cut(self):
        key, other = self.gateway.new_key(), self.gateway.new_key()
        chat, grant = self.session(self.users[0], key, max_connections=2)
        client = self.gateway.connect(grant)
        others = self.gateway.expect(201, "POST", "/leases", {"chat_id": chat}, key=other)
        path = f"/api-keys/{key_id_of(key)}"
        status, _, body = self.gateway.rest("DELETE", path)
        self.assertEqual((status, body), (204, b""))
        self.gateway.expect(401, "GET", f"/chats/{chat}", key=key)
        self.assertEqual(client.wait_closed(), 4403)
        self.assertEqual(self.ended(grant), "key_revoked")
        self.assertIsNone(self.ended(others))
        self.gateway.connect(others).close()
        refused = self.gateway.dial(grant["endpoint"], grant["token"])
        self.assertEqual(refused.wait_closed(), 4401)
        self.gateway.expect(204, "DELETE", path)
        status, _, problem = self.gateway.rest("PATCH", path, {"name": "x"})
        self.assertEqual((status, problem["code"]), (409, "conflict"))
        listed = self.gateway.expect(200, "GET", "/api-keys?limit=200")["items"]
        [row] = [k for k in listed if k["key_id"] == key_id_of(key)]
        self.assertIsNotNone(row["revoked_at"])
        self.gateway.restart()
        self.gateway.expect(401, "GET", f"/chats/{chat}", key=key)

    def test_fewer_users_end_the_leases_of_the_others(self):
        key = self.gateway.new_key()
        (_, kept), (chat, gone) = (self.session(user, key) for user in self.users)
        clients = [self.gateway.connect(grant) for grant in (kept, gone)]
        answer = self.patch(key, allowed_users=self.users[:1])
        self.assertEqual(answer["allowed_users"], self.users[:1])
        self.assertEqual(clients[1].wait_closed(), 4403)
        self.assertEqual((self.ended(kept), self.ended(gone)), (None, "rights_changed"))
        clients[0].send_text("still here")
        self.assertEqual(clients[0].recv()[1], b"still here")
        clients[0].close()
        self.gateway.expect(404, "GET", f"/chats/{chat}", key=key)
        self.gateway.expect(404, "POST", "/leases", {"chat_id": chat}, key=key)
        self.gateway.restart()
        self.gateway.expect(404, "GET", f"/chats/{chat}", key=key)
        self.patch(key, allowed_users=self.users)
        self.gateway.expect(200, "GET", f"/chats/{chat}", key=key)

    def test_a_limit_is_lifted_by_name_and_not_by_null(self):
        soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=365)
        key = self.gateway.new_key(allowed_users=self.users[:1], default_user=self.users[0])
        self.patch(key, expires_at=soon.isoformat())
        chat = self.gateway.new_chat(self.users[1])["chat_id"]
        limits = ("allowed_users", "default_user", "expires_at")
        kept = self.patch(key, clear=[], **dict.fromkeys(limits))
        self.assertNotIn(None, [kept[name] for name in limits])
        self.gateway.expect(404, "GET", f"/chats/{chat}", key=key)
        self.assertEqual(self.patch(key, clear=["allowed_users"]), {**kept, "allowed_users": None})
        self.gateway.expect(200, "GET", f"/chats/{chat}", key=key)
        cleared = self.patch(key, clear=list(limits))
        self.assertEqual([cleared[name] for name in limits], [None] * 3)
        self.gateway.restart()
        self.gateway.expect(200, "GET", f"/chats/{chat}", key=key)

    def test_a_smaller_role_ends_all_leases(self):
        key = self.gateway.new_key()
        chat, grant = self.session(self.users[0], key)
        self.assertEqual(self.patch(key, role="viewer")["role"], "viewer")
        self.assertEqual(self.ended(grant), "rights_changed")
        self.gateway.expect(200, "GET", f"/chats/{chat}", key=key)
        self.gateway.expect(403, "POST", "/leases", {"chat_id": chat}, key=key)

    def test_an_earlier_end_ends_the_leases_that_would_outlive_it(self):
        key = self.gateway.new_key()
        _, grant = self.session(self.users[0], key)
        soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=30)
        self.patch(key, expires_at=soon.isoformat())
        self.assertEqual(self.ended(grant), "rights_changed")

    def test_what_narrows_nothing_ends_nothing(self):
        key = self.gateway.new_key(allowed_users=self.users[:1])
        _, grant = self.session(self.users[0], key)
        answer = self.patch(key, name="other", allowed_users=self.users, default_user=self.users[1])
        self.assertEqual((answer["name"], answer["default_user"]), ("other", self.users[1]))
        self.assertEqual(self.patch(key), answer)
        self.assertIsNone(self.ended(grant))

    def test_changes_are_checked(self):
        key = self.gateway.new_key(allowed_users=self.users[:1])
        path = f"/api-keys/{key_id_of(key)}"
        for body, pointer in (
            ({"name": ""}, "/name"),
            ({"role": "king"}, "/role"),
            ({"allowed_users": ["x"]}, "/allowed_users/0"),
            ({"default_user": self.users[1]}, "/default_user"),
            ({"expires_at": "2001-01-01T00:00:00Z"}, "/expires_at"),
            ({"secret": "x"}, "/secret"),
            ({"clear": ["name"]}, "/clear"),
            ({"clear": ["expires_at", "expires_at"]}, "/clear"),
            ({"clear": ["allowed_users"], "allowed_users": self.users}, "/clear"),
            ({"key_id": str(uuid.uuid4())}, "/key_id"),
        ):
            status, _, problem = self.gateway.rest("PATCH", path, body)
            self.assertEqual((status, problem["code"]), (422, "invalid_request"), body)
            self.assertEqual(problem["errors"][0]["pointer"], pointer)
        for method in ("PATCH", "DELETE"):
            self.gateway.expect(404, method, f"/api-keys/{uuid.uuid4()}")
            self.gateway.expect(403, method, path, key=key)

    def test_no_lease_is_issued_behind_a_revocation(self):
        """Grants race the end of their key: each is refused, or found and ended by it."""
        for _ in range(3):
            key = self.gateway.new_key()
            chat, first = self.session(self.users[0], key)
            grants, stop = [first], threading.Event()

            def grant_on(chat=chat, key=key, grants=grants, stop=stop):
                while not stop.is_set():
                    status, _, answer = self.gateway.rest("POST", "/leases", {"chat_id": chat}, key=key)
                    if status == 201:
                        grants.append(answer)

            threads = [threading.Thread(target=grant_on, daemon=True) for _ in range(4)]
            for thread in threads:
                thread.start()
            wait_for(self, "a grant", lambda grants=grants: len(grants) > 1)
            self.gateway.expect(204, "DELETE", f"/api-keys/{key_id_of(key)}")
            stop.set()
            for thread in threads:
                thread.join(30)
            for grant in grants:
                self.assertEqual(self.ended(grant), "key_revoked")

    def test_changes_stand_in_the_audit_trail(self):
        key = self.gateway.new_key()
        self.patch(key, name="x")
        self.gateway.expect(204, "DELETE", f"/api-keys/{key_id_of(key)}")
        self.gateway.stop()
        try:
            trail = audit.entries(f"{self.gateway.dir}/data/leasehold.db")
        finally:
            self.gateway.start()
        actions = [e["action"] for e in trail if e["object"] == f"api_key:{key_id_of(key)}"]
        self.assertEqual(actions, ["key.create", "key.update", "key.revoke"])


if __name__ == "__main__":
    unittest.main()
