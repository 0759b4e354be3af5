"""The S3 store on bad days: a proxy before a real Ceph RGW fails in all the ways that S3 does, and what
was put is there once, whole, or not at all."""

import email.utils
import hashlib
import time
import unittest

from objects_tool import ObjectError, Store
from s3_proxy import DROP, LOSE, Answer, Cut, Drip, FaultProxy
from s3_servers import start_rgw

BUCKET = "faults"
MIB = 1 << 20
PARTS = ["part_bytes=5242880", "multipart_at=5242880", "parallel=2"]


def data_of(size):
    return (hashlib.sha512(b"faults").digest() * (size // 64 + 1))[:size]


def error(status, code, **headers):
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>m</Message></Error>'.encode()
    return Answer(status, headers, body)


def at_step(step, *answers):
    """Rule: what to do with the first, second … request of this step; then nothing."""
    left = list(answers)
    return lambda request: left.pop(0) if request.step == step and left else None


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = start_rgw(BUCKET)

    def setUp(self):
        self.proxy = FaultProxy(self.server.port)
        self.proxy.__enter__()
        self.addCleanup(self.proxy.__exit__)
        endpoint = f"http://127.0.0.1:{self.proxy.port}"
        self.store = Store(self.server.args(BUCKET, endpoint=endpoint, backoff_ms=5, tries=4))

    def tearDown(self):
        self.assertEqual(self.server.client.uploads(BUCKET), 0)

    def assert_put(self, size=100, more=()):
        data = data_of(size)
        info = self.store.put("k", data, more=more)
        self.assertEqual(info["sha256"], hashlib.sha256(data).hexdigest())
        self.proxy.rule = None
        self.assertEqual(self.store.get("k"), data)

    def assert_not_put(self, code="object_store_unavailable", size=100, more=()):
        self.server.client.ask("DELETE", f"/{BUCKET}/k")
        with self.assertRaises(ObjectError) as caught:
            self.store.put("k", data_of(size), more=more)
        self.assertEqual(caught.exception.code, code)
        self.proxy.rule = None
        with self.assertRaises(ObjectError) as gone:
            self.store.head("k")
        self.assertEqual(gone.exception.code, "not_found")
        return str(caught.exception)

    def test_what_passes_is_tried_again(self):
        for status, code in (
            (500, "InternalError"),
            (502, "Bad"),
            (503, "SlowDown"),
            (504, "Gateway"),
            (429, "TooManyRequests"),
            (400, "RequestTimeout"),
        ):
            with self.subTest(status=status):
                self.proxy.rule = at_step("put", error(status, code), error(status, code))
                self.assert_put()

    def test_what_does_not_pass_is_not(self):
        self.proxy.rule = at_step("put", *[error(403, "AccessDenied")] * 9)
        said = self.assert_not_put()
        self.assertIn("AccessDenied", said)
        self.assertEqual(self.proxy.steps().count("put"), 1)

    def test_it_gives_up_after_its_tries(self):
        self.proxy.rule = at_step("put", *[error(503, "SlowDown")] * 9)
        self.assertIn("503 SlowDown", self.assert_not_put())
        self.assertEqual(self.proxy.steps().count("put"), 4)

    def test_a_full_store_is_told(self):
        self.proxy.rule = at_step("put", error(507, "InsufficientStorage"))
        self.assert_not_put("storage_full")

    def test_retry_after_is_honoured(self):
        headers = {"Retry-After": "1"}
        self.proxy.rule = at_step("put", error(503, "SlowDown", **headers))
        seen = []
        self.proxy.after = lambda request, _: seen.append(time.monotonic())
        began = time.monotonic()
        self.store.put("k", b"x")
        self.assertGreaterEqual(seen[0] - began, 1)

    def test_a_new_try_is_made_on_a_new_connection(self):
        self.proxy.rule = at_step("put", error(503, "SlowDown"))
        self.store.put("k", b"x")
        first, second = (r.connection for r in self.proxy.requests if r.step == "put")
        self.assertNotEqual(first, second)

    def test_a_connection_that_breaks_is_replaced(self):
        for told in (DROP, LOSE):
            with self.subTest(told=told):
                self.proxy.rule = at_step("put", told, told)
                self.assert_put(200_000)

    def test_a_kept_connection_that_died_is_no_failure(self):
        self.proxy.after = lambda request, _: self.proxy.hang_up() if request.n % 3 == 0 else None
        self.assertIn(b'"failed": 0', self.store.ask("many", "dead/", "12", "9000", "1"))
        self.proxy.after = None
        self.assertEqual(len(self.server.client.keys(BUCKET, "dead/")), 12)

    def test_a_silent_store_is_left_after_a_while(self):
        def be_silent(request):
            if request.n == 1:
                time.sleep(3)
                return DROP
            return None

        self.proxy.rule = be_silent
        self.store.put("k", b"x", more=["stall_ms=1500"])
        self.assertEqual(self.proxy.steps()[:2], ["put", "put"])

    def test_what_is_read_by_place_is_sent_again(self):
        for step, size, times in (("put", 3 * MIB, 4), ("part", 18 * MIB, 4 + 3)):
            with self.subTest(step=step):
                data = data_of(size)
                self.proxy.requests.clear()
                self.proxy.rule = at_step(step, error(503, "SlowDown"), DROP, LOSE)
                info = self.store.put_by_place("k", data, more=PARTS)
                self.assertEqual(info["sha256"], hashlib.sha256(data).hexdigest())
                self.assertEqual(self.proxy.steps().count(step), times)
                self.assertEqual(self.store.get("k"), data)

    def test_what_is_read_by_place_begins_anew_on_a_kept_connection_that_died(self):
        data = data_of(11 * MIB)
        whole_and_gone = Cut(MIB)
        self.proxy.rule = at_step("initiate", whole_and_gone)
        self.store.put_by_place("k", data, more=PARTS)
        self.assertEqual(self.store.get("k"), data)

    def change_on_the_way(self, request):
        if request.step in ("put", "part"):
            request.body = b"!" + request.body[1:]

    def test_what_was_changed_on_the_way_is_refused_where_it_is_signed(self):
        for more in (["signing=0"], ["signing=1"]):
            for put in (self.store.put, self.store.put_by_place):
                for size in (3000, 11 * MIB):
                    with self.subTest(more=more, put=put.__name__, size=size):
                        self.proxy.rule = self.change_on_the_way
                        with self.assertRaises(ObjectError) as caught:
                            put("changed", data_of(size), more=[*PARTS, *more])
                        self.assertIn("SHA256Mismatch", str(caught.exception))
                        self.proxy.rule = None
                        with self.assertRaises(ObjectError):
                            self.store.head("changed")

    def test_bodies_are_signed_as_configured(self):
        def sums(signing, size):
            self.proxy.requests.clear()
            self.store.put_by_place("k", data_of(size), more=[*PARTS, f"signing={signing}"])
            sent = [r for r in self.proxy.requests if r.step in ("put", "part")]
            return {
                "UNSIGNED-PAYLOAD": "none",
                hashlib.sha256(sent[0].body).hexdigest(): "its own",
            }[{name.lower(): value for name, value in sent[0].headers.items()}["x-amz-content-sha256"]]

        for size in (3000, 6 * MIB):
            self.assertEqual([sums(n, size) for n in (0, 1, 2)], ["its own", "its own", "none"])

    def test_parts_that_fail_are_sent_again(self):
        self.proxy.rule = at_step("part", error(503, "SlowDown"), DROP, LOSE, error(500, "X"))
        self.assert_put(18 * MIB, PARTS)
        self.assertEqual(self.proxy.steps().count("part"), 4 + 4)

    def test_an_upload_whose_parts_do_not_go_is_given_up(self):
        self.proxy.rule = at_step("part", *[error(403, "AccessDenied")] * 9)
        self.assert_not_put(size=18 * MIB, more=PARTS)
        self.assertIn("abort", self.proxy.steps())
        self.assertNotIn("complete", self.proxy.steps())

    def test_no_upload_is_begun_where_the_store_names_none(self):
        self.proxy.rule = at_step("initiate", Answer(200, {}, b"<Nothing/>"))
        self.assert_not_put(size=6 * MIB, more=PARTS)

    def test_an_error_in_a_200_is_an_error(self):
        error_in_200 = error(200, "InternalError")
        error_in_200.body = b"\n\n   " + error_in_200.body
        self.proxy.rule = at_step("complete", error_in_200, error_in_200)
        self.assert_put(11 * MIB, PARTS)
        self.assertEqual(self.proxy.steps().count("complete"), 3)

    def test_an_upload_or_bucket_that_is_gone_is_no_missing_object(self):
        for step, size in (("put", 100), ("initiate", 6 * MIB), ("part", 6 * MIB), ("complete", 6 * MIB)):
            for code in ("NoSuchUpload", "NoSuchBucket"):
                with self.subTest(step=step, code=code):
                    self.proxy.rule = at_step(step, *[error(404, code)] * 9)
                    self.assertIn(code, self.assert_not_put(size=size, more=PARTS))

    def test_an_answer_that_is_too_long_is_the_stores_fault(self):
        flood = Answer(503, {}, b"<Error>" + b"x" * 2 * MIB)
        heads = Answer(200, {f"X-{n}": "x" * 4000 for n in range(20)})
        for told in (flood, heads):
            self.proxy.rule = at_step("put", told)
            self.assert_put()
            self.proxy.rule = at_step("put", *[told] * 9)
            self.assert_not_put()

    def test_an_answer_that_drips_is_not_waited_for_without_end(self):
        self.proxy.rule = at_step("put", *[Drip(0.02, 1500)] * 9)
        self.assertIn("timed out", self.assert_not_put(more=["stall_ms=300", "tries=1"]))

    def test_a_part_with_another_mark_than_the_stores_is_no_part(self):
        def falsify(request, answer):
            if request.step == "part":
                del answer.headers[next(h for h in answer.headers if h.lower() == "etag")]
                answer.headers.update(mark)

        for mark in ({"ETag": '"&<wrong>"'}, {}):
            with self.subTest(mark=mark):
                self.proxy.after = falsify
                self.assert_not_put(size=11 * MIB, more=PARTS)

    def test_an_object_without_a_length_is_no_proof(self):
        def take_away(request, answer):
            if request.step == "head":
                answer.headers = {n: v for n, v in answer.headers.items() if n.lower() != "content-length"}

        self.proxy.after = take_away
        with self.assertRaises(ObjectError) as caught:
            self.store.put("k", data_of(6 * MIB), more=PARTS)
        self.assertEqual(caught.exception.code, "object_store_unavailable")

    def test_garbage_begins_and_completes_nothing(self):
        for body in (b"<R><UploadId>cut", b"\0\xff" * 999, b"<UploadId></UploadId>", b""):
            with self.subTest(body=body[:20]):
                self.proxy.rule = at_step("initiate", Answer(200, {}, body))
                self.assert_not_put(size=6 * MIB, more=PARTS)
                self.proxy.rule = at_step("complete", *[Answer(200, {}, body)] * 9)
                self.assert_not_put(size=6 * MIB, more=PARTS)

    def test_it_follows_to_no_place_that_is_none(self):
        for place in ("http://", "http://[::/k", "//x/k", "ftp://x/k", "http://a@127.0.0.1/k", "http://h:99999/k"):
            with self.subTest(place=place):
                self.proxy.rule = at_step("put", *[Answer(307, {"Location": place})] * 9)
                self.assert_not_put()

    def test_a_completion_whose_answer_was_lost_is_proven_by_the_object(self):
        self.proxy.rule = at_step("complete", LOSE)
        self.assert_put(11 * MIB, PARTS)
        self.assertIn("head", self.proxy.steps())

    def test_a_completion_is_not_believed_without_the_object(self):
        done = b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
        self.proxy.rule = at_step("complete", *[Answer(200, {}, done)] * 99)
        self.assertIn("was not completed", self.assert_not_put(size=11 * MIB, more=PARTS))

    def test_an_older_object_of_the_key_is_no_proof(self):
        self.store.put("k", data_of(11 * MIB), "older", more=PARTS)
        self.proxy.rule = at_step("complete", *[error(404, "NoSuchUpload")] * 99)
        with self.assertRaises(ObjectError):
            self.store.put("k", data_of(11 * MIB), "newer", more=PARTS)
        self.proxy.rule = None
        self.assertEqual(self.store.head("k")["token"], "older")

    def test_a_clock_that_the_store_calls_wrong_is_set_by_its_own_once(self):
        ahead = email.utils.formatdate(time.time() + 5, usegmt=True)
        skewed = error(403, "RequestTimeTooSkewed", Date=ahead)
        self.proxy.rule = at_step("put", skewed)
        self.assert_put()
        self.proxy.rule = at_step("put", skewed, skewed)
        self.assert_not_put()

    def test_it_follows_to_another_host_and_signs_for_that(self):
        real = f"http://127.0.0.1:{self.server.port}/{BUCKET}/k%20%2B"
        for status in (301, 307):
            with self.subTest(status=status):
                self.proxy.rule = at_step("put", Answer(status, {"Location": real}))
                self.store.put("k +", data_of(3000))
                self.assertEqual(self.store.get("k +"), data_of(3000))

    def test_it_follows_where_only_the_body_says_where(self):
        host = f"<Error><Endpoint>127.0.0.1:{self.server.port}</Endpoint></Error>".encode()
        self.proxy.rule = at_step("get", Answer(301, {}, host))
        self.store.put("k", b"moved")
        self.assertEqual(self.store.get("k"), b"moved")

    def test_it_does_not_follow_for_ever(self):
        here = {"Location": f"http://127.0.0.1:{self.proxy.port}/{BUCKET}/k"}
        self.proxy.rule = at_step("put", *[Answer(307, here)] * 99)
        self.assert_not_put()
        self.assertLess(self.proxy.steps().count("put"), 6)

    def test_a_get_that_breaks_off_goes_on_where_it_was(self):
        data = data_of(2 * MIB)
        self.store.put("k", data)
        self.proxy.rule = at_step("get", Cut(MIB), Cut(MIB // 2))
        self.assertEqual(self.store.get("k"), data)
        resumed = [r.headers for r in self.proxy.requests if r.step == "get"][1:]
        self.assertEqual(len(resumed), 2)
        for headers in resumed:
            self.assertIn("If-Match", headers)
            self.assertIn("Range", headers)

    def test_a_get_that_breaks_off_ends_when_the_object_is_another(self):
        self.store.put("k", data_of(2 * MIB))

        def replace(request, _):
            if request.step == "get" and "If-Match" not in request.headers:
                self.server.client.ask("PUT", f"/{BUCKET}/k", body=b"y" * (2 * MIB))

        self.proxy.after = replace
        self.proxy.rule = at_step("get", Cut(MIB))
        done = self.store.run("get", "k")
        self.assertEqual(done.returncode, 1)
        self.assertNotIn(b"y", done.stdout)

    def test_a_list_that_does_not_go_on_ends(self):
        cut = "<R><IsTruncated>true</IsTruncated>{}</R>"
        here = "<NextContinuationToken>t</NextContinuationToken>"
        marks = "<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>"
        for command, next_page in (("list", ""), ("list", here), ("uploads", ""), ("uploads", marks)):
            with self.subTest(command=command, next_page=next_page):
                page = Answer(200, {}, cut.format(next_page).encode())
                self.proxy.rule = lambda _, page=page: page
                with self.assertRaises(ObjectError) as caught:
                    self.store.ask(command, "p")
                self.assertEqual(caught.exception.code, "object_store_unavailable")
                self.assertIn("list", str(caught.exception))

    def test_a_get_that_never_brings_anything_ends(self):
        self.store.put("k", data_of(MIB))
        self.proxy.rule = at_step("get", *[Cut(0)] * 99)
        with self.assertRaises(ObjectError) as caught:
            self.store.get("k")
        self.assertEqual(caught.exception.code, "object_store_unavailable")


if __name__ == "__main__":
    unittest.main()
