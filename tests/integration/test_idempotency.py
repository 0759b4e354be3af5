"""Idempotency-Key: a request sent again is answered again, not done again, also after kill -9."""

import base64
import contextlib
import http.client
import json
import os
import random
import sqlite3
import threading
import time
import unittest
import uuid

from gateway import Gateway
from waiting import until, wait_equal

REPLAYED = "Idempotent-Replayed"


def claims(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


class Keyed:
    """Posts with one Idempotency-Key."""

    def __init__(self, gateway, key=None, api_key=None):
        self.gateway, self.api_key = gateway, api_key
        self.key = key or uuid.uuid4().hex

    def post(self, path, body=None, **options):
        headers = {"Idempotency-Key": self.key}
        return self.gateway.rest(
            "POST", path, body, headers=headers, key=self.api_key, **options
        )


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)
        cls.user = str(uuid.uuid4())

    def same(self, keyed, path, body, status):
        """Posts twice; both answers, the second told to be a repetition."""
        first = keyed.post(path, body)
        self.assertEqual(first[0], status, first[2])
        self.assertIsNone(first[1][REPLAYED])
        second = keyed.post(path, body)
        self.assertEqual((second[0], second[1][REPLAYED]), (status, "true"), second[2])
        return first[2], second[2]

    def test_a_chat_is_made_once(self):
        body = {"user_id": self.user, "title": 'a "token":null', "metadata": {"token": None}}
        first, second = self.same(Keyed(self.gateway), "/chats", body, 201)
        self.assertEqual(first, second)
        listed = self.gateway.expect(200, "GET", f"/chats?user_id={self.user}&limit=200")["items"]
        self.assertEqual([c["chat_id"] for c in listed].count(first["chat_id"]), 1)

    def test_spelling_makes_no_other_request(self):
        user = uuid.uuid4()
        keyed = Keyed(self.gateway)
        status, _, first = keyed.post("/chats", {"user_id": str(user), "title": "x"})
        self.assertEqual(status, 201)
        spelled = f'{{ "title":"\\u0078",\n "user_id": "urn:uuid:{str(user).upper()}" }}'
        status, headers, second = keyed.post("/chats", spelled.encode())
        self.assertEqual((status, headers[REPLAYED], second), (201, "true", first))

    def test_another_body_operation_or_path_is_refused(self):
        keyed = Keyed(self.gateway)
        keyed.post("/chats", {"user_id": self.user})
        sandbox, _ = self.gateway.open(self.gateway.new_chat(self.user)["chat_id"])
        for path, body in (
            ("/chats", {"user_id": self.user, "title": "x"}),
            ("/chats", {"user_id": str(uuid.uuid4())}),
            ("/chats", {"user": 1}),
            ("/sandboxes", {"chat_id": sandbox["chat_id"]}),
            (f"/sandboxes/{sandbox['session_id']}/stop", {}),
        ):
            status, headers, problem = keyed.post(path, body)
            self.assertEqual((status, problem["code"]), (422, "idempotency_key_reused"), path)
            self.assertIsNone(headers[REPLAYED])
        keyed = Keyed(self.gateway)
        self.assertEqual(keyed.post(f"/sandboxes/{sandbox['session_id']}/renew")[0], 200)
        status, _, problem = keyed.post(f"/sandboxes/{uuid.uuid4()}/renew")
        self.assertEqual((status, problem["code"]), (422, "idempotency_key_reused"))

    def test_keys_of_different_callers_are_different(self):
        bots = [self.gateway.new_key(), self.gateway.new_key()]
        chats = [
            Keyed(self.gateway, "shared", bot).post("/chats", {"user_id": self.user})[2]["chat_id"]
            for bot in bots
        ]
        self.assertNotEqual(*chats)

    def test_refusals_are_answered_again(self):
        keyed, chat = Keyed(self.gateway), str(uuid.uuid4())
        first, second = self.same(keyed, "/sandboxes", {"chat_id": chat}, 404)
        self.assertNotEqual(first.pop("request_id"), second.pop("request_id"))
        self.assertEqual(first, second)
        # Also when it would be granted now.
        self.gateway.new_chat(self.user, chat_id=chat)
        self.assertEqual(keyed.post("/sandboxes", {"chat_id": chat})[0], 404)
        self.assertEqual(
            Keyed(self.gateway).post("/sandboxes", {"chat_id": chat})[0], 201
        )
        first, second = self.same(Keyed(self.gateway), "/chats", {"user_id": "x"}, 422)
        self.assertEqual(second["errors"], [{"pointer": "/user_id", "detail": second["detail"]}])
        self.assertEqual(first["errors"], second["errors"])
        self.same(Keyed(self.gateway), "/chats", b"{", 400)
        status, _, problem = Keyed(self.gateway).post("/create", {"chat_id": "x"})
        self.assertEqual((status, problem["detail"]), (422, "invalid_request"))

    def test_failures_of_ours_are_forgotten(self):
        gateway = Gateway.for_test(
            self, {"profiles": [{"name": "default", "command": ["/no/such/program"]}]}
        )
        keyed, body = Keyed(gateway), {"chat_id": gateway.new_chat()["chat_id"]}
        self.assertEqual(keyed.post("/sandboxes", body)[0], 503)
        gateway.edit_config(
            {"profiles": [{"name": "default", "command": ["/run/leasehold/demo-agent"]}]}
        )
        gateway.restart()
        status, headers, _ = keyed.post("/sandboxes", body)
        self.assertEqual((status, headers[REPLAYED]), (201, None))

    def test_a_sandbox_with_a_lease_is_answered_with_the_same_lease(self):
        chat = self.gateway.new_chat(self.user)["chat_id"]
        keyed, body = Keyed(self.gateway), {"chat_id": chat, "lease": {"ttl_s": 300}}
        status, _, first = keyed.post("/sandboxes", body)
        self.assertEqual(status, 201)
        lease = first["grant"]["lease"]["lease_id"]
        self.gateway.expect(200, "POST", f"/leases/{lease}/renew", {"ttl_s": 600})
        time.sleep(1.1)
        status, headers, second = keyed.post("/sandboxes", body)
        self.assertEqual((status, headers[REPLAYED]), (201, "true"))
        tokens = [answer["grant"].pop("token") for answer in (first, second)]
        self.assertEqual(first, second)
        self.assertEqual(claims(tokens[0]), claims(tokens[1]))
        client = self.gateway.connect({**second["grant"], "token": tokens[1]})
        self.assertEqual(client.ready["lease_id"], lease)
        client.close()
        listed = self.gateway.expect(200, "GET", f"/leases?chat_id={chat}")["items"]
        self.assertEqual([item["lease_id"] for item in listed], [lease])

    def test_grants_renewals_and_reuse_are_answered_again(self):
        chat = self.gateway.new_chat(self.user)["chat_id"]
        self.gateway.open(chat)
        keyed = Keyed(self.gateway)
        first, second = self.same(keyed, "/leases", {"chat_id": chat}, 201)
        self.assertEqual(claims(first.pop("token")), claims(second.pop("token")))
        self.assertEqual(first, second)
        path = f"/leases/{first['lease']['lease_id']}/renew"
        first, second = self.same(Keyed(self.gateway), path, {"ttl_s": 500}, 200)
        self.assertEqual(claims(first.pop("token")), claims(second.pop("token")))
        self.assertEqual(first, second)
        first, second = self.same(
            Keyed(self.gateway), "/sandboxes", {"chat_id": chat, "lease": {}}, 200
        )
        self.assertEqual(first["grant"]["lease"], second["grant"]["lease"])
        self.same(Keyed(self.gateway), "/create", {"chat_id": chat}, 200)
        self.assertEqual(len(self.gateway.expect(200, "GET", f"/leases?chat_id={chat}")["items"]), 2)

    def test_stops_and_revocations_are_answered_again(self):
        sandbox, grant = self.gateway.open(self.gateway.new_chat(self.user)["chat_id"], lease={})
        body = {"selector": {"lease_id": grant["lease"]["lease_id"]}, "wait_ms": 5000}
        first, second = self.same(Keyed(self.gateway), "/leases/revoke", body, 200)
        self.assertEqual((first, first["revoked"]), (second, 1))
        path = f"/sandboxes/{sandbox['session_id']}/stop"
        first, second = self.same(Keyed(self.gateway), path, {"reason": "over"}, 200)
        self.assertEqual((first, first["reason"]), (second, "over"))

    def test_a_new_api_key_is_shown_once(self):
        keyed, body = Keyed(self.gateway), {"name": "x", "role": "bot"}
        first, second = self.same(keyed, "/api-keys", body, 201)
        self.assertTrue(first["key"].startswith("lhk_"))
        self.assertIsNone(second["key"])
        self.assertEqual(first["api_key"], second["api_key"])

    def test_an_open_without_waiting_is_answered_again(self):
        chat = self.gateway.new_chat(self.user)["chat_id"]
        keyed, body = Keyed(self.gateway), {"chat_id": chat, "wait": False}
        first, second = self.same(keyed, "/sandboxes", body, 202)
        self.assertEqual(first, second)
        self.assertEqual(len(self.gateway.expect(200, "GET", f"/sandboxes?chat_id={chat}")["items"]), 1)

    def test_the_form_of_keys_is_checked(self):
        for key in ("a b", "x" * 129, "tab\there", "é".encode().decode("latin-1")):
            status, _, problem = Keyed(self.gateway, key).post("/chats", {"user_id": self.user})
            self.assertEqual((status, problem["code"]), (422, "invalid_request"), key)
        for key in ("!", "~" * 128):
            self.assertEqual(Keyed(self.gateway, key).post("/chats", {"user_id": self.user})[0], 201)

    def test_other_methods_take_no_notice(self):
        status, headers, _ = self.gateway.rest(
            "GET", "/chats", headers={"Idempotency-Key": "x" * 500}
        )
        self.assertEqual((status, headers[REPLAYED]), (200, None))

    def test_two_at_once_make_one(self):
        chat = self.gateway.new_chat(self.user)["chat_id"]
        keyed, body = Keyed(self.gateway), {"chat_id": chat, "lease": {}}
        answers, gate = [], threading.Barrier(8)

        def post():
            gate.wait()
            answers.append(keyed.post("/sandboxes", body))

        threads = [threading.Thread(target=post, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        made = [a for a in answers if a[0] == 201]
        self.assertEqual(len(answers), 8)
        self.assertGreaterEqual(len(made), 1)
        for status, _, answer in answers:
            if status != 201:
                self.assertEqual((status, answer["code"]), (409, "idempotency_in_progress"))
        self.assertEqual(len([a for a in made if a[1][REPLAYED] is None]), 1)
        self.assertEqual(len({a[2]["grant"]["lease"]["lease_id"] for a in made}), 1)
        self.assertEqual(len(self.gateway.expect(200, "GET", f"/leases?chat_id={chat}")["items"]), 1)

    def test_a_client_that_leaves_mid_open_finds_the_finished_result(self):
        chat = self.gateway.new_chat(self.user)["chat_id"]
        keyed, body = Keyed(self.gateway), {"chat_id": chat, "lease": {}}
        connection = self.gateway.connection(fresh=True)
        headers = {
            "Authorization": f"Bearer {self.gateway.admin_key}",
            "Idempotency-Key": keyed.key,
        }
        connection.request("POST", "/api/v1/sandboxes", json.dumps(body), headers)
        connection.close()
        deadline = time.monotonic() + 30
        while True:
            status, answered, answer = keyed.post("/sandboxes", body)
            if status != 409:
                break
            self.assertEqual(answer["code"], "idempotency_in_progress")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertEqual((status, answered[REPLAYED]), (201, "true"))
        self.assertEqual(len(self.gateway.expect(200, "GET", f"/sandboxes?chat_id={chat}")["items"]), 1)
        self.gateway.connect(answer["grant"]).close()

    def test_narrowed_rights_are_not_got_around_by_a_repetition(self):
        bot = self.gateway.new_key()
        key_id = bot.split("_")[1]
        chat = self.gateway.new_chat(self.user)["chat_id"]
        keyed, body = Keyed(self.gateway, api_key=bot), {"chat_id": chat, "lease": {}}
        self.assertEqual(keyed.post("/sandboxes", body)[0], 201)
        self.gateway.expect(200, "PATCH", f"/api-keys/{key_id}", {"allowed_users": []})
        status, headers, problem = keyed.post("/sandboxes", body)
        self.assertEqual((status, problem["code"], headers[REPLAYED]), (404, "chat_not_found", None))


class Records(unittest.TestCase):
    def database(self, gateway):
        return sqlite3.connect(os.path.join(gateway.dir, "data", "leasehold.db"))

    def test_a_record_holds_no_secret(self):
        gateway = Gateway.for_test(self)
        chat = gateway.new_chat()["chat_id"]
        secrets = []
        _, _, answer = Keyed(gateway).post("/sandboxes", {"chat_id": chat, "lease": {}})
        secrets.append(answer["grant"]["token"])
        secrets.append(Keyed(gateway).post("/leases", {"chat_id": chat})[2]["token"])
        secrets.append(Keyed(gateway).post("/api-keys", {"name": "x", "role": "bot"})[2]["key"])
        gateway.stop()
        kept = b""
        for name in os.listdir(os.path.join(gateway.dir, "data")):
            path = os.path.join(gateway.dir, "data", name)
            if os.path.isfile(path):
                with open(path, "rb") as data:
                    kept += data.read()
        for secret in secrets:
            # A token's signature; of lhk_<id>_<secret> the secret, which may hold "_" itself.
            part = secret.split("_", 2)[2] if secret.startswith("lhk_") else secret.rsplit(".", 1)[-1]
            self.assertNotIn(part.encode(), kept)
            self.assertNotIn(secret.encode(), kept)
        self.assertIn(b'"token":null', kept)

    def test_a_record_ends_after_a_day_and_is_removed(self):
        gateway = Gateway.for_test(self, {"sandbox": {"cleanup_interval_seconds": 1}})
        old, young = Keyed(gateway), Keyed(gateway)
        user = str(uuid.uuid4())
        first = old.post("/chats", {"user_id": user})[2]
        other = young.post("/chats", {"user_id": user})[2]
        gateway.stop()
        with self.database(gateway) as db:
            db.execute(
                "UPDATE idempotency SET created_at = created_at - 86400000"
                " WHERE idempotency_key = ?",
                (old.key,),
            )
        db.close()
        gateway.start()
        status, headers, again = old.post("/chats", {"user_id": user})
        self.assertEqual((status, headers[REPLAYED]), (201, None))
        self.assertNotEqual(again["chat_id"], first["chat_id"])
        self.assertEqual(young.post("/chats", {"user_id": user})[2], other)
        gateway.stop()
        with self.database(gateway) as db:
            db.execute("UPDATE idempotency SET created_at = created_at - 86400000")
        db.close()
        gateway.start()

        def kept():
            with contextlib.closing(self.database(gateway)) as db:
                return db.execute("SELECT COUNT(*) FROM idempotency").fetchone()[0]

        wait_equal(self, 0, kept)


class Killed(unittest.TestCase):
    """The gateway is killed at random moments during creates; each is sent again until answered."""

    ROUNDS = 12
    CLIENTS = 4

    def setUp(self):
        self.gateway = Gateway.for_test(self)
        self.answers = []
        self.lock = threading.Lock()

    def until_answered(self, keyed, path, body):
        deadline = time.monotonic() + 60
        while True:
            self.assertLess(time.monotonic(), deadline)
            try:
                status, _, answer = keyed.post(path, body)
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)
                self.gateway.connection(fresh=True)  # the address may be another one by now
                continue
            waits = status == 409 and answer["code"] == "idempotency_in_progress"
            if not waits and status < 500:
                return status, answer
            time.sleep(0.01)

    def client(self, stop):
        while not stop.is_set():
            user = str(uuid.uuid4())
            chats = Keyed(self.gateway)
            status, chat = self.until_answered(chats, "/chats", {"user_id": user})
            opens = Keyed(self.gateway)
            body = {"chat_id": chat["chat_id"], "lease": {}}
            opened = self.until_answered(opens, "/sandboxes", body)
            grants = Keyed(self.gateway)
            granted = self.until_answered(grants, "/leases", {"chat_id": chat["chat_id"]})
            with self.lock:
                self.answers.append((user, status, chat, opened, granted))
            if opened[0] in (200, 201):
                session = opened[1]["sandbox"]["session_id"]
                self.until_answered(Keyed(self.gateway), f"/sandboxes/{session}/stop", {"grace_s": 0})

    def test_every_create_is_done_once(self):
        stop = threading.Event()
        threads = [
            threading.Thread(target=self.client, args=(stop,), daemon=True)
            for _ in range(self.CLIENTS)
        ]
        for thread in threads:
            thread.start()
        dice = random.Random(7)
        for _ in range(self.ROUNDS):
            time.sleep(dice.uniform(0.02, 0.6))
            self.gateway.kill9()
            self.gateway.start()
        until(lambda: len(self.answers) > self.CLIENTS)
        stop.set()
        for thread in threads:
            thread.join(120)
            self.assertFalse(thread.is_alive())
        self.assertGreater(len(self.answers), self.CLIENTS)
        for user, status, chat, opened, granted in self.answers:
            self.assertEqual(status, 201)
            self.assert_one_chat(user, chat)
            self.assert_leases(chat, opened, granted)

    def assert_one_chat(self, user, chat):
        listed = self.gateway.expect(200, "GET", f"/chats?user_id={user}")["items"]
        self.assertEqual([c["chat_id"] for c in listed], [chat["chat_id"]])

    def assert_leases(self, chat, opened, granted):
        """What was answered is all there is: one session that ran, its leases and no other."""
        path = f"/sandboxes?chat_id={chat['chat_id']}&limit=200"
        sandboxes = self.gateway.expect(200, "GET", path)["items"]
        ran = [s["session_id"] for s in sandboxes if s["started_at"]]
        leases = self.gateway.expect(200, "GET", f"/leases?chat_id={chat['chat_id']}")["items"]
        self.assertEqual(opened[0], 201, opened[1])
        self.assertEqual(ran, [opened[1]["sandbox"]["session_id"]])
        wanted = [opened[1]["grant"]["lease"]["lease_id"]]
        if granted[0] == 201:
            wanted.append(granted[1]["lease"]["lease_id"])
        self.assertEqual(sorted(item["lease_id"] for item in leases), sorted(wanted))


if __name__ == "__main__":
    unittest.main()
