"""Every error of the operations has its status, its code and a problem body (RFC 9457)."""

import base64
import datetime
import json
import re
import socket
import time
import unittest
import urllib.parse
import uuid

from gateway import Gateway
from waiting import PATIENCE_S

NOBODY = str(uuid.uuid4())


class Errors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)
        cls.user, cls.other = str(uuid.uuid4()), str(uuid.uuid4())
        cls.bot = cls.gateway.new_key(allowed_users=[cls.user])
        cls.viewer = cls.gateway.new_key("viewer")
        cls.chat = cls.gateway.new_chat(cls.user)["chat_id"]
        cls.foreign_chat = cls.gateway.new_chat(cls.other)["chat_id"]
        cls.sandbox, cls.grant = cls.gateway.open(cls.chat, lease={})
        cls.foreign_sandbox, cls.foreign_grant = cls.gateway.open(cls.foreign_chat, lease={})

    def refused(self, status, code, method, path, body=None, pointer=None, **options):
        got, headers, problem = self.gateway.rest(method, path, body, **options)
        self.assertEqual((got, problem.get("code")), (status, code), f"{method} {path}: {problem}")
        self.assertEqual(headers["Content-Type"], "application/problem+json")
        self.assertEqual(problem["type"], "urn:leasehold:error:" + code)
        self.assertEqual(problem["status"], status)
        self.assertEqual(problem["request_id"], headers["X-Request-Id"])
        self.assertTrue(problem["title"])
        self.assertTrue(problem["detail"])
        self.assertEqual("errors" in problem, status == 422)
        if pointer is not None:
            self.assertEqual(problem["errors"][0]["pointer"], pointer)
        return headers, problem

    # -- who calls -------------------------------------------------------------------------------

    def test_no_key_or_a_bad_one_is_401(self):
        key = self.gateway.admin_key
        flipped = key[:-1] + ("A" if key[-1] != "A" else "B")
        for bad in ("", "nonsense", "lhk_", key[:-1], key + "x", flipped, "lhk_" + NOBODY + "_x"):
            headers, _ = self.refused(401, "unauthenticated", "GET", f"/chats/{self.chat}", key=bad)
            self.assertIn("Bearer", headers["WWW-Authenticate"])

    def test_the_configured_header_carries_a_key_too(self):
        status, _, _ = self.gateway.rest(
            "GET", f"/chats/{self.chat}", key="", headers={"X-API-Token": self.gateway.admin_key}
        )
        self.assertEqual(status, 200)

    def test_an_expired_key_is_401(self):
        soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=3)
        key = self.gateway.new_key(expires_at=soon.isoformat().replace("+00:00", "Z"))
        time.sleep(3.1)
        self.refused(401, "unauthenticated", "GET", f"/chats/{self.chat}", key=key)

    def test_a_role_without_the_operation_is_403(self):
        self.refused(403, "forbidden", "POST", "/api-keys", {"name": "x", "role": "bot"}, key=self.bot)
        self.refused(403, "forbidden", "POST", "/chats", {"user_id": self.user}, key=self.viewer)
        self.refused(403, "forbidden", "POST", "/sandboxes", {"chat_id": self.chat}, key=self.viewer)
        self.refused(
            403, "forbidden", "DELETE", f"/leases/{self.grant['lease']['lease_id']}", key=self.viewer
        )

    # -- what is not there, or not visible: the same answer -----------------------------------------

    def test_missing_and_invisible_chats_are_404_alike(self):
        for chat in (NOBODY, self.foreign_chat):
            self.refused(404, "chat_not_found", "GET", f"/chats/{chat}", key=self.bot)
            self.refused(404, "chat_not_found", "POST", "/sandboxes", {"chat_id": chat}, key=self.bot)
            self.refused(404, "chat_not_found", "POST", "/leases", {"chat_id": chat}, key=self.bot)
        self.refused(404, "chat_not_found", "POST", "/chats", {"user_id": self.other}, key=self.bot)
        self.refused(
            404, "chat_not_found", "POST", "/chats", {"user_id": self.user, "chat_id": self.foreign_chat}
        )

    def test_missing_and_invisible_sessions_and_leases_are_404_alike(self):
        foreign_session = self.foreign_sandbox["session_id"]
        foreign_lease = self.foreign_grant["lease"]["lease_id"]
        for session in (NOBODY, foreign_session):
            self.refused(404, "not_found", "GET", f"/sandboxes/{session}", key=self.bot)
            self.refused(404, "not_found", "POST", f"/sandboxes/{session}/stop", key=self.bot)
            self.refused(404, "not_found", "DELETE", f"/sandboxes/{session}", key=self.bot)
            self.refused(404, "not_found", "POST", "/leases", {"session_id": session}, key=self.bot)
            self.refused(
                404,
                "not_found",
                "POST",
                "/leases/revoke",
                {"selector": {"session_id": session}},
                key=self.bot,
            )
        for lease in (NOBODY, foreign_lease):
            self.refused(404, "not_found", "GET", f"/leases/{lease}", key=self.bot)
            self.refused(404, "not_found", "POST", f"/leases/{lease}/renew", key=self.bot)
            self.refused(404, "not_found", "DELETE", f"/leases/{lease}", key=self.bot)

    def test_a_lease_for_somebody_else_than_the_owner_is_404(self):
        body = {"session_id": self.sandbox["session_id"], "user_id": self.other}
        self.refused(404, "chat_not_found", "POST", "/leases", body)

    def test_unknown_paths_are_404_and_wrong_methods_405_with_allow(self):
        self.refused(404, "not_found", "GET", "/nothing")
        self.refused(404, "not_found", "GET", f"/chats/{self.chat}/")
        self.refused(404, "not_found", "GET", "//")
        headers, _ = self.refused(405, "method_not_allowed", "PUT", f"/chats/{self.chat}", {})
        self.assertEqual(headers["Allow"], "GET, HEAD, DELETE")
        headers, _ = self.refused(405, "method_not_allowed", "PATCH", "/leases/" + NOBODY, {})
        self.assertEqual(headers["Allow"], "GET, HEAD, DELETE")

    def test_head_answers_like_get_without_a_body(self):
        for path, status in ((f"/chats/{self.chat}", 200), ("/sandboxes?limit=1", 200),
                             (f"/chats/{NOBODY}", 404), ("//healthz", 200), ("//nothing", 404)):
            _, head, nothing = self.gateway.rest("HEAD", path)
            got, get, _ = self.gateway.rest("GET", path)
            self.assertEqual(got, status)
            self.assertEqual(nothing, b"")
            for name in ("Content-Type", "Cache-Control"):
                self.assertEqual(head[name], get[name], (path, name))
            self.assertEqual(head["Content-Length"], get["Content-Length"], path)
        self.assertEqual(self.gateway.rest("HEAD", "/chats", key="")[0], 401)
        self.assertEqual(self.gateway.rest("HEAD", "/create")[0], 405)

    # -- bad bodies ------------------------------------------------------------------------------

    def test_what_is_not_strict_json_is_400(self):
        for body in (
            b"{",
            b"[]x",
            b"{} {}",
            b"nonsense",
            b'{"user_id":"\xff"}',
            b'{"title":"\\u0000"}',
            b'{"a":01}',
            b'{"metadata":' + b'{"a":' * 40 + b"1" + b"}" * 41,
            b"\xef\xbb\xbf{}",
        ):
            self.refused(
                400, "malformed_json", "POST", "/chats", body, headers={"Content-Type": "application/json"}
            )

    def test_unknown_duplicate_missing_and_mistyped_members_are_refused_by_name(self):
        user = self.user
        for body, pointer in (
            ({"user_id": user, "nope": 1}, "/nope"),
            ({}, "/user_id"),
            ({"user_id": 7}, "/user_id"),
            ({"user_id": "7"}, "/user_id"),
            ({"user_id": user, "title": 7}, "/title"),
            ({"user_id": user, "title": "x" * 257}, "/title"),
            ({"user_id": user, "metadata": []}, "/metadata"),
            ({"user_id": user, "metadata": {"a": "x" * 16384}}, "/metadata"),
            ({"user_id": None}, "/user_id"),
        ):
            self.refused(422, "invalid_request", "POST", "/chats", body, pointer)
        status, _, problem = self.gateway.rest(
            "POST", "/chats", b'{"user_id":"%s","user_id":"%s"}' % (user.encode(), user.encode())
        )
        self.assertIn((status, problem["code"]), ((400, "malformed_json"), (422, "invalid_request")))

    def test_lease_members_have_their_limits(self):
        session = {"session_id": self.sandbox["session_id"]}
        for extra, pointer in (
            ({"ttl_s": 901}, "/ttl_s"),
            ({"ttl_s": 0}, "/ttl_s"),
            ({"ttl_s": 1.5}, "/ttl_s"),
            ({"ttl_s": "60"}, "/ttl_s"),
            ({"max_connections": 9}, "/max_connections"),
            ({"max_connections": 0}, "/max_connections"),
            ({"scope": []}, "/scope"),
            ({"scope": ["admin"]}, None),
            ({"scope": ["read", "read"]}, None),
            ({"scope": "read"}, "/scope"),
            ({"use": "twice"}, "/use"),
            ({"cnf": {}}, "/cnf/jkt"),
        ):
            self.refused(422, "invalid_request", "POST", "/leases", {**session, **extra}, pointer)
            self.refused(
                422, "invalid_request", "POST", "/sandboxes", {"chat_id": self.chat, "lease": extra}
            )
        self.refused(422, "invalid_request", "POST", "/leases", {})
        self.refused(422, "invalid_request", "POST", "/leases", {**session, "chat_id": self.chat})
        lease = self.grant["lease"]["lease_id"]
        self.refused(422, "invalid_request", "POST", f"/leases/{lease}/renew", {"ttl_s": 901}, "/ttl_s")

    def test_nothing_is_started_for_a_lease_that_is_refused(self):
        chat = self.gateway.new_chat(self.user)["chat_id"]
        before = len(self.gateway.sandboxes_left())
        self.refused(
            404, "chat_not_found", "POST", "/sandboxes", {"chat_id": chat, "lease": {"user_id": self.other}}
        )
        rows = self.gateway.expect(200, "GET", f"/sandboxes?chat_id={chat}")["items"]
        self.assertEqual(rows, [])
        self.assertEqual(len(self.gateway.sandboxes_left()), before)

    def test_a_lease_of_one_second_lives_at_least_one(self):
        chat = self.gateway.new_chat(self.user)["chat_id"]
        _, grant = self.gateway.open(chat, lease={"ttl_s": 1})
        body = grant["token"].split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        made = datetime.datetime.fromisoformat(grant["lease"]["issued_at"].replace("Z", "+00:00"))
        self.assertGreaterEqual(claims["exp"], made.timestamp() + 1)
        client = self.gateway.dial(grant["endpoint"], grant["token"])  # in time or not
        self.assertEqual(client.wait_closed(), 4401)

    def test_selectors_name_exactly_one_thing(self):
        both = {"lease_id": NOBODY, "session_id": NOBODY}
        for body in ({}, {"selector": {}}, {"selector": both}, {"selector": {"moon": 1}}):
            self.refused(422, "invalid_request", "POST", "/leases/revoke", body)

    def test_paths_and_queries_are_checked(self):
        lease = self.grant["lease"]["lease_id"]
        self.refused(422, "invalid_request", "GET", "/chats/not-a-uuid", pointer="/chat_id")
        self.refused(422, "invalid_request", "GET", f"/chats/{self.chat}?x=1")
        self.refused(422, "invalid_request", "DELETE", f"/leases/{lease}?wait_ms=10001")
        self.refused(422, "invalid_request", "DELETE", f"/leases/{lease}?wait_ms=-1")
        self.refused(422, "invalid_request", "DELETE", f"/leases/{lease}?wait_ms=1&wait_ms=2")
        self.refused(422, "invalid_request", "DELETE", f"/leases/{lease}?wait_ms=1x")
        for path in (f"/chats/%zz", f"/chats/{self.chat}%00", "/chats/%"):
            self.refused(400, "malformed_request", "GET", path)
        status, _, _ = self.gateway.rest("GET", f"/chats%2f{self.chat}")
        self.assertIn(status, (400, 404))

    def test_ids_are_taken_in_every_spelling_and_answered_canonical(self):
        plain = uuid.UUID(self.chat)
        for spelled in (plain.hex, f"%7B{plain}%7D", f"urn:uuid:{plain}", str(plain).upper()):
            chat = self.gateway.expect(200, "GET", f"/chats/{spelled}")
            self.assertEqual(chat["chat_id"], self.chat)

    def test_other_content_types_are_415(self):
        self.refused(
            415,
            "unsupported_media_type",
            "POST",
            "/chats",
            b"a=1",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )

    def test_a_body_over_the_limit_is_413(self):
        self.refused(413, "too_large", "POST", "/chats", b"{" + b" " * 1048576 + b"}")

    def test_an_idempotency_key_that_is_none_is_422(self):
        for key in ("a b", "x" * 129):
            headers = {"Idempotency-Key": key}
            self.refused(
                422, "invalid_request", "POST", "/chats", {"user_id": self.user}, headers=headers
            )

    def test_another_number_of_leases_than_expected_is_409(self):
        body = {"selector": {"chat_id": self.chat}, "expected_count": 99}
        self.refused(409, "expected_count_mismatch", "POST", "/leases/revoke", body)

    def test_a_chat_with_an_active_sandbox_is_not_deleted(self):
        self.refused(409, "chat_has_active_sandbox", "DELETE", f"/chats/{self.chat}")
        self.refused(404, "chat_not_found", "DELETE", f"/chats/{self.foreign_chat}", key=self.bot)

    def test_keys_are_checked(self):
        for body, pointer in (
            ({"name": "", "role": "bot"}, "/name"),
            ({"name": "x", "role": "king"}, "/role"),
            ({"name": "x", "role": "none"}, "/role"),
            ({"name": "x", "role": "bot", "allowed_users": ["x"]}, "/allowed_users/0"),
            ({"name": "x", "role": "bot", "expires_at": "2001-01-01T00:00:00Z"}, "/expires_at"),
            ({"name": "x", "role": "bot", "expires_at": "soon"}, "/expires_at"),
        ):
            self.refused(422, "invalid_request", "POST", "/api-keys", body, pointer)

    def test_default_user_missing_is_422_and_detail_is_the_code(self):
        _, problem = self.refused(
            422, "default_user_missing", "POST", "/create", {"chat_id": NOBODY}, key=self.gateway.new_key()
        )
        self.assertEqual(problem["detail"], "default_user_missing")
        _, problem = self.refused(422, "invalid_request", "POST", "/create", {"chat_id": "x"})
        self.assertEqual(problem["detail"], "invalid_request")

    # -- states ------------------------------------------------------------------------------------

    def test_a_lease_of_a_chat_without_session_is_409(self):
        chat = self.gateway.new_chat()["chat_id"]
        self.refused(409, "session_not_running", "POST", "/leases", {"chat_id": chat})

    def test_an_unknown_profile_is_422(self):
        body = {"chat_id": self.gateway.new_chat()["chat_id"], "profile": "nope"}
        self.refused(422, "invalid_request", "POST", "/sandboxes", body, "/profile")

    def test_another_profile_than_the_running_sessions_is_409(self):
        profiles = [
            {"name": name, "command": ["/run/leasehold/demo-agent"]} for name in ("default", "second")
        ]
        gateway = Gateway.for_test(self, {"profiles": profiles})
        chat = gateway.new_chat()["chat_id"]
        gateway.open(chat)
        status, _, problem = gateway.rest("POST", "/sandboxes", {"chat_id": chat, "profile": "second"})
        self.assertEqual((status, problem["code"]), (409, "conflict"))

    def test_a_command_that_does_not_exist_is_503_and_leaves_nothing(self):
        gateway = Gateway.for_test(
            self, {"profiles": [{"name": "default", "command": ["/no/such/program"]}]}
        )
        chat = gateway.new_chat()["chat_id"]
        status, headers, problem = gateway.rest("POST", "/sandboxes", {"chat_id": chat, "lease": {}})
        self.assertEqual((status, problem["code"]), (503, "sandbox_start_failed"))
        self.assertTrue(headers["Retry-After"])
        self.assertEqual(gateway.sandboxes_left(), [])

    # -- every answer ------------------------------------------------------------------------------

    def test_every_answer_carries_the_request_id_and_continues_the_trace(self):
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        _, headers, _ = self.gateway.rest(
            "GET", "/health", headers={"X-Request-Id": "mine-1", "traceparent": trace}
        )
        self.assertEqual(headers["X-Request-Id"], "mine-1")
        self.assertEqual(headers["traceparent"].split("-")[1], trace.split("-")[1])
        self.assertNotEqual(headers["traceparent"].split("-")[2], trace.split("-")[2])
        for bad in ("x" * 65, "a b", "ü"):
            _, headers, _ = self.gateway.rest("GET", "/health", headers={"X-Request-Id": bad.encode()})
            self.assertRegex(headers["X-Request-Id"], r"^[0-9a-f-]{36}$")

    def test_health_ready_and_keys_need_no_api_key(self):
        health = self.gateway.expect(200, "GET", "/health", key="")
        self.assertEqual((health["status"], health["name"]), ("ok", "leasehold"))
        self.assertEqual(self.gateway.expect(200, "GET", "//healthz", key="")["status"], "ok")
        ready = self.gateway.expect(200, "GET", "//readyz", key="")
        self.assertTrue(all(c["ok"] for c in ready["checks"]))
        self.assertIn({"name": "objects", "ok": True, "detail": "disk"}, ready["checks"])
        keys = self.gateway.expect(200, "GET", "//.well-known/jwks.json", key="")["keys"]
        self.assertEqual(len(keys), 2)  # the one that signs, and the next
        for key in keys:
            form = (key["kty"], key["crv"], key["alg"], key["use"])
            self.assertEqual(form, ("EC", "P-256", "ES256", "sig"))
            self.assertNotIn("d", key)


class Killers(unittest.TestCase):
    """What hung servers on this libwebsockets, against the whole daemon; afterwards it still serves."""

    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)
        address = urllib.parse.urlsplit(cls.gateway.url)
        cls.address = (address.hostname, address.port)

    def tearDown(self):
        self.assertEqual(self.gateway.expect(200, "GET", "/health")["status"], "ok")

    def raw(self, data, answers=1):
        """What comes until there are so many answers, or the end."""
        with socket.create_connection(self.address, timeout=PATIENCE_S) as s:
            s.sendall(data)
            got = b""
            while piece := s.recv(65536):
                got += piece
                head, _, rest = got.rpartition(b"HTTP/1.1 ")[2].partition(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.I)
                if got.count(b"HTTP/1.1 ") == answers and length and len(rest) >= int(length[1]):
                    break
            return got

    def status(self, data):
        got = self.raw(data)
        self.assertTrue(got.startswith(b"HTTP/1.1 "), got[:80])
        return int(got.split()[1]), json.loads(got.partition(b"\r\n\r\n")[2])

    def test_get_with_a_pipelined_body_request_in_one_segment(self):
        one = b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\n\r\n"
        two = b"PUT /api/v1/health HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde"
        for _ in range(50):
            got = self.raw(one + two, answers=2)
            self.assertTrue(got.startswith(b"HTTP/1.1 200"), got[:80])
            self.assertIn(b"HTTP/1.1 405", got)

    def test_chunked_bodies_are_411(self):
        status, problem = self.status(
            b"POST /api/v1/chats HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        )
        self.assertEqual((status, problem["code"]), (411, "length_required"))

    def test_two_content_lengths_are_400(self):
        for lengths in (b"Content-Length: 2\r\nContent-Length: 2", b"Content-Length: 2, 2"):
            status, problem = self.status(
                b"POST /api/v1/chats HTTP/1.1\r\nHost: x\r\n" + lengths + b"\r\n\r\n{}"
            )
            self.assertEqual((status, problem["code"]), (400, "malformed_request"))

    def test_nul_in_the_path_is_400(self):
        for path in (b"/api/v1/health%00", b"/api/v1/health\x00"):
            status, problem = self.status(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertEqual((status, problem["code"]), (400, "malformed_request"))


if __name__ == "__main__":
    unittest.main()
