#!/usr/bin/python3
"""Agents in containers that listen: the transports tcp, unix and ws byte for byte through the door, and
lease-artifact from within a container."""

import hashlib
import os
import unittest

import test_lease_artifact
import test_transports
from docker import Docker, busybox, python
from gateway import Gateway, merge


class OnDocker(test_transports.Bytes):
    # Nothing of these depends on what the agent runs in.
    test_many_small_messages_keep_their_edges_and_order = None
    test_eight_clients_have_a_connection_each_and_never_meet = None
    test_a_ping_of_the_agent_is_answered = None

    @classmethod
    def setUpClass(cls):
        cls.docker = Docker()
        cls.addClassCleanup(cls.docker.cleanup)
        cls.docker.image("lh/python", {**busybox(), **python()})
        shell = {"name": "shell", "command": ["/bin/sh", "-c", test_lease_artifact.AGENT]}
        settings = {"sandbox": {"engine": "docker", "image": "lh/python"}}
        cls.gateway = Gateway(
            merge(
                test_transports.CONFIG,
                {
                    **settings,
                    "docker": {"base_url": cls.docker.url},
                    "profiles": [*test_transports.PROFILES, shell],
                },
            )
        )
        cls.addClassCleanup(cls.gateway.cleanup)

    def test_a_program_stores_files_of_its_chat_as_artifacts_and_no_others(self):
        client = self.connect("shell")

        def say(line):
            client.send_text(line)
            return client.recv()[1].decode(), client.recv()[1].decode()

        data = b"result" * 50_000
        files = os.path.join(self.gateway.dir, "data/workspaces", self.chat["user_id"], "chats",
                             self.chat["chat_id"], "files")  # fmt: skip
        with open(os.path.join(files, "report.txt"), "wb") as out:
            out.write(data)
        os.chmod(out.name, 0o644)
        artifact_id, status = say("report.txt")
        self.assertEqual(status, "status 0", artifact_id)
        artifact = self.gateway.expect(200, "GET", f"/artifacts/{artifact_id}")
        self.assertEqual(
            (artifact["chat_id"], artifact["name"], artifact["state"], artifact["sha256"]),
            (self.chat["chat_id"], "report.txt", "stored", hashlib.sha256(data).hexdigest()),
        )
        for path in ("/etc/passwd", "../history.db", "/run/leasehold/agent.sock"):
            self.assertEqual(say(path)[1], "status 1", path)


if __name__ == "__main__":
    unittest.main()
