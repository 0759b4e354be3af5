"""leasectl about chats, histories, workspaces and the audit trail."""

import json
import os
import signal
import subprocess
import unittest
import uuid

from gateway import BIN, Gateway


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)

    def ctl(self, *args, code=0):
        done = self.gateway.ctl(*args)
        self.assertEqual(done.returncode, code, (args, done.stderr))
        return done

    def say(self, chat, *more, content="hello", code=0):
        return self.ctl(
            "history", "append", chat, "--role", "user", "--content", content, *more, code=code
        )

    def follow(self, *args):
        process = subprocess.Popen(
            [os.path.join(BIN, "leasectl"), *args],
            env={"LEASEHOLD_URL": self.gateway.url, "LEASEHOLD_KEY": self.gateway.admin_key},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.send_signal, signal.SIGTERM)
        return process

    def test_a_chat_from_its_making_to_its_end(self):
        user, chat = str(uuid.uuid4()), str(uuid.uuid4())
        self.assertIn("chats         0", self.ctl("workspace", "create", user).stdout)
        self.ctl("chat", "create", "--user", user, "--chat-id", chat, "--title", "talk")
        self.assertIn("talk", self.ctl("chat", "ls", "--user", user).stdout)
        said = self.say(chat, "--author", "me", "--client-message-id", "1")
        self.assertEqual(self.say(chat, "--author", "me", "--client-message-id", "1").stdout,
                         said.stdout)
        self.say(chat, content="two\nlines \x1b[2J")
        lines = self.ctl("history", chat).stdout.splitlines()
        self.assertEqual(len(lines), 5)
        self.assertTrue(lines[0].startswith("1 2") and lines[0].endswith("Z user me"))
        self.assertTrue(lines[2].endswith("Z user -"))
        self.assertEqual([lines[1], lines[3], lines[4]],
                         ["    hello", "    two", "    lines ?[2J"])
        page = self.ctl("history", chat, "--limit", "1")
        self.assertEqual(len(page.stdout.splitlines()), 2)
        self.assertIn("--after 1", page.stderr)
        [message] = self.ctl("--json", "history", chat, "--after", "1").stdout.splitlines()
        self.assertEqual(json.loads(message)["content"], "two\nlines \x1b[2J")
        self.assertIn(f"# {chat}\n", self.ctl("history", "text", chat).stdout)
        self.ctl("chat", "rm", chat)
        self.ctl("history", chat, code=3)
        self.ctl("workspace", "rm", user)
        self.ctl("workspace", "get", user, code=3)

    def test_a_follower_of_the_audit_leaves_out_its_own_looks(self):
        last = self.ctl("--json", "audit", "--limit", "200").stdout.splitlines()
        after = str(json.loads(last[-1])["n"])
        trail = self.follow("--json", "audit", "--follow", "--after", after, "--limit", "2")
        listed = self.follow("audit", "--follow", "--after", after, "--action", "audit.list",
                             "--limit", "1")
        user = str(uuid.uuid4())
        self.ctl("workspace", "create", user)
        self.ctl("workspace", "get", user)
        out, _ = trail.communicate(timeout=30)
        self.assertEqual([json.loads(line)["action"] for line in out.splitlines()],
                         ["workspace.put", "workspace.get"])
        other = self.gateway.new_key(role="admin")
        self.gateway.expect(200, "GET", "/audit?limit=1", key=other)
        out, _ = listed.communicate(timeout=30)
        self.assertIn(other.split("_")[1], out)

    def test_followers_see_what_comes(self):
        chat = self.gateway.new_chat()["chat_id"]
        self.say(chat, content="before")
        talk = self.follow("--json", "history", chat, "--follow")
        self.assertEqual(json.loads(talk.stdout.readline())["content"], "before")
        self.say(chat, content="after")
        self.assertEqual(json.loads(talk.stdout.readline())["content"], "after")
        trail = self.follow("audit", "--follow", "--object", f"chat:{chat}", "--action", "chat.get")
        self.gateway.expect(200, "GET", f"/chats/{chat}")
        words = trail.stdout.readline().split()
        self.assertEqual(words[2:5], ["allowed", "chat.get", f"chat:{chat}"])

    def test_the_trail_is_listed_and_checked(self):
        chat = self.gateway.new_chat()["chat_id"]
        [line] = self.ctl("audit", "--object", f"chat:{chat}").stdout.splitlines()
        self.assertIn(f" ok chat.create chat:{chat} ", line)
        self.assertEqual(self.ctl("audit", "--action", "nothing").stdout, "")
        self.assertIn("yes", self.ctl("audit", "verify").stdout)
        done = self.gateway.ctl("audit", key=self.gateway.new_key())
        self.assertEqual(done.returncode, 4)

    def test_wrong_lines_are_usage_errors(self):
        chat = str(uuid.uuid4())
        for args in (
            ("history",),
            ("history", "append", chat, "--role", "user"),
            ("history", "append", chat, "--role", "god", "--content", "x"),
            ("history", chat, "--after", "-1"),
            ("audit", chat),
            ("workspace", "rm"),
        ):
            self.ctl(*args, code=2)

