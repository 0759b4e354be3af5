"""The WebSocket face for bots: every operation over it, the same errors as over REST, its limits and
its ends."""

import json
import os
import threading
import time
import unittest
import uuid

from bot import PROTOCOL, Bot
from gateway import Gateway
from metrics import Metrics
from waiting import PATIENCE_S, wait_equal, wait_for
from ws import OP_TEXT, WsClosed, WsHandshakeError, frame

MESSAGE_MAX = 256 * 1024
CALLS_MAX = 64
MAIN_JOB = {
    "health.get", "key.create", "chat.create", "chat.get", "sandbox.open", "sandbox.create",
    "sandbox.get", "sandbox.stats", "sandbox.stop", "lease.grant", "lease.get", "lease.renew", "lease.revoke",
}


class Face(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)

    def bot(self, **options):
        options.setdefault("key", self.gateway.admin_key)
        return Bot(self, self.gateway, **options)

    def closed_code(self, bot, timeout=PATIENCE_S):
        return bot.ws.wait_closed(timeout)


class Operations(Face):
    def test_the_main_job_by_messages_alone(self):
        bot = self.bot()
        user = str(uuid.uuid4())
        chat = bot.ok("chat.create", {"user_id": user, "title": "by message", "metadata": {"a": 1}})
        self.assertEqual(bot.ok("chat.get", {"chat_id": chat["chat_id"]}), chat)
        opened = bot.ok("sandbox.open", {"chat_id": chat["chat_id"], "lease": {}})
        session, grant = opened["sandbox"]["session_id"], opened["grant"]
        client = self.gateway.connect(grant)
        client.send_text("hello")
        self.assertEqual(client.recv(), (OP_TEXT, b"hello"))
        self.assertEqual(bot.ok("sandbox.get", {"session_id": session})["status"], "running")
        self.assertGreater(bot.ok("sandbox.stats", {"session_id": session})["pids"], 0)
        again = bot.ok("sandbox.create", {"chat_id": chat["chat_id"]})
        self.assertEqual(again["session_id"], session)

        more = bot.ok("lease.grant", {"session_id": session, "ttl_s": 30})
        lease = {"lease_id": more["lease"]["lease_id"]}
        second = self.gateway.connect(more)
        # The door tells of it beside.
        wait_for(self, "its connection", lambda: bot.ok("lease.get", lease)["connections"] == 1)
        renewed = bot.ok("lease.renew", {**lease, "ttl_s": 60})
        self.assertNotEqual(renewed["token"], more["token"])
        revoked = bot.ok("lease.revoke", {"selector": lease, "reason": "seen", "wait_ms": 5000})
        self.assertEqual((revoked["revoked"], revoked["doors"][0]["cut"]), (1, 1))
        self.assertEqual(second.wait_closed(), 4403)

        stopped = bot.ok("sandbox.stop", {"session_id": session, "reason": "done"})
        self.assertEqual((stopped["status"], stopped["reason"]), ("stopped", "done"))
        self.assertEqual(client.wait_closed(), 4403)

    def test_the_rest_of_the_operations(self):
        """With the one above, every row of the table."""
        asked = set()
        bot = self.bot()

        def ok(op, args=None):
            asked.add(op)
            return bot.ok(op, args)

        user = str(uuid.uuid4())
        self.assertEqual(ok("workspace.put", {"user_id": user})["chats"], 0)
        chat = {"chat_id": bot.ok("chat.create", {"user_id": user})["chat_id"]}
        said = ok("history.append", {**chat, "role": "user", "content": "hello"})
        self.assertEqual(ok("history.list", chat)["items"], [said])
        self.assertEqual(len(ok("chat.list", {"user_id": user, "limit": 1})["items"]), 1)
        self.assertEqual(ok("workspace.get", {"user_id": user})["chats"], 1)
        self.files(ok, chat)
        early = bot.ok("sandbox.open", {**chat, "wait": False})["sandbox"]
        session = {"session_id": early["session_id"]}
        self.assertEqual(bot.ok("sandbox.open", chat)["sandbox"]["session_id"], early["session_id"])
        self.assertEqual(ok("sandbox.renew", {**session, "idle_ttl_s": 60})["status"], "running")
        self.assertEqual(len(ok("sandbox.list", chat)["items"]), 1)
        token = bot.ok("lease.grant", session)["token"]
        self.assertTrue(ok("lease.introspect", {"token": token})["active"])
        self.assertEqual(len(ok("lease.list", session)["items"]), 1)
        self.assertEqual(ok("node.list")["items"][0]["load"]["sandboxes"], 1)
        bot.ok("sandbox.stop", session)
        self.assertIsNone(ok("chat.delete", chat))
        self.assertIsNone(ok("workspace.delete", {"user_id": user}))
        self.assertEqual(len(ok("audit.list", {"limit": 3})["items"]), 3)
        self.assertTrue(ok("audit.verify")["ok"])
        self.assertIn("items", ok("retention.run", {"dry_run": True}))
        key = {"key_id": bot.ok("key.create", {"name": "n", "role": "bot"})["api_key"]["key_id"]}
        self.assertEqual(ok("key.update", {**key, "name": "m"})["name"], "m")
        self.assertIn(key["key_id"], [k["key_id"] for k in ok("key.list", {"limit": 200})["items"]])
        self.assertIsNone(ok("key.revoke", key))
        [signing] = [k for k in ok("key.rotate")["keys"] if k["state"] == "signing"]
        self.assertIn(signing, ok("signing.list")["keys"])
        self.assertEqual(ok("key.kill", {"kid": signing["kid"]})["revoked"], 0)
        document = self.gateway.expect(200, "GET", "//openapi.json")
        rows = [o for path in document["paths"].values() for o in path.values()]
        named = {row["x-leasehold-op"] for row in rows if "x-leasehold-op" in row}
        self.assertEqual(named - asked, MAIN_JOB)

    def files(self, ok, chat):
        path = f"/chats/{chat['chat_id']}"
        kept = [self.gateway.expect(201, "PUT", f"{path}/files/{name}", b"text") for name in ("a", "b")]
        self.assertEqual(len(ok("file.list", chat)["items"]), 2)
        self.assertEqual(ok("file.stat", {"file_id": kept[0]["file_id"]})["name"], "a")
        self.assertIsNone(ok("file.delete", {**chat, "name": "a"}))
        self.assertEqual(ok("file.clear", chat)["deleted"], 1)
        made = self.gateway.expect(201, "POST", f"{path}/artifacts?name=result", b"bytes")
        artifact = {"artifact_id": made["artifact_id"]}
        self.assertEqual(len(ok("artifact.list", {"user_id": made["user_id"]})["items"]), 1)
        self.assertEqual(ok("artifact.get", artifact)["name"], "result")
        self.assertIn("url", ok("artifact.download", artifact))
        told = ok("artifact.deliver", {**artifact, "status": "delivered", "channel": "mail"})
        self.assertEqual(told["delivery"]["status"], "delivered")
        self.assertIsNone(ok("artifact.delete", artifact))

    def test_a_key_made_by_message_works_at_once_on_both_faces(self):
        made = self.bot().ok("key.create", {"name": "m", "role": "viewer"})
        other = self.bot(key=made["key"])
        self.assertEqual(other.ok("health.get")["status"], "ok")
        self.gateway.expect(404, "GET", f"/chats/{uuid.uuid4()}", key=made["key"])

    def test_every_row_of_the_table_is_known_and_what_is_for_rest_says_so(self):
        document = self.gateway.expect(200, "GET", "//openapi.json")
        rows = [o for path in document["paths"].values() for o in path.values()]
        named = {row["x-leasehold-op"] for row in rows if "x-leasehold-op" in row}
        for_rest = {row["operationId"] for row in rows} - named
        self.assertLess({"sandbox.open", "lease.revoke", "health.get"}, named)
        self.assertLess({"healthz", "readyz", "jwks", "openapi"}, for_rest)
        bot = self.bot()
        for name in named:
            self.assertEqual(bot.error(name, {"no such": 1})["code"], "invalid_request", name)
        for name in for_rest:
            # "sandbox.stop.delete" is the document's own name for a further REST way.
            known = "unknown_op" if name.rpartition(".")[0] in named | for_rest else "unsupported_op"
            self.assertEqual(bot.error(name)["code"], known, name)

    def test_unknown_and_later_operations(self):
        bot = self.bot()
        self.assertEqual(bot.error("lease.gift")["code"], "unknown_op")
        self.assertEqual(bot.error("LEASE.GET")["code"], "unknown_op")


class SameErrors(Face):
    """Field by field what REST says, but for the request id."""

    def same(self, status, rest, message, key=None):
        method, path, *body = rest
        got, _, problem = self.gateway.rest(method, path, *body, key=key)
        self.assertEqual(got, status, problem)
        error = self.bot(key=key or self.gateway.admin_key).error(*message)
        self.assertRegex(error.pop("request_id"), r"^[0-9a-f-]{36}$")
        problem.pop("request_id")
        self.assertEqual(error, problem)
        return error

    def test_validation(self):
        cases = [
            ({}, "/user_id"),
            ({"user_id": "x"}, "/user_id"),
            ({"user_id": 1}, "/user_id"),
            ({"user_id": None}, "/user_id"),
            ({"user_id": str(uuid.uuid4()), "title": "x" * 300}, "/title"),
            ({"user_id": str(uuid.uuid4()), "metadata": []}, "/metadata"),
            ({"user_id": str(uuid.uuid4()), "tilte": ""}, "/tilte"),
        ]
        for body, pointer in cases:
            error = self.same(422, ("POST", "/chats", body), ("chat.create", body))
            self.assertEqual(error["errors"][0]["pointer"], pointer)
        nested = {"chat_id": str(uuid.uuid4()), "lease": {"ttl_s": 0}}
        error = self.same(422, ("POST", "/sandboxes", nested), ("sandbox.open", nested))
        self.assertEqual(error["errors"][0]["pointer"], "/lease/ttl_s")

    def test_members_of_path_and_query(self):
        self.same(422, ("GET", "/chats/none"), ("chat.get", {"chat_id": "none"}))
        lease = str(uuid.uuid4())
        body = {"ttl_s": 1.5}
        self.same(
            422,
            ("POST", f"/leases/{lease}/renew", body),
            ("lease.renew", {"lease_id": lease, **body}),
        )

    def test_what_is_not_there_and_what_is_not_seen(self):
        chat = self.gateway.new_chat()["chat_id"]
        for key in (None, self.gateway.new_key(allowed_users=[str(uuid.uuid4())])):
            missing = str(uuid.uuid4()) if key is None else chat
            self.same(404, ("GET", f"/chats/{missing}"), ("chat.get", {"chat_id": missing}), key)
        nowhere = str(uuid.uuid4())
        self.same(404, ("GET", f"/leases/{nowhere}"), ("lease.get", {"lease_id": nowhere}))
        self.same(
            404, ("GET", f"/sandboxes/{nowhere}"), ("sandbox.get", {"session_id": nowhere})
        )

    def test_roles(self):
        body = {"user_id": str(uuid.uuid4())}
        viewer, bot = self.gateway.new_key("viewer"), self.gateway.new_key("bot")
        self.same(403, ("POST", "/chats", body), ("chat.create", body), viewer)
        body = {"name": "n", "role": "bot"}
        self.same(403, ("POST", "/api-keys", body), ("key.create", body), bot)

    def test_states(self):
        body = {"chat_id": self.gateway.new_chat()["chat_id"]}
        self.same(409, ("POST", "/leases", body), ("lease.grant", body))

    def test_create_has_the_code_as_its_detail_here_too(self):
        body = {"chat_id": str(uuid.uuid4())}
        error = self.same(422, ("POST", "/create", body), ("sandbox.create", body))
        self.assertEqual(error["detail"], "default_user_missing")


class Messages(Face):
    def test_the_id_is_the_callers_own(self):
        bot = self.bot()
        for own in ("x", "ü" * 32, "i" * 64, '"\\', " "):
            bot.send("health.get", message_id=own)
            self.assertEqual(bot.answer()["id"], own)

    def test_a_bad_envelope_is_an_error_and_the_connection_stays(self):
        bot = self.bot()
        cases = [
            ({"op": "health.get"}, None, "/id"),
            ({"id": 1, "op": "health.get"}, None, "/id"),
            ({"id": "", "op": "health.get"}, None, "/id"),
            ({"id": "i" * 65, "op": "health.get"}, None, "/id"),
            ({"id": "1"}, "1", "/op"),
            ({"id": "1", "op": 2}, "1", "/op"),
            ({"id": "1", "op": "health.get", "args": []}, "1", "/args"),
            ({"id": "1", "op": "health.get", "arg": {}}, "1", "/arg"),
        ]
        for message, message_id, pointer in cases:
            bot.ws.send_text(json.dumps(message))
            answer = bot.answer()
            self.assertEqual((answer["id"], answer["ok"]), (message_id, False), message)
            self.assertEqual(answer["error"]["errors"][0]["pointer"], pointer)
        for text in ("", "nonsense", "[]", '{"id":"1","id":"2","op":"health.get"}', "{}{}"):
            bot.ws.send_text(text)
            answer = bot.answer()
            self.assertEqual(answer["id"], None, text)
            self.assertIn(answer["error"]["code"], ("malformed_json", "invalid_request"), text)
        self.assertEqual(bot.ok("health.get", None)["status"], "ok")
        self.assertEqual(bot.ok("health.get", {})["status"], "ok")

    def test_what_is_not_utf8_closes_with_1007(self):
        bot = self.bot()
        bot.ws.send_frame(OP_TEXT, b'{"id":"\xff","op":"health.get"}')
        self.assertEqual(self.closed_code(bot), 1007)

    def test_messages_up_to_256_kib(self):
        bot = self.bot()
        text = json.dumps({"id": "1", "op": "health.get"})
        bot.ws.send_text(text + " " * (MESSAGE_MAX - len(text)))
        self.assertTrue(bot.answer()["ok"])
        bot.ws.send_text(text + " " * (MESSAGE_MAX + 1 - len(text)))
        self.assertEqual(self.closed_code(bot), 1009)

    def test_calls_run_beside_each_other_and_are_answered_as_they_end(self):
        bot = self.bot()
        chat = self.gateway.new_chat()["chat_id"]
        slow = bot.send("sandbox.open", {"chat_id": chat})
        quick = bot.send("health.get")
        self.assertEqual([bot.answer()["id"], bot.answer()["id"]], [quick, slow])

    def test_many_calls_of_several_bots_each_find_their_own_answer(self):
        chats = [self.gateway.new_chat()["chat_id"] for _ in range(8)]
        failures = []

        def talk(bot, number):
            asked = {}
            for i in range(CALLS_MAX):
                chat = chats[(i + number) % len(chats)]
                asked[bot.send("chat.get", {"chat_id": chat})] = chat
            for _ in range(CALLS_MAX):
                answer = bot.answer()
                if answer["result"]["chat_id"] != asked.pop(answer["id"]):
                    failures.append(answer)
            if asked:
                failures.append(asked)

        threads = [threading.Thread(target=talk, args=(self.bot(), n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(failures, [])

    def test_more_than_64_in_flight_are_refused_with_busy(self):
        bot = self.bot()
        chat = self.gateway.new_chat()["chat_id"]
        # Opens of one chat stand in one queue, behind the first one's start of a sandbox.
        asked = [bot.send("sandbox.open", {"chat_id": chat}) for _ in range(CALLS_MAX + 1)]
        first = bot.answer()
        self.assertEqual((first["id"], first["ok"]), (asked[-1], False))
        self.assertEqual((first["error"]["code"], first["error"]["status"]), ("busy", 503))
        rest = [bot.answer() for _ in range(CALLS_MAX)]
        self.assertEqual({a["id"] for a in rest}, set(asked[:-1]))
        self.assertTrue(all(a["ok"] for a in rest))
        self.assertEqual(len({a["result"]["sandbox"]["session_id"] for a in rest}), 1)
        self.assertTrue(bot.call("health.get")["ok"])

    def test_a_reader_over_its_cap_is_closed_with_1013_and_may_come_back(self):
        user = str(uuid.uuid4())
        for _ in range(40):
            self.gateway.new_chat(user, metadata={"x": "y" * 16000})
        args = {"user_id": user, "limit": 200}
        slow = self.bot(rcvbuf=4096)
        for _ in range(CALLS_MAX):  # 40 MB of answers
            slow.send("chat.list", args)
        # Nothing is read until the gateway has closed its end.
        open_now = lambda: Metrics.of(self.gateway)["leasehold_connections", "websocket"]
        wait_equal(self, 0, open_now)
        self.assertEqual(self.closed_code(slow), 1013)
        again = self.bot()
        self.assertEqual(len(again.ok("chat.list", args)["items"]), 40)

    def test_a_reader_that_does_not_read_is_bounded(self):
        gateway = Gateway.for_test(self)
        big = gateway.new_chat(metadata={"x": "y" * 16000})["chat_id"]
        bot = Bot(self, gateway, gateway.admin_key, rcvbuf=4096)
        bot.ws.sock.settimeout(0.5)
        text = json.dumps({"id": "1", "op": "chat.get", "args": {"chat_id": big}}).encode()
        message = frame(OP_TEXT, text, mask=b"mask") * 50
        sent = 0
        try:
            while sent < 40 * 1024 * 1024:
                sent += bot.ws.sock.send(message)
        except (TimeoutError, ConnectionError):
            pass  # the daemon does not read on either: its memory stays what it is
        self.assertLess(sent, 40 * 1024 * 1024)
        self.assertLess(self.resident_bytes(gateway), 200 * 1024 * 1024)
        gateway.expect(200, "GET", "/health")

    @staticmethod
    def resident_bytes(gateway):
        with open(f"/proc/{gateway.process.pid}/statm", encoding="ascii") as text:
            return int(text.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Authentication(Face):
    def test_on_the_upgrade_by_either_header(self):
        self.assertEqual(self.bot().ok("health.get")["status"], "ok")
        named = self.bot(key=None, headers={"X-API-Token": self.gateway.admin_key})
        self.assertEqual(named.ok("health.get")["status"], "ok")

    def test_a_bad_key_on_the_upgrade_is_401_before_it(self):
        for headers in ({"Authorization": "Bearer lhk_no"}, {"X-API-Token": "x"}):
            with self.assertRaises(WsHandshakeError) as refused:
                self.bot(key=None, headers=headers)
            self.assertEqual(refused.exception.status, 401)
            self.assertIn("Bearer", refused.exception.headers["www-authenticate"])
            problem = json.loads(refused.exception.body)
            self.assertEqual(problem["code"], "unauthenticated")
            self.assertEqual(problem["request_id"], refused.exception.headers["x-request-id"])

    def test_by_the_first_message(self):
        key = self.gateway.new_key("bot")
        bot = self.bot(key=None)
        result = bot.auth(key)
        self.assertEqual((set(result), result["role"]), ({"key_id", "role"}, "bot"))
        self.assertEqual(key.split("_")[1], result["key_id"])
        self.assertEqual(bot.ok("health.get")["status"], "ok")
        self.assertEqual(bot.error("auth", {"token": key})["code"], "conflict")
        self.assertEqual(bot.ok("health.get")["status"], "ok")

    def test_anything_else_first_closes_with_4401(self):
        firsts = [
            {"id": "0", "op": "auth", "args": {"token": "lhk_no"}},
            {"id": "0", "op": "auth", "args": {}},
            {"id": "0", "op": "auth"},
            {"op": "auth", "args": {"token": self.gateway.admin_key}},
            {"id": "0", "op": "health.get"},
            [],
        ]
        for first in firsts:
            bot = self.bot(key=None)
            bot.ws.send_text(json.dumps(first))
            self.assertEqual(self.closed_code(bot), 4401, first)

    def test_silence_closes_with_4401(self):
        self.assertEqual(self.closed_code(self.bot(key=None)), 4401)

    def test_a_revoked_key_closes_its_connections_with_4401_and_no_others(self):
        made = self.gateway.expect(201, "POST", "/api-keys", {"name": "n", "role": "bot"})
        own, bystander = self.bot(key=made["key"]), self.bot(key=self.gateway.new_key())
        busy = self.bot(key=made["key"])
        busy.send("sandbox.open", {"chat_id": self.gateway.new_chat()["chat_id"]})
        self.gateway.expect(204, "DELETE", f"/api-keys/{made['api_key']['key_id']}")
        self.assertEqual(self.closed_code(own), 4401)
        self.assertEqual(self.closed_code(busy), 4401)
        self.assertEqual(bystander.ok("health.get")["status"], "ok")

    def test_a_narrowed_key_counts_from_the_next_message_on(self):
        user = str(uuid.uuid4())
        chat = {"chat_id": self.gateway.new_chat(user)["chat_id"]}
        made = self.gateway.expect(201, "POST", "/api-keys", {"name": "n", "role": "bot"})
        path = f"/api-keys/{made['api_key']['key_id']}"
        bot = self.bot(key=made["key"])
        self.assertEqual(bot.ok("chat.get", chat)["user_id"], user)
        self.gateway.expect(200, "PATCH", path, {"allowed_users": [str(uuid.uuid4())]})
        self.assertEqual(bot.error("chat.get", chat)["code"], "chat_not_found")
        self.gateway.expect(200, "PATCH", path, {"role": "viewer"})
        self.assertEqual(bot.error("chat.create", {"user_id": user})["code"], "forbidden")

    def test_a_key_that_expires_takes_its_connections_with_it(self):
        soon = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 6))
        key = self.gateway.new_key(expires_at=soon)
        idle = self.bot(key=key)
        self.assertEqual(self.closed_code(idle), 4401)
        with self.assertRaises(WsHandshakeError) as refused:
            self.bot(key=key)
        self.assertEqual(refused.exception.status, 401)

    def test_other_paths_and_subprotocols_are_no_bots(self):
        for options, status in (
            ({"path": "/api/v1/wss"}, 404),
            ({"path": "/"}, 404),
            ({"protocols": ["leasehold.control.v1"]}, 400),
            ({"protocols": []}, 400),
        ):
            with self.assertRaises(WsHandshakeError) as refused:
                self.bot(**options)
            self.assertEqual(refused.exception.status, status, options)
        bot = self.bot(protocols=["chat", PROTOCOL])
        self.assertEqual(bot.ws.protocol, PROTOCOL)


class Ends(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self)
        self.bot = Bot(self, self.gateway, self.gateway.admin_key)

    def test_a_bot_that_goes_mid_open_leaves_a_finished_result(self):
        chat = self.gateway.new_chat()["chat_id"]
        self.bot.send("sandbox.open", {"chat_id": chat, "lease": {}})
        self.bot.ws.close()
        # In the chat's queue behind the first one: it finds what that has made.
        sandbox, _ = self.gateway.open(chat)
        opens = [e for e in self.gateway.log_lines("request") if e["op"] == "sandbox.open"]
        self.assertEqual([e["status"] for e in opens], [201, 200])
        self.assertEqual(sandbox["generation"], 1)
        self.assertEqual(
            self.gateway.expect(200, "GET", f"/sandboxes/{sandbox['session_id']}")["status"],
            "running",
        )

    def test_at_sigterm_calls_are_answered_and_connections_closed_with_1001(self):
        idle = Bot(self, self.gateway, self.gateway.admin_key)
        chat = self.gateway.new_chat()["chat_id"]
        self.bot.send("sandbox.open", {"chat_id": chat})
        self.bot.send("health.get")
        self.assertEqual(self.bot.answer()["id"], "2")  # so the open has been read, too
        self.gateway.process.terminate()
        self.assertEqual(idle.ws.wait_closed(), 1001)
        answer = self.bot.answer()
        self.assertEqual((answer["id"], answer["ok"]), ("1", True))
        self.assertEqual(self.bot.ws.wait_closed(), 1001)
        self.assertEqual(self.gateway.process.wait(30), 0)

    def test_a_killed_gateway_is_found_again_by_the_same_key(self):
        self.gateway.kill9()
        with self.assertRaises(WsClosed):
            self.bot.answer()
        self.gateway.start()
        again = Bot(self, self.gateway, self.gateway.admin_key)
        self.assertEqual(again.ok("health.get")["status"], "ok")


if __name__ == "__main__":
    unittest.main()
