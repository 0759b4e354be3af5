"""Sizes beyond what a JSON number holds exactly: an agent may make such a file where the file system lets it."""

import json
import os
import shutil
import tempfile
import unittest
import uuid

from gateway import Gateway

MOST = 1 << 53  # API.md: no integer is beyond


class FileSizes(unittest.TestCase):
    def setUp(self):
        # In memory a file may have any size.
        self.data = tempfile.mkdtemp(prefix="leasehold-sizes-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.data)
        self.gateway = Gateway.for_test(self, start=False)
        shutil.copytree(os.path.join(self.gateway.dir, "data"), self.data, dirs_exist_ok=True)
        roots = {"chats_root": os.path.join(self.data, "workspaces")}
        self.gateway.edit_config({"storage": {"data_dir": self.data}, "sandbox": roots})
        self.gateway.start()
        self.user = str(uuid.uuid4())
        self.chat = self.gateway.new_chat(self.user)["chat_id"]
        self.gateway.expect(201, "PUT", f"/chats/{self.chat}/files/plain", b"12345")

    def make(self, name, size):
        path = os.path.join(self.data, "workspaces", self.user, "chats", self.chat, "files", name)
        with open(path, "wb") as file:
            file.truncate(size)
        os.chown(path, 10001, 10001)

    def ctl(self, *args):
        done = self.gateway.ctl("--json", *args)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return json.loads(done.stdout)

    def used(self):
        return self.ctl("workspace", "get", self.user)["used_bytes"]

    def test_what_is_shown_is_true_to_the_byte_or_the_most_there_is(self):
        before = self.used()
        exact = {"below": MOST - 1, "just": MOST}
        beyond = {"above": MOST + 1, "far": (1 << 62) + 12345}
        self.make("odd", (1 << 52) + 1)
        self.assertEqual(self.used(), before + (1 << 52) + 1)
        for name, size in {**exact, **beyond}.items():
            self.make(name, size)
        listed = {f["name"]: f for f in self.ctl("file", "ls", self.chat)["items"]}
        sizes = {name: file["size_bytes"] for name, file in listed.items()}
        self.assertEqual(sizes, {"plain": 5, "odd": (1 << 52) + 1, **exact, **dict.fromkeys(beyond, MOST)})
        self.assertEqual(self.gateway.ctl("file", "ls", self.chat).returncode, 0)
        self.assertEqual(self.used(), MOST)
        for name in ("far", "below"):
            stat = self.gateway.expect(200, "GET", f"/files/{listed[name]['file_id']}")
            self.assertEqual(stat["size_bytes"], sizes[name])
        for name in (*exact, *beyond, "odd"):
            self.gateway.expect(204, "DELETE", f"/chats/{self.chat}/files/{name}")
        self.assertEqual(self.used(), before)


if __name__ == "__main__":
    unittest.main()
