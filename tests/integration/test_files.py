"""Files of a chat through the running daemon."""

import email.parser
import hashlib
import json
import os
import re
import socket
import threading
import time
import unittest
import urllib.parse
import uuid

from files import FileClient, random_name, recount
from gateway import Gateway
from waiting import PATIENCE_S, wait_equal

MIB = 1024 * 1024
LONG_AGO = 1_600_000_000


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class FileCase(unittest.TestCase):
    overrides = {}

    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls, cls.overrides)

    def setUp(self):
        self.client = FileClient(self.gateway)

    def assert_problem(self, answer, status, code):
        got, body = answer[0], answer[-1]
        body = json.loads(body) if isinstance(body, bytes) else body
        self.assertEqual((got, body.get("code")), (status, code), body)


class Put(FileCase):
    def test_a_file_comes_back_as_it_was_sent(self):
        for size in (0, 1, 65536, 262144, 3 * MIB + 7):
            body, name = os.urandom(size), random_name()
            status, made = self.client.put(name, body)
            self.assertEqual(status, 201)
            self.assertEqual((made["name"], made["size_bytes"]), (name, size))
            self.assertEqual(made["sha256"], sha256(body))
            status, headers, got = self.client.get(name)
            self.assertEqual((status, got), (200, body))
            self.assertEqual(headers["ETag"], f'"{sha256(body)}"')
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            with open(os.path.join(self.client.files, name), "rb") as file:
                self.assertEqual(file.read(), body)
        self.assertEqual(self.client.strays(), [])

    def test_the_same_name_replaces_and_the_old_id_is_gone(self):
        _, first = self.client.put("a.txt", b"one")
        status, second = self.client.put("a.txt", b"two!")
        self.assertEqual(status, 200)
        self.assertNotEqual(first["file_id"], second["file_id"])
        self.assert_problem(
            self.client.ask("GET", f"/files/{first['file_id']}"), 404, "chat_file_not_found"
        )
        self.assertEqual(self.client.get("a.txt")[2], b"two!")
        self.assertEqual(self.client.names(), ["a.txt"])

    def test_usage_is_exact(self):
        before = self.client.used()
        self.client.put("a", b"x" * 1000)
        self.client.put("b", b"y" * 50)
        self.client.put("a", b"z" * 300)
        self.assertEqual(self.client.used(), before + 350)
        self.client.delete("b")
        self.assertEqual(self.client.used(), before + 300)
        self.client.ask("DELETE", self.client.base)
        self.assertEqual(self.client.used(), before)
        self.assertEqual(self.client.used(), recount(self.gateway, self.client.chat["user_id"]))

    def test_content_types(self):
        for name, sent, want in (
            ("a.json", None, "application/json"),
            ("b.unknown", None, "application/octet-stream"),
            ("c.txt", "text/x-own; charset=utf-8", "text/x-own; charset=utf-8"),
        ):
            headers = {"Content-Type": sent} if sent else {}
            self.assertEqual(self.client.put(name, b"x", headers)[1]["content_type"], want)
            self.assertEqual(self.client.get(name)[1]["Content-Type"], want)

    def test_names(self):
        for name in ("ä b.txt", "..x", ".hidden", "a" * 255, "%41", "日本", "a;b\"c'", "-rf", "~"):
            self.assertEqual(self.client.put(name, b"x")[0], 201, name)
            self.assertEqual(self.client.get(name)[2], b"x")
        for name in (
            *("..", ".", "a/b", "a\\b", "x\x01", "x\x7f", "x\u0085", "a" * 256, "é" * 128),
            *("history.md", "history.db", "history.db-wal", "history.db-shm"),
        ):
            self.assert_problem(self.client.put(name, b"x"), 422, "invalid_attachment_name")
            self.assert_problem(self.client.get(name), 422, "invalid_attachment_name")

    def test_a_reserved_name_is_called_so(self):
        _, problem = self.client.put("history.md", b"x")
        self.assertEqual(problem["detail"], "this name is reserved")

    def test_names_are_one_in_every_normal_form(self):
        composed, apart = "caf\u00e9", "cafe\u0301"
        self.assertEqual(self.client.put(composed, b"1")[0], 201)
        self.assertEqual(self.client.get(apart)[2], b"1")
        self.assertEqual(self.client.put(apart, b"2")[0], 200)
        self.assertEqual(self.client.names(), [composed])
        self.assertEqual(os.listdir(self.client.files), [composed])
        self.assertEqual(self.client.delete(apart), 204)
        with open(os.path.join(self.client.files, apart), "w") as file:
            file.write("agent's")
        self.assertEqual(self.client.get(composed)[2], b"agent's")

    def test_if_none_match_star_makes_and_never_replaces(self):
        once = {"If-None-Match": "*"}
        self.assertEqual(self.client.put("a", b"1", once)[0], 201)
        self.assert_problem(self.client.put("a", b"2", once), 412, "precondition_failed")
        self.assertEqual(self.client.get("a")[2], b"1")
        results = []

        def one(n):
            results.append(self.client.put("race", b"%d" % n * 70000, once)[0])

        threads = [threading.Thread(target=one, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(results), [201] + [412] * 5)

    def test_if_match_guards_an_update(self):
        self.client.put("a", b"1")
        self.assert_problem(
            self.client.put("a", b"2", {"If-Match": f'"{sha256(b"0")}"'}),
            412,
            "precondition_failed",
        )
        self.assertEqual(self.client.put("a", b"2", {"If-Match": f'"{sha256(b"1")}"'})[0], 200)
        self.assert_problem(
            self.client.put("none", b"2", {"If-Match": "*"}), 412, "precondition_failed"
        )

    def test_without_a_length_or_a_chat(self):
        with self.client.begin_put("x", "5", ["Content-Length: 5"]) as sock:
            self.assertIn(b" 400 ", sock.recv(1000))
        address = self.gateway.url.rsplit(":", 1)[1]
        with socket.create_connection(("127.0.0.1", int(address)), timeout=PATIENCE_S) as sock:
            head = f"PUT /api/v1{self.client.path('x')} HTTP/1.1\r\nHost: x\r\n"
            sock.sendall((head + f"Authorization: Bearer {self.client.key}\r\n\r\n").encode())
            self.assertIn(b"length_required", sock.recv(4000))
        other = FileClient(self.gateway, {"chat_id": str(uuid.uuid4()), "user_id": ""})
        self.assert_problem(other.put("x", b"1"), 404, "chat_not_found")

    def test_a_refusal_comes_before_the_body_and_100_continue_behind_the_checks(self):
        self.client.put("there", b"1")
        for name, headers, status in (
            ("there", ["If-None-Match: *"], b"412"),
            ("..", [], b"422"),
        ):
            with self.client.begin_put(name, 10**9, [*headers, "Expect: 100-continue"]) as sock:
                self.assertEqual(sock.recv(4000).split()[1], status)
        with self.client.begin_put("new", 3, ["Expect: 100-continue"]) as sock:
            self.assertEqual(sock.recv(4000).split()[1], b"100")
            sock.sendall(b"abc")
            self.assertEqual(sock.recv(4000).split()[1], b"201")

    def test_a_put_whose_chat_goes_meanwhile_is_chat_not_found(self):
        quarantine = os.path.join(self.gateway.dir, "data", "quarantine")
        with self.client.begin_put("late", 3, ["Expect: 100-continue"]) as sock:
            self.assertEqual(sock.recv(4000).split()[1], b"100")
            path = f"/chats/{self.client.chat_id}"
            self.assertEqual(self.client.ask("DELETE", path)[0], 204)
            wait_equal(self, [], lambda: os.listdir(quarantine))
            sock.sendall(b"abc")
            answer = sock.recv(4000)
        self.assertEqual(answer.split()[1], b"404", answer)
        self.assertIn(b"chat_not_found", answer)

    def test_a_client_that_goes_away_leaves_nothing(self):
        before = self.client.used()
        for sent in (0, 1, 300000, MIB - 1):
            with self.client.begin_put("torn", MIB) as sock:
                sock.sendall(b"x" * sent)
        wait_equal(self, [], lambda: [self.client.names(), *self.client.strays()][1:])
        self.assertEqual(self.client.names(), [])
        wait_equal(self, before, self.client.used)
        self.assertEqual(self.client.get("torn")[0], 404)

    def test_parallel_puts_of_one_name_end_as_one_whole_file(self):
        bodies = [bytes([65 + n]) * (400000 + n) for n in range(8)]
        answers = []

        def one(body):
            answers.append(self.client.put("same", body))

        threads = [threading.Thread(target=one, args=(body,)) for body in bodies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(status for status, _ in answers), [200] * 7 + [201])
        _, headers, got = self.client.get("same")
        self.assertIn(got, bodies)
        self.assertEqual(headers["ETag"], f'"{sha256(got)}"')
        self.assertEqual([f["size_bytes"] for f in self.client.list()], [len(got)])
        self.assertEqual(self.client.strays(), [])

    def test_a_long_body_takes_constant_memory(self):
        def rss():
            with open(f"/proc/{self.gateway.process.pid}/statm", encoding="ascii") as statm:
                return int(statm.read().split()[1]) * 4096

        self.client.put("warm", b"x" * (4 * MIB))
        before, digest = rss(), hashlib.sha256()
        with self.client.begin_put("long", 300 * MIB) as sock:
            block = os.urandom(MIB)
            for _ in range(300):
                digest.update(block)
                sock.sendall(block)
            answer = sock.recv(4000)
        self.assertIn(digest.hexdigest().encode(), answer)
        self.assertLess(rss() - before, 16 * MIB)
        os.unlink(os.path.join(self.client.files, "long"))


class Form(FileCase):
    def test_the_one_file_of_a_form(self):
        body = os.urandom(700000) + b"\r\n--b-o-u-n-" + b"\r\n\r\n--"
        status, made = self.client.form("f.png", body, "image/png")
        self.assertEqual(status, 201, made)
        self.assertEqual((made["name"], made["content_type"]), ("f.png", "image/png"))
        self.assertEqual(made["sha256"], sha256(body))
        self.assertEqual(self.client.get("f.png")[2], body)
        self.assertEqual(self.client.form("f.png", b"")[0], 200)
        self.assertEqual(self.client.form("q%22%20.txt", b"1")[1]["name"], 'q" .txt')

    def test_the_same_form_again_is_answered_again_and_another_is_refused(self):
        body, key = os.urandom(300000), {"Idempotency-Key": "once"}
        status, made = self.client.form("f", body, headers=key)
        self.assertEqual(status, 201)
        again = self.client.form("f", body, boundary="another-one", headers=key)
        self.assertEqual(again, (201, made))
        for name, content, kind in (("f", body[:-1] + b"?", None), ("g", body, None),
                                    ("f", body, "text/plain")):
            self.assert_problem(
                self.client.form(name, content, kind, headers=key), 422, "idempotency_key_reused"
            )
        self.assertEqual(self.client.list()[0]["file_id"], made["file_id"])
        self.assertEqual((self.client.names(), self.client.strays()), (["f"], []))
        self.gateway.restart()
        self.assertEqual(self.client.form("f", body, headers=key), (201, made))

    def test_what_is_no_such_form(self):
        self.assert_problem(
            self.client.ask("POST", self.client.base, b"x", {"Content-Type": "text/plain"}),
            415,
            "unsupported_media_type",
        )
        two = b"\r\nContent-Disposition: form-data; filename=b\r\n\r\nx\r\n--b-o-u-n-d"
        self.assert_problem(self.client.form("a", b"1", more=two), 422, "invalid_request")
        self.assert_problem(self.client.form("", b"1"), 422, "invalid_request")
        self.assert_problem(self.client.form("a/b", b"1"), 422, "invalid_attachment_name")
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        self.assert_problem(
            self.client.ask("POST", self.client.base, b"--x\r\n", headers), 422, "invalid_request"
        )
        self.assertEqual((self.client.names(), self.client.strays()), ([], []))


class Get(FileCase):
    BODY = bytes(range(256)) * 400

    def setUp(self):
        super().setUp()
        self.client.put("r", self.BODY)
        self.etag = f'"{sha256(self.BODY)}"'

    def test_single_ranges(self):
        size = len(self.BODY)
        for text, first, last in (
            ("0-0", 0, 0),
            ("5-9", 5, 9),
            ("100-", 100, size - 1),
            ("-7", size - 7, size - 1),
            ("5-999999999999999999999", 5, size - 1),
            (f"-{size * 2}", 0, size - 1),
            ("0-9,5-20", 0, 20),
        ):
            status, headers, got = self.client.get("r", {"Range": f"bytes={text}"})
            self.assertEqual((status, got), (206, self.BODY[first : last + 1]), text)
            self.assertEqual(headers["Content-Range"], f"bytes {first}-{last}/{size}")

    def test_what_is_no_range_answers_the_whole(self):
        for text in ("bytes=", "bytes=x-", "bytes=9-5", "lines=1-2", "bytes=1-2;", "bytes=-"):
            status, _, got = self.client.get("r", {"Range": text})
            self.assertEqual((status, got), (200, self.BODY), text)
        many = "bytes=" + ",".join(f"{n * 2}-{n * 2}" for n in range(40))
        self.assertEqual(self.client.get("r", {"Range": many})[0], 200)
        self.assertEqual(self.client.get("r", {"Range": "bytes=1-2"}, "HEAD")[0], 200)

    def test_ranges_outside(self):
        for text in (f"bytes={len(self.BODY)}-", "bytes=-0"):
            answer = self.client.get("r", {"Range": text})
            self.assert_problem(answer, 416, "range_not_satisfiable")
            self.assertEqual(answer[1]["Content-Range"], f"bytes */{len(self.BODY)}")

    def test_several_ranges(self):
        status, headers, got = self.client.get("r", {"Range": "bytes=0-9, 50-59, -5"})
        self.assertEqual(status, 206)
        head = f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode("ascii")
        parts = email.parser.BytesParser().parsebytes(head + got).get_payload()
        self.assertEqual(len(parts), 3)
        for part in parts:
            first, last = map(int, re.match(r"bytes (\d+)-(\d+)/", part["Content-Range"]).groups())
            self.assertEqual(part.get_payload(decode=True), self.BODY[first : last + 1])

    def test_conditions(self):
        _, headers, _ = self.client.get("r")
        modified = headers["Last-Modified"]
        for sent, status in (
            ({"If-None-Match": self.etag}, 304),
            ({"If-None-Match": f'"x", W/{self.etag}'}, 304),
            ({"If-None-Match": '"x"'}, 200),
            ({"If-None-Match": "*"}, 304),
            ({"If-Modified-Since": modified}, 304),
            ({"If-Modified-Since": "Sat, 01 Jan 2000 00:00:00 GMT"}, 200),
            ({"If-Modified-Since": "nonsense"}, 200),
            ({"If-None-Match": '"x"', "If-Modified-Since": modified}, 200),
            ({"If-Match": self.etag}, 200),
            ({"If-Match": '"x"'}, 412),
            ({"If-Match": f"W/{self.etag}"}, 412),
            ({"If-Unmodified-Since": "Sat, 01 Jan 2000 00:00:00 GMT"}, 412),
            ({"If-Range": self.etag, "Range": "bytes=0-4"}, 206),
            ({"If-Range": '"x"', "Range": "bytes=0-4"}, 200),
            ({"If-Range": modified, "Range": "bytes=0-4"}, 206),
        ):
            answer = self.client.get("r", sent)
            self.assertEqual(answer[0], status, sent)
            if status == 304:
                self.assertEqual((answer[2], answer[1]["ETag"]), (b"", self.etag))

    def test_head_says_what_get_would(self):
        _, got, _ = self.client.get("r")
        status, headers, body = self.client.get("r", method="HEAD")
        self.assertEqual((status, body), (200, b""))
        for name in ("Content-Length", "ETag", "Content-Type", "Content-Disposition"):
            self.assertEqual(headers[name], got[name])

    def test_the_name_for_a_browser(self):
        for name, plain, extended in (
            ("a.txt", "a.txt", None),
            ('q"uo\u00e9.txt', "q_uo_.txt", "q%22uo%C3%A9.txt"),
            ("100%.txt", "100_.txt", "100%25.txt"),
        ):
            self.client.put(name, b"x")
            got = self.client.get(name)[1]["Content-Disposition"]
            want = f'attachment; filename="{plain}"'
            want += f"; filename*=UTF-8''{extended}" if extended else ""
            self.assertEqual(got, want)

    def test_reading_is_noted_and_puts_off_the_end(self):
        item = self.client.list()[0]
        self.assertIsNone(item["last_read_at"])
        self.client.get("r")
        later = self.client.list()[0]
        self.assertGreaterEqual(later["last_read_at"], item["last_update_at"])
        self.assertGreaterEqual(later["expires_at"], item["expires_at"])
        stat = self.gateway.expect(200, "GET", f"/files/{item['file_id']}")
        self.assertEqual(stat, later)
        self.gateway.restart()
        self.assertEqual(self.client.list()[0], later)

    def test_who_may(self):
        user = str(uuid.uuid4())
        other = self.gateway.new_key(allowed_users=[user])
        viewer = self.gateway.new_key("viewer")
        stranger = FileClient(self.gateway, self.client.chat, other)
        self.assert_problem(stranger.get("r"), 404, "chat_not_found")
        self.assert_problem(stranger.put("x", b"1"), 404, "chat_not_found")
        item = self.client.list()[0]
        self.assert_problem(
            stranger.ask("GET", f"/files/{item['file_id']}"), 404, "chat_file_not_found"
        )
        looker = FileClient(self.gateway, self.client.chat, viewer)
        self.assertEqual(looker.names(), ["r"])
        self.assert_problem(looker.get("r"), 403, "forbidden")
        self.assert_problem(looker.put("x", b"1"), 403, "forbidden")

    def test_accesses_are_in_the_trail(self):
        item = self.client.list()[0]
        self.client.get("r")
        self.client.delete("r")
        page = self.gateway.expect(200, "GET", f"/audit?object=file:{item['file_id']}")
        actions = [entry["action"] for entry in page["items"]]
        self.assertEqual(sorted(actions), ["file.delete", "file.get", "file.put"])


class Agents(FileCase):
    """What stands on disk without the API's doing."""

    def write(self, name, data, at=None):
        path = os.path.join(self.client.files, name)
        with open(path, "wb") as file:
            file.write(data)
        if at:
            os.utime(path, (at, at))

    def test_agent_made_files_are_there(self):
        self.write("made", b"by agent", LONG_AGO)
        os.mkdir(os.path.join(self.client.files, "dir"))
        item = self.client.list()[0]
        self.assertEqual((item["name"], item["size_bytes"]), ("made", 8))
        self.assertEqual(item["sha256"], sha256(b"by agent"))
        self.assertTrue(item["last_update_at"].startswith("2020-09-13"))
        self.assertEqual(self.client.names(), ["made"])
        self.write("unseen", b"2")
        self.assertEqual(self.client.get("unseen")[2], b"2")
        self.assertEqual(self.client.list()[0]["file_id"], item["file_id"])

    def test_a_changed_file_has_its_own_sum_again(self):
        _, made = self.client.put("f", b"before")
        self.write("f", b"after!")
        status, headers, got = self.client.get("f")
        self.assertEqual((status, got), (200, b"after!"))
        self.assertEqual(headers["ETag"], f'"{sha256(b"after!")}"')
        stat = self.gateway.expect(200, "GET", f"/files/{made['file_id']}")
        self.assertEqual(stat["sha256"], sha256(b"after!"))
        path = os.path.join(self.client.files, "f")
        before = os.stat(path)
        self.write("f", b"forged")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assertEqual(self.client.list()[0]["sha256"], sha256(b"forged"))

    def test_what_an_agent_removes_is_gone(self):
        _, made = self.client.put("f", b"1")
        os.unlink(os.path.join(self.client.files, "f"))
        self.assertEqual(self.client.get("f")[0], 404)
        self.assertEqual(self.client.ask("GET", f"/files/{made['file_id']}")[0], 404)
        self.assertEqual(self.client.names(), [])
        self.assertEqual(self.client.put("f", b"2")[0], 201)

    def test_links_pipes_and_others_files_are_not_there(self):
        secret = os.path.join(self.gateway.dir, "secret")
        with open(secret, "w") as file:
            file.write("SECRET")
        os.chown(secret, os.geteuid(), os.getegid())
        at = self.client.files
        os.symlink(secret, os.path.join(at, "link"))
        os.symlink("..", os.path.join(at, "up"))
        os.mkfifo(os.path.join(at, "pipe"))
        os.mkdir(os.path.join(at, "dir"))
        sock = socket.socket(socket.AF_UNIX)
        self.addCleanup(sock.close)
        here = os.getcwd()
        os.chdir(at)
        sock.bind("sock")
        os.chdir(here)
        if os.stat(at).st_uid != os.geteuid():
            os.link(secret, os.path.join(at, "hard"))
        self.assertEqual(self.client.names(), [])
        for name in os.listdir(at):
            status, _, body = self.client.get(name)
            self.assertEqual(status, 404, name)
            self.assertNotIn(b"SECRET", body)
            self.assertEqual(self.client.delete(name), 404)
        self.assertEqual(self.client.put("link", b"mine")[0], 201)
        self.assertEqual(self.client.put("pipe", b"mine")[0], 201)
        self.assert_problem(self.client.put("dir", b"mine"), 409, "conflict")
        with open(secret) as file:
            self.assertEqual(file.read(), "SECRET")
        self.assertEqual(self.client.names(), ["link", "pipe"])

    def test_a_chat_directory_that_is_a_link_is_refused(self):
        os.rename(self.client.files, self.client.files + ".away")
        os.symlink("/etc", self.client.files)
        self.assert_problem(self.client.get("passwd"), 409, "conflict")
        self.assert_problem(self.client.put("x", b"1"), 409, "conflict")

    def test_lists_by_pages(self):
        for n in range(25):
            self.write(f"f{n:02}", b"x")
        seen, cursor = [], ""
        while cursor is not None:
            page = json.loads(
                self.client.ask("GET", f"{self.client.base}?limit=10{cursor}")[2]
            )
            seen += [item["name"] for item in page["items"]]
            cursor = page["next_cursor"] and "&cursor=" + page["next_cursor"]
        self.assertEqual(sorted(seen), [f"f{n:02}" for n in range(25)])
        self.assertEqual(len(seen), 25)


class Quota(FileCase):
    QUOTA = 1_000_000
    overrides = {"storage": {"quota_bytes": QUOTA}}

    def test_exact_to_the_byte(self):
        room = self.QUOTA - self.client.used()
        answer = self.client.put("a", b"x" * (room + 1))
        self.assert_problem(answer, 507, "workspace_quota_exceeded")
        self.assertEqual(self.client.put("a", b"x" * room)[0], 201)
        self.assert_problem(self.client.put("b", b"x"), 507, "workspace_quota_exceeded")
        self.assertEqual(self.client.put("b", b"")[0], 201)
        self.assertEqual(self.client.put("a", b"y" * room)[0], 200)
        self.assertEqual(self.client.used(), self.QUOTA)
        self.assertEqual(self.client.delete("a"), 204)
        self.assertEqual(self.client.form("f", b"z" * room)[0], 201)
        self.assert_problem(self.client.form("f2", b"z"), 507, "workspace_quota_exceeded")
        self.assertEqual(self.client.strays(), [])

    def test_refused_before_the_body_is_sent(self):
        with self.client.begin_put("a", 10**12, ["Expect: 100-continue"]) as sock:
            self.assertIn(b"workspace_quota_exceeded", sock.recv(4000))

    def test_no_length_is_taken_for_a_negative_one(self):
        before = self.client.used()
        for length in (2**63 - 1, 2**63, 2**64 - 50_000_000, 2**64 - 1, 2**64, 10**30):
            for head in (["Expect: 100-continue"], []):
                with self.client.begin_put("a", length, head) as sock:
                    answer = sock.recv(4000)
                    self.assertRegex(answer, rb"^HTTP/1.1 (413|507) ", length)
        self.assertEqual(self.client.used(), before)

    def test_parallel_puts_do_not_pass_it_together(self):
        room = self.QUOTA - self.client.used()
        results = []

        def one(n):
            results.append(self.client.put(f"p{n}", b"x" * (room // 3))[0])

        threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(results), [201] * 3 + [507] * 5)
        self.assertLessEqual(self.client.used(), self.QUOTA)
        self.assertEqual(self.client.used(), recount(self.gateway, self.client.chat["user_id"]))


class Uncounted(FileCase):
    """What an agent has made and no scan has seen is not taken off the sum."""

    QUOTA = 1_000_000
    overrides = {"storage": {"quota_bytes": QUOTA}}

    def setUp(self):
        super().setUp()
        self.room = self.QUOTA - self.client.used()
        self.assertEqual(self.client.put("mine", b"x" * self.room)[0], 201)

    def agent(self, name, size):
        path = os.path.join(self.client.files, name)
        with open(path, "ab") as file:
            file.truncate(size)
        owner = os.stat(self.client.files)
        os.chown(path, owner.st_uid, owner.st_gid)

    def assert_full(self):
        self.assert_problem(self.client.put("more", b"x"), 507, "workspace_quota_exceeded")

    def test_a_deleted_one_makes_no_room(self):
        self.agent("sparse", 100_000_000)
        self.assertEqual(self.client.delete("sparse"), 204)
        self.assert_full()

    def test_a_replaced_one_makes_no_room(self):
        self.agent("sparse", 100_000_000)
        self.assertEqual(self.client.put("sparse", b"")[0], 200)
        self.assert_full()

    def test_a_counted_one_that_has_grown_makes_room_as_it_was(self):
        self.client.put("mine", b"x" * (self.room - 10))
        self.client.put("small", b"y" * 10)
        self.agent("small", 100_000_000)
        self.assertEqual(self.client.put("small", b"z" * 10)[0], 200)
        self.assert_full()
        self.agent("small", 100_000_000)
        self.assertEqual(self.client.delete("small"), 204)
        self.assertEqual(self.client.put("small", b"z" * 10)[0], 201)
        self.assert_full()

    def test_cleared_ones_make_room_for_what_was_counted(self):
        self.agent("sparse", 100_000_000)
        self.assertEqual(self.client.ask("DELETE", self.client.base)[0], 200)
        self.assertEqual(self.client.put("mine", b"x" * self.room)[0], 201)
        self.assert_full()

    def test_a_chat_makes_room_for_what_was_counted(self):
        user_id = self.client.chat["user_id"]
        other = FileClient(self.gateway, self.gateway.new_chat(user_id))
        self.client.put("mine", b"x" * (self.room - 100_000))
        room = self.QUOTA - self.client.used()
        self.assertEqual(other.put("others", b"y" * room)[0], 201)
        with open(os.path.join(other.files, "sparse"), "wb") as file:
            file.truncate(100_000_000)
        self.assertEqual(self.client.ask("DELETE", f"/chats/{other.chat_id}")[0], 204)
        self.assertEqual(self.client.put("again", b"y" * room)[0], 201)
        self.assertEqual(self.client.put("too much", bytes(room))[0], 507)

    def test_one_that_a_scan_has_seen_makes_room_at_once(self):
        self.agent("seen", 50_000)
        time.sleep(0.05)
        self.assertGreater(self.client.used(), self.QUOTA)
        self.assertEqual(self.client.delete("seen"), 204)
        self.assertEqual(self.client.delete("mine"), 204)
        self.assertEqual(self.client.put("again", b"x" * self.room)[0], 201)
        self.assert_full()
        self.assertEqual(self.client.used(), recount(self.gateway, self.client.chat["user_id"]))

    def test_one_with_holes_counts_as_it_would_be_read_and_makes_room_when_it_goes(self):
        before = self.client.used()
        self.agent("holes", 1 << 40)
        os.link(os.path.join(self.client.files, "holes"), os.path.join(self.client.files, "again"))
        time.sleep(0.05)
        self.assertEqual(self.client.used(), before + (1 << 40))
        self.assertEqual([f["size_bytes"] for f in self.client.list() if f["name"] == "holes"], [1 << 40])
        self.assert_full()
        for name in ("again", "holes", "mine"):
            self.assertEqual(self.client.delete(name), 204)
        self.client.used()
        self.assertEqual(self.client.put("mine", b"x" * self.room)[0], 201)
        self.assert_full()

    def test_one_that_changes_after_a_scan_is_not_what_was_counted(self):
        self.agent("seen", 50_000)
        time.sleep(0.05)
        self.assertGreater(self.client.used(), self.QUOTA)
        self.agent("seen", 100_000_000)
        self.assertEqual(self.client.delete("seen"), 204)
        self.assert_full()


class Long(FileCase):
    """Of an agent, and longer than what is read for one request."""

    SIZE = 257 * MIB

    def make(self, name, mark):
        """Its SHA-256."""
        path = os.path.join(self.client.files, name)
        with open(path, "wb") as file:
            file.truncate(self.SIZE)
            file.seek(self.SIZE // 2)
            file.write(mark)
        owner = os.stat(self.client.files)
        os.chown(path, owner.st_uid, owner.st_gid)
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def etag(self, name):
        return self.client.get(name, method="HEAD")[1]["ETag"]

    def test_its_sum_is_made_beside_and_again_when_it_changes(self):
        for mark in (b"one", b"other"):
            want = self.make("long", mark)
            self.assertIsNone(self.etag("long"))
            # It is there, whichever content it has.
            for condition, status in (("If-Match", 200), ("If-None-Match", 304)):
                self.assertEqual(self.client.get("long", {condition: "*"}, method="HEAD")[0], status)
            wait_equal(self, f'"{want}"', lambda: self.etag("long"), 60)
            self.assertEqual([f["sha256"] for f in self.client.list()], [want])
        self.assertEqual(self.client.get("long", {"If-None-Match": f'"{want}"'})[0], 304)
        part = {"Range": "bytes=0-3", "If-Range": f'"{want}"'}
        self.assertEqual(self.client.get("long", part)[0], 206)


class Places(FileCase):
    def test_streams_beyond_their_number_are_busy(self):
        gateway = Gateway.for_test(self, env={"LEASEHOLD_TEST_STREAMS_MAX": "2"})
        clients = [FileClient(gateway, key=gateway.new_key()) for _ in range(3)]
        held = [self.hold(client, "h") for client in clients[:2]]
        self.assert_problem(clients[2].put("x", b"1"), 503, "busy")
        for sock in held:
            self.let_go(sock)
        self.assertEqual(clients[2].put("x", b"1")[0], 201)

    def test_no_key_takes_more_than_its_share_of_them(self):
        gateway = Gateway.for_test(self, env={"LEASEHOLD_TEST_STREAMS_MAX": "8"})
        greedy, other = (FileClient(gateway, key=gateway.new_key()) for _ in range(2))
        held = [self.hold(greedy, f"h{n}") for n in range(2)]
        self.assert_problem(greedy.put("x", b"1"), 503, "busy")
        self.assertEqual(other.put("x", b"1")[0], 201)
        self.assertEqual(other.get("x")[0], 200)
        self.let_go(held[0])
        self.assertEqual(greedy.put("x", b"1")[0], 201)
        self.let_go(held[1])

    def test_downloads_by_link_leave_the_places_to_the_keys(self):
        gateway = Gateway.for_test(self, env={"LEASEHOLD_TEST_STREAMS_MAX": "8"})
        client = FileClient(gateway)
        path = f"/chats/{client.chat_id}/artifacts?name=long"
        artifact = json.loads(client.ask("POST", path, bytes(32 << 20))[2])["artifact_id"]
        url = gateway.expect(200, "GET", f"/artifacts/{artifact}/download")["url"]
        link = urllib.parse.urlsplit(url)
        first, second = (socket.create_connection((link.hostname, link.port)) for _ in range(2))
        for sock, status in ((first, b" 200 "), (second, b" 503 ")):
            self.addCleanup(sock.close)
            sock.sendall(f"GET {link.path}?{link.query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            self.assertIn(status, sock.recv(100))
        self.assertEqual(client.put("x", b"1")[0], 201)

    def hold(self, client, name):
        sock = client.begin_put(name, 10, ["Expect: 100-continue"])
        self.addCleanup(sock.close)
        self.assertIn(b" 100 ", sock.recv(1000))
        return sock

    def let_go(self, sock):
        sock.sendall(b"0123456789")
        self.assertIn(b" 201 ", sock.recv(4000))
        sock.close()

    def test_a_gateway_that_stops_takes_back_what_has_not_come(self):
        gateway = Gateway.for_test(self)
        client = FileClient(gateway)
        with client.begin_put("half", 1000000) as sock:
            sock.sendall(b"x" * 600000)
            gateway.process.terminate()
            time.sleep(0.3)
            sock.close()
            self.assertEqual(gateway.process.wait(40), 0)
        gateway.start()
        self.assertEqual((client.names(), client.strays()), ([], []))
