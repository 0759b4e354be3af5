"""GET /sandboxes/{id}/stats: what a running sandbox uses, by its control groups and without them."""

import time
import unittest

from gateway import Gateway
from waiting import PATIENCE_S

# "burn" uses CPU for a while, "grow N" keeps N MiB, "spawn N" keeps N processes; each says done.
AGENT = """
import subprocess, sys, time
kept = []
for line in sys.stdin:
    word, _, n = line.strip().partition(" ")
    if word == "burn":
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
    elif word == "burn-and-end":
        subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.4: pass"])
    elif word == "grow":
        kept.append(bytearray(b"x") * (int(n) << 20))
    elif word == "drop":
        kept.clear()
    elif word == "spawn":
        kept += [subprocess.Popen(["sleep", "1000"]) for _ in range(int(n))]
    print("done", flush=True)
"""
PROFILE = {
    "name": "default",
    "command": ["/usr/bin/python3", "-c", AGENT],
    "transport": "stdio",
    "limits": {"memory_bytes": 268435456, "cpus": 2.0, "pids": 256},
    "network": "none",
    "record_history": False,
}
MIB = 1 << 20


class Stats(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, {"profiles": [PROFILE]})
        self.chat = self.gateway.new_chat()["chat_id"]
        self.sandbox, grant = self.gateway.open(self.chat, lease={})
        self.path = f"/sandboxes/{self.sandbox['session_id']}/stats"
        self.client = self.gateway.connect(grant)
        self.addCleanup(self.client.close)

    def tell(self, line):
        self.client.send_text(line)
        self.assertEqual(self.client.recv()[1], b"done")

    def stats(self, **options):
        return self.gateway.expect(200, "GET", self.path, **options)

    def test_cpu_memory_and_processes_are_those_of_the_sandbox(self):
        first = self.stats()
        self.assertEqual(
            set(first), {"cpu_usage_us", "memory_bytes", "memory_peak_bytes", "pids", "at"}
        )
        self.tell("burn")
        self.tell("grow 60")
        self.tell("spawn 5")
        second = self.stats()
        self.assertGreaterEqual(second["cpu_usage_us"] - first["cpu_usage_us"], 250_000)
        self.assertGreaterEqual(second["memory_bytes"] - first["memory_bytes"], 50 * MIB)
        self.assertGreaterEqual(second["memory_peak_bytes"], second["memory_bytes"] - 10 * MIB)
        self.assertEqual(second["pids"] - first["pids"], 5)
        self.assertGreater(second["at"], first["at"])

    def test_the_time_of_a_process_that_has_ended_is_not_lost(self):
        before = self.stats()["cpu_usage_us"]
        self.tell("burn-and-end")
        self.assertGreaterEqual(self.stats()["cpu_usage_us"] - before, 380_000)

    def test_the_peak_stays_when_memory_is_given_back(self):
        self.tell("grow 80")
        self.tell("drop")
        stats = self.stats()
        self.assertGreaterEqual(stats["memory_peak_bytes"], 80 * MIB)
        self.assertLess(stats["memory_bytes"], 70 * MIB)

    def test_a_viewer_may_look_and_strangers_find_nothing(self):
        self.stats(key=self.gateway.new_key("viewer"))
        stranger = self.gateway.new_key(allowed_users=["3f0c2f6e-7d5c-4d43-8a8b-8f3c3c1b7d11"])
        problem = self.gateway.expect(404, "GET", self.path, key=stranger)
        self.assertEqual(problem["code"], "not_found")

    def test_a_session_that_has_ended_uses_nothing(self):
        self.gateway.expect(200, "DELETE", self.path.removesuffix("/stats"))
        problem = self.gateway.expect(409, "GET", self.path)
        self.assertEqual(problem["code"], "session_not_running")

    def test_an_agent_that_dies_while_it_is_asked_for_is_not_running_and_no_fault(self):
        self.tell("spawn 3")
        self.client.send_text("no such word")
        end = time.monotonic() + PATIENCE_S
        for process in self.gateway.sandboxes_left():
            if process.name == "leaseinit":
                process.send(9)
        while time.monotonic() < end:
            status, _, _ = self.gateway.rest("GET", self.path)
            self.assertIn(status, (200, 409))
            if status == 409:
                return
        self.fail("still running")


if __name__ == "__main__":
    unittest.main()
