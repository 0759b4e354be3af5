#!/usr/bin/python3
"""Images that the engine has to pull first: told of on their way, shared, in nobody's way, given up
when nobody waits for them, and clear errors for what does not come. The registry is a stand-in that
speaks the real protocol, the engine pulls from it."""

import datetime
import os
import pty
import select
import socket
import subprocess
import threading
import time
import unittest
import uuid

from bot import Bot
from docker import Docker, busybox, tar_of
from engine_proxy import EngineProxy
from gateway import BIN
from registry import Registry
from test_docker import ECHO
from waiting import PATIENCE_S, wait_for

WAITERS = 2 * os.cpu_count() + 1  # one more than the threads that start sandboxes


class Pulls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.docker = Docker(options=["--max-download-attempts=1"])
        cls.addClassCleanup(cls.docker.cleanup)
        cls.docker.image("lh/busybox", busybox())

    def setUp(self):
        # No layer that the engine has from another test.
        more = [tar_of({f"more{i}": os.urandom(200000)}) for i in range(2)]
        self.registry = Registry([tar_of({**busybox(), "own": os.urandom(8)}), *more], {"Cmd": ECHO})
        self.addCleanup(self.registry.close)
        self.given_up_before = self.given_up()
        self.image = f"{self.registry.address}/far/{self.id().rpartition('_')[2].lower()}:7"

    def start(self, url=None, **docker):
        profiles = [
            {"name": "default", "command": ["/run/leasehold/demo-agent"]},
            {"name": "far", "image": self.image},
        ]
        self.gateway = self.docker.gateway(self, {"profiles": profiles, "docker": docker}, url=url)

    def begin(self):
        """A session that waits for the image."""
        chat = self.gateway.new_chat()["chat_id"]
        body = {"chat_id": chat, "profile": "far", "wait": False}
        return self.gateway.expect(202, "POST", "/sandboxes", body)["sandbox"]["session_id"]

    def session(self, session_id):
        return self.gateway.expect(200, "GET", f"/sandboxes/{session_id}")

    def wait_status(self, session_id, status):
        wait_for(self, status, lambda: self.session(session_id)["status"] == status)
        return self.session(session_id)

    def wait_pulling(self, session_id):
        return wait_for(
            self,
            "layers on their way",
            lambda: self.session(session_id).get("progress", {}).get("bytes_done"),
        )

    def layers(self, session_id):
        return self.session(session_id).get("progress", {}).get("layers")

    def stop(self, session_id, **members):
        return self.gateway.expect(200, "POST", f"/sandboxes/{session_id}/stop", members)

    def refused(self):
        chat = self.gateway.new_chat()["chat_id"]
        body = {"chat_id": chat, "profile": "far"}
        answer = self.gateway.expect(503, "POST", "/sandboxes", body)
        self.assertEqual(answer["code"], "sandbox_start_failed")
        self.assert_nothing_left()
        return answer["detail"]

    def assert_nothing_left(self):
        left = [n for n in os.listdir(self.gateway.run_dir) if len(n) == 36]
        self.assertEqual((self.docker.of_gateway(self.gateway), left), ([], []))

    def given_up(self):
        """Pulls, as the engine itself tells; it may keep their connections to the registry."""
        with open(self.docker.log_file, encoding="utf-8") as text:
            return text.read().count("Not continuing with pull after error: context canceled")

    def wait_given_up(self):
        wait_for(self, "the end of the pull", lambda: self.given_up() > self.given_up_before)
        self.given_up_before = self.given_up()

    def has_image(self):
        return self.docker.request("GET", f"/images/{self.image}/json")[0] == 200

    def test_the_way_of_an_image_is_shown_and_each_layer_told(self):
        self.start()
        self.registry.hold()
        bot = Bot(self, self.gateway, key=self.gateway.admin_key)
        bot.subscribe("all")
        session = self.begin()
        wait_for(self, "all layers", lambda: self.layers(session) == 3)
        self.wait_pulling(session)
        shown = self.session(session)["progress"]
        self.assertEqual((shown["image"], shown["layers_done"]), (self.image, 0))
        self.assertLess(shown["bytes_done"], shown["bytes"])
        told = self.gateway.ctl("sandbox", "get", session).stdout
        self.assertRegex(told, r"(?m)^progress\.layers +3$")
        self.registry.let_go()
        self.assertNotIn("progress", self.wait_status(session, "running"))
        events = [e for e in bot.events_until("sandbox.running") if e["data"]["session_id"] == session]
        pulling = [e["data"] for e in events if e["event"] == "sandbox.pulling"]
        self.assertEqual([e["event"] for e in events],
                         ["sandbox.starting", *["sandbox.pulling"] * 3, "sandbox.running"])  # fmt: skip
        self.assertEqual([p["layers_done"] for p in pulling], [1, 2, 3])
        self.assertEqual({(p["image"], p["layers"]) for p in pulling}, {(self.image, 3)})
        self.assertEqual(len({p["layer"] for p in pulling}), 3)

    def test_those_who_need_an_image_share_its_pull_and_hold_up_nobody(self):
        pulls = []
        proxy = EngineProxy(self, self.docker.socket)
        proxy.rule = lambda method, path: pulls.append(path) if "/images/create" in path else None
        self.start(url=proxy.url)
        self.registry.hold()
        sessions = [self.begin() for _ in range(WAITERS)]
        for session in sessions:
            wait_for(self, "its wait", lambda s=session: "progress" in self.session(s))
        _, grant = self.gateway.open(self.gateway.new_chat()["chat_id"], lease={})
        self.gateway.connect(grant).close()
        self.assertEqual(self.stop(sessions[0], reason="enough")["reason"], "enough")
        self.registry.let_go()
        for session in sessions[1:]:
            self.wait_status(session, "running")
        self.assertEqual(len(pulls), 1)
        self.assertEqual(self.session(sessions[0])["status"], "stopped")

    def test_another_open_that_does_not_wait_is_answered_during_the_pull(self):
        self.start()
        self.registry.hold()
        session = self.begin()
        self.wait_pulling(session)
        chat = self.session(session)["chat_id"]
        body = {"chat_id": chat, "profile": "far", "wait": False}
        for key in ({}, {"headers": {"Idempotency-Key": "again"}}, {"headers": {"Idempotency-Key": "again"}}):
            second = self.gateway.expect(202, "POST", "/sandboxes", body, **key)["sandbox"]
            self.assertEqual((second["session_id"], second["status"]), (session, "starting"))
        for other in ({"profile": "default"}, {"env": {"A": "b"}}):
            answer = self.gateway.expect(409, "POST", "/sandboxes", {**body, **other})
            self.assertEqual(answer["code"], "conflict")
        stranger = self.gateway.new_key(allowed_users=[str(uuid.uuid4())])
        self.assertEqual(self.gateway.rest("POST", "/sandboxes", body, key=stranger)[0], 404)
        self.assertIn("progress", self.session(session))
        self.registry.let_go()
        self.wait_status(session, "running")
        reused = self.gateway.expect(200, "POST", "/sandboxes", body)["sandbox"]
        self.assertEqual(reused["session_id"], session)
        self.assertEqual(len(self.docker.of_gateway(self.gateway)), 1)

    def test_one_that_wants_another_idle_time_comes_behind_the_start_and_has_it(self):
        self.start()
        self.registry.hold()
        session = self.begin()
        self.wait_pulling(session)
        body = {"chat_id": self.session(session)["chat_id"], "wait": False, "idle_ttl_s": 7777}
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(self.gateway.expect(200, "POST", "/sandboxes", body))
        )
        asking.start()
        time.sleep(0.5)  # for it to come while the image is on its way
        self.assertEqual(answers, [])
        self.registry.let_go()
        asking.join(30)
        self.assertEqual([a["sandbox"]["session_id"] for a in answers], [session])
        until = datetime.datetime.fromisoformat(answers[0]["sandbox"]["expires_at"])
        self.assertGreater(until.timestamp(), time.time() + 3600)

    def test_a_stop_that_comes_before_the_pull_is_not_forgotten(self):
        proxy = EngineProxy(self, self.docker.socket)
        held = threading.Event()
        proxy.rule = lambda method, path: held.wait(PATIENCE_S) and None if "/images/" in path else None
        self.start(url=proxy.url)
        self.registry.hold()
        session = self.begin()
        self.assertNotIn("progress", self.session(session))
        threading.Timer(0.5, held.set).start()  # the stop has come by then
        self.assertEqual(self.stop(session)["status"], "stopped")
        self.assert_nothing_left()

    def test_a_stop_ends_the_pull_that_nobody_else_waits_for(self):
        self.start()
        self.registry.hold()
        chat = self.gateway.new_chat()["chat_id"]
        answers = []

        def wait_long():
            body = {"chat_id": chat, "profile": "far"}
            answers.append(self.gateway.rest("POST", "/sandboxes", body))

        waiting = threading.Thread(target=wait_long)
        waiting.start()
        found = wait_for(
            self,
            "the session",
            lambda: self.gateway.expect(200, "GET", f"/sandboxes?chat_id={chat}")["items"],
        )
        self.wait_pulling(found[0]["session_id"])
        other = self.gateway.new_key(allowed_users=[str(uuid.uuid4())])
        path = f"/sandboxes/{found[0]['session_id']}/stop"
        refusal = threading.Thread(
            target=lambda: answers.append(self.gateway.rest("POST", path, {}, key=other))
        )
        refusal.start()
        time.sleep(0.6)  # a stop that may not be would have ended the wait by now
        self.assertIn("progress", self.session(found[0]["session_id"]))
        stopped = self.stop(found[0]["session_id"])
        self.assertEqual((stopped["status"], stopped["reason"]), ("stopped", "stopped"))
        waiting.join(PATIENCE_S)
        refusal.join(PATIENCE_S)
        answers.sort(key=lambda answer: answer[0])
        self.assertEqual([answer[0] for answer in answers], [404, 503])
        self.assertEqual(answers[1][2]["code"], "sandbox_start_failed")
        self.assertIn("stopped", answers[1][2]["detail"])
        self.wait_given_up()
        self.assertFalse(self.has_image())
        self.assert_nothing_left()
        self.registry.let_go()
        self.gateway.open(chat, profile="far")

    def test_leasectl_shows_the_way_of_an_image_on_a_terminal(self):
        self.start()
        self.registry.hold()
        chat = self.gateway.new_chat()["chat_id"]
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        env = {**os.environ, "LEASEHOLD_URL": self.gateway.url}
        env["LEASEHOLD_KEY"] = self.gateway.admin_key
        with subprocess.Popen(
            [os.path.join(BIN, "leasectl"), "sandbox", "open", chat, "--profile", "far"],
            env=env, stdout=subprocess.PIPE, stderr=theirs, text=True,
        ) as process:  # fmt: skip
            os.close(theirs)
            seen = b""
            while b"image 0/3" not in seen:
                self.assertTrue(select.select([ours], [], [], 20)[0], seen)
                seen += os.read(ours, 4096)
            self.registry.let_go()
            shown = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 0)
        self.assertRegex(shown, r"status +running")

    def test_a_pull_that_hangs_is_given_up(self):
        self.start(pull_timeout_seconds=6)
        self.registry.hold()
        self.assertIn("was not pulled within 6 s", self.refused())
        self.wait_given_up()
        self.registry.let_go()
        self.gateway.open(self.gateway.new_chat()["chat_id"], profile="far")

    def test_what_does_not_come_whole_is_a_clear_error(self):
        self.start()
        layer = next(iter(self.registry.layers))
        wrong = {
            "an unknown image": ("/manifests/", 404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}'),
            "no manifest": ("/manifests/", 200, b"<html>"),
            "another manifest": ("/manifests/", 200, b'{"schemaVersion":9}'),
            "a registry out of order": ("/manifests/", 500, b"\x00\xff\r\nout of order"),
            "no such layer": (layer, 404, b"{}"),
            "another layer": (layer, 200, b"x" * 5000),
        }
        for name, (part, status, data) in wrong.items():
            with self.subTest(name):
                self.registry.spoil = lambda path: (status, data) if part in path else None
                self.assertIn("cannot be pulled", self.refused())
        self.registry.spoil = lambda path: None
        self.gateway.open(self.gateway.new_chat()["chat_id"], profile="far")

    def test_a_client_that_goes_leaves_the_start_to_its_end(self):
        self.start()
        self.registry.hold()
        chat = self.gateway.new_chat()["chat_id"]
        host, port = self.gateway.url.rpartition("/")[2].split(":")
        body = f'{{"chat_id":"{chat}","profile":"far"}}'
        with socket.create_connection((host, int(port))) as client:
            client.sendall(
                f"POST /api/v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"Authorization: Bearer {self.gateway.admin_key}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            found = wait_for(
                self,
                "the session",
                lambda: self.gateway.expect(200, "GET", f"/sandboxes?chat_id={chat}")["items"],
            )
            self.wait_pulling(found[0]["session_id"])
        self.registry.let_go()
        self.wait_status(found[0]["session_id"], "running")

    def test_a_gateway_that_ends_meanwhile_leaves_nothing(self):
        self.start()
        self.registry.hold()
        for end in (self.gateway.kill9, self.gateway.stop):
            with self.subTest(end.__name__):
                session = self.begin()
                self.wait_pulling(session)
                before = time.monotonic()
                end()
                self.assertLess(time.monotonic() - before, 25)  # it does not wait for the image
                self.gateway.start()
                failed = self.wait_status(session, "failed")
                self.assertEqual(failed["reason"], "start_failed")
                self.assertRegex(failed["detail"] or "", "gateway")  # nobody was answered
                self.wait_given_up()
                self.assert_nothing_left()
        self.registry.let_go()
        self.gateway.open(self.gateway.new_chat()["chat_id"], profile="far")


if __name__ == "__main__":
    unittest.main()
