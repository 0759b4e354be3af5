#!/usr/bin/python3
"""Disks without room, real ones: the engine's, that of the chats and that of the run directories, on
both engines. What cannot be done is said, nothing of it stays, what ends does, and with room all goes on."""

import glob
import os
import unittest
from concurrent.futures import ThreadPoolExecutor

from docker import Docker, busybox, tar_of
from gateway import Gateway
from registry import Registry
from small_disk import SmallDisk
from test_docker import ECHO, SHELL
from waiting import wait_for

SHELL_PROFILE = {"name": "default", "command": SHELL}


def ask(client, line):
    client.send_text(line)
    return client.recv()[1].decode()


class Asking(unittest.TestCase):
    def refused(self, profile=None, status=503):
        body = {"chat_id": self.gateway.new_chat()["chat_id"]}
        if profile:
            body["profile"] = profile
        return self.gateway.expect(status, "POST", "/sandboxes", body)

    def talking(self, **members):
        sandbox, grant = self.gateway.open(self.gateway.new_chat()["chat_id"], lease={}, **members)
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        self.assertEqual(ask(client, "echo hello"), "hello")
        return sandbox, client

    def begin_far(self):
        body = {"chat_id": self.gateway.new_chat()["chat_id"], "profile": "far", "wait": False}
        return self.gateway.expect(202, "POST", "/sandboxes", body)["sandbox"]["session_id"]

    def session(self, session_id):
        return self.gateway.expect(200, "GET", f"/sandboxes/{session_id}")

    def stop(self, sandbox):
        return self.gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})

    def left(self):
        return self.gateway.sandboxes_left() + [
            name for name in os.listdir(self.gateway.run_dir) if len(name) == 36
        ]

    def assert_nothing_left(self):
        wait_for(self, "nothing left", lambda: not self.left())


class EngineDisk(Asking):
    @classmethod
    def setUpClass(cls):
        cls.docker = Docker(start=False, options=["--max-download-attempts=1"])
        os.mkdir(os.path.join(cls.docker.dir, "data"))
        cls.disk = SmallDisk(cls, os.path.join(cls.docker.dir, "data"), 128)
        cls.addClassCleanup(cls.docker.cleanup)  # before its disk goes
        cls.docker.start()
        cls.docker.image("lh/busybox", busybox())

    def setUp(self):
        layers = [tar_of(busybox()), tar_of({"more": os.urandom(4000000)})]
        self.registry = Registry(layers, {"Cmd": ECHO})
        self.addCleanup(self.registry.close)
        image = f"{self.registry.address}/far/agent:1"
        profiles = [SHELL_PROFILE, {"name": "far", "image": image}]
        self.gateway = self.docker.gateway(self, {"profiles": profiles})

    def left(self):
        return super().left() + self.docker.of_gateway(self.gateway)

    def test_what_runs_goes_on_and_ends_and_what_would_start_is_refused(self):
        sandbox, client = self.talking()
        self.disk.fill()
        self.assertEqual(ask(client, "echo still"), "still")
        answer = self.refused()
        self.assertEqual(answer["code"], "sandbox_start_failed")
        self.assertIn("no space left", answer["detail"])
        self.assertEqual(self.stop(sandbox)["status"], "stopped")
        self.disk.free()
        self.assert_nothing_left()
        self.talking()

    def test_an_image_for_which_there_is_no_room_is_said_and_pulled_later(self):
        self.disk.fill()
        answer = self.refused("far")
        self.assertEqual(answer["code"], "sandbox_start_failed")
        self.assertRegex(answer["detail"], "cannot be pulled.*no space left")
        self.disk.free()
        self.assert_nothing_left()
        self.gateway.open(self.gateway.new_chat()["chat_id"], profile="far")

    def test_a_disk_that_fills_while_an_image_comes_ends_all_that_wait_for_it(self):
        self.registry.hold()
        waiting = [self.begin_far() for _ in range(3)]
        for session in waiting:
            wait_for(self, "layers on their way", lambda s=session: "progress" in self.session(s))
        self.disk.fill()
        self.registry.let_go()
        for session in waiting:
            wait_for(self, "its end", lambda s=session: self.session(s)["status"] == "failed")
            self.assertRegex(self.session(session)["detail"], "cannot be pulled.*no space left")
        self.assert_nothing_left()
        self.disk.free()
        self.gateway.open(self.gateway.new_chat()["chat_id"], profile="far")


class PullingGateway(Asking):
    """The gateway's own disks, while an image comes: the engine has room."""

    @classmethod
    def setUpClass(cls):
        cls.docker = Docker()
        cls.addClassCleanup(cls.docker.cleanup)
        cls.docker.image("lh/busybox", busybox())

    def setUp(self):
        layers = [tar_of({**busybox(), "own": os.urandom(8)}), tar_of({"more": os.urandom(400000)})]
        self.registry = Registry(layers, {"Cmd": SHELL})
        self.addCleanup(self.registry.close)
        image = f"{self.registry.address}/far/{self.id().rpartition('_')[2].lower()}:1"
        profiles = [SHELL_PROFILE, {"name": "far", "image": image}]
        self.gateway = self.docker.gateway(self, {"profiles": profiles}, start=False)
        self.data = SmallDisk(self, os.path.join(self.gateway.dir, "data"), 64)
        self.run = SmallDisk(self, self.gateway.run_dir, 16)
        self.addCleanup(self.end_all)  # before their disks go
        self.gateway.start()
        self.registry.hold()

    def end_all(self):
        if self.gateway.process.poll() is None:  # doors whose directory goes are found by nobody
            for running in self.gateway.expect(200, "GET", "/sandboxes?status=running")["items"]:
                self.gateway.rest("DELETE", f"/sandboxes/{running['session_id']}")
        self.gateway.stop()
        for container in self.docker.of_gateway(self.gateway):
            self.docker.remove(container["Id"])

    def left(self):
        return super().left() + self.docker.of_gateway(self.gateway)

    def pulling(self):
        session = self.begin_far()
        wait_for(self, "layers on their way", lambda: self.session(session).get("progress", {}).get("bytes_done"))
        return session

    def wait_failed(self, session):
        wait_for(self, "its end", lambda: self.session(session)["status"] == "failed")
        self.assert_nothing_left()
        return self.session(session)

    def test_a_run_directory_without_room_ends_the_start_behind_the_pull(self):
        session = self.pulling()
        self.run.fill()
        self.registry.let_go()
        failed = self.wait_failed(session)
        self.assertEqual(failed["reason"], "start_failed")
        self.assertIn("No space left on device", failed["detail"])
        self.run.free()
        self.talking(profile="far")

    def test_a_data_directory_without_room_ends_it_too_and_the_image_stays(self):
        session = self.pulling()
        body = {"chat_id": self.gateway.new_chat()["chat_id"], "profile": "far"}
        pool = ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        waiting = pool.submit(self.gateway.rest, "POST", "/sandboxes", body)
        starting = "/sandboxes?status=starting"
        wait_for(self, "the other", lambda: len(self.gateway.expect(200, "GET", starting)["items"]) == 2)
        self.data.fill()
        self.registry.let_go()
        failed = self.wait_failed(session)
        self.assertEqual(failed["reason"], "start_failed")
        status, _, answer = waiting.result(60)
        self.assertEqual((status, answer["code"]), (503, "sandbox_start_failed"))
        for told in (answer, failed):
            self.assertIn("No space left on device", told["detail"])
        self.data.free()
        wait_for(self, "room", lambda: self.gateway.rest("GET", "//readyz")[0] == 200)
        self.registry.hold()  # not asked for again
        self.talking(profile="far")

    def test_a_gateway_that_is_killed_without_room_during_a_pull_leaves_nothing(self):
        session = self.pulling()
        self.data.fill()
        self.run.fill()
        self.gateway.kill9()
        self.data.free()
        self.run.free()
        self.gateway.start()
        self.wait_failed(session)
        self.registry.let_go()
        self.talking(profile="far")


class StateDisk:
    """For both engines: self.new_gateway(overrides) makes one that has not started."""

    def setUp(self):
        self.gateway = self.new_gateway({"profiles": [SHELL_PROFILE]})
        self.data = SmallDisk(self, os.path.join(self.gateway.dir, "data"), 64)
        self.run = SmallDisk(self, self.gateway.run_dir, 16)
        self.addCleanup(self.end_all)  # before their disks go
        self.gateway.start()

    def end_all(self):
        if self.gateway.process and self.gateway.process.poll() is None:
            self.gateway.stop()
        self.gateway._end_sandboxes()

    def test_run_directories_without_room_refuse_a_start_and_keep_nothing_of_it(self):
        sandbox, client = self.talking()
        self.run.fill()
        answer = self.refused()
        self.assertEqual(answer["code"], "sandbox_start_failed")
        self.assertIn("No space left on device", answer["detail"])
        self.assertEqual(ask(client, "echo still"), "still")
        self.assertEqual(self.stop(sandbox)["status"], "stopped")
        self.assert_nothing_left()
        self.run.free()
        self.talking()

    def test_an_agent_that_fills_the_disk_of_its_chat_hinders_no_end(self):
        sandbox, client = self.talking()
        told = ask(client, "dd if=/dev/zero of=fill bs=65536 2>/dev/null; echo full")
        self.assertEqual(told, "full")
        [filled] = glob.glob(f"{self.data.directory}/workspaces/*/chats/*/files/fill")
        self.data.fill()
        self.assertEqual(ask(client, "echo still"), "still")
        body = {"chat_id": self.gateway.expect(200, "GET", "/chats")["items"][0]["chat_id"]}
        answer = self.gateway.expect(507, "POST", "/sandboxes", body)
        self.assertEqual(answer["code"], "storage_full")
        self.assertEqual(self.stop(sandbox)["status"], "stopped")
        self.assert_nothing_left()
        os.unlink(filled)
        self.data.free()
        wait_for(self, "room", lambda: self.gateway.rest("GET", "//readyz")[0] == 200)
        self.talking()


class OnDocker(StateDisk, Asking):
    @classmethod
    def setUpClass(cls):
        cls.docker = Docker()
        cls.addClassCleanup(cls.docker.cleanup)
        cls.docker.image("lh/busybox", busybox())

    def new_gateway(self, overrides):
        return self.docker.gateway(self, overrides, start=False)

    def left(self):
        return super().left() + self.docker.of_gateway(self.gateway)

    def end_all(self):
        super().end_all()
        for container in self.docker.of_gateway(self.gateway):
            self.docker.remove(container["Id"])


class OnLocal(StateDisk, Asking):
    def new_gateway(self, overrides):
        return Gateway.for_test(self, overrides, start=False)


if __name__ == "__main__":
    unittest.main()
