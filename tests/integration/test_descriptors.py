"""What clients hold open keeps no door out, and doors find a socket that somebody took away."""

import functools
import os
import resource
import shutil
import socket
import subprocess
import threading
import time
import unittest
import urllib.parse
from unittest import mock

import ports
from gateway import Gateway, GatewayError
from waiting import until

LIMIT = 256  # the fewest the daemon takes
SILENT = 400  # more than such a daemon has descriptors
SEAL_S = 8


def limited(soft, hard=None):
    """Programs that are started meanwhile have so many descriptors."""
    limits = (soft, hard or soft)
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
    popen = functools.partial(subprocess.Popen, preexec_fn=limit)
    return mock.patch("subprocess.Popen", popen)


class Silence:
    """Connections that say nothing, each made anew as soon as it ends."""

    def __init__(self, port, count=SILENT):
        self.port, self.count, self.lost = port, count, 0
        self.socks = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def __enter__(self):
        self.thread.start()
        until(lambda: len(self.socks) == self.count)
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        for sock in self.socks:
            sock.close()

    def _run(self):
        while not self.over.wait(0.02):
            for sock in self.socks[:]:
                if self._ended(sock):
                    self.socks.remove(sock)
                    self.lost += 1
            while len(self.socks) < self.count and self._connect():
                pass

    def _connect(self):
        sock = socket.socket()
        sock.settimeout(0.05)
        try:
            sock.connect(("127.0.0.1", self.port))
        except OSError:
            sock.close()
            return False
        sock.setblocking(False)
        self.socks.append(sock)
        return True

    @staticmethod
    def _ended(sock):
        try:
            ended = not sock.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            ended = True
        if ended:
            sock.close()
        return ended


class Flood(unittest.TestCase):
    def setUp(self):
        lease = {"stale_after_seconds": 3, "seal_after_seconds": SEAL_S}
        self.gateway = Gateway.for_test(self, {"http": {"port": ports.reserve()}, "lease": lease}, start=False)
        self.start()
        self.port = urllib.parse.urlsplit(self.gateway.url).port

    def start(self):
        with limited(LIMIT):
            self.gateway.start()

    def open(self):
        return self.gateway.open(self.gateway.new_chat()["chat_id"], lease={})

    def assert_talks(self, client, text):
        client.send_text(text)
        self.assertIn(text.encode(), client.recv()[1])

    def test_silent_clients_keep_no_door_out(self):
        _, grant = self.open()
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        with Silence(self.port) as silence:
            self.assert_talks(client, "before")
            _, other = self.open()
            self.gateway.connect(other).close()
            self.gateway.connection(fresh=True)  # behind all the silent ones
            self.open()
            self.assertTrue(until(lambda: silence.lost > 0))

    def test_doors_come_back_to_a_gateway_that_starts_in_it(self):
        sandbox, grant = self.open()
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        with Silence(self.port):
            self.gateway.kill9()
            self.start()
            end = time.monotonic() + SEAL_S + 5
            while time.monotonic() < end:
                self.assert_talks(client, "still there")
                time.sleep(0.5)
            lease = self.gateway.expect(
                201, "POST", "/leases", {"session_id": sandbox["session_id"]}
            )
            self.gateway.connect(lease).close()
            self.open()

    def test_who_has_asked_before_stays_longer(self):
        kept = self.gateway.connection()
        self.gateway.expect(200, "GET", "//healthz")
        mine = kept.sock
        with Silence(self.port) as silence:
            self.assertTrue(until(lambda: silence.lost > LIMIT))
            self.gateway.expect(200, "GET", "//healthz")
            self.assertIs(kept.sock, mine)


class Minimum(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, start=False)

    def test_too_few_are_refused(self):
        with limited(LIMIT - 1), self.assertRaises(GatewayError) as refused:
            self.gateway.start()
        self.assertIn("255 descriptors are too few: at least 256", str(refused.exception))

    def test_the_soft_limit_is_raised(self):
        with limited(64, 1024):
            self.gateway.start()
        soft, _ = resource.prlimit(self.gateway.process.pid, resource.RLIMIT_NOFILE)
        self.assertEqual(soft, 1024)


class ControlSocket(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self)
        self.path = os.path.join(self.gateway.run_dir, "control.sock")

    def restored(self, times=1):
        return until(lambda: len(self.gateway.log_lines("control_socket_restored")) == times)

    def check(self, status):
        answer = self.gateway.expect(status, "GET", "//readyz")
        return {c["name"]: c["ok"] for c in answer["checks"]}["control_socket"]

    def open(self):
        return self.gateway.open(self.gateway.new_chat()["chat_id"], lease={})

    def test_it_is_made_again(self):
        before = os.stat(self.path)
        self.assertTrue(self.check(200))
        _, grant = self.open()
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        for times in (1, 2):
            os.unlink(self.path)
            self.assertTrue(self.restored(times), self.gateway.log_tail())
            after = os.stat(self.path)
            for what in ("st_mode", "st_uid", "st_gid"):
                self.assertEqual(getattr(after, what), getattr(before, what), what)
        _, other = self.open()
        self.gateway.connect(other).close()
        client.send_text("still there")
        self.assertIn(b"still there", client.recv()[1])
        self.assertTrue(self.check(200))
        self.assertEqual(self.gateway.stop(), 0)
        self.assertFalse(os.path.exists(self.path))

    def test_the_run_directory_with_it(self):
        before = os.stat(self.gateway.run_dir)
        shutil.rmtree(self.gateway.run_dir)
        self.assertTrue(self.restored(), self.gateway.log_tail())
        self.assertEqual(os.stat(self.gateway.run_dir).st_mode, before.st_mode)
        _, grant = self.open()
        self.gateway.connect(grant).close()

    def test_what_another_has_put_there_stays_and_is_told(self):
        os.unlink(self.path)
        with open(self.path, "w", encoding="ascii"):
            pass
        self.assertTrue(until(lambda: self.gateway.log_lines("control_socket_lost")))
        self.assertFalse(self.check(503))
        self.assertTrue(os.path.isfile(self.path))
        os.unlink(self.path)
        self.assertTrue(self.restored())
        self.assertTrue(self.check(200))
        self.open()


if __name__ == "__main__":
    unittest.main()
