"""leasectl top: the running sandboxes with what they use, the busiest first."""

import json
import os
import pty
import re
import signal
import subprocess
import unittest

from gateway import BIN, Gateway

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
        cls.client.recv(20)

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
            self.assertEqual(process.wait(20), -signal.SIGINT)
        os.close(ours)

    def test_a_key_that_may_not_look_is_told_so(self):
        done = self.gateway.ctl("top", "--once", key="lhk_nobody_nothing")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("unauthenticated", done.stderr)


if __name__ == "__main__":
    unittest.main()
