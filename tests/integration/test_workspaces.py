"""Workspaces: made on first touch or on request, counted, deleted with all that is in them."""

import os
import threading
import unittest
import uuid

from gateway import Gateway
from test_lists import all_pages


class Workspaces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)

    def setUp(self):
        self.user = str(uuid.uuid4())
        self.path = f"/users/{self.user}/workspace"
        self.dir = os.path.join(self.gateway.dir, "data", "workspaces", self.user)

    def test_it_is_made_once(self):
        self.assertEqual(self.gateway.rest("GET", self.path)[0], 404)
        made = self.gateway.expect(201, "PUT", self.path)
        self.assertEqual((made["user_id"], made["used_bytes"], made["chats"]), (self.user, 0, 0))
        self.assertEqual(self.gateway.expect(200, "PUT", self.path), made)
        self.assertEqual(self.gateway.expect(200, "GET", self.path), made)
        self.gateway.new_chat(self.user)
        self.assertEqual(self.gateway.expect(200, "GET", self.path)["chats"], 1)

    def test_it_is_deleted_with_all_that_is_in_it(self):
        chats = [self.gateway.new_chat(self.user)["chat_id"] for _ in range(5)]
        for chat in chats:
            self.gateway.expect(
                201, "POST", f"/chats/{chat}/history", {"role": "user", "content": "x"}
            )
        with open(os.path.join(self.dir, "chats", chats[0], "files", "a"), "wb") as out:
            out.write(b"x")
        os.makedirs(os.path.join(self.dir, "tools", "a", "b"))
        sandbox, _ = self.gateway.open(chats[1])
        self.gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})
        self.gateway.expect(204, "DELETE", self.path)
        self.assertFalse(os.path.exists(self.dir))
        for path in [self.path] + [f"/chats/{chat}" for chat in chats]:
            self.assertEqual(self.gateway.rest("GET", path)[0], 404)
        self.assertEqual(self.gateway.rest("DELETE", self.path)[0], 404)
        entries = all_pages(self.gateway, "/audit?action=workspace.delete", 200)
        objects = [e["object"] for e in entries if e["outcome"] == "ok"]
        for thing in [f"workspace:{self.user}"] + [f"chat:{chat}" for chat in chats]:
            self.assertEqual(objects.count(thing), 1)
        self.gateway.new_chat(self.user)

    def test_a_sandbox_keeps_all_of_it(self):
        chats = [self.gateway.new_chat(self.user)["chat_id"] for _ in range(3)]
        sandbox, _ = self.gateway.open(chats[-1], lease={})
        status, _, problem = self.gateway.rest("DELETE", self.path)
        self.assertEqual((status, problem["code"]), (409, "chat_has_active_sandbox"))
        self.assertEqual(self.gateway.expect(200, "GET", self.path)["chats"], 3)
        self.gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})
        self.gateway.expect(204, "DELETE", self.path)

    def test_chats_that_are_made_meanwhile_are_whole_or_gone(self):
        done = threading.Event()
        answers = []

        def make():
            while not done.is_set():
                answers.append(self.gateway.rest("POST", "/chats", {"user_id": self.user}))

        threads = [threading.Thread(target=make) for _ in range(2)]
        self.gateway.new_chat(self.user)
        for thread in threads:
            thread.start()
        for _ in range(20):
            self.assertIn(self.gateway.rest("DELETE", self.path)[0], (204, 404, 409))
        done.set()
        for thread in threads:
            thread.join()
        self.assertEqual({status for status, _, _ in answers}, {201})
        page = self.gateway.expect(200, "GET", f"/chats?user_id={self.user}&limit=200")
        for chat in page["items"]:
            self.gateway.expect(
                201, "POST", f"/chats/{chat['chat_id']}/history", {"role": "user", "content": "x"}
            )

    def test_others_do_not_see_it(self):
        self.gateway.expect(201, "PUT", self.path)
        other = self.gateway.new_key(allowed_users=[str(uuid.uuid4())])
        viewer = self.gateway.new_key(role="viewer")
        for method in ("PUT", "GET", "DELETE"):
            status, _, problem = self.gateway.rest(method, self.path, key=other)
            self.assertEqual((status, problem["code"]), (404, "workspace_not_found"), method)
        for method in ("PUT", "DELETE"):
            self.assertEqual(self.gateway.rest(method, self.path, key=viewer)[0], 403)
        self.gateway.expect(200, "GET", self.path, key=viewer)
