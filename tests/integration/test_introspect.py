"""Introspection (RFC 7662): active only while the door would admit, and for nobody who may not see."""

import base64
import json
import time
import unittest
import urllib.parse
import uuid

from gateway import Gateway

INACTIVE = {"active": False}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def claims_of(token):
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


class Introspect(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)
        cls.chat = cls.gateway.new_chat()
        cls.sandbox, _ = cls.gateway.open(cls.chat["chat_id"])

    def grant(self, **members):
        body = {"session_id": self.sandbox["session_id"], **members}
        grant = self.gateway.expect(201, "POST", "/leases", body)
        path = f"/leases/{grant['lease']['lease_id']}"
        self.addCleanup(self.gateway.rest, "DELETE", path)
        return grant

    def ask(self, token, **options):
        return self.gateway.expect(200, "POST", "/leases/introspect", {"token": token}, **options)

    def ask_form(self, text, status=200):
        return self.gateway.expect(
            status, "POST", "/leases/introspect", text.encode(), headers=FORM
        )

    def test_an_open_lease_is_active_with_what_its_token_says(self):
        grant = self.grant()
        claims = claims_of(grant["token"])
        self.assertEqual(
            self.ask(grant["token"]),
            {
                "active": True,
                "jti": grant["lease"]["lease_id"],
                "sub": self.chat["user_id"],
                "sid": self.sandbox["session_id"],
                "scope": "read write",
                "exp": claims["exp"],
            },
        )
        self.assertEqual(self.ask(self.grant(scope=["read"])["token"])["scope"], "read")

    def test_a_form_is_taken_as_the_rfc_has_it(self):
        token = self.grant()["token"]
        pairs = {"token": token, "token_type_hint": "access_token"}
        self.assertTrue(self.ask_form(urllib.parse.urlencode(pairs))["active"])
        self.assertEqual(self.ask_form("token=x"), INACTIVE)
        for wrong in ("", "token_type_hint=a", "token=a&token=b", "token=a&other=b"):
            with self.subTest(wrong):
                self.ask_form(wrong, 422)

    def test_other_operations_take_no_form(self):
        status, _, problem = self.gateway.rest("POST", "/chats", b"user_id=1", headers=FORM)
        self.assertEqual((status, problem["code"]), (415, "unsupported_media_type"))

    def test_whatever_is_no_token_is_inactive(self):
        token = self.grant()["token"]
        head, body, sig = token.split(".")
        other = self.grant()["token"].split(".")
        for wrong in (
            "",
            "a",
            "..",
            "a.b.c",
            token[:-1],
            token + ".",
            token + "A",
            f"{head}.{other[1]}.{sig}",
            f"{head}.{body}.{other[2]}",
            f"{head}..{sig}",
            "x" * 60000,
            self.gateway.admin_key,
        ):
            with self.subTest(wrong[:60]):
                self.assertEqual(self.ask(wrong), INACTIVE)

    def test_a_revoked_and_an_expired_lease_are_inactive(self):
        grant = self.grant()
        path = f"/leases/{grant['lease']['lease_id']}"
        self.assertTrue(self.ask(grant["token"])["active"])
        self.gateway.expect((200, 202), "DELETE", path)
        self.assertEqual(self.ask(grant["token"]), INACTIVE)
        short = self.grant(ttl_s=4)
        self.assertTrue(self.ask(short["token"])["active"])
        while time.time() < claims_of(short["token"])["exp"]:
            time.sleep(0.1)
        self.assertEqual(self.ask(short["token"]), INACTIVE)

    def test_a_key_is_no_way_to_freeze_the_answer(self):
        grant = self.grant()
        head = {"Idempotency-Key": str(uuid.uuid4())}
        self.assertTrue(self.ask(grant["token"], headers=head)["active"])
        self.gateway.expect((200, 202), "DELETE", f"/leases/{grant['lease']['lease_id']}")
        self.assertEqual(self.ask(grant["token"], headers=head), INACTIVE)

    def test_a_token_of_another_user_is_inactive_to_who_may_not_see_it(self):
        token = self.grant()["token"]
        other = self.gateway.new_key(allowed_users=[str(uuid.uuid4())])
        own = self.gateway.new_key("viewer", allowed_users=[self.chat["user_id"]])
        self.assertEqual(self.ask(token, key=other), INACTIVE)
        self.assertTrue(self.ask(token, key=own)["active"])
        self.gateway.expect(401, "POST", "/leases/introspect", {"token": token}, key="")

    def test_a_token_of_a_stopped_session_is_inactive(self):
        chat = self.gateway.new_chat()
        sandbox, grant = self.gateway.open(chat["chat_id"], lease={})
        self.assertTrue(self.ask(grant["token"])["active"])
        self.gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})
        self.assertEqual(self.ask(grant["token"]), INACTIVE)

    def test_a_token_of_another_gateway_is_inactive(self):
        other = Gateway.for_test(self)
        _, grant = other.open(other.new_chat()["chat_id"], lease={})
        self.assertEqual(self.ask(grant["token"]), INACTIVE)


if __name__ == "__main__":
    unittest.main()
