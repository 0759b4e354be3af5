"""One suite for every object store: disk, Ceph RGW and OpenStack Swift, the last two as real servers
that verify signatures. What is not installed fails."""

import hashlib
import http.client
import os
import shutil
import tempfile
import time
import unittest
import urllib.parse

from objects_tool import ObjectError, Store
from s3_servers import Rgw, Swift

BUCKET = "contract"
MIB = 1 << 20
IN_PARTS = ["part_bytes=5242880", "multipart_at=5242880"]

KEYS = [
    "plain/key-1_2",
    "with space",
    "unicode-\u00e4\u4e2d\U0001f600",
    "plus+and%percent%2F",
    "a//double///slash",
    "dots/../up/./here",
    "?query=1&x#fragment",
    "quote\"'<&>;:@$,!()*[]{}|\\^~`",
    "k" * 1024,
    "a/b",
    "a",
]


def data_of(size, seed=b"seed"):
    block = hashlib.sha512(seed).digest() * 1024
    return (block * (size // len(block) + 1))[:size]


def fetch(url, method="GET", headers=None):
    parts = urllib.parse.urlsplit(url)
    wire = http.client.HTTPConnection(parts.netloc, timeout=60)
    try:
        wire.request(method, f"{parts.path}?{parts.query}", headers=headers or {})
        answer = wire.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        wire.close()


class Contract:
    """What every store keeps; `store` and `has_server` are the subclass's."""

    def test_what_is_put_is_got(self):
        for size in (0, 1, 70_000, 3 * MIB):
            for announced in (True, False):
                with self.subTest(size=size, announced=announced):
                    data = data_of(size)
                    info = self.store.put("k/got", data, f"t{size}", announced)
                    self.assertEqual(info["sha256"], hashlib.sha256(data).hexdigest())
                    self.assertEqual(info["size_bytes"], size)
                    self.assertEqual(self.store.get("k/got"), data)
                    head = self.store.head("k/got")
                    self.assertEqual((head["size_bytes"], head["token"]), (size, f"t{size}"))

    def test_parts_make_one_object(self):
        data = data_of(17 * MIB + 5)
        for announced in (True, False):
            with self.subTest(announced=announced):
                info = self.store.put("k/parts", data, "parts", announced, more=IN_PARTS)
                self.assertEqual(info["sha256"], hashlib.sha256(data).hexdigest())
                got = hashlib.sha256(self.store.get("k/parts"))
                self.assertEqual(got.hexdigest(), info["sha256"])
                self.assertEqual(self.store.head("k/parts")["token"], "parts")
                self.assertEqual(self.store.uploads(), [])
                self.store.delete("k/parts")

    def test_a_range_is_cut_out(self):
        self.store.put("k/range", b"0123456789")
        self.assertEqual(self.store.get("k/range", 2, 3), b"234")
        self.assertEqual(self.store.get("k/range", 0, 1), b"0")
        self.assertEqual(self.store.get("k/range", 8, 100), b"89")
        self.assertEqual(self.store.get("k/range", 9), b"9")
        for offset in (10, 11):
            with self.assertRaises(ObjectError) as caught:
                self.store.get("k/range", offset, 1)
            self.assertEqual(caught.exception.code, "range_not_satisfiable")

    def test_what_is_not_there_is_not_found(self):
        for command in (("get", "k/none"), ("head", "k/none")):
            with self.assertRaises(ObjectError) as caught:
                self.store.ask(*command)
            self.assertEqual(caught.exception.code, "not_found")
        self.store.delete("k/none")
        self.store.ask("abort", "k/none", "no-such-upload")

    def test_a_second_put_replaces_and_a_delete_removes(self):
        self.store.put("k/replaced", b"first", "t1")
        self.store.put("k/replaced", b"second!", "t2")
        self.assertEqual(self.store.get("k/replaced"), b"second!")
        self.assertEqual(self.store.head("k/replaced")["token"], "t2")
        self.store.delete("k/replaced")
        with self.assertRaises(ObjectError) as caught:
            self.store.head("k/replaced")
        self.assertEqual(caught.exception.code, "not_found")

    def test_another_length_than_announced_leaves_nothing(self):
        for size, announced, more in (
            (10, 11, ()),
            (11, 10, ()),
            (6 * MIB, 7 * MIB, IN_PARTS),
            (7 * MIB, 6 * MIB, IN_PARTS),
        ):
            with self.subTest(size=size, announced=announced):
                with self.assertRaises(ObjectError) as caught:
                    self.store.put("k/length", data_of(size), "t", announced, more)
                self.assertIn(caught.exception.code, ("invalid_request", "too_large"))
                with self.assertRaises(ObjectError) as caught:
                    self.store.head("k/length")
                self.assertEqual(caught.exception.code, "not_found")
                self.assertEqual(self.store.uploads(), [])

    def test_a_sum_that_is_known_before_is_that_of_the_object_or_there_is_none(self):
        for size in (0, 3000, 11 * MIB):
            data = data_of(size)
            known = hashlib.sha256(data).hexdigest()
            info = self.store.put("k/summed", data, "t", more=[*IN_PARTS, f"sha256={known}"])
            self.assertEqual(info["sha256"], known)
            self.assertEqual(self.store.get("k/summed"), data)
            self.store.delete("k/summed")
        other = hashlib.sha256(b"other").hexdigest()
        with self.assertRaises(ObjectError):
            self.store.put("k/summed", b"one", "t", more=[f"sha256={other}"])
        with self.assertRaises(ObjectError) as caught:
            self.store.head("k/summed")
        self.assertEqual(caught.exception.code, "not_found")

    def test_what_is_read_by_place_is_what_is_got(self):
        for size in (0, 3000, 11 * MIB + 5):
            with self.subTest(size=size):
                data = data_of(size)
                info = self.store.put_by_place("k/place", data, f"t{size}", more=IN_PARTS)
                self.assertEqual(info["sha256"], hashlib.sha256(data).hexdigest())
                self.assertEqual(info["size_bytes"], size)
                self.assertEqual(self.store.get("k/place"), data)
                self.assertEqual(self.store.head("k/place")["token"], f"t{size}")
                self.store.delete("k/place")
        for size, told in ((10, 11), (11, 10), (6 * MIB, 7 * MIB), (7 * MIB, 6 * MIB)):
            with self.subTest(size=size, told=told):
                with self.assertRaises(ObjectError) as caught:
                    self.store.put_by_place("k/place", data_of(size), "t", told, IN_PARTS)
                self.assertIn(caught.exception.code, ("invalid_request", "too_large"))
                with self.assertRaises(ObjectError) as caught:
                    self.store.head("k/place")
                self.assertEqual(caught.exception.code, "not_found")
                self.assertEqual(self.store.uploads(), [])

    def test_any_text_is_a_key_of_its_own(self):
        keys = [key for key in KEYS if self.takes(key)]
        for key in keys:
            with self.subTest(key=key):
                self.store.put(key, key.encode(), "t")
        for key in keys:
            with self.subTest(key=key):
                self.assertEqual(self.store.get(key), key.encode())
                self.assertEqual(self.follow(key)[2], key.encode())
                self.store.delete(key)
        for key in keys:
            with self.assertRaises(ObjectError):
                self.store.head(key)

    def test_a_key_has_1_to_1024_bytes(self):
        for key in ("", "k" * 1025):
            with self.assertRaises(ObjectError) as caught:
                self.store.put(key, b"x")
            self.assertEqual(caught.exception.code, "invalid_request")

    def test_a_link_says_how_to_answer(self):
        self.store.put("k/link", b"0123456789")
        said = "attachment; filename=\"a b.txt\"; filename*=UTF-8''%C3%A4%20b.txt"
        status, headers, body = self.follow("k/link", said, "text/x-other")
        self.assertEqual((status, body), (200, b"0123456789"))
        self.assertEqual(headers["Content-Disposition"], said)
        self.assertEqual(headers["Content-Type"], "text/x-other")

    def test_a_link_holds_for_its_object_and_time_alone(self):
        self.store.put("k/one", b"one")
        self.store.put("k/two", b"two")
        url = self.store.presign("k/one", 60)
        self.assertEqual(self.status_of(url), 200)
        self.assertEqual(self.status_of(url.replace("k/one", "k/two")), 403)
        self.assertEqual(self.status_of(url[:-1] + ("0" if url[-1] != "0" else "1")), 403)
        self.assertEqual(self.status_of(url.replace("=60&", "=61&").replace("expires=1", "expires=2")), 403)
        short = self.store.presign("k/one", 1)
        time.sleep(2.1)
        self.assertEqual(self.status_of(short), 403)
        for seconds in (0, 604801):
            with self.assertRaises(ObjectError):
                self.store.presign("k/one", seconds)

    def test_objects_are_listed_beneath_a_prefix(self):
        for key in ("l/a/1", "l/a/2", "l/b", "la/3", "l2"):
            self.store.put(key, b"x")
        self.assertEqual(sorted(self.store.list("l")), ["l/a/1", "l/a/2", "l/b"])
        self.assertEqual(sorted(self.store.list("l/a")), ["l/a/1", "l/a/2"])
        self.assertEqual(self.store.list("none"), [])
        self.assertLess({"l/b", "la/3", "l2"}, set(self.store.list("")))
        for key in self.store.list("l"):
            self.store.delete(key)
        self.assertEqual(self.store.list("l"), [])

    def test_it_is_there(self):
        self.store.ask("check")

    def takes(self, _key):
        return True


class DiskStore(Contract, unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="leasehold-objects-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.store = Store(["kind=disk", f"dir={self.dir}"])

    def link(self, url):
        """What a link says, once it holds."""
        parts = urllib.parse.urlsplit(url)
        self.assertEqual(parts.path[:9], "/objects/")
        key = urllib.parse.unquote(parts.path[9:])
        said = dict(urllib.parse.parse_qsl(parts.query))
        more = [said[name] for name in ("disposition", "content_type") if name in said]
        self.store.ask("link", key, said["expires"], said["signature"], *more)
        return key, said

    def status_of(self, url):
        try:
            self.link(url)
        except ObjectError as error:
            self.assertEqual(error.code, "forbidden")
            return 403
        return 200

    def follow(self, key, disposition=None, content_type=None):
        """As the gateway serves it."""
        more = [disposition, content_type] if disposition else []
        told_key, said = self.link(self.store.presign(key, 60, *more))
        self.assertEqual(told_key, key)
        headers = {
            "Content-Disposition": said.get("disposition"),
            "Content-Type": said.get("content_type"),
        }
        return 200, headers, self.store.get(told_key)

    def object_files(self):
        return [
            os.path.join(folder, name)
            for folder, _, names in os.walk(self.dir)
            for name in names
            if name.endswith(".obj")
        ]

    def test_bytes_that_changed_on_the_disk_are_not_answered(self):
        data = data_of(MIB)
        self.store.put("k/rot", data)
        (path,) = self.object_files()
        with open(path, "r+b") as file:
            file.seek(1000)
            file.write(b"rot")
        done = self.store.run("get", "k/rot")
        self.assertIn(b"sum differs", done.stderr)
        self.assertLess(len(done.stdout), len(data))

    def test_a_cut_file_is_no_object(self):
        self.store.put("k/cut", data_of(1000))
        (path,) = self.object_files()
        os.truncate(path, os.path.getsize(path) - 1)
        with self.assertRaises(ObjectError) as caught:
            self.store.head("k/cut")
        self.assertEqual(caught.exception.code, "internal")

    def test_no_key_leaves_the_directory(self):
        for key in ("../out", "/etc/x", "a/../../out"):
            self.store.put(key, b"x")
        self.assertEqual(len(self.object_files()), 3)
        self.assertFalse(os.path.exists(os.path.join(os.path.dirname(self.dir), "out.obj")))

    def test_directories_go_with_their_last_object(self):
        self.store.put("a/b/c/one", b"1")
        self.store.put("a/b/two", b"2")
        self.store.delete("a/b/c/one")
        self.assertEqual(self.store.get("a/b/two"), b"2")
        self.assertFalse(os.path.exists(os.path.join(self.dir, "a/b/c")))
        self.store.delete("a/b/two")
        self.assertFalse(os.path.exists(os.path.join(self.dir, "a")))

    def test_what_a_killed_process_left_is_gone_at_the_next_start(self):
        self.store.put("k/kept", b"1")
        left = os.path.join(self.dir, ".new", "left-over")
        with open(left, "wb") as file:
            file.write(b"half")
        self.store.ask("check")
        self.assertFalse(os.path.exists(left))
        self.assertEqual(self.store.get("k/kept"), b"1")

    def test_it_is_readable_to_nobody_else(self):
        self.store.put("k/private", b"1")
        for folder, names, leaves in os.walk(self.dir):
            for name in (*names, *leaves):
                mode = os.stat(os.path.join(folder, name)).st_mode
                self.assertEqual(mode & 0o077, 0, name)


class S3Contract(Contract):
    """What is beyond the disk: uploads that outlive a process, signatures, buckets."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.Server()
        cls.addClassCleanup(cls.server.stop)
        cls.server.start()
        cls.server.client.make_bucket(BUCKET)

    def setUp(self):
        self.store = Store(self.server.args(BUCKET))

    def status_of(self, url):
        return fetch(url)[0]

    def follow(self, key, disposition=None, content_type=None):
        more = [disposition, content_type] if disposition else []
        return fetch(self.store.presign(key, 60, *more))

    def test_a_link_serves_ranges(self):
        self.store.put("k/link-range", b"0123456789")
        url = self.store.presign("k/link-range", 60)
        self.assertEqual(fetch(url, headers={"Range": "bytes=2-4"})[2], b"234")
        self.assertEqual(fetch(url, "HEAD")[0], 403)

    def test_a_link_is_signed_for_the_public_endpoint(self):
        more = ["public_endpoint=https://S3.Example.org:443"]
        url = self.store.ask("presign", "k", "60", more=more).decode()
        self.assertTrue(url.startswith(f"https://s3.example.org/{BUCKET}/k?"), url)

    def test_an_upload_of_a_killed_process_is_found_and_given_up(self):
        data = data_of(11 * MIB)
        done = self.store.run("put", "k/killed", "t", data=data, more=[*IN_PARTS, "begun=kill"])
        self.assertLess(done.returncode, 0)
        self.assertEqual(self.store.uploads("other/"), [])
        (upload,) = self.store.uploads("k/")
        self.assertEqual(upload["key"], "k/killed")
        self.assertIn(upload["upload_id"], done.stderr.decode())
        self.assertLess(abs(upload["started_at"] / 1000 - time.time()), 120)
        self.store.ask("abort", upload["key"], upload["upload_id"])
        self.assertEqual(self.store.uploads(), [])
        self.assertEqual(self.server.client.uploads(BUCKET), 0)
        self.store.put("k/killed", data, more=IN_PARTS)
        self.assertEqual(len(self.store.get("k/killed")), len(data))
        self.store.delete("k/killed")

    def test_a_wrong_secret_is_refused_and_not_told(self):
        store = Store(self.server.args(BUCKET, secret="not-the-secret"))
        with self.assertRaises(ObjectError) as caught:
            store.put("k/secret", b"x")
        self.assertEqual(caught.exception.code, "object_store_unavailable")
        self.assertIn("SignatureDoesNotMatch", str(caught.exception))
        self.assertNotIn("not-the-secret", str(caught.exception))

    def test_a_missing_bucket_is_no_missing_object(self):
        store = Store(self.server.args("no-such-bucket"))
        for command in (("check",), ("head", "k"), ("get", "k"), ("del", "k")):
            with self.assertRaises(ObjectError) as caught:
                store.ask(*command)
            self.assertEqual(caught.exception.code, "object_store_unavailable", command)

    def test_a_check_says_what_is_wrong(self):
        for what, wrong in {
            "no such bucket": {"bucket": "no-such-bucket"},
            "the secret of this access_key": {"secret": "wrong"},
            self.said_of_a_stranger: {"access_key": "nobody"},
            "does not answer": {"endpoint": "http://127.0.0.1:9"},
            **self.wrong_regions,
        }.items():
            with self.subTest(what=what):
                with self.assertRaises(ObjectError) as caught:
                    args = self.server.args(**{"bucket": BUCKET, "backoff_ms": 1, **wrong})
                    Store(args).ask("check")
                self.assertEqual(caught.exception.code, "object_store_unavailable")
                self.assertIn(what, str(caught.exception))

    def test_nobody_listening_is_told(self):
        store = Store(
            self.server.args(BUCKET, endpoint="http://127.0.0.1:9", tries=2, backoff_ms=1)
        )
        with self.assertRaises(ObjectError) as caught:
            store.put("k/nobody", b"x")
        self.assertEqual(caught.exception.code, "object_store_unavailable")

    def test_many_at_once(self):
        done = self.store.ask("many", "many/", "40", "2000", "8")
        self.assertIn(b'"failed": 0', done)
        self.assertEqual(len(self.server.client.keys(BUCKET, "many/")), 40)
        for i in range(40):
            self.server.client.ask("DELETE", f"/{BUCKET}/many/{i}")


class RgwStore(S3Contract, unittest.TestCase):
    Server = Rgw
    wrong_regions = {}  # it takes any
    said_of_a_stranger = "knows no such access_key"

    def test_a_clock_that_is_off_is_corrected(self):
        for off_s in (1200, -3600):
            with self.subTest(off_s=off_s):
                store = Store(self.server.another(off_s=off_s)(BUCKET))
                store.put("k/skew", b"in time")
                self.assertEqual(store.get("k/skew"), b"in time")
                self.assertEqual(store.head("k/skew")["size_bytes"], 7)
                # A link is made before it is known. RGW asks whether its time is over, not whether it has begun.
                self.assertEqual(fetch(store.presign("k/skew", 60))[0], 403 if off_s > 0 else 200)
                store.put("k/skew", data_of(6 * MIB), more=IN_PARTS)
                store.delete("k/skew")

    def test_a_list_of_many_pages_is_whole(self):
        short = self.server.another("--rgw_max_listing_results=3")
        keys = [f"pages/{n}&<>" for n in range(8)]
        for key in keys:
            self.store.put(key, b"x")
        self.assertEqual(sorted(Store(short(BUCKET)).list("pages")), keys)

    def test_real_503s_are_waited_out(self):
        slow = self.server.another("--rgw_max_concurrent_requests=2")
        store = Store(slow(BUCKET, tries=20, backoff_ms=50))
        self.assertIn(b'"failed": 0', store.ask("many", "slow/", "60", "300000", "12"))
        self.assertEqual(len(self.server.client.keys(BUCKET, "slow/")), 60)

    def test_virtual_hosts(self):
        # Nobody resolves the name here: what is on the wire is seen in a link.
        store = Store(self.server.args(BUCKET, endpoint="http://s3.localhost:80", path_style=0))
        url = store.presign("a b", 60)
        self.assertTrue(url.startswith(f"http://{BUCKET}.s3.localhost/a%20b?"), url)

    def test_a_bucket_with_versions_keeps_none_of_a_deleted_object(self):
        client = self.server.client
        client.make_bucket("versions")
        on = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
        status, _, body = client.ask("PUT", "/versions", [("versioning", "")], body=on)
        self.assertEqual(status, 200, body)
        store = Store(self.server.args("versions"))
        for key in ("k/old", "k/old-neighbour"):
            store.put(key, b"1")
            store.put(key, b"2")
        store.delete("k/old")
        _, _, body = client.ask("GET", "/versions", [("versions", "")])
        self.assertNotIn(b"<Key>k/old</Key>", body)
        self.assertEqual(body.count(b"<Key>k/old-neighbour</Key>"), 2)


class SwiftStore(S3Contract, unittest.TestCase):
    Server = Swift
    wrong_regions = {"the region is wrong": {"region": "eu-north-7"}}
    said_of_a_stranger = "is it the secret of this access_key"

    def takes(self, key):
        return "\\" not in key

    def test_a_wrong_region_is_told(self):
        store = Store(self.server.args(BUCKET, region="garage"))
        with self.assertRaises(ObjectError) as caught:
            store.put("k/region", b"x")
        self.assertIn("AuthorizationHeaderMalformed", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
