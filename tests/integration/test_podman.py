#!/usr/bin/python3
"""Podman behind the `docker` engine, by its compatible API: the main job, and where it differs."""

import os
import unittest
import uuid

from docker import busybox
from gateway import Gateway
from podman import Podman
from test_docker import ECHO, SHELL
from waiting import wait_for


class OnPodman(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.podman = Podman()
        cls.addClassCleanup(cls.podman.cleanup)
        cls.podman.image("localhost/lh/busybox", busybox())

    def setUp(self):
        profiles = [
            {"name": "default", "command": list(ECHO)},
            {"name": "shell", "command": list(SHELL)},
            {"name": "kata", "command": list(ECHO), "runtime": "kata"},
        ]
        settings = {"engine": "docker", "image": "localhost/lh/busybox"}
        self.gateway = Gateway.for_test(
            self,
            {
                "profiles": profiles,
                "sandbox": settings,
                "docker": {"base_url": self.podman.url},
                "app": {"instance": self.id().rsplit(".", 1)[1][:60]},
            },
        )
        self.user = str(uuid.uuid4())
        self.chat = self.gateway.new_chat(self.user)["chat_id"]

    def test_the_main_job_runs_and_leaves_nothing(self):
        sandbox, grant = self.gateway.open(self.chat, lease={}, env={"A": "b"})
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        client.send_text("hello")
        self.assertEqual(client.recv()[1], b"hello")
        self.gateway.kill9()
        self.gateway.start()
        again, _ = self.gateway.open(self.chat)
        self.assertEqual(again["session_id"], sandbox["session_id"])
        self.gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})
        self.assertEqual(self.podman.containers(), [])
        self.assertEqual(self.gateway.sandboxes_left(), [])

    def test_one_that_is_killed_by_somebody_else_is_failed(self):
        sandbox, _ = self.gateway.open(self.chat)
        self.podman.request("POST", f"/containers/{sandbox['container_id']}/kill")
        path = f"/sandboxes/{sandbox['session_id']}"
        wait_for(self, "failed", lambda: self.gateway.expect(200, "GET", path)["status"] == "failed")
        self.assertEqual(self.gateway.expect(200, "GET", path)["reason"], "signaled(9)")
        self.assertEqual(self.podman.containers(), [])

    def test_tools_that_an_agent_may_not_read_are_run_there_too(self):
        tools = os.path.join(self.gateway.dir, "data", "workspaces", self.user, "tools")
        os.makedirs(tools)
        with open(os.path.join(tools, "says"), "w", encoding="ascii") as out:
            out.write("#!/bin/sh\nread l; echo $l by $(id -u)\n")
        os.symlink("says", os.path.join(tools, "link"))  # told, and no hindrance
        _, grant = self.gateway.open(self.chat, lease={}, profile="shell")
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        client.send_text("echo run | /opt/user-tools/says")
        self.assertEqual(client.recv()[1], b"run by 10003")
        self.assertEqual(len(self.podman.containers()), 2)

    def test_a_runtime_that_it_would_ignore_is_refused(self):
        body = {"chat_id": self.chat, "profile": "kata"}
        answer = self.gateway.expect(503, "POST", "/sandboxes", body)
        self.assertIn("instead of runtime kata", answer["detail"])
        self.assertEqual(self.podman.containers(), [])


if __name__ == "__main__":
    unittest.main()
