"""A wall clock that stands behind what the store has seen: nothing is issued until it has caught up."""

import os
import sqlite3
import time
import unittest
import uuid

from gateway import Gateway
from metrics import Metrics
from waiting import wait_equal

SKEW_S = 1


class ClockCase(unittest.TestCase):
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


class ClockBehind(ClockCase):
    def test_nothing_is_issued_or_renewed_until_the_clock_has_caught_up_and_ends_go_on(self):
        self.seen_ahead(SKEW_S + 12)
        status, _, problem = self.grant()
        self.assertEqual((status, problem["code"]), (503, "service_not_ready"))
        self.assertIn("clock", problem["detail"])
        status, _, problem = self.gateway.rest("POST", f"/leases/{self.lease_id}/renew", {})
        self.assertEqual((status, problem["code"]), (503, "service_not_ready"))
        self.assertEqual(self.readiness(), (503, False))
        self.assertGreater(Metrics.of(self.gateway)["leasehold_clock_behind_seconds"], SKEW_S)
        self.gateway.expect(202, "DELETE", f"/leases/{self.lease_id}")
        wait_equal(self, 201, lambda: self.grant()[0])
        self.assertEqual(self.readiness(), (200, True))


YEAR_S = 365 * 24 * 3600


class ClockReset(ClockCase):
    """A clock that was far ahead by mistake: the operator lowers its mark."""

    def sql(self, command, *values):
        db = sqlite3.connect(os.path.join(self.gateway.dir, "data", "leasehold.db"))
        with db:
            rows = db.execute(command, values).fetchall()
        db.close()
        return rows

    def reset(self, *args):
        done = self.gateway.run_program("leasehold", "clock-reset", "--config", self.gateway.config, *args)
        return done.returncode, done.stdout, done.stderr

    def was_a_year_ahead(self):
        """As if lease and sandbox had been made then: what was made before has ended by then."""
        self.gateway.stop()
        self.sql("UPDATE leases SET expires_at = expires_at + ?", YEAR_S * 1000)
        self.sql(
            "UPDATE sandboxes SET expires_at = expires_at + ?1, max_expires_at = max_expires_at + ?1",
            YEAR_S * 1000,
        )
        self.seen_ahead(YEAR_S)
        self.assertEqual(self.grant()[0], 503)
        self.gateway.stop()

    def test_an_answer_of_that_time_is_given_again_no_longer_than_others(self):
        headers = {"Idempotency-Key": "once"}
        body = {"user_id": str(uuid.uuid4())}
        self.assertEqual(self.gateway.rest("POST", "/chats", body, headers=headers)[0], 201)
        self.was_a_year_ahead()
        self.sql("UPDATE idempotency SET created_at = created_at + ?", YEAR_S * 1000)
        self.assertEqual(self.reset("--mark", self.mark(), "--reason", "the battery was flat")[0], 0)
        ((made,),) = self.sql("SELECT created_at FROM idempotency")
        self.assertLess(abs(made / 1000 - time.time()), 3600)
        self.gateway.start()
        _, sent, _ = self.gateway.rest("POST", "/chats", body, headers=headers)
        self.assertEqual(sent["Idempotent-Replayed"], "true")

    def mark(self):
        status, out, _ = self.reset()
        self.assertEqual(status, 0)
        self.assertIn("the 1 open leases", out)
        return out.split("--mark ")[1].split()[0]

    def test_issuing_goes_on_and_nothing_of_that_time_lives(self):
        self.was_a_year_ahead()
        status, out, err = self.reset("--mark", self.mark(), "--reason", "the battery was flat")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("revoked 1 open leases", out)
        ((state, reason),) = self.sql("SELECT state, revoked_reason FROM leases")
        self.assertEqual((state, reason), ("revoking", "clock_reset"))
        ((until,),) = self.sql("SELECT max_expires_at FROM sandboxes")
        self.assertLess(until, (time.time() + YEAR_S / 2) * 1000)
        self.gateway.start()
        self.assertEqual(self.gateway.rest("POST", f"/leases/{self.lease_id}/renew", {})[0], 409)
        self.assertEqual(self.grant()[0], 201)
        self.assertEqual(self.readiness(), (200, True))
        listed = self.gateway.expect(200, "GET", "/audit?action=clock.reset")["items"]
        self.assertEqual([(one["actor"], one["object"]) for one in listed], [("operator", "clock:mark")])
        self.assertIn("leases=1 reason=the battery was flat", listed[0]["detail"])
        self.gateway.stop()
        self.assertIn("nothing to do", self.reset()[1])

    def test_it_wants_the_exact_mark_a_reason_and_a_gateway_that_is_stopped(self):
        self.was_a_year_ahead()
        mark = self.mark()
        before = self.sql("SELECT at FROM high_water")
        self.assertEqual(self.reset("--mark", mark)[0], 2)
        self.assertEqual(self.reset("--mark", mark, "--reason", "")[0], 2)
        other = mark.replace(mark[:4], str(int(mark[:4]) + 1))
        status, _, err = self.reset("--mark", other, "--reason", "a typing error")
        self.assertEqual(status, 1)
        self.assertIn(f"the mark stands at {mark}", err)
        self.gateway.start()
        self.assertEqual(self.reset("--mark", mark, "--reason", "too early")[0], 1)
        self.assertEqual(self.grant()[0], 503)
        self.gateway.stop()
        self.assertEqual(self.sql("SELECT at FROM high_water"), before)
        self.assertNotEqual(self.sql("SELECT state FROM leases"), [("revoking",)])


if __name__ == "__main__":
    unittest.main()
