"""The gateway as an ordinary user: everything has its uid, nothing needs a privilege."""

import shutil
import unittest

import gateway
from gateway import Gateway
from without_root import UID, RootWithout, WithoutRoot

# What operations.md once told to give a user that is not root; none of it may get in the way.
SOME_CAPABILITIES = ("chown", "dac_override", "fowner", "kill", "setuid", "setgid", "sys_admin")

HOG = """
import os, sys, time
for line in sys.stdin:
    try:
        if line.startswith("memory"):
            x = bytearray(512 << 20)
        n = 1
        while line.startswith("fork"):
            if os.fork() == 0:
                time.sleep(60); os._exit(0)
            n += 1
        print("had it", flush=True)
    except MemoryError:
        print("MemoryError", flush=True)
    except OSError as e:
        print("OSError at", n, flush=True)
"""


def ask(test, client, line):
    client.send_text(line)
    return client.recv()[1].decode()


class WithoutPrivilege(unittest.TestCase):
    def start(self, overrides=None, capabilities=()):
        launcher = WithoutRoot.for_test(self, gateway.BIN, capabilities)
        return Gateway.for_test(self, overrides, launcher=launcher)

    def main_job(self, daemon):
        chat = daemon.new_chat()
        sandbox, grant = daemon.open(chat["chat_id"], lease={})
        client = daemon.connect(grant)
        self.assertEqual(ask(self, client, "hello"), "hello")
        answer = daemon.expect(200, "DELETE", f"/leases/{grant['lease']['lease_id']}?wait_ms=5000")
        self.assertEqual(answer["doors"][0]["cut"], 1)
        self.assertEqual(client.wait_closed(), 4403)
        daemon.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {"grace_s": 1})
        self.assertEqual(daemon.sandboxes_left(), [])
        return sandbox

    def test_open_talk_cut_and_stop_work(self):
        daemon = self.start()
        self.assertEqual(self.main_job(daemon)["isolation"]["uid"], UID)

    def test_ambient_capabilities_do_not_get_in_the_way_and_are_not_handed_down(self):
        shell = "read line; grep -h Cap /proc/self/status; cat; :"
        daemon = self.start({"profiles": [{"name": "default", "command": ["/bin/sh", "-c", shell]}]},
                            SOME_CAPABILITIES)
        _, grant = daemon.open(daemon.new_chat()["chat_id"], lease={})
        client = daemon.connect(grant)
        client.send_text("go")
        for _ in range(5):
            name, value = client.recv()[1].decode().split()
            if name != "CapBnd:":
                self.assertEqual((name, int(value, 16)), (name, 0))
        for name in ("leasedoor", "leasekeep", "leaseinit", "bwrap", "cat"):
            with self.subTest(name=name):
                [pid] = [p.pid for p in daemon.sandboxes_left() if p.name == name][:1]
                with open(f"/proc/{pid}/status", encoding="ascii") as status:
                    [ambient] = [line.split()[1] for line in status if line.startswith("CapAmb")]
                self.assertEqual(int(ambient, 16), 0)


class RootWithLess(unittest.TestCase):
    def test_the_capability_that_is_missing_is_named(self):
        for name in ("SYS_ADMIN", "CHOWN", "SETPCAP"):
            with self.subTest(name=name):
                launcher = RootWithout(gateway.BIN, name)
                daemon = Gateway.for_test(self, start=False, launcher=launcher)
                done = daemon.run_program("leasehold", "run", "--config", daemon.config)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"root without CAP_{name}", done.stderr)


class WithoutControlGroups(unittest.TestCase):
    """An ordinary user can make none here, so limits are rlimits."""

    @classmethod
    def setUpClass(cls):
        launcher = WithoutRoot(gateway.BIN)
        cls.addClassCleanup(shutil.rmtree, launcher.bin)
        profile = {"name": "default", "command": ["/usr/bin/python3", "-I", "-c", HOG],
                   "limits": {"memory_bytes": 256 << 20, "pids": 20, "cpus": 1}}
        cls.daemon = Gateway({"profiles": [profile]}, launcher=launcher)
        cls.addClassCleanup(cls.daemon.cleanup)

    def agent(self):
        sandbox, grant = self.daemon.open(self.daemon.new_chat()["chat_id"], lease={})
        self.addCleanup(self.daemon.expect, 200, "POST",
                        f"/sandboxes/{sandbox['session_id']}/stop", {"grace_s": 0})
        return self.daemon.connect(grant)

    def test_the_gateway_says_once_at_its_start_that_limits_are_by_rlimit(self):
        self.agent()
        self.agent()
        [event] = self.daemon.log_lines("limits_by_rlimit")
        self.assertEqual(event["level"], "warning")
        self.assertIn("memory", event["detail"])
        self.assertIn("pids", event["detail"])

    def test_memory_is_limited_for_each_process(self):
        self.assertEqual(ask(self, self.agent(), "memory"), "MemoryError")

    def test_processes_are_limited_for_each_sandbox_apart(self):
        """All have one uid; what one has used up the others do not feel."""
        agents = [self.agent() for _ in range(3)]
        for agent in agents:
            self.assertEqual(ask(self, agent, "fork"), "OSError at 20")


if __name__ == "__main__":
    unittest.main()
