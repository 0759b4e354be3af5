"""Artifacts by the API, kept on the disk and in Ceph RGW: put, listed, handed out by link,
acknowledged, deleted by request, by time and with their chat; nothing is counted twice."""

import hashlib
import json
import os
import time
import unittest
import urllib.parse
import uuid

from artifact_stores import ArtifactsInBucket, ArtifactsOnDisk
from artifacts import NAME, SOON, SOON_OVER, data_of, fetch
from audit import entries as audit_entries
from waiting import wait_for


def setUpModule():
    ArtifactsInBucket.start_server()


class Life:
    """The same with every store; `objects` and `configure` are the subclass's."""

    def test_what_is_put_can_be_fetched_by_its_link(self):
        self.make()
        data = data_of(300_000)
        before = self.used()
        artifact = self.put(data)
        self.assertEqual(artifact["state"], "stored")
        self.assertEqual(artifact["name"], NAME)
        self.assertEqual(artifact["content_type"], "text/plain; charset=utf-8")
        self.assertEqual(artifact["size_bytes"], len(data))
        self.assertEqual(artifact["sha256"], hashlib.sha256(data).hexdigest())
        self.assertEqual(artifact["user_id"], self.chat["user_id"])
        self.assertIsNotNone(artifact["stored_at"])
        self.assertIsNone(artifact["delivery"]["status"])
        self.assertEqual(artifact["delivery"]["attempts"], 0)
        self.assertEqual(self.get(artifact), artifact)
        self.assertEqual(self.used(), before + len(data))
        link = self.link(artifact)
        status, headers, body = fetch(link["url"])
        self.assertEqual((status, body), (200, data))
        self.assertEqual(headers["Content-Type"], "text/plain; charset=utf-8")
        said = headers["Content-Disposition"]
        self.assertTrue(said.startswith('attachment; filename="'), said)
        quoted = urllib.parse.quote(NAME)
        self.assertTrue(said.endswith(f"; filename*=UTF-8''{quoted}"), said)
        self.assertNotIn(link["url"].rsplit("=", 1)[1], self.gateway.log_text())

    def test_a_redirect_leads_there_in_one_step(self):
        self.make()
        artifact = self.put(b"by redirect")
        path = f"/artifacts/{artifact['artifact_id']}/download?redirect=1"
        status, headers, _ = self.gateway.rest("GET", path)
        self.assertEqual(status, 307)
        self.assertEqual(fetch(headers["Location"])[2], b"by redirect")
        self.assertNotIn(headers["Location"].rsplit("=", 1)[1], self.gateway.log_text())

    def test_a_file_of_the_chat_is_stored_by_its_path(self):
        self.make()
        path = f"/chats/{self.chat['chat_id']}/artifacts"
        self.put_file("out/report.pdf", b"%PDF")
        artifact = self.gateway.expect(201, "POST", path, {"path": "out/report.pdf"})
        self.assertEqual(artifact["name"], "report.pdf")
        self.assertEqual(fetch(self.link(artifact)["url"])[2], b"%PDF")
        named = self.gateway.expect(201, "POST", path, {"path": "out/report.pdf", "name": "r"})
        self.assertEqual(named["name"], "r")
        long = data_of(2_000_001)
        self.put_file("long", long)
        artifact = self.gateway.expect(201, "POST", path, {"path": "long"})
        self.assertEqual(artifact["sha256"], hashlib.sha256(long).hexdigest())
        self.assertEqual(fetch(self.link(artifact)["url"])[2], long)

    def test_json_is_the_artifact_itself_where_the_query_names_it(self):
        self.make()
        path = f"/chats/{self.chat['chat_id']}/artifacts"
        raw = {"Content-Type": "application/json"}
        for body in (b'{"path": "none", "rows": [1]}', b"not JSON"):
            artifact = self.gateway.expect(201, "POST", path + "?name=r.json", body, headers=raw)
            self.assertEqual(artifact["sha256"], hashlib.sha256(body).hexdigest())
            self.assertEqual(
                (artifact["name"], artifact["content_type"]), ("r.json", "application/json")
            )
        self.gateway.expect(422, "POST", path, b'{"rows": [1]}', headers=raw)

    def test_no_path_leaves_the_chat(self):
        self.make()
        inside = self.put_file("inside", b"x")
        files = os.path.dirname(inside)
        secret = os.path.join(self.gateway.dir, "admin.key")
        os.symlink(secret, os.path.join(files, "link"))
        os.symlink(os.path.dirname(secret), os.path.join(files, "links"))
        os.mkfifo(os.path.join(files, "fifo"))
        os.mkdir(os.path.join(files, "dir"))
        hard = ["hard", "dir/hard"]
        for path in hard:  # of a file that is not the agent's
            os.link(secret, os.path.join(files, path))
        links = ["link", "links/admin.key", *hard]
        for path in ("../history.md", secret, "fifo", ".", "none", "/", "n" * 300, *links):
            with self.subTest(path=path):
                answer = self.gateway.expect(
                    (404, 422), "POST", f"/chats/{self.chat['chat_id']}/artifacts", {"path": path}
                )
                self.assertIn(
                    answer["code"], ("chat_file_not_found", "invalid_attachment_name")
                )
        self.assertEqual(self.objects(), [])

    def test_wrong_requests_make_nothing(self):
        self.make()
        path = f"/chats/{self.chat['chat_id']}/artifacts"
        raw = {"Content-Type": "application/octet-stream"}
        for name in ("", ".", "..", "a/b", "a\\b", "a\nb", "n" * 256):
            with self.subTest(name=name):
                self.put(b"x", name, status=422)
        self.gateway.expect(422, "POST", path, b"x", headers=raw)
        self.gateway.expect(422, "POST", path, {})
        self.gateway.expect(422, "POST", path, {"path": "x", "unknown": 1})
        self.gateway.expect(404, "POST", f"/chats/{uuid.uuid4()}/artifacts?name=x", b"x", headers=raw)
        self.assertEqual(self.objects(), [])
        self.assertEqual(self.gateway.expect(200, "GET", path)["items"], [])

    def test_lists_go_by_chat_user_and_state(self):
        self.make()
        first, second = self.put(b"1"), self.put(b"2")
        self.deliver(second)
        other = self.gateway.new_chat()
        chat = f"/chats/{self.chat['chat_id']}/artifacts"
        ids = lambda path: [a["artifact_id"] for a in self.gateway.expect(200, "GET", path)["items"]]
        both = [first["artifact_id"], second["artifact_id"]]
        self.assertEqual(ids(chat), both)
        self.assertEqual(ids(f"/chats/{other['chat_id']}/artifacts"), [])
        self.assertEqual(ids(f"/artifacts?user_id={self.chat['user_id']}"), both)
        self.assertEqual(ids(f"/artifacts?user_id={other['user_id']}"), [])
        self.assertEqual(ids("/artifacts?state=delivered"), both[1:])
        page = self.gateway.expect(200, "GET", chat + "?limit=1")
        self.assertEqual(page["items"][0]["artifact_id"], both[0])
        self.assertEqual(ids(f"{chat}?limit=1&cursor={page['next_cursor']}"), both[1:])

    def test_others_do_not_see_it(self):
        self.make()
        artifact = self.put(b"x")
        key = self.gateway.new_key(allowed_users=[str(uuid.uuid4())])
        at = f"/artifacts/{artifact['artifact_id']}"
        body = {"status": "delivered", "channel": "c"}
        for method, path, sent in (
            ("GET", at, None),
            ("DELETE", at, None),
            ("GET", at + "/download", None),
            ("POST", at + "/delivery", body),
            ("GET", f"/chats/{self.chat['chat_id']}/artifacts", None),
        ):
            self.gateway.expect(404, method, path, sent, key=key)
        self.assertEqual(self.gateway.expect(200, "GET", "/artifacts", key=key)["items"], [])
        viewer = self.gateway.new_key("viewer")
        self.gateway.expect(200, "GET", at, key=viewer)
        self.gateway.expect(403, "GET", at + "/download", key=viewer)

    def test_what_was_delivered_is_deleted_behind_its_grace(self):
        self.make({"retention": {"interval_seconds": 1, "artifact_delivered_grace_seconds": 4}})
        artifact = self.put(b"x" * 1000)
        before = self.used()
        failed = self.deliver(artifact, "failed", detail="no such address")
        self.assertEqual(failed["state"], "delivery_failed")
        self.assertEqual(failed["delete_after"], artifact["delete_after"])
        done = self.deliver(artifact, external_ref="mail-17")
        self.assertEqual(done["state"], "delivered")
        told = done["delivery"]
        self.assertEqual((told["status"], told["channel"]), ("delivered", "mail"))
        self.assertEqual((told["external_ref"], told["attempts"]), ("mail-17", 2))
        self.assertLess(done["delete_after"], artifact["delete_after"])
        again = self.deliver(artifact)
        self.assertEqual(again["delete_after"], done["delete_after"])
        self.deliver(artifact, "failed", expect=409)
        self.wait_deleted(artifact)
        self.assertEqual(self.used(), before - 1000)
        self.deliver(artifact, expect=409)
        self.gateway.expect(409, "GET", f"/artifacts/{artifact['artifact_id']}/download")
        self.assertEqual(self.get(artifact)["delivery"]["channel"], "mail")

    def test_what_nobody_acknowledges_is_deleted_in_its_time(self):
        self.make({"retention": {"interval_seconds": 1, "artifact_ttl_seconds": 1}})
        artifact = self.put(b"x")
        self.wait_deleted(artifact)

    def test_a_link_that_was_given_out_holds_the_artifact(self):
        self.make(
            {
                "retention": {"interval_seconds": 1, "artifact_ttl_seconds": 1},
                "objects": {"presign_seconds": 8},
            }
        )
        artifact = self.put(b"held")
        url = self.link(artifact)["url"]
        time.sleep(3)
        self.assertEqual(self.get(artifact)["state"], "stored")
        self.assertEqual(fetch(url)[2], b"held")
        self.wait_deleted(artifact)
        self.assertIn(fetch(url)[0], (403, 404))

    def test_it_goes_with_its_chat(self):
        self.make(SOON)
        artifact = self.put(b"x" * 500)
        self.gateway.expect(204, "DELETE", f"/chats/{self.chat['chat_id']}")
        self.wait_deleted(artifact)
        self.assertEqual(self.used(), 0)

    def test_the_quota_counts_it(self):
        self.make({"storage": {"quota_bytes": 200_000}})
        self.put(data_of(100_000))
        answer = self.put(data_of(100_000), status=507)
        self.assertEqual(answer["code"], "workspace_quota_exceeded")
        artifact = self.put(data_of(40_000))
        self.gateway.expect(204, "DELETE", f"/artifacts/{artifact['artifact_id']}")
        self.put(data_of(40_000))
        self.assertEqual(len(self.objects()), 2)

    def test_a_client_that_goes_away_leaves_nothing(self):
        self.make(SOON)
        before = self.used()
        with self.half_a_body():
            pass
        wait_for(self, "given up", lambda: self.used() == before)
        self.assert_none()

    def test_neither_a_stop_nor_a_kill_leaves_anything_of_half_a_body(self):
        self.make(SOON, SOON_OVER)
        before = self.used()
        for end, status in ((self.gateway.stop, 0), (self.gateway.kill9, None)):
            with self.subTest(end=end.__name__):
                with self.half_a_body():
                    self.assertEqual(end(), status)
                self.gateway.start()
                wait_for(self, "given up", lambda: self.used() == before)
                self.assert_none()

    def assert_none(self):
        path = f"/chats/{self.chat['chat_id']}/artifacts"
        self.assertEqual(self.gateway.expect(200, "GET", path)["items"], [])
        self.assertEqual(self.objects(), [])

    def test_events_and_the_trail_tell_of_it(self):
        self.make({"retention": {"interval_seconds": 1, "artifact_delivered_grace_seconds": 1}})
        artifact = self.put(b"x")
        self.deliver(artifact, "failed")
        self.link(artifact)
        self.deliver(artifact)
        self.gateway.expect(204, "DELETE", f"/artifacts/{artifact['artifact_id']}")
        self.gateway.stop()
        database = os.path.join(self.gateway.dir, "data/leasehold.db")
        about = f"artifact:{artifact['artifact_id']}"
        actions = [
            entry["action"] for entry in audit_entries(database) if entry["object"] == about
        ]
        for action in ("put", "deliver", "download", "delete"):
            self.assertIn(f"artifact.{action}", actions)
        self.gateway.start()
        text = self.gateway.expect(200, "GET", "//metrics").decode()
        self.assertIn("leasehold_artifact_upload_duration_seconds", text)

    def test_leasectl_puts_lists_gets_acknowledges_and_deletes(self):
        self.make()
        data = data_of(200_000)
        folder = self.gateway.dir
        source, output = os.path.join(folder, "my report.bin"), os.path.join(folder, "got")
        with open(source, "wb") as file:
            file.write(data)

        def ctl(*args):
            done = self.gateway.ctl("artifact", *args)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        put = json.loads(ctl("put", self.chat["chat_id"], source, "--type", "text/x", "--json"))
        self.assertEqual((put["name"], put["content_type"]), ("my report.bin", "text/x"))
        for name, of_type in (("a.json", "application/json"), ("b.TXT", "text/plain"),
                              ("c", "application/octet-stream")):
            stored = json.loads(
                ctl("put", self.chat["chat_id"], source, "--name", name, "--json"))
            self.assertEqual(stored["content_type"], of_type)
        self.assertIn("my report.bin", ctl("ls", "--chat", self.chat["chat_id"]))
        self.assertIn(put["artifact_id"], ctl("ls", "--state", "stored"))
        ctl("get", put["artifact_id"], "--output", output)
        with open(output, "rb") as file:
            self.assertEqual(file.read(), data)
        self.assertFalse(os.path.exists(output + ".part"))
        ctl("ack", put["artifact_id"], "delivered", "--channel", "mail", "--ref", "17")
        told = json.loads(ctl("stat", put["artifact_id"], "--json"))["delivery"]
        self.assertEqual((told["status"], told["external_ref"]), ("delivered", "17"))
        ctl("rm", put["artifact_id"])
        missing = self.gateway.ctl("artifact", "get", str(uuid.uuid4()), "--output", output)
        self.assertEqual(missing.returncode, 3)

    def test_a_repeated_put_is_one_artifact(self):
        self.make()
        key = {"Idempotency-Key": "once", "Content-Type": "application/octet-stream"}
        path = f"/chats/{self.chat['chat_id']}/artifacts"
        self.put_file("result", b"result")
        del key["Content-Type"]
        first = self.gateway.expect(201, "POST", path, {"path": "result"}, headers=key)
        again = self.gateway.expect(201, "POST", path, {"path": "result"}, headers=key)
        self.assertEqual(first["artifact_id"], again["artifact_id"])
        self.assertEqual(len(self.objects()), 1)

    def test_a_repeated_body_is_compared(self):
        self.make()
        key = {"Idempotency-Key": "body", "Content-Type": "text/plain"}
        path = f"/chats/{self.chat['chat_id']}/artifacts?name=a"
        data = data_of(300_000)
        first = self.gateway.expect(201, "POST", path, data, headers=key)
        status, headers, again = self.gateway.rest("POST", path, data, headers=key)
        self.assertEqual((status, again), (201, first))
        self.assertEqual(headers["Idempotent-Replayed"], "true")
        other = self.gateway.expect(422, "POST", path, data[1:] + b"x", headers=key)
        self.assertEqual(other["code"], "idempotency_key_reused")
        self.assertEqual(len(self.objects()), 1)


class OnDisk(Life, ArtifactsOnDisk):
    def test_a_link_begins_with_the_public_endpoint_however_that_ends(self):
        for end in ("", "/"):
            with self.subTest(end=end):
                self.make({"objects": {"public_endpoint": f"https://bots.example.org/lease{end}"}})
                url = self.link(self.put(b"x"))["url"]
                self.assertTrue(url.startswith("https://bots.example.org/lease/objects/"), url)


class InS3(Life, ArtifactsInBucket):
    def test_a_deleted_one_outlives_the_links_to_it(self):
        self.make({"objects": {"presign_seconds": 6}, **SOON})
        artifact = self.put(b"x")
        url = self.link(artifact)["url"]
        self.gateway.expect(204, "DELETE", f"/artifacts/{artifact['artifact_id']}")
        self.assertEqual(self.get(artifact)["state"], "marked_for_delete")
        self.gateway.expect(409, "GET", f"/artifacts/{artifact['artifact_id']}/download")
        self.assertEqual(fetch(url)[0], 200)
        self.wait_deleted(artifact)


if __name__ == "__main__":
    unittest.main()
