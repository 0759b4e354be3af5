#!/usr/bin/python3
"""Images of a registry that wants a login: Debian's docker-registry with TLS, by Docker and by Podman."""

import glob
import os
import subprocess
import unittest
import uuid

from bot import Bot
from docker import Docker, busybox, tar_of
from gateway import BIN, Gateway
from podman import Podman
from registry import image_of
from registry_server import PASSWORD, USER, RegistryServer
from test_docker import ECHO
from waiting import wait_for


def packed():
    """An image that no engine has yet."""
    layers = [tar_of({**busybox(), "own": os.urandom(8)}), tar_of({"more": os.urandom(3000000)})]
    return image_of(layers, {"Cmd": ECHO})


WRONG = "wrong-password-of-agents"


class Logins:
    """For both engines: `self.engine_url` and `self.seen()`, what one sees of a container."""

    def start(self, password=PASSWORD, host=None, image="private/agent"):
        self.image = self.registry.put(image, uuid.uuid4().hex, *packed())
        self.file = os.path.join(self.registry.dir, "password." + uuid.uuid4().hex)
        with open(self.file, "w", encoding="utf-8") as out:
            out.write(password + "\n")
        login = {"host": host or self.registry.address, "username": USER, "password_file": self.file}
        settings = {
            "profiles": [
                {"name": "default", "command": ["/run/leasehold/demo-agent"]},
                {"name": "far", "image": self.image},
            ],
            "sandbox": {"engine": "docker", "image": "localhost/lh/busybox"},
            "docker": {"base_url": self.engine_url, "registries": [login]},
            "logging": {"level": "debug"},
            "app": {"instance": self.id().rsplit(".", 1)[1][:60]},
        }
        self.gateway = Gateway.for_test(self, settings)
        self.addCleanup(self.stop_all)
        wait_for(self, "the engine", lambda: self.gateway.rest("GET", "//readyz")[0] == 200)

    def stop_all(self):
        for item in self.gateway.expect(200, "GET", "/sandboxes")["items"]:
            self.gateway.rest("POST", f"/sandboxes/{item['session_id']}/stop", {})

    def open(self):
        chat = self.gateway.new_chat()["chat_id"]
        sandbox, grant = self.gateway.open(chat, profile="far", lease={})
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        client.send_text("hello")
        self.assertEqual(client.recv()[1], b"hello")
        return sandbox

    def refused(self):
        body = {"chat_id": self.gateway.new_chat()["chat_id"], "profile": "far"}
        answer = self.gateway.expect(503, "POST", "/sandboxes", body)
        self.assertEqual(answer["code"], "sandbox_start_failed")
        self.assertEqual([n for n in os.listdir(self.gateway.run_dir) if len(n) == 36], [])
        return answer["detail"]

    def checked(self):
        command = [os.path.join(BIN, "leasehold"), "check-config", "--config", self.gateway.config]
        done = subprocess.run(
            command, env={}, capture_output=True, text=True, check=False, timeout=30
        )
        return done.returncode, done.stderr

    def assert_secret(self, password, *texts):
        texts += (self.gateway.log_text(),)
        for path in glob.glob(os.path.join(self.gateway.dir, "data", "leasehold.db*")):
            with open(path, "rb") as data:
                texts += (data.read().decode("latin-1"),)
        for text in texts:
            self.assertNotIn(password[:14], text)

    def test_a_wrong_login_is_told_with_its_registry_and_the_right_one_is_seen_nowhere(self):
        self.start(password=WRONG)
        told = self.refused()
        self.assertIn(f"registry {self.registry.address} refuses the login of docker.registries", told)
        self.assert_secret(WRONG, told)
        with open(self.file, "w", encoding="utf-8") as out:
            out.write(PASSWORD)
        bot = Bot(self, self.gateway, key=self.gateway.admin_key)
        bot.subscribe("all")
        sandbox = self.open()
        events = bot.events_until("sandbox.running")
        pulling = [e["data"] for e in events if e["event"] == "sandbox.pulling"]
        self.assertGreaterEqual(len(pulling), 2)
        self.assertEqual(pulling[-1]["layers_done"], pulling[-1]["layers"])
        self.assert_secret(PASSWORD, self.seen(sandbox), str(events))


class OnDocker(Logins, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.registry = RegistryServer(tls=False)  # with it the engine's last word is of its try without
        cls.addClassCleanup(cls.registry.close)
        cls.docker = Docker(options=["--max-download-attempts=1"])
        cls.addClassCleanup(cls.docker.cleanup)
        cls.engine_url = cls.docker.url

    def test_without_a_login_it_is_said_that_one_is_wanted(self):
        self.start(host="registry.example:5000")
        told = self.refused()
        self.assertIn(f"registry {self.registry.address} wants a login: docker.registries", told)

    def test_a_password_that_is_not_there_is_told_by_its_registry(self):
        self.start()
        os.chmod(self.file, 0o644)
        self.assertRegex(self.checked()[1], f"password_file {self.file}: others may read it")
        os.chmod(self.file, 0o600)
        self.assertEqual(self.checked(), (0, ""))
        os.unlink(self.file)
        self.assertIn("open the password file for registry", self.checked()[1])
        told = self.refused()
        self.assertIn(f"open the password file for registry {self.registry.address}", told)
        os.mkfifo(self.file)
        self.assertIn("is no regular one", self.checked()[1])
        self.assertIn("is no regular one", self.refused())
        os.unlink(self.file)
        with open(self.file, "w", encoding="utf-8") as out:
            out.write("x" * 9000)
        self.assertIn("is longer than 8 KiB", self.refused())

    def seen(self, sandbox):
        return str(self.docker.inspect(sandbox["container_id"]))


class OnPodman(Logins, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.registry = RegistryServer()
        cls.addClassCleanup(cls.registry.close)
        cls.podman = Podman(insecure=[cls.registry.address])
        cls.addClassCleanup(cls.podman.cleanup)
        cls.engine_url = cls.podman.url

    def seen(self, sandbox):
        return str(self.podman.request("GET", f"/containers/{sandbox['container_id']}/json")[1])


if __name__ == "__main__":
    unittest.main()
