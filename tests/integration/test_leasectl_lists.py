"""leasectl's lists, deletions and changes against the real daemon, and its --idempotency-key."""

import json
import os
import unittest
import uuid

from gateway import Gateway


class LeasectlCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)
        cls.user = str(uuid.uuid4())

    def ctl(self, *args, code=0, key=None):
        done = self.gateway.ctl(*args, key=key)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done


class LeasectlLists(LeasectlCase):
    def rows(self, *args):
        """The cells of the table's lines, the names first."""
        return [line.split() for line in self.ctl(*args).stdout.splitlines()]

    def test_chats_are_listed_page_by_page_and_removed(self):
        user = str(uuid.uuid4())
        made = [
            self.gateway.new_chat(user, title=title)["chat_id"]
            for title in ("one", "two", "ü" * 60 + "\x1b[31m")
        ]
        names, *rows = self.rows("chat", "ls", "--user", user)
        self.assertEqual(names, ["chat_id", "user_id", "created_at", "title"])
        self.assertEqual([row[0] for row in rows], made)
        self.assertEqual([row[3] for row in rows[:2]], ["one", "two"])
        self.assertNotIn("\x1b", rows[2][3])
        done = self.ctl("chat", "ls", "--user", user, "--limit", "2")
        self.assertEqual(len(done.stdout.splitlines()), 3)
        cursor = done.stderr.split()[-1]
        names, row = self.rows("chat", "ls", "--user", user, "--cursor", cursor)
        self.assertEqual(row[0], made[2])
        self.assertEqual(self.ctl("chat", "rm", made[0]).stdout, "")
        self.ctl("chat", "rm", made[0], code=3)
        self.ctl("chat", "ls", "--cursor", "x", code=1)
        page = json.loads(self.ctl("--json", "chat", "ls", "--user", user).stdout)
        self.assertEqual([c["chat_id"] for c in page["items"]], made[1:])

    def test_sandboxes_leases_and_the_workspace(self):
        user = str(uuid.uuid4())
        chat = self.gateway.new_chat(user)["chat_id"]
        sandbox, grant = self.gateway.open(chat, lease={})
        session = sandbox["session_id"]
        _, row = self.rows("sandbox", "ls", "--chat", chat, "--status", "running")
        self.assertEqual(row[:3], [session, chat, "running"])
        _, row = self.rows("lease", "ls", "--session", session)
        self.assertEqual(row[:2], [grant["lease"]["lease_id"], session])
        self.ctl("chat", "rm", chat, code=1)
        self.assertIn(session, self.ctl("sandbox", "renew", session, "--idle-ttl", "60").stdout)
        self.assertRegex(self.ctl("sandbox", "stats", session).stdout, r"(?m)^memory_bytes +\d")
        names, node = self.rows("node", "ls")
        self.assertIn("load.sandboxes", names)
        self.assertEqual(node[names.index("load.sandboxes")], "1")
        for use in ((), ("--once",)):
            granted = self.ctl("lease", "grant", "--chat", chat, *use)
            lost = granted.stdout.split()[1]
            self.assertIn("the token is lost", granted.stderr)
            token = os.path.join(self.gateway.dir, "token")
            self.ctl("lease", "renew", lost, "--token-file", token)
            self.assertTrue(os.path.getsize(token))
            self.ctl("lease", "revoke", lost, "--wait", "5000")
        dry = self.ctl("lease", "revoke", "--chat", chat, "--dry-run").stdout
        self.assertRegex(dry, r"matched +1\nrevoked +0")
        done = self.ctl("lease", "revoke", "--all", "--expected-count", "7", code=1)
        self.assertIn("expected_count_mismatch", done.stderr)
        self.assertRegex(self.ctl("lease", "revoke", "--user", user).stdout, r"revoked +1")
        self.assertIn("chats         1", self.ctl("workspace", "get", user).stdout)
        self.ctl("workspace", "get", str(uuid.uuid4()), code=3)
        self.ctl("sandbox", "stop", session)
        self.ctl("chat", "rm", chat)

    def test_retention_runs_on_request(self):
        for args in ((), ("--dry-run",)):
            [names] = self.rows("retention", "run", *args)
            self.assertEqual(names, ["kind", "id", "reason", "size_bytes"])
        entries = self.ctl("--json", "audit", "--action", "retention.run").stdout
        self.assertEqual(len(entries.splitlines()), 2)

    def test_keys_are_listed_changed_and_revoked(self):
        key = self.gateway.new_key()
        key_id = key.split("_")[1]
        self.assertIn(key_id, [row[0] for row in self.rows("key", "ls", "--limit", "200")])
        out = self.ctl("key", "update", key_id, "--role", "viewer", "--allowed-user", self.user).stdout
        self.assertRegex(out, rf"role +viewer\n(.*\n)*allowed_users +{self.user}")
        self.ctl("chat", "create", "--user", self.user, key=key, code=4)
        refused = self.ctl("key", "update", key_id, code=2).stderr
        self.assertIn("nothing to do: give --name or --role or --allowed-user", refused)
        out = self.ctl("key", "update", key_id, "--clear", "allowed_users,default_user").stdout
        self.assertNotIn(self.user, out)
        self.ctl("key", "update", key_id, "--clear", "name", code=2)
        self.ctl("key", "update", key_id, "--allowed-user", self.user)
        names, *rows = self.rows("key", "ls")
        [row] = [row for row in rows if row[0] == key_id]
        self.assertEqual(row[names.index("allowed_users")], self.user)
        self.assertRegex(row[names.index("last_used_at")], r"^2\d{3}-\d\d-\d\dT")
        self.ctl("key", "revoke", key_id)
        self.ctl("chat", "ls", key=key, code=4)
        self.ctl("key", "revoke", str(uuid.uuid4()), code=3)

    def test_a_request_with_an_idempotency_key_is_answered_again(self):
        args = ("--json", "chat", "create", "--user", self.user, "--idempotency-key", "once-1")
        first, second = (json.loads(self.ctl(*args).stdout) for _ in range(2))
        self.assertEqual(first, second)
        self.ctl(*args, "--title", "other", code=1)
        for args in (
            ("chat", "ls"),
            ("chat", "rm", first["chat_id"]),
            ("connect", first["chat_id"]),
            ("lease", "revoke", first["chat_id"]),
        ):
            done = self.ctl(*args, "--idempotency-key", "k", code=2)
            self.assertIn("takes no --idempotency-key", done.stderr)
        self.ctl("chat", "create", "--user", self.user, "--idempotency-key", "a b", code=2)


class Revocations(LeasectlCase):
    def test_a_revocation_by_what_nobody_knows_says_so(self):
        unknown = str(uuid.uuid4())
        for option, says in (("--key", "no API key has the id"), ("--user", "no such user here:"),
                             ("--session", "no such sandbox"), ("--chat", "chat_not_found")):
            for more in ((), ("--dry-run",), ("--expected-count", "0"), ("--expected-count", "2"),
                         ("--wait", "1000")):
                with self.subTest(option=option, more=more):
                    done = self.ctl("lease", "revoke", option, unknown, *more, code=3)
                    self.assertIn(says, done.stderr)
                    if option in ("--key", "--user"):
                        self.assertIn(unknown, done.stderr)
        self.ctl("lease", "revoke", unknown, "--dry-run", code=3)

    def test_a_revocation_by_what_is_known_may_match_nothing(self):
        user, lonely = str(uuid.uuid4()), str(uuid.uuid4())
        chat = self.gateway.new_chat(user)["chat_id"]
        self.gateway.expect(201, "PUT", f"/users/{lonely}/workspace")
        sandbox, _ = self.gateway.open(chat)
        self.ctl("sandbox", "stop", sandbox["session_id"])
        key = self.gateway.new_key().split("_")[1]
        for option, known in (("--user", user), ("--user", lonely), ("--key", key),
                              ("--chat", chat), ("--session", sandbox["session_id"])):
            with self.subTest(option=option, known=known):
                done = self.ctl("--json", "lease", "revoke", option, known)
                self.assertEqual((json.loads(done.stdout)["matched"], done.stderr), (0, ""))
        self.ctl("key", "revoke", key)
        self.ctl("lease", "revoke", "--key", key)
        self.ctl("lease", "revoke", "--key", key, "--expected-count", "2", code=1)

    def test_a_key_is_known_from_any_page_of_the_list(self):
        keys = [self.gateway.new_key().split("_")[1] for _ in range(205)]
        for key in (keys[0], keys[-1]):
            self.ctl("lease", "revoke", "--key", key)
        self.ctl("lease", "revoke", "--key", str(uuid.uuid4()), code=3)


if __name__ == "__main__":
    unittest.main()
