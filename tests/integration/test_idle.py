"""A sandbox's time: idle TTL counted from what the door sees, max TTL, and what ends with it."""

import time
import unittest

from gateway import Gateway
from waiting import PATIENCE_S, wait_for


def echo(test, client, line):
    client.send_text(line)
    _, got = client.recv()
    test.assertEqual(got.decode(), line)


class Idle(unittest.TestCase):
    def start(self, **sandbox):
        self.gateway = Gateway.for_test(self, {"sandbox": {"cleanup_interval_seconds": 1, **sandbox}})
        self.chat = self.gateway.new_chat()["chat_id"]

    def status(self, session):
        return self.gateway.expect(200, "GET", f"/sandboxes/{session}")

    def wait_ended(self, session):
        ended = lambda: self.status(session)["status"] in ("stopped", "failed")
        wait_for(self, "the sandbox's end", ended)
        return self.status(session)

    def test_an_idle_sandbox_is_stopped_its_clients_closed_with_4408_and_nothing_left(self):
        self.start(ttl_seconds=2)
        sandbox, grant = self.gateway.open(self.chat, lease={})
        client = self.gateway.connect(grant)
        ended = self.wait_ended(sandbox["session_id"])
        self.assertEqual((ended["status"], ended["reason"]), ("stopped", "idle"))
        self.assertEqual(client.wait_closed(), 4408)
        lease = self.gateway.expect(200, "GET", f"/leases/{grant['lease']['lease_id']}")
        self.assertEqual((lease["state"], lease["revoked_reason"]), ("closed", "idle"))
        self.assertEqual(self.gateway.sandboxes_left(), [])

    def test_traffic_at_the_door_keeps_a_sandbox_alive(self):
        self.start(ttl_seconds=5)
        sandbox, grant = self.gateway.open(self.chat, lease={})
        client = self.gateway.connect(grant)
        until = time.monotonic() + 8
        while time.monotonic() < until:
            echo(self, client, "still here")
            time.sleep(0.3)
        self.assertEqual(self.status(sandbox["session_id"])["status"], "running")
        client.close()
        self.assertEqual(self.wait_ended(sandbox["session_id"])["reason"], "idle")

    def test_the_maximum_ends_a_busy_sandbox_too(self):
        self.start(ttl_seconds=3, max_ttl_seconds=4)
        sandbox, grant = self.gateway.open(self.chat, lease={})
        client = self.gateway.connect(grant)
        deadline = time.monotonic() + PATIENCE_S
        code = None
        while code is None and time.monotonic() < deadline:
            try:
                echo(self, client, "busy")
                time.sleep(0.1)
            except Exception:  # pylint: disable=broad-except
                code = client.close_code
        self.assertIn(code, (4401, 4408))
        self.assertEqual(self.wait_ended(sandbox["session_id"])["reason"], "max_ttl")

    def test_opening_again_counts_as_activity(self):
        self.start(ttl_seconds=5)
        sandbox, _ = self.gateway.open(self.chat)
        until = time.monotonic() + 8
        while time.monotonic() < until:
            time.sleep(0.6)
            again, _ = self.gateway.open(self.chat)
            self.assertEqual(again["session_id"], sandbox["session_id"])
        self.assertEqual(self.wait_ended(sandbox["session_id"])["reason"], "idle")

    def test_an_expired_session_is_replaced_by_the_next_open_before_any_clean_up(self):
        self.start(ttl_seconds=1, cleanup_interval_seconds=3600)
        sandbox, _ = self.gateway.open(self.chat)
        time.sleep(1.3)
        fresh, _ = self.gateway.open(self.chat)
        self.assertNotEqual(fresh["session_id"], sandbox["session_id"])
        old = self.status(sandbox["session_id"])
        self.assertEqual((old["status"], old["reason"]), ("stopped", "idle"))


if __name__ == "__main__":
    unittest.main()
