"""Artifacts on the disk: their links are served by the gateway itself, and its files may be
damaged."""

import hashlib
import http.client
import json
import os
import subprocess
import threading
import unittest

from artifact_stores import ArtifactsOnDisk
from artifacts import MIB, data_of, fetch
from loop_disk import mount_data
from waiting import wait_for


def written_by(gateway):
    with open(f"/proc/{gateway.process.pid}/io", encoding="ascii") as io:
        return int(dict(line.split(": ") for line in io)["wchar"])


class OnDisk(ArtifactsOnDisk):
    def test_a_body_is_written_once(self):
        self.make()
        data = data_of(16 * MIB)
        before = written_by(self.gateway)
        artifact = self.put(data)
        self.assertLess(written_by(self.gateway) - before, 1.5 * len(data))
        self.assertEqual(artifact["sha256"], hashlib.sha256(data).hexdigest())
        self.assertEqual(fetch(self.link(artifact)["url"])[2], data)
        self.gateway.kill9()
        self.gateway.start()
        self.assertEqual(fetch(self.link(artifact)["url"])[2], data)

    def test_a_link_cannot_be_changed(self):
        self.make()
        artifact, other = self.put(b"one"), self.put(b"two")
        url = self.link(artifact)["url"]
        self.assertEqual(fetch(url.replace(artifact["artifact_id"], other["artifact_id"]))[0], 403)
        self.assertEqual(fetch(url.replace("text%2Fplain", "text%2Fhtml"))[0], 403)
        self.assertEqual(fetch(url[:-1] + ("0" if url[-1] != "0" else "1"))[0], 403)
        self.assertEqual(fetch(url.split("?")[0])[0], 422)

    def test_an_answer_to_a_link_is_kept_by_nobody_and_a_refusal_talks_of_no_role(self):
        self.make()
        url = self.link(self.put(b"secret"))["url"]
        _, headers, _ = fetch(url)
        self.assertEqual(headers.get_all("Cache-Control"), ["no-store"])
        _, headers, body = fetch(url + "x")
        self.assertEqual(headers.get_all("Cache-Control"), ["no-store"])
        self.assertNotIn("role", json.loads(body)["title"])

    def test_no_link_outlives_its_artifact_chat_or_workspace(self):
        self.make()
        for what in ("/artifacts/{artifact_id}", "/chats/{chat_id}", "/users/{user_id}/workspace"):
            with self.subTest(what=what):
                self.chat = self.gateway.new_chat()
                artifact = self.put(b"private")
                url = self.link(artifact)["url"]
                self.assertEqual(fetch(url)[0], 200)
                self.gateway.expect(204, "DELETE", what.format(**artifact))
                self.assertEqual(fetch(url)[0], 404)

    def test_a_failed_upload_leaves_neither_artifact_nor_bytes_nor_room_taken(self):
        self.make()
        before = self.used()
        path = self.put_file("shrinks", b"")
        os.truncate(path, 512 * MIB)
        answers = []
        at = f"/chats/{self.chat['chat_id']}/artifacts"
        put = threading.Thread(
            target=lambda: answers.append(self.gateway.rest("POST", at, {"path": "shrinks"})[0])
        )
        put.start()
        wait_for(self, "begun", lambda: self.gateway.expect(200, "GET", at)["items"])
        os.truncate(path, 0)
        put.join()
        self.assertNotEqual(answers, [201])
        self.assertEqual(self.gateway.expect(200, "GET", at)["items"], [])
        self.assertEqual((self.used(), self.objects()), (before, []))

    def test_one_whose_chat_is_gone_can_be_deleted_at_once(self):
        self.make()
        artifact = self.put(b"private")
        self.link(artifact)
        self.gateway.expect(204, "DELETE", f"/chats/{self.chat['chat_id']}")
        self.gateway.expect(204, "DELETE", f"/artifacts/{artifact['artifact_id']}")
        self.assertEqual(self.get(artifact)["state"], "deleted")
        self.assertEqual(self.objects(), [])
        self.assertEqual(self.used(), 0)

    def test_a_link_serves_ranges(self):
        self.make()
        url = self.link(self.put(b"0123456789"))["url"]
        for text, want in (("bytes=2-4", b"234"), ("bytes=-1", b"9"), ("bytes=9-", b"9")):
            status, headers, body = fetch(url, {"Range": text})
            self.assertEqual((status, body), (206, want))
            self.assertTrue(headers["Content-Range"].endswith("/10"))
        status, headers, _ = fetch(url, {"Range": "bytes=10-"})
        self.assertEqual((status, headers["Content-Range"]), (416, "bytes */10"))
        self.assertEqual(fetch(url, {"Range": "bytes=0-1,5-6"})[0], 200)

    def test_a_damaged_object_breaks_off(self):
        self.make()
        artifact = self.put(data_of(500_000))
        root = os.path.join(self.gateway.dir, "data/objects")
        ((folder, name),) = [
            (f, n) for f, _, names in os.walk(root) for n in names if n.endswith(".obj")
        ]
        with open(os.path.join(folder, name), "r+b") as file:
            file.write(b"damaged")
        with self.assertRaises(http.client.IncompleteRead):
            fetch(self.link(artifact)["url"])


class OnSharedBlocks(ArtifactsOnDisk):
    def configure(self):
        mount_data(self, self.gateway, 320 * MIB, "mkfs.xfs", "-q")

    def test_a_file_of_the_chat_is_not_copied_and_is_what_it_was_then(self):
        self.make()
        data, path = data_of(16 * MIB), f"/chats/{self.chat['chat_id']}/artifacts"
        file = self.put_file("long", data)
        before = written_by(self.gateway)
        artifact = self.gateway.expect(201, "POST", path, {"path": "long"})
        self.assertLess(written_by(self.gateway) - before, len(data) // 4)
        with open(file, "r+b") as changed:
            changed.write(b"changed")
        self.assertEqual(artifact["sha256"], hashlib.sha256(data).hexdigest())
        self.gateway.kill9()
        self.gateway.start()
        self.assertEqual(fetch(self.link(artifact)["url"])[2], data)
        self.assertEqual(len(self.objects()), 1)

    def test_copies_that_share_blocks_count_each_and_names_of_one_file_once(self):
        self.make()
        file = self.put_file("long", data_of(4 * MIB))
        path = f"/users/{self.chat['user_id']}/workspace"
        before = self.gateway.expect(200, "GET", path)["used_bytes"]
        subprocess.run(["cp", "--reflink=always", file, file + ".copy"], check=True)
        os.link(file, file + ".name")
        self.assertEqual(self.gateway.expect(200, "GET", path)["used_bytes"], before + 4 * MIB)

    def test_a_file_of_many_runs_is_copied_as_to_clone_them_cannot_be_cancelled(self):
        self.make()
        path, step = f"/chats/{self.chat['chat_id']}/artifacts", 8192
        file = self.put_file("pieces", b"")
        with open(file, "r+b") as pieces:
            for i in range(8300):
                os.pwrite(pieces.fileno(), b"piece", i * step)
            os.fsync(pieces.fileno())
        size, before = os.path.getsize(file), written_by(self.gateway)
        artifact = self.gateway.expect(201, "POST", path, {"path": "pieces"})
        self.assertGreaterEqual(written_by(self.gateway) - before, size)
        with open(file, "rb") as same:
            self.assertEqual(artifact["sha256"], hashlib.sha256(same.read()).hexdigest())


class OnSmallDisk(ArtifactsOnDisk):
    def configure(self):
        mount_data(self, self.gateway, 48 * MIB, "mkfs.ext4", "-q")

    def test_what_does_not_fit_is_507_and_leaves_nothing(self):
        self.make()
        before = self.used()
        kept = self.put(data_of(MIB))
        free = os.statvfs(os.path.join(self.gateway.dir, "data"))
        too_long = data_of(free.f_bavail * free.f_frsize + 8 * MIB)
        self.assertEqual(self.put(too_long, status=507)["code"], "storage_full")
        self.assertEqual(self.used(), before + MIB)
        half = data_of(free.f_bavail * free.f_frsize * 2 // 3)
        self.put_file("half", half)
        path = f"/chats/{self.chat['chat_id']}/artifacts"
        self.assertEqual(self.gateway.expect(507, "POST", path, {"path": "half"})["code"], "storage_full")
        self.assertEqual(self.used(), before + MIB + len(half))
        self.assertEqual(len(self.objects()), 1)
        self.put(data_of(MIB))
        self.assertEqual(fetch(self.link(kept)["url"])[2], data_of(MIB))


if __name__ == "__main__":
    unittest.main()
