"""What the programs beside the daemon say to somebody who starts them by hand."""

import subprocess
import unittest

import door_fixture
from waiting import PATIENCE_S


def said(name, *words):
    return subprocess.run(
        [door_fixture.program(name), *words], capture_output=True, text=True, timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )


class HelperUsage(unittest.TestCase):
    def test_what_agents_run_tells_its_usage(self):
        for name in ("lease-artifact", "lease-tool"):
            for word in ("--help", "-h"):
                done = said(name, word)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(done.stdout.startswith(f"usage: {name} "), done.stdout)
            done = said(name)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertTrue(done.stderr.startswith(f"usage: {name} "), done.stderr)

    def test_what_the_gateway_starts_says_so_in_a_line(self):
        for name in ("leasekeep", "leaseinit", "leasetools"):
            done = said(name, "--help")
            self.assertEqual((done.returncode, done.stdout), (2, ""), name)
            self.assertIn(name, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
