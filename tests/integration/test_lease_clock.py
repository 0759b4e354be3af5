"""A wall clock that stands behind what the store has seen: nothing is issued until it has caught up."""

import os
import sqlite3
import time
import unittest

from gateway import Gateway
from metrics import Metrics

SKEW_S = 1


class ClockBehind(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, {"lease": {"clock_skew_seconds": SKEW_S}})
        chat = self.gateway.new_chat()["chat_id"]
        self.sandbox, self.granted = self.gateway.open(chat, lease={})
        self.lease_id = self.granted["lease"]["lease_id"]

    def seen_ahead(self, seconds):
        """As if the machine had been there, and its clock was set back since."""
        self.gateway.stop()
        db = sqlite3.connect(os.path.join(self.gateway.dir, "data", "leasehold.db"))
        with db:
            db.execute("UPDATE high_water SET at = ?", (int((time.time() + seconds) * 1000),))
        db.close()
        self.gateway.start()

    def grant(self):
        body = {"session_id": self.sandbox["session_id"]}
        return self.gateway.rest("POST", "/leases", body)

    def readiness(self):
        status, _, answer = self.gateway.rest("GET", "//readyz")
        return status, {check["name"]: check["ok"] for check in answer["checks"]}["clock"]

    def test_nothing_is_issued_or_renewed_until_the_clock_has_caught_up_and_ends_go_on(self):
        self.seen_ahead(SKEW_S + 6)
        status, _, problem = self.grant()
        self.assertEqual((status, problem["code"]), (503, "service_not_ready"))
        self.assertIn("clock", problem["detail"])
        status, _, problem = self.gateway.rest("POST", f"/leases/{self.lease_id}/renew", {})
        self.assertEqual((status, problem["code"]), (503, "service_not_ready"))
        self.assertEqual(self.readiness(), (503, False))
        self.assertGreater(Metrics.of(self.gateway)["leasehold_clock_behind_seconds"], SKEW_S)
        self.gateway.expect(202, "DELETE", f"/leases/{self.lease_id}")
        deadline = time.monotonic() + 30
        while self.grant()[0] != 201:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.2)
        self.assertEqual(self.readiness(), (200, True))


if __name__ == "__main__":
    unittest.main()
