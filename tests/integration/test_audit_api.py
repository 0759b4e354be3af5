"""The audit trail over the API: every access is in it, allowed or denied, and the chain is whole."""

import http.client
import json
import os
import re
import sqlite3
import unittest
import urllib.parse
import uuid

from files import FileClient
from gateway import Gateway
from test_lists import all_pages
from test_ws_face import Bot


class Audit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)

    def setUp(self):
        self.user = str(uuid.uuid4())
        self.chat = self.gateway.new_chat(self.user)["chat_id"]
        self.object = f"chat:{self.chat}"

    def entries(self, **filters):
        query = "&".join(f"{k}={v}" for k, v in filters.items())
        return all_pages(self.gateway, "/audit" + (f"?{query}" if query else ""), 200)

    def last(self, **filters):
        found = self.entries(**filters)
        self.assertTrue(found, filters)
        return found[-1]

    def test_a_read_is_an_entry_with_who_what_and_whence(self):
        key = self.gateway.new_key()
        _, headers, _ = self.gateway.rest("GET", f"/chats/{self.chat}", key=key)
        entry = self.last(object=self.object)
        self.assertEqual(
            (entry["action"], entry["outcome"], entry["detail"]), ("chat.get", "allowed", None)
        )
        self.assertEqual(entry["request_id"], headers["X-Request-Id"])
        self.assertEqual(entry["actor"], key.split("_")[1])
        self.assertEqual(entry["address"], "127.0.0.1")
        self.assertEqual(
            set(entry),
            set("n at actor action object outcome address request_id detail prev hash".split()),
        )

    def test_every_kind_of_access_is_there(self):
        chat, ids = f"/chats/{self.chat}", {}
        sandbox, grant = self.gateway.open(self.chat, lease={})
        session, lease = sandbox["session_id"], grant["lease"]["lease_id"]
        ids = {"chat": self.chat, "sandbox": session, "lease": lease, "workspace": self.user}
        for method, path, body, action, kind in (
            ("GET", f"/users/{self.user}/workspace", None, "workspace.get", "workspace"),
            ("GET", f"/chats?user_id={self.user}", None, "chat.list", "workspace"),
            ("POST", "/chats", {"user_id": self.user, "chat_id": self.chat}, "chat.create", "chat"),
            ("POST", chat + "/history", {"role": "user", "content": "x"}, "history.append", "chat"),
            ("GET", chat + "/history", None, "history.list", "chat"),
            ("GET", chat + "/history.md", None, "history.markdown", "chat"),
            ("GET", f"/sandboxes/{session}", None, "sandbox.get", "sandbox"),
            ("GET", f"/sandboxes?chat_id={self.chat}", None, "sandbox.list", "chat"),
            ("POST", f"/sandboxes/{session}/renew", {}, "sandbox.renew", "sandbox"),
            ("GET", f"/leases/{lease}", None, "lease.get", "lease"),
            ("GET", f"/leases?session_id={session}", None, "lease.list", "sandbox"),
            ("POST", f"/leases/{lease}/renew", {}, "lease.renew", "lease"),
            ("DELETE", f"/leases/{lease}", None, "lease.revoke", "lease"),
            ("DELETE", f"/leases/{lease}", None, "lease.revoke", "lease"),
            ("POST", f"/sandboxes/{session}/stop", {}, "sandbox.stop", "sandbox"),
            ("POST", f"/sandboxes/{session}/stop", {}, "sandbox.stop", "sandbox"),
            ("DELETE", chat, None, "chat.delete", "chat"),
        ):
            status, headers, _ = self.gateway.rest(method, path, body)
            self.assertLess(status, 300, path)
            found = self.entries(object=f"{kind}:{ids[kind]}", action=action)
            requests = [e for e in found if e["request_id"] == headers["X-Request-Id"]]
            self.assertEqual(len(requests), 1, (action, found))
            self.assertIn(requests[0]["outcome"], ("ok", "allowed"))

    def test_every_access_to_a_file_is_there(self):
        files = f"/chats/{self.chat}/files"
        file = self.gateway.expect(201, "PUT", files + "/a", b"x")
        known, by_name = f"file:{file['file_id']}", f"file:{self.chat}/a"
        other = self.gateway.new_key(allowed_users=[str(uuid.uuid4())])
        for method, path, key, action, thing, outcome in (
            ("GET", files + "/a", None, "file.get", known, "allowed"),
            ("HEAD", files + "/a", None, "file.get", known, "allowed"),
            ("GET", f"/files/{file['file_id']}", None, "file.stat", known, "allowed"),
            ("GET", files, None, "file.list", self.object, "allowed"),
            ("GET", files + "/a", other, "file.get", by_name, "denied"),
            ("PUT", files + "/a", other, "file.put", by_name, "denied"),
            ("DELETE", files + "/a", other, "file.delete", by_name, "denied"),
            ("DELETE", files + "/a", None, "file.delete", known, "ok"),
            ("GET", files + "/a", None, "file.get", by_name, "denied"),
        ):
            body = b"x" if method == "PUT" else None
            _, headers, _ = self.gateway.rest(method, path, body, key=key)
            entry = self.last(object=thing, action=action)
            self.assertEqual(entry["request_id"], headers["X-Request-Id"], (method, path))
            self.assertEqual(entry["outcome"], outcome)

    def test_a_chat_finds_every_access_to_its_files_and_artifacts(self):
        files, name = f"/chats/{self.chat}/files", "a%20chat=x"
        other = self.gateway.new_key(allowed_users=[str(uuid.uuid4())])
        self.gateway.expect(201, "PUT", f"{files}/{name}", b"x")
        self.gateway.expect(200, "GET", f"{files}/{name}")
        self.assertEqual(self.gateway.rest("GET", f"{files}/{name}", key=other)[0], 404)
        self.gateway.expect(204, "DELETE", f"{files}/{name}")
        artifact = self.gateway.expect(201, "POST", f"/chats/{self.chat}/artifacts?name=r", b"x")
        self.gateway.expect(200, "GET", f"/artifacts/{artifact['artifact_id']}")
        self.gateway.new_chat(self.user)
        named = f"chat={self.chat} name=a%20chat=x"
        denied = f"chat_not_found {named}"
        stored = f"chat={self.chat} name=r"
        for action, details in (
            ("file.put", [named]),
            ("file.get", [named, denied]),
            ("file.delete", [named]),
            ("artifact.put", [stored]),
            ("artifact.get", [stored]),
        ):
            found = self.entries(object=self.object, action=action)
            self.assertEqual([entry["detail"] for entry in found], details, action)
        self.assertEqual(self.entries(object="chat:x"), [])
        self.assertTrue(self.gateway.expect(200, "GET", "/audit/verify")["ok"])

    def test_what_was_denied_is_there(self):
        other = self.gateway.new_key(allowed_users=[str(uuid.uuid4())])
        viewer = self.gateway.new_key(role="viewer")
        for method, path, key, status, code, actor in (
            ("GET", f"/chats/{self.chat}", other, 404, "chat_not_found", other.split("_")[1]),
            ("GET", f"/chats/{self.chat}/history", other, 404, "chat_not_found", None),
            ("DELETE", f"/chats/{self.chat}", viewer, 403, "forbidden", viewer.split("_")[1]),
            ("GET", f"/chats/{self.chat}", "", 401, "unauthenticated", "stranger"),
            ("GET", f"/chats/{self.chat}", "lhk_x_y", 401, "unauthenticated", "stranger"),
        ):
            got, headers, _ = self.gateway.rest(method, path, key=key)
            self.assertEqual(got, status)
            entry = self.last(object=self.object)
            self.assertEqual((entry["outcome"], entry["detail"]), ("denied", code))
            self.assertEqual(entry["request_id"], headers["X-Request-Id"])
            self.assertIn(actor, (None, entry["actor"]))

    def test_calls_of_a_websocket_are_there(self):
        viewer = self.gateway.new_key(role="viewer")
        bot = Bot(self, self.gateway, viewer)
        bot.ok("chat.get", {"chat_id": self.chat})
        bot.error("chat.delete", {"chat_id": self.chat})
        found = [(e["action"], e["outcome"]) for e in self.entries(object=self.object)]
        self.assertEqual(found[-2:], [("chat.get", "allowed"), ("chat.delete", "denied")])

    def test_filters_and_pages(self):
        for _ in range(3):
            self.gateway.expect(200, "GET", f"/chats/{self.chat}")
        mine = self.entries(object=self.object)
        self.assertEqual([e["action"] for e in mine], ["chat.create"] + ["chat.get"] * 3)
        self.assertEqual(all_pages(self.gateway, f"/audit?object={self.object}", 1), mine)
        numbers = [e["n"] for e in self.entries()]
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
        at = mine[-1]["at"]
        self.assertTrue(all(e["at"] >= at for e in self.entries(since=at)))
        self.assertEqual(self.entries(object=self.object, until=mine[0]["at"]), [])
        self.assertEqual(self.entries(actor="nobody"), [])
        self.assertEqual([e["n"] for e in self.entries(object=self.object, action="chat.create")],
                         [mine[0]["n"]])
        for query in ("since=x", "limit=0", "cursor=x"):
            self.assertEqual(self.gateway.rest("GET", f"/audit?{query}")[0], 422, query)
        for role in ("bot", "viewer"):
            key = self.gateway.new_key(role=role)
            for path in ("/audit", "/audit/verify"):
                self.assertEqual(self.gateway.rest("GET", path, key=key)[0], 403)

    def test_entries_survive_the_end(self):
        self.gateway.expect(200, "GET", f"/chats/{self.chat}")
        self.gateway.restart()
        self.assertEqual(self.last(object=self.object)["action"], "chat.get")


class Bounds(unittest.TestCase):
    def test_a_changed_entry_is_found(self):
        gateway = Gateway.for_test(self)
        chat = gateway.new_chat()["chat_id"]
        for _ in range(5):
            gateway.expect(200, "GET", f"/chats/{chat}")
        whole = gateway.expect(200, "GET", "/audit/verify")
        self.assertEqual((whole["ok"], whole["first_broken"]), (True, None))
        self.assertGreaterEqual(whole["checked"], 6)
        entries = gateway.expect(200, "GET", f"/audit?object=chat:{chat}")["items"]
        gateway.stop()
        database = os.path.join(gateway.dir, "data", "leasehold.db")
        victim = entries[1]["n"]
        with sqlite3.connect(database) as db:
            db.execute(
                "UPDATE audit_blocks SET entries = CAST(REPLACE(entries, 'chat.get', 'chat.got')"
                " AS BLOB) WHERE first_n <= ? AND last_n >= ?",
                [victim, victim],
            )
        gateway.start()
        broken = gateway.expect(200, "GET", "/audit/verify")
        self.assertEqual((broken["ok"], broken["first_broken"]), (False, victim))

    def test_strangers_cannot_fill_it(self):
        gateway = Gateway.for_test(self)
        for _ in range(600):
            gateway.rest("GET", f"/chats/{uuid.uuid4()}", key="")
        gateway.expect(200, "GET", "/api-keys")
        entries = all_pages(gateway, "/audit?actor=stranger", 200)
        told = all_pages(gateway, "/audit?action=audit.dropped", 200)
        dropped = sum(int(entry["object"].split(":")[1]) for entry in told)
        self.assertGreaterEqual(len(entries), 400)
        self.assertEqual(len(entries) + dropped, 600)

    def test_strangers_cannot_keep_a_download_by_its_link_out_of_it(self):
        gateway = Gateway.for_test(self)
        client = FileClient(gateway)
        path = f"/chats/{client.chat_id}/artifacts?name=a"
        artifact = json.loads(client.ask("POST", path, b"x")[2])["artifact_id"]
        link = gateway.expect(200, "GET", f"/artifacts/{artifact}/download")["url"]
        parts = urllib.parse.urlsplit(link)
        wire = http.client.HTTPConnection(parts.netloc, timeout=30)
        self.addCleanup(wire.close)
        guessed = re.sub("signature=[^&]*", "signature=aa", f"{parts.path}?{parts.query}")
        for _ in range(600):
            wire.request("GET", guessed)
            self.assertEqual(wire.getresponse().read()[:1], b"{")
        for _ in range(20):
            wire.request("GET", f"{parts.path}?{parts.query}")
            self.assertEqual(wire.getresponse().read(), b"x")
        entries = all_pages(gateway, f"/audit?object=artifact:{artifact}&action=object.get", 200)
        outcomes = [entry["outcome"] for entry in entries]
        self.assertEqual(outcomes.count("allowed"), 20)
        self.assertTrue(all_pages(gateway, "/audit?action=audit.dropped", 200))
