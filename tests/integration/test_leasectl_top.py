"""leasectl top: the running sandboxes with what they use, the busiest first."""

import json
import os
import pty
import re
import signal
import subprocess
import unittest
import uuid

from fake_gateway import FakeGateway
from gateway import BIN, Gateway
from waiting import PATIENCE_S

# Works without end once it is told to.
AGENT = "while read -r line; do echo on; while :; do :; done; done"


class LeasectlTop(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway(
            {"profiles": [{"name": "default", "command": ["/bin/sh", "-c", AGENT]}]}
        )
        cls.addClassCleanup(cls.gateway.cleanup)
        cls.idle, _ = cls.gateway.open(cls.gateway.new_chat()["chat_id"])
        cls.busy, grant = cls.gateway.open(cls.gateway.new_chat()["chat_id"], lease={})
        cls.client = cls.gateway.connect(grant)
        cls.client.send_text("go")
        cls.client.recv()

    def test_a_look_has_each_sandbox_with_what_it_uses_and_its_connections(self):
        done = self.gateway.ctl("top", "--once")
        self.assertEqual(done.returncode, 0, done.stderr)
        head, _, names, *rows = done.stdout.splitlines()
        self.assertEqual(head, "2 running, 1 active leases, 1 connections")
        names, busy, idle = names.split(), rows[0].split(), rows[1].split()
        self.assertEqual(
            [busy[0], idle[0]], [self.busy["session_id"], self.idle["session_id"]]
        )
        cells = dict(zip(names, busy))
        self.assertEqual([cells["leases"], cells["connections"]], ["1", "1"])
        self.assertGreater(float(cells["cpu_percent"]), float(idle[names.index("cpu_percent")]))
        self.assertGreater(int(cells["memory_bytes"]), 0)

    def test_with_json_each_sandbox_is_a_line(self):
        done = self.gateway.ctl("--json", "top")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual({row["session_id"] for row in rows},
                         {self.busy["session_id"], self.idle["session_id"]})  # fmt: skip
        for row in rows:
            self.assertIsInstance(row["cpu_percent"], (int, float))
        self.assertGreater(rows[0]["cpu_percent"], rows[1]["cpu_percent"])

    def test_of_a_sandbox_without_figures_nothing_is_told(self):
        fake = FakeGateway()
        self.addCleanup(fake.close)
        v1, sandbox = "/api/v1", {"session_id": str(uuid.uuid4()), "status": "running"}
        fake.on("GET", v1 + "/sandboxes", (200, {"items": [sandbox]}))
        fake.on("GET", v1 + "/leases", (200, {"items": []}))
        problem = {"status": 409, "code": "conflict", "title": "It has ended", "detail": ""}
        fake.on("GET", f"{v1}/sandboxes/{sandbox['session_id']}/stats", (409, problem))
        env = {"LEASEHOLD_URL": fake.url, "LEASEHOLD_KEY": "lhk_x"}
        ctl = [os.path.join(BIN, "leasectl"), "top", "--once"]
        done = subprocess.run([*ctl, "--json"], env=env, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        row = json.loads(done.stdout)
        self.assertEqual([row["cpu_percent"], row["memory_bytes"], row["pids"]], [None] * 3)
        done = subprocess.run(ctl, env=env, capture_output=True, check=False)
        cells = dict(zip(*(line.split() for line in done.stdout.decode().splitlines()[2:])))
        self.assertEqual([cells["cpu_percent"], cells["memory_bytes"], cells["pids"]], ["-"] * 3)

    def test_on_a_terminal_it_goes_on_until_it_is_interrupted(self):
        ours, theirs = pty.openpty()
        env = {"LEASEHOLD_URL": self.gateway.url, "LEASEHOLD_KEY": self.gateway.admin_key}
        seen = b""
        with subprocess.Popen(
            [os.path.join(BIN, "leasectl"), "top", "--interval", "1"], env=env, stdout=theirs
        ) as process:
            os.close(theirs)
            while len(re.findall(rb"2 running", seen)) < 2:
                seen += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(PATIENCE_S), -signal.SIGINT)
        os.close(ours)

    def test_a_key_that_may_not_look_is_told_so(self):
        done = self.gateway.ctl("top", "--once", key="lhk_nobody_nothing")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("unauthenticated", done.stderr)


if __name__ == "__main__":
    unittest.main()
