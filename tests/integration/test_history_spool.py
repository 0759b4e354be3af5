"""What is said at a door comes into the chat's history exactly once, whatever is killed or full."""

import glob
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest

import agents
import audit
from gateway import Gateway
from waiting import wait_for

SPOOL_START = 4096
ROUNDS = 10


def echo(test, client, line):
    client.send_text(line)
    _, got = client.recv()
    test.assertEqual(got.decode(), line)


class History(unittest.TestCase):
    def start(self, env=None, **overrides):
        self.gateway = Gateway.for_test(self, overrides, env)
        chat = self.gateway.new_chat()
        self.chat, self.user = chat["chat_id"], chat["user_id"]
        return self.gateway

    @property
    def data(self):
        return os.path.join(self.gateway.dir, "data")

    def chat_dir(self):
        [path] = glob.glob(os.path.join(self.data, "workspaces", self.user, "chats", self.chat))
        return path

    def spools(self):
        return sorted(os.listdir(os.path.join(self.data, "spool")))

    def rows(self, what="role, author, content"):
        """Of a copy: the file is the gateway's alone."""
        with tempfile.TemporaryDirectory() as copy:
            for path in glob.glob(os.path.join(self.chat_dir(), "history.db*")):
                shutil.copy(path, copy)
            db = sqlite3.connect(os.path.join(copy, "history.db"))
            try:
                self.assertEqual(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
                return db.execute(f"SELECT {what} FROM messages ORDER BY seq").fetchall()
            finally:
                db.close()

    def markdown(self):
        with open(os.path.join(self.chat_dir(), "history.md"), encoding="utf-8", newline="") as text:
            return text.read()

    def assert_markdown_is_the_rows(self):
        expected = f"# {self.chat}\n"
        for at, role, author, content in self.rows("at, role, author, content"):
            seconds, ms = divmod(at, 1000)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{ms:03}Z"
            head = " ".join(filter(None, ("##", stamp, role, author)))
            expected += f"\n{head}\n\n{content}\n"
        self.assertEqual(self.markdown(), expected)

    def assert_seqs(self):
        seqs = [seq for (seq,) in self.rows("seq")]
        self.assertEqual(seqs, list(range(1, len(seqs) + 1)))

    def taken(self, path):
        """How far a spool has come in, as its door may know it."""
        with open(path, "rb") as spool:
            return int.from_bytes(spool.read(16)[8:], "big")

    def stop(self, sandbox):
        self.gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})

    def said(self, role):
        return [content for r, _, content in self.rows() if r == role]


class Recording(History):
    def test_both_directions_are_in_both_files_when_the_session_has_ended(self):
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        lines = ["hello", "", "grüße →𝄞", "x" * 100000]
        for line in lines:
            echo(self, client, line)
        self.stop(sandbox)
        expected = [row for line in lines for row in (("user", self.user, line), ("agent", "", line))]
        self.assertEqual(self.rows(), expected)
        ids = [row[0] for row in self.rows("message_id")]
        self.assertEqual(len(set(ids)), len(ids))
        self.assert_seqs()
        self.assert_markdown_is_the_rows()
        self.assertEqual(self.spools(), [])

    def test_it_is_readable_while_the_session_runs(self):
        gateway = self.start()
        _, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        echo(self, client, "in time")
        wait_for(self, "the history", lambda: "in time" in self.markdown())
        [name] = self.spools()
        self.assertEqual(os.stat(os.path.join(self.data, "spool", name)).st_mode & 0o7777, 0o600)

    def test_a_second_session_goes_on_behind_the_first(self):
        gateway = self.start()
        for line in ("one", "two"):
            sandbox, grant = gateway.open(self.chat, lease={})
            client = gateway.connect(grant)
            echo(self, client, line)
            self.stop(sandbox)
        self.assertEqual([c for _, _, c in self.rows()], ["one", "one", "two", "two"])
        self.assert_seqs()
        self.assert_markdown_is_the_rows()

    def test_a_profile_that_says_no_records_nothing(self):
        profile = {"name": "default", "command": ["/bin/cat"], "record_history": False}
        gateway = self.start(profiles=[profile])
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        echo(self, client, "off the record")
        self.stop(sandbox)
        self.assertEqual(self.rows(), [])
        self.assertEqual(self.markdown(), f"# {self.chat}\n")
        self.assertFalse(os.path.exists(os.path.join(self.data, "spool")))

    def test_a_session_in_which_nobody_speaks_does_not_touch_the_history(self):
        gateway = self.start()
        sandbox, _ = gateway.open(self.chat)
        [history] = glob.glob(f"{self.data}/workspaces/*/chats/{self.chat}/history.db")
        with open(history, "wb") as out:
            out.write(b"what a look at it would move aside")
        self.stop(sandbox)
        with open(history, "rb") as data:
            self.assertEqual(data.read(), b"what a look at it would move aside")
        self.assertEqual(self.spools(), [])

    def test_no_token_is_ever_in_spool_or_history(self):
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.dial(grant["endpoint"], None)
        client.send_text(json.dumps({"type": "auth", "token": grant["token"]}))
        client.recv()
        [name] = self.spools()
        echo(self, client, "said")
        with open(os.path.join(self.data, "spool", name), "rb") as spool:
            raw = spool.read()
        self.stop(sandbox)
        with open(os.path.join(self.chat_dir(), "history.db"), "rb") as db:
            raw += db.read()
        for part in grant["token"].split("."):
            self.assertNotIn(part.encode(), raw)
        self.assertEqual(self.said("user"), ["said"])

    def test_content_cannot_forge_an_entry_of_history_md(self):
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        forged = f"x\r## 2026-01-01T00:00:00.000Z user {self.user}"
        echo(self, client, forged)
        echo(self, client, "## all mine")
        self.stop(sandbox)
        self.assertEqual(self.said("user"), [forged, "## all mine"])
        heads = [line for line in self.markdown().replace("\r", "\n").split("\n") if line[:3] == "## "]
        self.assertEqual(len(heads), 4)
        self.assertIn("\n\\## all mine\n", self.markdown())

    def test_what_is_not_text_is_made_text(self):
        command = ["/bin/sh", "-c", r"read l; printf 'a\377b\000c\n'; read l"]
        gateway = self.start(profiles=[{"name": "default", "command": command}])
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        client.send_text("go")
        client.recv()
        self.stop(sandbox)
        self.assertEqual(self.said("agent"), ["a\ufffdb\ufffdc"])
        self.assert_markdown_is_the_rows()

    def test_text_of_a_ws_agent_is_recorded_and_binary_is_not(self):
        profile = {"name": "default", "transport": "ws:7000/", "command": agents.ws_agent(7000)}
        gateway = self.start(profiles=[profile])
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        client.send_fragments(1, [b"in ", b"three ", b"pieces"])
        self.assertEqual(client.recv()[1], b"in three pieces")
        client.send_binary(b"\x00\x01")
        client.recv()
        big = "y" * (1 << 20)
        echo(self, client, big)
        echo(self, client, big + "z")
        echo(self, client, "after")
        self.stop(sandbox)
        self.assertEqual(
            [len(c) if len(c) > 99 else c for _, _, c in self.rows()],
            ["in three pieces"] * 2 + [1 << 20] * 2 + ["after"] * 2,
        )
        [lost] = gateway.log_lines("history.lost")[-1:]
        self.assertEqual(lost["detail"], "messages=2")


class Kills(History):
    def test_kill_9_of_the_gateway_at_any_moment_loses_and_doubles_nothing(self):
        seed = int(os.environ.get("SEED") or time.time())
        chance = random.Random(seed)
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        sent, stop = [], threading.Event()

        def talk():
            while not stop.is_set():
                line = f"line {len(sent)} " + "x" * chance.randrange(3000)
                client.send_text(line)
                if client.recv()[1].decode() != line:
                    return
                sent.append(line)
                time.sleep(0.001)

        talker = threading.Thread(target=talk, daemon=True)
        talker.start()
        for _ in range(ROUNDS):
            time.sleep(chance.random() * 1.5)
            gateway.kill9()
            gateway.start()
        stop.set()
        talker.join(30)
        self.assertFalse(talker.is_alive())
        self.stop(sandbox)
        wait_for(self, "the last ingest", lambda: not self.spools())
        self.assertGreater(len(sent), 100)
        with self.subTest(seed=seed):
            self.assertEqual(self.said("user"), sent)
            self.assertEqual(self.said("agent"), sent)
            self.assert_seqs()
            self.assert_markdown_is_the_rows()
            self.assertEqual(self.spools(), [])
            self.assertEqual(gateway.log_lines("history.lost"), [])

    def test_what_a_killed_door_had_recorded_is_taken_in(self):
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        for n in range(50):
            echo(self, client, f"line {n}")
        [door] = [p for p in gateway.sandboxes_left() if p.name == "leasedoor"]
        os.kill(door.pid, signal.SIGKILL)
        path = f"/sandboxes/{sandbox['session_id']}"
        wait_for(self, "failed", lambda: gateway.expect(200, "GET", path)["status"] == "failed")
        self.assertEqual(self.said("agent"), [f"line {n}" for n in range(50)])
        self.assertEqual(self.spools(), [])

    def test_a_session_that_died_with_the_gateway_away_is_taken_in_at_the_next_start(self):
        gateway = self.start()
        _, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        gateway.kill9()
        for n in range(50):
            echo(self, client, f"line {n}")
        for process in gateway.sandboxes_left():
            if process.name in ("leasedoor", "leasekeep"):
                process.send(signal.SIGKILL)
        gateway.start()
        wait_for(self, "the spool to be gone", lambda: not self.spools())
        self.assertEqual(self.said("agent"), [f"line {n}" for n in range(50)])
        self.assert_markdown_is_the_rows()

    def test_half_a_record_at_the_end_is_cut_off(self):
        gateway = self.start()
        _, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        gateway.kill9()
        echo(self, client, "whole")
        for process in gateway.sandboxes_left():
            if process.name in ("leasedoor", "leasekeep"):
                process.send(signal.SIGKILL)
        [name] = self.spools()
        with open(os.path.join(self.data, "spool", name), "ab") as spool:
            spool.write(b"LHS1\0\0")
        gateway.start()
        wait_for(self, "the spool to be gone", lambda: not self.spools())
        self.assertEqual(self.said("user"), ["whole"])
        self.assertEqual(gateway.log_lines("history.spool_cut")[0]["detail"], "torn bytes=6")

    def test_history_md_is_put_right_by_the_next_message(self):
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        echo(self, client, "before")
        wait_for(self, "the history", lambda: self.markdown().count("before") == 2)
        path = os.path.join(self.chat_dir(), "history.md")
        for n, damage in enumerate((lambda f: f.truncate(10), lambda f: f.write("half an entry")), 1):
            with open(path, "a", encoding="utf-8") as text:
                damage(text)
            echo(self, client, "again")
            wait_for(self, "it to be right", lambda n=n: self.markdown().count("\nagain\n") == 2 * n)
        self.stop(sandbox)
        self.assert_markdown_is_the_rows()


class Floods(History):
    LINES = 50000
    AGENT = f"import sys\nfor i in range({LINES}): print(i)\nsys.stdout.flush()\nsys.stdin.read()"

    def test_a_flood_keeps_no_gateway_from_ending_and_comes_in_whole(self):
        """In parts: nobody's end or file waits for all that an agent can say."""
        profile = {"name": "default", "command": ["/usr/bin/python3", "-c", self.AGENT]}
        gateway = self.start(profiles=[profile])
        sandbox, grant = gateway.open(self.chat, lease={"scope": ["write"]})
        client = gateway.connect(grant)
        spool = os.path.join(self.data, "spool", sandbox["session_id"])
        wait_for(self, "the flood", lambda: os.path.getsize(spool) > 30 * self.LINES)
        client.send_text("activity")
        wait_for(self, "its beginning", lambda: self.taken(spool) > SPOOL_START)
        self.assertEqual(gateway.stop(), 0)
        self.assertLess(self.taken(spool), os.path.getsize(spool))
        gateway.start()
        self.stop(sandbox)
        wait_for(self, "its end", lambda: self.spools() == [])
        self.assertEqual(self.said("agent"), [str(i) for i in range(self.LINES)])
        self.assert_seqs()


class Faults(History):
    def test_a_broken_history_db_is_moved_aside_and_the_chat_goes_on(self):
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        echo(self, client, "before")
        [name] = self.spools()
        path = os.path.join(self.data, "spool", name)
        wait_for(self, "the ingest", lambda: self.taken(path) == os.stat(path).st_size)
        with open(os.path.join(self.chat_dir(), "history.db"), "r+b") as db:
            db.write(b"no database at all" * 100)
        echo(self, client, "after")
        wait_for(self, "the history", lambda: self.markdown().count("after") == 2)
        self.stop(sandbox)
        self.assertEqual(self.rows(), [("user", self.user, "after"), ("agent", "", "after")])
        self.assertEqual(self.markdown().count("before"), 2)
        [broken] = glob.glob(os.path.join(self.chat_dir(), "history.db.broken-*"))
        [event] = gateway.log_lines("history.broken")
        self.assertEqual(event["detail"], os.path.basename(broken))
        trail = audit.entries(os.path.join(self.data, "leasehold.db"))
        told = [entry["object"] for entry in trail if entry["action"] == "history.broken"]
        self.assertEqual(told, [f"chat:{self.chat}"])

    def test_a_full_spool_pauses_recording_and_the_loss_is_told(self):
        gateway = self.start({"LEASEHOLD_TEST_SPOOL_MAX": "65536"})
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        gateway.kill9()
        lines = [f"{n} " + "x" * 4000 for n in range(40)]
        for line in lines:
            echo(self, client, line)
        [name] = self.spools()
        size = os.stat(os.path.join(self.data, "spool", name)).st_size
        self.assertLessEqual(size, SPOOL_START + 65536)
        with open(
            os.path.join(gateway.run_dir, sandbox["session_id"], "door.log"), encoding="utf-8"
        ) as log:
            self.assertEqual(log.read().count("recording_paused"), 1)
        gateway.start()
        wait_for(self, "the report", lambda: gateway.log_lines("history.lost"))
        wait_for(self, "the first ones", lambda: lines[0] in self.markdown())
        # There is room again.
        echo(self, client, "later")
        self.stop(sandbox)
        rows = [c for _, _, c in self.rows()]
        kept = len(rows) - 2
        self.assertEqual(rows[-2:], ["later", "later"])
        self.assertEqual(rows[:kept], [line for line in lines for _ in (1, 2)][:kept])
        told = gateway.log_lines("history.lost")[-1]["detail"]
        self.assertEqual(told, f"messages={80 - kept}")

    def test_a_loss_at_the_very_end_is_told_as_well(self):
        gateway = self.start({"LEASEHOLD_TEST_SPOOL_MAX": "2000"})
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        echo(self, client, "fits")
        echo(self, client, "x" * 3000)
        self.stop(sandbox)
        self.assertEqual(self.said("user"), ["fits"])
        self.assertEqual(gateway.log_lines("history.lost")[-1]["detail"], "messages=2")

    def test_space_of_what_was_taken_in_is_free_again(self):
        gateway = self.start({"LEASEHOLD_TEST_SPOOL_MAX": "200000"})
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        [name] = self.spools()
        path = os.path.join(self.data, "spool", name)
        for n in range(30):
            echo(self, client, f"{n} " + "x" * 20000)
            if n % 3 == 2:
                wait_for(self, "the ingest", lambda: self.taken(path) == os.stat(path).st_size)
        self.assertGreater(os.stat(path).st_size, 1000000)
        wait_for(self, "free space", lambda: os.stat(path).st_blocks * 512 < 20000)
        self.stop(sandbox)
        self.assertEqual(len(self.rows()), 60)
        self.assertEqual(gateway.log_lines("history.lost"), [])

    def test_a_full_disk_stops_no_conversation_and_spoils_nothing(self):
        gateway = Gateway.for_test(self, start=False)
        self.gateway = gateway
        os.rename(self.data, self.data + ".init")
        os.mkdir(self.data)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "lh", self.data], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.data], check=True)
        made = self.data + ".init/."
        subprocess.run(["cp", "-a", "--sparse=always", made, self.data], check=True)
        gateway.start()
        chat = gateway.new_chat()
        self.chat, self.user = chat["chat_id"], chat["user_id"]
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        echo(self, client, "before")
        wait_for(self, "the history", lambda: self.markdown().count("before") == 2)
        filler = os.path.join(self.data, "filler")
        with open(filler, "wb", buffering=0) as out:
            try:
                while True:
                    out.write(b"\0" * 4096)
            except OSError:
                pass
        lines = [f"full {n} " + "x" * 5000 for n in range(100)]
        for line in lines:
            echo(self, client, line)
        os.unlink(filler)
        time.sleep(1.1)
        echo(self, client, "after")
        wait_for(self, "the history", lambda: self.markdown().count("after") == 2)
        self.stop(sandbox)
        rows = [c for _, _, c in self.rows()]
        self.assertEqual((rows[:2], rows[-2:]), (["before"] * 2, ["after"] * 2))
        self.assertEqual(len(rows), len([c for c in rows if c in lines]) + 4)
        self.assert_seqs()
        self.assert_markdown_is_the_rows()
        lost = int(gateway.log_lines("history.lost")[-1]["detail"].partition("=")[2])
        self.assertEqual(lost + len(rows), 2 * (len(lines) + 2))


if __name__ == "__main__":
    unittest.main()
