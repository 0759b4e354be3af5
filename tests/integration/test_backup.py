"""`leasehold backup`: a copy that is whole while the gateway works on, and what is started from it."""

import os
import shutil
import sqlite3
import stat
import threading
import unittest
import uuid

from gateway import Gateway


class Backup(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self)
        self.user = str(uuid.uuid4())
        self.data = os.path.join(self.gateway.dir, "data")
        self.file = os.path.join(self.gateway.dir, "copy.db")
        self.key = self.gateway.new_key()

    def backup(self, expect=0):
        done = self.gateway.run_program(
            "leasehold", "backup", self.file, "--config", self.gateway.config
        )
        self.assertEqual(done.returncode, expect, done.stderr)
        return done

    def say(self, chat, content):
        return self.gateway.expect(
            201, "POST", f"/chats/{chat}/history", {"role": "user", "content": content}
        )

    def chat(self, *contents):
        chat = self.gateway.new_chat(self.user)["chat_id"]
        for content in contents:
            self.say(chat, content)
        return chat

    def put_in_place(self):
        for name in os.listdir(self.data):
            if name.startswith("leasehold.db"):
                os.remove(os.path.join(self.data, name))
        shutil.copy(self.file, os.path.join(self.data, "leasehold.db"))

    def contents(self, chat):
        items = self.gateway.expect(200, "GET", f"/chats/{chat}/history", key=self.key)["items"]
        return [item["content"] for item in items]

    def test_what_was_acknowledged_before_is_in_it_while_others_write_on(self):
        chats = [self.chat(f"first {i}", "x" * 200_000) for i in range(5)]
        done = threading.Event()

        def work():
            chat = self.chat()
            while not done.is_set():
                self.say(chat, "more")

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        self.backup()
        self.backup()  # takes the place of the first
        done.set()
        for thread in threads:
            thread.join()
        self.assertEqual(stat.S_IMODE(os.stat(self.file).st_mode), 0o600)
        self.assertEqual([n for n in os.listdir(self.data) if n.startswith("backup")], [])
        with sqlite3.connect(f"file:{self.file}?mode=ro", uri=True) as db:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            kept = {row[0] for row in db.execute("SELECT chat_id FROM chats")}
        self.assertLessEqual(set(chats), kept)
        self.gateway.stop()
        shutil.rmtree(os.path.join(self.data, "workspaces"))
        os.mkdir(os.path.join(self.data, "workspaces"))
        self.put_in_place()
        self.gateway.start()
        for i, chat in enumerate(chats):
            self.assertEqual(self.contents(chat), [f"first {i}", "x" * 200_000])
            status, _, text = self.gateway.rest("GET", f"/chats/{chat}/history.md")
            self.assertEqual(status, 200)
            self.assertIn(f"first {i}".encode(), text)
            self.assertEqual(self.say(chat, "after")["seq"], 3)
        self.assertTrue(self.gateway.expect(200, "GET", "/audit/verify")["ok"])
        with sqlite3.connect(f"file:{self.data}/leasehold.db?mode=ro", uri=True) as db:
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema")}
        self.assertNotIn("backup_histories", tables)
        self.gateway.restart()
        self.assertEqual(self.contents(chats[0])[-1], "after")

    def test_a_history_that_is_there_is_kept(self):
        chat, lost = self.chat("one"), self.chat("lost")
        self.backup()
        self.say(chat, "two")
        self.gateway.stop()
        self.put_in_place()
        shutil.rmtree(os.path.join(self.data, "workspaces", self.user, "chats", lost))
        self.gateway.start()
        self.assertEqual(self.contents(chat), ["one", "two"])
        self.assertEqual(self.contents(lost), ["lost"])

    def test_it_works_without_a_gateway(self):
        chat = self.chat("one")
        self.gateway.kill9()
        self.backup()
        self.assertEqual(os.listdir(os.path.join(self.gateway.dir, "run")).count("ready"), 1)
        self.put_in_place()
        self.gateway.start()
        self.assertEqual(self.contents(chat), ["one"])

    def test_a_broken_history_holds_up_nothing(self):
        broken, whole = self.chat("one"), self.chat("two")
        with open(
            os.path.join(self.data, "workspaces", self.user, "chats", broken, "history.db"), "r+b"
        ) as file:
            file.write(b"no database at all")
        self.backup()
        with sqlite3.connect(f"file:{self.file}?mode=ro", uri=True) as db:
            kept = [row[0] for row in db.execute("SELECT chat_id FROM backup_histories")]
        self.assertEqual(kept, [whole])
        self.assertTrue(self.gateway.log_lines("backup_without_history"))

    def test_what_cannot_be_written_leaves_the_former_copy(self):
        self.backup()
        before = os.stat(self.file)
        self.file = os.path.join(self.gateway.dir, "nowhere", "copy.db")
        self.assertIn("nowhere", self.backup(expect=1).stderr)
        self.file = os.path.join(self.gateway.dir, "copy.db")
        os.remove(os.path.join(self.gateway.dir, "run", "local.key"))
        self.backup(expect=1)
        self.assertEqual(os.stat(self.file), before)
        self.assertEqual([n for n in os.listdir(self.gateway.dir) if n.endswith(".part")], [])

    def test_the_key_of_the_machine_is_of_one_life(self):
        path = os.path.join(self.gateway.dir, "run", "local.key")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        with open(path, encoding="ascii") as file:
            key = file.read()
        self.gateway.expect(200, "GET", "/audit/verify", key=key)
        listed = self.gateway.expect(200, "GET", "/api-keys")["items"]
        self.assertNotIn("local", [k["name"] for k in listed])
        self.gateway.stop()
        self.assertFalse(os.path.exists(path))
        self.gateway.start()
        self.assertEqual(self.gateway.rest("GET", "/audit/verify", key=key)[0], 401)

    def test_only_admins_may_have_it(self):
        self.assertEqual(self.gateway.rest("GET", "/backup", key=self.key)[0], 403)
        status, headers, body = self.gateway.rest("GET", "/backup")
        self.assertEqual((status, body[:16]), (200, b"SQLite format 3\0"))
        self.assertEqual(int(headers["Content-Length"]), len(body))

    def test_usage(self):
        for arguments in ((), ("x",), ("--config", "y"), ("a", "b", "--config", "y")):
            done = self.gateway.run_program("leasehold", "backup", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
