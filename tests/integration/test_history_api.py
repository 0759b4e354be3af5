"""History over the API: what is said is there once, in order, in both faces, and is counted."""

import concurrent.futures
import glob
import os
import sqlite3
import threading
import unittest
import uuid

from gateway import Gateway
from test_lists import all_pages


def read(path):
    with open(path, encoding="utf-8") as source:
        return source.read()


class History(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)

    def setUp(self):
        self.user = str(uuid.uuid4())
        self.chat = self.gateway.new_chat(self.user)["chat_id"]
        self.path = f"/chats/{self.chat}/history"
        self.dir = os.path.join(
            self.gateway.dir, "data", "workspaces", self.user, "chats", self.chat
        )

    def say(self, content, status=201, **members):
        return self.gateway.expect(
            status, "POST", self.path, {"role": "user", "content": content, **members}
        )

    def used(self):
        return self.gateway.expect(200, "GET", f"/users/{self.user}/workspace")["used_bytes"]

    def stored_use(self):
        database = os.path.join(self.gateway.dir, "data", "leasehold.db")
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
            [[used]] = db.execute(
                "SELECT used_bytes FROM workspaces WHERE user_id = ?", [self.user]
            )
        return used

    def on_disk(self):
        return sum(os.path.getsize(p) for p in glob.glob(f"{self.dir}/history.*"))

    def test_a_message_is_answered_listed_and_read(self):
        at = "2026-01-02T03:04:05.678Z"
        said = self.say("one", author="me", at=at)
        self.assertEqual(
            said,
            {
                "seq": 1,
                "message_id": said["message_id"],
                "at": at,
                "role": "user",
                "author": "me",
                "content": "one",
            },
        )
        second = self.gateway.expect(
            201, "POST", self.path, {"role": "agent", "content": "zwei \u00e9\n## x"}
        )
        self.assertEqual((second["seq"], second["author"]), (2, None))
        page = self.gateway.expect(200, "GET", self.path)
        self.assertEqual(page, {"items": [said, second], "next_cursor": None})
        status, headers, body = self.gateway.rest("GET", self.path + ".md")
        self.assertEqual(status, 200)
        self.assertTrue(headers["Content-Type"].startswith("text/markdown"))
        body = body.decode()
        self.assertEqual(body, read(os.path.join(self.dir, "history.md")))
        self.assertIn(f"## {at} user me\n\none\n", body)

    def test_pages_go_by_seq(self):
        made = [self.say(f"m{i}")["seq"] for i in range(7)]
        self.assertEqual(made, list(range(1, 8)))
        self.assertEqual([m["seq"] for m in all_pages(self.gateway, self.path, 3)], made)
        page = self.gateway.expect(200, "GET", self.path + "?after=2&limit=2")
        self.assertEqual([m["seq"] for m in page["items"]], [3, 4])
        page = self.gateway.expect(200, "GET", self.path + "?after=7")
        self.assertEqual(page, {"items": [], "next_cursor": None})
        for query in ("limit=0", "limit=201", "after=-1", "cursor=x", "other=1"):
            status, _, problem = self.gateway.rest("GET", f"{self.path}?{query}")
            self.assertEqual((status, problem["code"]), (422, "invalid_request"), query)

    def test_a_page_of_long_messages_ends_early(self):
        for _ in range(4):
            self.say("x" * 500_000)
        status, headers, text = self.gateway.rest("GET", self.path + ".md")
        self.assertEqual((status, len(text)), (200, int(headers["Content-Length"])))
        self.assertEqual(text.decode(), read(os.path.join(self.dir, "history.md")))
        status, headers, _ = self.gateway.rest("HEAD", self.path + ".md")
        self.assertEqual((status, len(text)), (200, int(headers["Content-Length"])))
        page = self.gateway.expect(200, "GET", self.path)
        self.assertEqual([m["seq"] for m in page["items"]], [1, 2])
        self.assertEqual([m["seq"] for m in all_pages(self.gateway, self.path, 50)], [1, 2, 3, 4])

    def test_what_is_sent_again_is_there_once(self):
        first = self.say("one", client_message_id="a")
        self.assertEqual(self.say("one", client_message_id="a"), first)
        self.say("two", client_message_id="b")
        status, _, problem = self.gateway.rest(
            "POST", self.path, {"role": "user", "content": "other", "client_message_id": "a"}
        )
        self.assertEqual((status, problem["code"]), (409, "conflict"))
        body = {"role": "user", "content": "three"}
        headers = {"Idempotency-Key": "k"}
        status, _, three = self.gateway.rest("POST", self.path, body, headers=headers)
        self.assertEqual(status, 201)
        status, replayed, again = self.gateway.rest("POST", self.path, body, headers=headers)
        self.assertEqual((status, again), (201, three))
        self.assertEqual(replayed["Idempotent-Replayed"], "true")
        self.gateway.kill9()
        self.gateway.start()
        self.assertEqual(self.say("one", client_message_id="a"), first)
        items = self.gateway.expect(200, "GET", self.path)["items"]
        self.assertEqual([m["content"] for m in items], ["one", "two", "three"])

    def test_many_clients_are_all_heard_in_order(self):
        def talk(client):
            return [self.say(f"{client} {i}")["seq"] for i in range(10)]

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            seqs = list(pool.map(talk, range(16)))
        self.assertEqual(sorted(sum(seqs, [])), list(range(1, 161)))
        items = all_pages(self.gateway, self.path, 200)
        self.assertEqual([m["seq"] for m in items], list(range(1, 161)))
        for client in range(16):
            said = [m["content"] for m in items if m["content"].startswith(f"{client} ")]
            self.assertEqual(said, [f"{client} {i}" for i in range(10)])
        self.assertEqual(self.stored_use(), self.on_disk())

    def test_the_sum_of_a_workspace_is_kept_by_every_append(self):
        self.assertEqual(self.stored_use(), self.on_disk())
        for size in (1, 5000, 100_000):
            self.say("x" * size)
            self.assertEqual(self.stored_use(), self.on_disk())
        self.assertEqual(self.used(), self.on_disk())
        self.gateway.expect(204, "DELETE", f"/chats/{self.chat}")
        self.assertEqual(self.stored_use(), 0)

    def test_what_is_not_a_message_is_refused(self):
        for body in (
            {"content": "x"},
            {"role": "user"},
            {"role": "god", "content": "x"},
            {"role": "user", "content": "x", "author": "a\nb"},
            {"role": "user", "content": "x", "at": "yesterday"},
            {"role": "user", "content": "x", "client_message_id": ""},
            {"role": "user", "content": 1},
        ):
            status, _, problem = self.gateway.rest("POST", self.path, body)
            self.assertEqual((status, problem["code"]), (422, "invalid_request"), body)
        self.assertEqual(self.gateway.expect(200, "GET", self.path)["items"], [])

    def test_others_do_not_see_it(self):
        other = self.gateway.new_key(allowed_users=[str(uuid.uuid4())])
        viewer = self.gateway.new_key(role="viewer")
        message = {"role": "user", "content": "x"}
        for method, path, body in (
            ("POST", self.path, message),
            ("GET", self.path, None),
            ("GET", self.path + ".md", None),
        ):
            status, _, problem = self.gateway.rest(method, path, body, key=other)
            self.assertEqual((status, problem["code"]), (404, "chat_not_found"))
            path = path.replace(self.chat, str(uuid.uuid4()))
            status, _, problem = self.gateway.rest(method, path, body)
            self.assertEqual((status, problem["code"]), (404, "chat_not_found"))
        status, _, problem = self.gateway.rest("POST", self.path, message, key=viewer)
        self.assertEqual((status, problem["code"]), (403, "forbidden"))
        self.gateway.expect(200, "GET", self.path, key=viewer)

    def test_a_broken_file_is_set_aside_and_the_chat_goes_on(self):
        self.say("before")
        with open(os.path.join(self.dir, "history.db"), "r+b") as file:
            file.write(b"no database at all")
        self.assertEqual(self.gateway.expect(200, "GET", self.path)["items"], [])
        self.assertEqual(self.say("after")["seq"], 1)
        self.assertTrue(glob.glob(os.path.join(self.dir, "history.db.broken-*")))
        self.assertEqual(len(self.gateway.log_lines("history.broken")), 1)
        text = read(os.path.join(self.dir, "history.md"))
        self.assertLess(text.index("before"), text.index("after"))
        self.assertEqual(self.stored_use(), self.on_disk())

    def test_deleting_a_chat_beside_appends_leaves_nothing(self):
        done = threading.Event()
        answers = []

        def talk():
            while not done.is_set():
                status, _, _ = self.gateway.rest(
                    "POST", self.path, {"role": "user", "content": "x"}
                )
                answers.append(status)

        for _ in range(5):
            threads = [threading.Thread(target=talk) for _ in range(4)]
            for thread in threads:
                thread.start()
            self.gateway.expect(204, "DELETE", f"/chats/{self.chat}")
            done.set()
            for thread in threads:
                thread.join()
            done.clear()
            self.assertFalse(os.path.exists(self.dir))
            self.assertEqual(self.stored_use(), 0)
            self.setUp()
        self.assertEqual(set(answers) - {201, 404}, set())
