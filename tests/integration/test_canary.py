"""No secret stands where people look. Each test of this suite is looked at for that when its gateway goes
(tests/support/canary.py); here, that this finds what it looks for."""

import hashlib
import os
import subprocess
import sys
import unittest

import canary
from gateway import Gateway

HASHED = "5d" * 32  # as a door's secret looks


class Canary(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway()
        self.addCleanup(self.end)
        chat = self.gateway.new_chat()
        self.sandbox, grant = self.gateway.open(chat["chat_id"], lease={})
        self.token = grant["token"]
        self.ended = False

    def end(self):
        if not self.ended:
            self.gateway.cleanup()

    def assert_found(self, what):
        self.ended = True
        with self.assertRaisesRegex(canary.Leak, what):
            self.gateway.cleanup()
        self.assertFalse(os.path.exists(self.gateway.dir))
        self.assertEqual(self.gateway.sandboxes_left(), [])

    def append(self, name, text):
        with open(os.path.join(self.gateway.dir, name), "a", encoding="utf-8") as out:
            out.write(text)

    def test_a_clean_gateway_is_clean_and_was_looked_at(self):
        self.gateway._look_at_what_lives()
        self.assertEqual({"an API key", "a lease token", "a private key"}, canary.SEEN.kinds())
        self.assertIn(b"sandbox_create_total", self.gateway._metrics_text())
        names = {process.name for process in self.gateway.sandboxes_left()}
        self.assertLessEqual({"leasedoor", "leasekeep"}, names)
        databases = list(canary.database_files(os.path.join(self.gateway.dir, "data")))
        self.assertTrue(any(path.endswith("leasehold.db") for path in databases))
        self.assertIn(
            self.sandbox["session_id"].encode(), b"".join(map(canary.read, databases))
        )
        self.assertEqual(len(self.gateway._secret_hashes()), 1)

    def test_a_token_in_the_log(self):
        self.append("gateway.log", f'{{"event":"x","token":"{self.token}"}}\n')
        self.assert_found("a lease token stands in .*gateway.log")

    def test_a_part_of_a_signature_in_the_log_of_a_door(self):
        log = os.path.join("run", self.sandbox["session_id"], "door.log")
        self.append(log, "sig=" + self.token.rpartition(".")[2][:30])
        self.assert_found("a lease token stands in .*door.log")

    def test_an_api_key_in_the_database(self):
        key = self.gateway.new_key()
        self.gateway.kill9()
        self.append("data/other.db", f"\0\0{key.split('_', 2)[2]}\0")
        self.assert_found("an API key stands in .*other.db")

    def test_a_signing_key_in_the_run_directory(self):
        with open(os.path.join(self.gateway.dir, "keys", "lease-signing.pem"), encoding="ascii") as pem:
            self.append("run/core", pem.read())
        self.assert_found("a private key stands in .*core")

    def test_a_secret_in_arguments_or_environment(self):
        command = [sys.executable, "-c", "print(flush=True); input()"]
        for extra, env in (([self.token], {}), ([], {"TOKEN": self.token})):
            child = subprocess.Popen(
                command + extra, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            # It speaks: before, exec may have closed Popen's pipe and not yet set what /proc shows.
            self.assertEqual(child.stdout.readline(), b"\n")
            with self.assertRaisesRegex(canary.Leak, "a lease token stands in the (cmdline|environ)"):
                canary.check_processes([child.pid], frozenset())
            child.communicate(b"\n")

    def test_what_a_door_was_told_is_known_by_its_hash(self):
        found = canary.Canary()
        hashes = {hashlib.sha256(HASHED.encode()).hexdigest()}
        self.assertEqual(found.find(f"secret {HASHED}\n".encode(), hashes), "a door's secret")
        self.assertIsNone(found.find(b"6e" * 32, hashes))

    def test_an_error_that_shows_what_was_sent(self):
        with self.assertRaises(canary.Leak):
            canary.check_error("GET", "/x", b'{"detail": "no such lease: %s"}' % self.token.encode())


if __name__ == "__main__":
    unittest.main()
