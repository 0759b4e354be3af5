"""Artifacts by the API, kept on the disk and in Ceph RGW: put, listed, handed out by link,
acknowledged, deleted by request, by time and with their chat; and nothing of them is lost, leaked or
counted twice, whatever is killed at which step of an upload."""

import glob
import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import threading
import time
import unittest
import urllib.parse
import uuid

from audit import entries as audit_entries
from gateway import Gateway
from s3_proxy import DROP, Answer, FaultProxy
from s3_servers import Rgw

BUCKET = "artifacts"
MIB = 1 << 20
SOON = {"retention": {"interval_seconds": 1}}
NAME = "r\u00e9sum\u00e9 \"final\".txt"


def setUpModule():
    global RGW
    RGW = Rgw()
    unittest.addModuleCleanup(RGW.stop)
    RGW.start()
    RGW.client.make_bucket(BUCKET)


def data_of(size):
    return (hashlib.sha512(b"artifact").digest() * (size // 64 + 1))[:size]


def fetch(url, headers=None):
    parts = urllib.parse.urlsplit(url)
    wire = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        wire.request("GET", f"{parts.path}?{parts.query}", headers=headers or {})
        answer = wire.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        wire.close()


def wait_for(what, holds, seconds=20):
    until = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > until:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.05)
    return found


def s3_config(directory, port):
    secret = os.path.join(directory, "s3.secret")
    with open(secret, "w", encoding="utf-8") as text:
        text.write(RGW.client.secret + "\n")
    return {
        "objects": {
            "kind": "s3",
            "path_style": True,
            "endpoint": f"http://127.0.0.1:{port}",
            "region": "us-east-1",
            "bucket": BUCKET,
            "prefix": "test",
            "access_key": RGW.client.access_key,
            "secret_key_file": secret,
        }
    }


class ArtifactTest(unittest.TestCase):
    def make(self, overrides=None):
        self.gateway = Gateway.for_test(self, overrides or {}, start=False)
        self.configure()
        self.gateway.start()
        self.chat = self.gateway.new_chat()

    def put(self, data, name=NAME, status=201, **options):
        path = f"/chats/{self.chat['chat_id']}/artifacts?" + urllib.parse.urlencode({"name": name})
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        return self.gateway.expect(status, "POST", path, data, headers=headers, **options)

    def get(self, artifact):
        return self.gateway.expect(200, "GET", f"/artifacts/{artifact['artifact_id']}")

    def link(self, artifact):
        return self.gateway.expect(200, "GET", f"/artifacts/{artifact['artifact_id']}/download")

    def deliver(self, artifact, status="delivered", expect=200, **members):
        path = f"/artifacts/{artifact['artifact_id']}/delivery"
        body = {"status": status, "channel": "mail", **members}
        return self.gateway.expect(expect, "POST", path, body)

    def used(self):
        path = f"/users/{self.chat['user_id']}/workspace"
        return self.gateway.expect(200, "GET", path)["used_bytes"]

    def wait_deleted(self, artifact):
        wait_for("deleted", lambda: self.get(artifact)["state"] == "deleted")
        self.assertEqual(self.objects(), [])

    def put_file(self, name, data):
        chats = os.path.join(self.gateway.dir, "data/workspaces", self.chat["user_id"], "chats")
        path = os.path.join(chats, self.chat["chat_id"], "files", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        return path


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
        self.make({"retention": {"interval_seconds": 1, "artifact_delivered_grace_seconds": 2}})
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
                "objects": {"presign_seconds": 5},
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
        address = urllib.parse.urlsplit(self.gateway.url)
        path = f"/api/v1/chats/{self.chat['chat_id']}/artifacts?name=half"
        with socket.create_connection((address.hostname, address.port)) as wire:
            wire.sendall(
                f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.gateway.admin_key}"
                "\r\nContent-Length: 1000000\r\n\r\n".encode()
                + b"x" * 500_000
            )
            wait_for("counted", lambda: self.used() == before + 1_000_000)
        wait_for("given up", lambda: self.used() == before)
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


class OnDisk(Life, ArtifactTest):
    def configure(self):
        pass

    def objects(self):
        root = os.path.join(self.gateway.dir, "data/objects")
        return [n for _, _, names in os.walk(root) for n in names if n.endswith(".obj")]

    def test_an_object_without_a_row_is_marked_and_a_grace_later_removed(self):
        self.make({"retention": {"interval_seconds": 1, "artifact_delivered_grace_seconds": 2}})
        kept = self.put(b"kept")
        (path,) = glob.glob(
            os.path.join(self.gateway.dir, "data", "objects", "**", kept["artifact_id"] + "*"),
            recursive=True,
        )
        orphan = path.replace(kept["artifact_id"], str(uuid.uuid4()))
        foreign = os.path.join(os.path.dirname(path), "foreign.obj")
        for planted in (orphan, foreign):
            shutil.copyfile(path, planted)
        wait_for("the orphan's end", lambda: not os.path.exists(orphan))
        (marked,) = self.gateway.log_lines("object_orphan")
        (removed,) = self.gateway.log_lines("object_orphan_removed")
        self.assertIn(os.path.basename(orphan)[:36], marked["key"])
        self.assertEqual(marked["key"], removed["key"])
        self.assertTrue(os.path.exists(path) and os.path.exists(foreign))
        self.assertEqual(self.get(kept)["state"], "stored")
        entry = self.gateway.expect(200, "GET", "/audit?action=artifact.orphan")["items"]
        self.assertEqual(len(entry), 1)

    def test_a_link_cannot_be_changed(self):
        self.make()
        artifact, other = self.put(b"one"), self.put(b"two")
        url = self.link(artifact)["url"]
        self.assertEqual(fetch(url.replace(artifact["artifact_id"], other["artifact_id"]))[0], 403)
        self.assertEqual(fetch(url.replace("text%2Fplain", "text%2Fhtml"))[0], 403)
        self.assertEqual(fetch(url[:-1] + ("0" if url[-1] != "0" else "1"))[0], 403)
        self.assertEqual(fetch(url.split("?")[0])[0], 422)

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
        wait_for("begun", lambda: self.gateway.expect(200, "GET", at)["items"])
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


class InS3(Life, ArtifactTest):
    def configure(self):
        self.gateway.edit_config(s3_config(self.gateway.dir, RGW.port))
        for key in RGW.client.keys(BUCKET):
            RGW.client.ask("DELETE", f"/{BUCKET}/{key}")

    def objects(self):
        return RGW.client.keys(BUCKET)

    def test_a_deleted_one_outlives_the_links_to_it(self):
        self.make({"objects": {"presign_seconds": 3}, **SOON})
        artifact = self.put(b"x")
        url = self.link(artifact)["url"]
        self.gateway.expect(204, "DELETE", f"/artifacts/{artifact['artifact_id']}")
        self.assertEqual(self.get(artifact)["state"], "marked_for_delete")
        self.gateway.expect(409, "GET", f"/artifacts/{artifact['artifact_id']}/download")
        self.assertEqual(fetch(url)[0], 200)
        self.wait_deleted(artifact)


class Steps(ArtifactTest):
    """The gateway is killed at each step of an upload, seen by a proxy before the real store."""

    def configure(self):
        self.proxy = FaultProxy(RGW.port)
        self.proxy.__enter__()
        self.addCleanup(self.proxy.__exit__)
        self.gateway.edit_config(s3_config(self.gateway.dir, self.proxy.port))
        for key in RGW.client.keys(BUCKET):
            RGW.client.ask("DELETE", f"/{BUCKET}/{key}")

    def kill_at(self, step, answered):
        """Puts an artifact of three parts; SIGKILL before this step is forwarded, or before its
        answer reaches the gateway. Then a new life, and what it makes of it."""
        killed = threading.Event()

        def kill(request, *_):
            if request.step == step and not killed.is_set():
                killed.set()
                os.kill(self.gateway.process.pid, signal.SIGKILL)
                return DROP
            return DROP if killed.is_set() else None

        if answered:
            self.proxy.after = kill
        else:
            self.proxy.rule = kill
        with self.assertRaises((OSError, http.client.HTTPException)):
            self.put(data_of(17 * MIB))
        self.assertTrue(killed.wait(30))
        self.gateway.process.wait()
        self.proxy.rule = self.proxy.after = None
        self.gateway.start()

    def healed(self):
        """All artifacts there are, once none is between two states."""
        path = f"/chats/{self.chat['chat_id']}/artifacts"

        def look():
            items = self.gateway.expect(200, "GET", path)["items"]
            between = [a for a in items if a["state"] in ("created", "marked_for_delete")]
            return None if between or RGW.client.uploads(BUCKET) else (items,)

        return wait_for("healed", look)[0]

    def assert_consistent(self, items, before):
        self.assertEqual(len(self.objects()), len(items))
        self.assertEqual(self.used(), before + sum(a["size_bytes"] for a in items))
        for artifact in items:
            self.assertEqual(artifact["sha256"], hashlib.sha256(data_of(17 * MIB)).hexdigest())
            body = fetch(self.link(artifact)["url"])[2]
            self.assertEqual(hashlib.sha256(body).hexdigest(), artifact["sha256"])

    def objects(self):
        return RGW.client.keys(BUCKET)

    def test_killed_before_there_is_an_object_there_is_no_artifact(self):
        self.make(SOON)
        before = self.used()
        for step, answered in (
            ("initiate", False),
            ("initiate", True),
            ("part", False),
            ("part", True),
            ("complete", False),
        ):
            with self.subTest(step=step, answered=answered):
                self.kill_at(step, answered)
                items = self.healed()
                self.assertEqual(items, [])
                self.assert_consistent(items, before)

    def test_killed_when_there_is_an_object_there_is_the_artifact(self):
        for step, answered in (("complete", True), ("head", False), ("head", True)):
            with self.subTest(step=step, answered=answered):
                self.make(SOON)
                before = self.used()
                self.kill_at(step, answered)
                items = self.healed()
                self.assertEqual([a["state"] for a in items], ["stored"])
                self.assert_consistent(items, before)

    def test_killed_while_it_deletes_it_is_deleted_later(self):
        self.make(SOON)
        artifact = self.put(b"x")
        for answered in (False, True):
            rule = "after" if answered else "rule"

            def kill(request, *_):
                if request.step == "delete":
                    os.kill(self.gateway.process.pid, signal.SIGKILL)
                    return DROP
                return None

            setattr(self.proxy, rule, kill)
            with self.assertRaises((OSError, http.client.HTTPException)):
                self.gateway.rest("DELETE", f"/artifacts/{artifact['artifact_id']}")
            self.gateway.process.wait()
            setattr(self.proxy, rule, None)
            self.gateway.start()
            wait_for("deleted", lambda: self.get(artifact)["state"] == "deleted")
            artifact = self.put(b"x")
        self.assertEqual(len(self.objects()), 1)

    def test_a_store_that_is_away_is_told_and_leaves_nothing(self):
        self.make(SOON)
        before = self.used()
        self.proxy.rule = lambda _: Answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
        answer = self.put(b"x", status=503)
        self.assertEqual(answer["code"], "object_store_unavailable")
        self.proxy.rule = None
        wait_for("given up", lambda: self.used() == before)
        self.assertEqual(self.objects(), [])
        self.put(b"x")

    def test_what_cannot_be_deleted_now_is_deleted_later(self):
        self.make(SOON)
        artifact = self.put(b"x")
        self.proxy.rule = lambda _: Answer(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
        self.gateway.expect(204, "DELETE", f"/artifacts/{artifact['artifact_id']}")
        self.assertEqual(self.get(artifact)["state"], "marked_for_delete")
        self.proxy.rule = None
        self.wait_deleted(artifact)


if __name__ == "__main__":
    unittest.main()
