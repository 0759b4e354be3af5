"""Retention: what lies idle goes, told and audited; what is in use, or cannot be looked at, stays."""

import contextlib
import os
import sqlite3
import time
import unittest
import uuid

from gateway import Gateway
from waiting import PATIENCE_S, wait_equal

IDLE = 3  # seconds: what is looked at shortly behind its use must not be over by then


class Files(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(
            self, {"retention": {"file_idle_seconds": IDLE, "interval_seconds": 3600}}
        )
        self.user = str(uuid.uuid4())
        self.chat = self.gateway.new_chat(self.user)["chat_id"]

    def files(self, chat=None):
        return os.path.join(
            self.gateway.dir, "data", "workspaces", self.user, "chats", chat or self.chat, "files"
        )

    def write(self, name, data=b"x" * 100, chat=None):
        path = os.path.join(self.files(chat), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(data)
        return path

    def run_round(self, dry=False):
        query = "?dry_run=1" if dry else ""
        return self.gateway.expect(200, "POST", f"/retention/run{query}", {})["items"]

    def used(self):
        return self.gateway.expect(200, "GET", f"/users/{self.user}/workspace")["used_bytes"]

    def test_idle_files_go_and_others_stay(self):
        paths = [self.write(name) for name in ("a", "d/e/f", "\u00e9")]
        with_times = self.write("kept_times")
        os.symlink("/etc/passwd", os.path.join(self.files(), "link"))
        before = self.used()
        time.sleep(IDLE + 0.1)
        fresh = os.path.join(self.files(), "fresh")

        def touch():
            self.write("fresh")
            os.utime(with_times, (1, 1))  # as of 1970, but by ctime it was touched just now

        touch()
        self.assertEqual(self.run_round(dry=True), self.run_round(dry=True))
        self.assertTrue(all(os.path.exists(path) for path in paths))
        expected = [f"{self.chat}/{os.path.basename(path)}" for path in paths]
        for dry in (True, False):
            touch()
            items = self.run_round(dry)
            self.assertEqual(sorted(item["id"] for item in items), sorted(expected))
            self.assertEqual({(i["kind"], i["reason"], i["size_bytes"]) for i in items},
                             {("file", "idle", 100)})
        self.assertFalse(any(os.path.exists(path) for path in paths))
        self.assertTrue(os.path.exists(fresh) and os.path.exists(with_times))
        self.assertTrue(os.path.islink(os.path.join(self.files(), "link")))
        touch()
        self.assertEqual(self.run_round(), [])
        self.assertEqual(self.used(), before - 300 + 100)
        entries = self.gateway.expect(200, "GET", "/audit?action=retention.file")["items"]
        self.assertEqual(sorted(e["object"] for e in entries), sorted("file:" + e for e in expected))
        self.assertEqual(os.listdir(os.path.join(self.gateway.dir, "data", "quarantine")), [])

    def test_files_with_rows_go_by_what_the_api_knows(self):
        old = self.gateway.expect(201, "PUT", f"/chats/{self.chat}/files/old", b"x" * 10)
        read = self.gateway.expect(201, "PUT", f"/chats/{self.chat}/files/read", b"x" * 10)
        time.sleep(IDLE + 0.1)
        for file in (old, read):  # as if the file system did not tell
            os.utime(os.path.join(self.files(), file["name"]), (1, 1))
        time.sleep(IDLE + 0.1)
        self.assertEqual(self.gateway.rest("GET", f"/chats/{self.chat}/files/read")[0], 200)
        self.assertEqual([item["id"] for item in self.run_round()], [old["file_id"]])
        self.assertEqual(self.gateway.rest("GET", f"/files/{old['file_id']}")[0], 404)
        self.assertEqual(self.gateway.rest("GET", f"/files/{read['file_id']}")[0], 200)
        found = self.gateway.expect(200, "GET", f"/audit?object=file:{old['file_id']}")["items"]
        self.assertEqual(found[-2]["action"], "retention.file")

    def test_artifacts_go_when_their_time_has_come(self):
        self.gateway.edit_config({"retention": {"artifact_ttl_seconds": 3}})
        self.gateway.restart()
        path = f"/chats/{self.chat}/artifacts?name=r"
        artifact = self.gateway.expect(201, "POST", path, b"x" * 30)
        where = f"/artifacts/{artifact['artifact_id']}"
        self.assertEqual(self.run_round(dry=True), [])
        time.sleep(3.1)
        due = {"kind": "artifact", "reason": "expired", "size_bytes": 30}
        due["id"] = artifact["artifact_id"]
        self.assertEqual(self.run_round(dry=True), [due])
        self.assertEqual(self.gateway.expect(200, "GET", where)["state"], "stored")
        self.assertEqual(self.run_round(), [due])
        self.assertEqual(self.gateway.expect(200, "GET", where)["state"], "deleted")
        self.assertEqual(self.run_round(), [])
        trail = self.gateway.expect(200, "GET", f"/audit?object=artifact:{due['id']}")["items"]
        actions = [entry["action"] for entry in trail]
        self.assertEqual(actions.count("artifact.deleted"), 1)

    def test_more_than_one_batch_goes(self):
        for i in range(100):
            self.write(f"f{i}")
        time.sleep(IDLE + 0.1)
        self.assertEqual(len(self.run_round()), 100)
        self.assertEqual(os.listdir(self.files()), [])

    def test_a_second_name_frees_nothing(self):
        path = self.write("a")
        os.link(path, path + "2")
        time.sleep(IDLE + 0.1)
        self.assertEqual([item["size_bytes"] for item in self.run_round()], [0])
        time.sleep(IDLE + 0.1)  # the move of the first was a change of the file
        self.assertEqual([item["size_bytes"] for item in self.run_round()], [100])

    def test_a_chat_with_a_sandbox_keeps_everything(self):
        path = self.write("a")
        other = self.gateway.new_chat(self.user)["chat_id"]
        gone = self.write("b", chat=other)
        sandbox, _ = self.gateway.open(self.chat)
        time.sleep(IDLE + 0.1)
        self.assertEqual([i["id"] for i in self.run_round()], [f"{other}/b"])
        self.assertTrue(os.path.exists(path))
        self.assertFalse(os.path.exists(gone))
        self.gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})
        self.assertEqual([i["id"] for i in self.run_round()], [f"{self.chat}/a"])

    def test_what_cannot_be_moved_stays(self):
        path = self.write("a")
        time.sleep(IDLE + 0.1)
        quarantine = os.path.join(self.gateway.dir, "data", "quarantine")
        os.rmdir(quarantine)
        self.assertEqual(self.run_round(), [])
        self.assertTrue(os.path.exists(path))
        self.assertTrue(self.gateway.log_lines("retention_failed"))

    def test_only_admins_run_it(self):
        key = self.gateway.new_key()
        self.assertEqual(self.gateway.rest("POST", "/retention/run", {}, key=key)[0], 403)
        self.assertEqual(self.gateway.rest("POST", "/retention/run?dry_run=2", {})[0], 422)


class Workspaces(unittest.TestCase):
    def test_idle_ones_go_by_the_clock(self):
        gateway = Gateway.for_test(
            self, {"retention": {"workspace_idle_seconds": IDLE, "interval_seconds": 1}}
        )
        idle, busy, owed = (str(uuid.uuid4()) for _ in range(3))
        waits = gateway.new_chat(owed)["chat_id"]
        gateway.expect(201, "POST", f"/chats/{waits}/artifacts?name=a", b"x")
        chats = [gateway.new_chat(idle)["chat_id"] for _ in range(3)]
        kept = gateway.new_chat(busy)["chat_id"]
        gateway.open(kept)
        wait_equal(self, 404, lambda: gateway.rest("GET", f"/users/{idle}/workspace")[0])
        for chat in chats:
            self.assertEqual(gateway.rest("GET", f"/chats/{chat}")[0], 404)
        self.assertFalse(os.path.exists(os.path.join(gateway.dir, "data", "workspaces", idle)))
        gateway.expect(200, "GET", f"/chats/{kept}")
        gateway.expect(200, "GET", f"/chats/{waits}")
        entries = gateway.expect(200, "GET", "/audit?action=retention.workspace")["items"]
        self.assertEqual(
            {e["object"] for e in entries},
            {f"workspace:{idle}"} | {f"chat:{chat}" for chat in chats},
        )
        self.assertEqual({e["actor"] for e in entries}, {"gateway"})
        _, _, metrics = gateway.rest("GET", "//metrics")
        self.assertIn(b'leasehold_retention_removed_total{kind="workspace"} 1', metrics)

    def active_at(self, gateway, user):
        """As it stands in the store: milliseconds."""
        path = os.path.join(gateway.dir, "data/leasehold.db")
        with contextlib.closing(sqlite3.connect(path)) as db:
            rows = db.execute("SELECT last_active_at FROM workspaces WHERE user_id = ?", (user,))
            return rows.fetchone()[0]

    def test_who_only_reads_uses_his_workspace(self):
        gateway = Gateway.for_test(self, {"retention": {"workspace_idle_seconds": 20}})
        users = {what: str(uuid.uuid4()) for what in ("chat", "history", "file", "files", "none")}
        chats = {what: gateway.new_chat(user)["chat_id"] for what, user in users.items()}
        gateway.expect(201, "PUT", f"/chats/{chats['file']}/files/a", b"x")
        reads = {
            "chat": f"/chats/{chats['chat']}",
            "history": f"/chats/{chats['history']}/history",
            "file": f"/chats/{chats['file']}/files/a",
            "files": f"/chats/{chats['files']}/files",
        }
        start = time.time() * 1000
        deadline = time.monotonic() + 2 * PATIENCE_S
        while reads:
            self.assertLess(time.monotonic(), deadline, reads)
            gateway.expect(200, "GET", f"/users/{users['none']}/workspace")
            gateway.expect(200, "GET", f"/chats?user_id={users['none']}")
            for path in reads.values():
                gateway.expect(200, "GET", path)
            time.sleep(0.2)
            reads = {k: v for k, v in reads.items() if self.active_at(gateway, users[k]) < start}
        self.assertLess(self.active_at(gateway, users["none"]), start)
