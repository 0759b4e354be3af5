"""Nothing of an artifact is lost, leaked or counted twice, whatever is killed at which step of an
upload to Ceph RGW, and whatever the store answers meanwhile."""

import contextlib
import hashlib
import http.client
import os
import signal
import threading
import time
import unittest

from artifact_stores import ArtifactsInBucket
from artifacts import BUCKET, MIB, SOON, SOON_OVER, data_of, fetch
from metrics import Metrics
from s3_proxy import DROP, Answer, FaultProxy
from waiting import wait_for


def setUpModule():
    ArtifactsInBucket.start_server()


class Steps(ArtifactsInBucket):
    """The gateway is killed at each step of an upload, seen by a proxy before the real store."""

    def configure(self):
        self.proxy = FaultProxy(self.server.port)
        self.proxy.__enter__()
        self.addCleanup(self.proxy.__exit__)
        super().configure(self.proxy.port)

    def kill_at(self, step, answered):
        """Puts an artifact of three parts; SIGKILL before this step is forwarded, or before its
        answer reaches the gateway. Then a new life, and what it makes of it."""
        killed = threading.Event()

        def kill(request, *_):
            of_object = "/" in request.path.partition("?")[0].strip("/")  # the bucket is asked for, too
            if request.step == step and of_object and not killed.is_set():
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
            return None if between or self.server.client.uploads(BUCKET) else (items,)

        return wait_for(self, "healed", look)[0]

    def assert_consistent(self, items, before):
        self.assertEqual(len(self.objects()), len(items))
        self.assertEqual(self.used(), before + sum(a["size_bytes"] for a in items))
        for artifact in items:
            self.assertEqual(artifact["sha256"], hashlib.sha256(data_of(17 * MIB)).hexdigest())
            body = fetch(self.link(artifact)["url"])[2]
            self.assertEqual(hashlib.sha256(body).hexdigest(), artifact["sha256"])

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
            wait_for(self, "deleted", lambda: self.get(artifact)["state"] == "deleted")
            artifact = self.put(b"x")
        self.assertEqual(len(self.objects()), 1)

    @contextlib.contextmanager
    def an_upload(self, at_part):
        """One that has begun to send its parts, each after `at_part`; yields what it is answered."""
        begun, answers = threading.Event(), []

        def slow(request):
            if request.step == "part":
                begun.set()
                at_part()

        def put():
            try:
                answers.append(self.put(data_of(17 * MIB), status=(201, 503))["size_bytes"])
            except (OSError, KeyError, http.client.HTTPException):
                answers.append(None)

        self.proxy.rule = slow
        thread = threading.Thread(target=put)
        thread.start()
        self.assertTrue(begun.wait(30))
        yield answers
        thread.join()
        self.proxy.rule = None

    def test_a_stop_waits_for_an_upload_that_goes_on(self):
        self.make(SOON)
        before = self.used()
        with self.an_upload(lambda: time.sleep(0.5)) as answers:
            self.assertEqual(self.gateway.stop(), 0)
        self.assertEqual(answers, [17 * MIB])
        self.gateway.start()
        items = self.healed()
        self.assertEqual([a["state"] for a in items], ["stored"])
        self.assert_consistent(items, before)

    def test_a_stop_gives_up_an_upload_that_hangs_and_leaves_nothing(self):
        self.make(SOON, SOON_OVER)
        before = self.used()
        hangs = threading.Event()
        with self.an_upload(lambda: hangs.wait(60)) as answers:
            self.assertEqual(self.gateway.stop(), 0)
            self.assertIn("abort", self.proxy.steps())
            hangs.set()
        self.assertEqual(answers, [None])
        self.gateway.start()
        self.assertEqual(self.healed(), [])
        self.assert_consistent([], before)

    def test_a_stop_waits_for_no_store_that_is_silent(self):
        self.make(env=SOON_OVER)
        hangs = threading.Event()
        self.addCleanup(hangs.set)
        self.proxy.rule = lambda _: hangs.wait(60) and DROP
        asked = len(self.proxy.steps())
        self.gateway.restart()
        wait_for(self, "asked", lambda: len(self.proxy.steps()) > asked)
        self.assertEqual(self.gateway.stop(), 0)
        self.assertFalse(hangs.is_set())
        self.gateway.start()

    def readiness(self):
        status, _, answer = self.gateway.rest("GET", "//readyz", key="")
        (check,) = (c for c in answer["checks"] if c["name"] == "objects")
        self.assertEqual(status, 200 if check["ok"] else 503)
        return check

    def test_readiness_tells_whether_the_store_serves_and_what_is_wrong(self):
        self.make()
        self.assertEqual(wait_for(self, "ready", lambda: self.readiness()["ok"]), True)
        self.assertEqual(self.readiness()["detail"], "s3")
        self.gateway.stop()
        self.gateway.edit_config({"objects": {"bucket": "not-there"}})
        self.gateway.start()  # chats and sandboxes need no bucket
        (told,) = wait_for(self, "told", lambda: self.gateway.log_lines("object_store_away"))
        self.assertIn("no such bucket", told["detail"])
        check = self.readiness()
        self.assertEqual((check["ok"], check["detail"]), (False, "s3: " + told["detail"]))
        self.put(b"x", status=503)
        self.server.client.make_bucket("not-there")
        wait_for(self, "back", lambda: self.readiness()["ok"])
        self.assertEqual(Metrics.of(self.gateway)["leasehold_object_store_up"], 1)
        self.assertTrue(self.gateway.log_lines("object_store_back"))

    def test_a_store_that_is_away_is_told_and_leaves_nothing(self):
        self.make(SOON)
        before = self.used()
        self.proxy.rule = lambda _: Answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
        answer = self.put(b"x", status=503)
        self.assertEqual(answer["code"], "object_store_unavailable")
        self.proxy.rule = None
        wait_for(self, "given up", lambda: self.used() == before)
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
