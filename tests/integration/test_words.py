"""No program takes a word that it does not know: each says so, with usage, exits 2 and does nothing."""

import os
import re
import subprocess
import tempfile
import unittest
import uuid

from gateway import BIN

# What is delivered beside the two that people call.
HELPERS = ("leasedoor", "leasekeep", "leaseinit", "leasetools", "demo-agent", "lease-artifact", "lease-tool")
OPERANDS = {"lease-artifact": ["a", "b"], "leaseinit": [], "demo-agent": []}
IDS = [str(uuid.uuid4())] * 9


def run(name, *words):
    env = {key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")}
    # Nobody is there: a command that goes on exits with 5.
    env |= {"LEASEHOLD_URL": "http://127.0.0.1:1", "LEASEHOLD_KEY": "lhk_x_y"}
    return subprocess.run([os.path.join(BIN, name), *words], stdin=subprocess.DEVNULL, cwd=tempfile.gettempdir(),
                          env=env, capture_output=True, text=True, timeout=60)


class Words(unittest.TestCase):
    def assert_refused(self, name, *words, says=""):
        with self.subTest(name=name, words=words):
            done = run(name, *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done)
            self.assertRegex(done.stderr, says)

    def assert_fine(self, name, *words):
        with self.subTest(name=name, words=words):
            done = run(name, *words)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done)
            return done.stdout

    def test_leasehold_and_each_of_its_commands(self):
        listed = set(re.findall(r"^  leasehold \[?([a-z-]+)", self.assert_fine("leasehold", "--help"), re.M))
        self.assertLessEqual({"init", "run", "backup", "clock-reset", "version"}, listed)
        says = r"^leasehold: .*\(leasehold --help\)"
        for words in (["x"], ["--nope"], ["help", "x"], ["help", "run", "x"], ["-h", "x"], ["--help", "x"], ["x", "--help"],
                      ["--version", "x"], ["-v", "x"], ["--version", "--config", "f"]):
            self.assert_refused("leasehold", *words, says=says)
        for command in sorted(listed):
            with tempfile.TemporaryDirectory() as empty:
                dir_of = ["--dir", empty] if command == "init" else []
                for words in (["x", "y"], ["--nope"], ["--nope", "x"], ["x", "y", "--help"]):
                    self.assert_refused("leasehold", command, *dir_of, *words, says=says)
                self.assertEqual(os.listdir(empty), [])
            self.assert_fine("leasehold", command, "--help")
            self.assert_fine("leasehold", "help", command)
        for words in (["version"], ["--version"], ["-v"], ["help"], ["-h"], ["--help"]):
            self.assert_fine("leasehold", *words)

    def test_leasectl_and_each_of_its_commands(self):
        part = self.assert_fine("leasectl", "--help").split("Commands:\n")[1].split("\n\n")[0]
        listed = [re.match(r"  ([a-z]+(?: [a-z-]+)*) ", line)[1] for line in part.splitlines()]
        self.assertIn("lease revoke", listed)
        says = r"--help' tells more|no such command"
        for words in (["x"], ["--nope"], ["help", "x"], ["--help", "x"], ["version", "x"], ["version", "--nope"],
                      ["--version", "x"], ["-v", "x"], ["--version", "health"], ["health", "--version"]):
            self.assert_refused("leasectl", *words, says=says)
        for command in listed:
            for words in (IDS, ["--nope"], [*IDS, "--help"], ["--help", "--nope"]):
                self.assert_refused("leasectl", *command.split(), *words, says=says)
            self.assert_refused("leasectl", "help", *command.split(), "x", says=says)
            self.assert_fine("leasectl", *command.split(), "--help")
            self.assert_fine("leasectl", "help", *command.split())

    def test_the_helpers(self):
        built = {name for name in os.listdir(BIN) if name.startswith("lease") and "_" not in name}
        self.assertEqual(built - {"leasehold", "leasectl"}, set(HELPERS) - {"demo-agent"})
        says = r"^usage: |is started by leasehold"
        for name in HELPERS:
            operands = OPERANDS.get(name, ["x"])
            for words in (["--nope"], ["--help", "--nope"], [*operands, "--nope", "x"]):
                if name != "lease-tool" or words[0] != "x":
                    self.assert_refused(name, *words, says=says)


if __name__ == "__main__":
    unittest.main()
