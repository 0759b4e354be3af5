"""kill -9 of the gateway and of everything it starts: conversations, adoption, and nothing left."""

import os
import signal
import sqlite3
import subprocess
import time
import unittest

from gateway import BIN, Gateway
from waiting import wait_for
from ws import WsClosed


def echo(test, client, line):
    client.send_text(line)
    _, got = client.recv()
    test.assertEqual(got.decode(), line)


class Recovery(unittest.TestCase):
    def start(self, **overrides):
        self.gateway = Gateway.for_test(self, overrides)
        self.chat = self.gateway.new_chat()["chat_id"]
        return self.gateway

    def processes_named(self, name):
        return [p for p in self.gateway.sandboxes_left() if p.name == name]

    def test_a_conversation_goes_on_while_the_gateway_is_killed_and_restarted(self):
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        echo(self, client, "before")
        gateway.kill9()
        for n in range(10):
            echo(self, client, f"without a gateway {n}")
            time.sleep(0.05)
        gateway.start()
        echo(self, client, "after")
        again, _ = gateway.open(self.chat)
        self.assertEqual(again["session_id"], sandbox["session_id"])
        # The adopted door obeys the new gateway: its live connection is cut.
        lease_id = grant["lease"]["lease_id"]
        wait_for(
            self,
            "the door's return",
            lambda: gateway.expect(200, "GET", f"/leases/{lease_id}")["connections"] == 1,
        )
        answer = gateway.expect(200, "DELETE", f"/leases/{lease_id}?wait_ms=5000")
        self.assertEqual(answer["doors"][0]["cut"], 1)
        self.assertEqual(client.wait_closed(), 4403)

    def test_sigterm_leaves_healthy_sandboxes_running(self):
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        self.assertEqual(gateway.stop(), 0)
        echo(self, client, "nobody home")
        gateway.start()
        again, _ = gateway.open(self.chat)
        self.assertEqual(again["session_id"], sandbox["session_id"])
        echo(self, client, "still the same")

    def test_sigterm_at_the_very_moment_it_is_ready_is_a_clean_end(self):
        gateway = Gateway.for_test(self, start=False)
        ready = os.path.join(gateway.run_dir, "ready")
        env = {k: v for k, v in os.environ.items() if not k.startswith("LEASEHOLD_")}
        for _ in range(20):
            process = subprocess.Popen(
                [os.path.join(BIN, "leasehold"), "run", "--config", gateway.config],
                cwd=gateway.dir,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=env,
            )
            while process.poll() is None and not os.path.exists(ready):
                pass
            process.terminate()
            self.assertEqual(process.wait(30), 0)

    def test_a_door_without_gateway_cuts_with_4503_after_the_seal_time(self):
        gateway = self.start(lease={"stale_after_seconds": 1, "seal_after_seconds": 5})
        sandbox, grant = gateway.open(self.chat, lease={"max_connections": 8})
        client = gateway.connect_again(grant)
        gateway.kill9()
        wait_for(self, "a refusal", lambda: self.verdict(grant) == 4503)
        echo(self, client, "stale doors keep who is there")
        self.assertEqual(client.wait_closed(), 4503)
        gateway.start()
        gateway.connect_again(grant).close()

    def verdict(self, grant):
        """Of the door on one more client: the code with which it closes, or None."""
        try:
            self.gateway.connect(grant).close()
        except WsClosed as closed:
            return closed.code
        return None

    def test_a_door_comes_back_to_a_gateway_that_listened_long_before_it_served(self):
        gateway = self.start(lease={"stale_after_seconds": 3})
        _, grant = gateway.open(self.chat, lease={})
        gateway.kill9()
        gateway.start()
        os.kill(gateway.process.pid, signal.SIGSTOP)  # as one that checks a large database
        try:
            time.sleep(7)  # the door goes stale, connects anew, and that is not answered in 3 s
        finally:
            os.kill(gateway.process.pid, signal.SIGCONT)
        lease_id = grant["lease"]["lease_id"]
        wait_for(
            self,
            "the door's return",
            lambda: gateway.expect(200, "GET", f"/leases/{lease_id}")["state"] == "active",
        )

    def test_a_lease_revoked_while_the_door_was_away_is_cut_at_its_return(self):
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        [door] = self.processes_named("leasedoor")
        os.kill(door.pid, signal.SIGSTOP)
        try:
            lease_id = grant["lease"]["lease_id"]
            answer = gateway.expect(202, "DELETE", f"/leases/{lease_id}?wait_ms=200")
            self.assertEqual(answer["unconfirmed"], [lease_id])
            self.assertFalse(answer["doors"][0]["acked"])
            self.assertIn(
                gateway.expect(200, "GET", f"/leases/{lease_id}")["state"],
                ("revoking", "unconfirmed"),
            )
            gateway.kill9()
            gateway.start()
        finally:
            os.kill(door.pid, signal.SIGCONT)
        self.assertEqual(client.wait_closed(), 4403)
        wait_for(
            self,
            "the lease to be closed",
            lambda: gateway.expect(200, "GET", f"/leases/{lease_id}")["state"] == "closed",
        )

    def test_what_died_while_the_gateway_was_away_is_failed_and_removed(self):
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        gateway.kill9()
        for keep in self.processes_named("leasekeep"):
            keep.send(signal.SIGKILL)
        gateway.start()
        ended = wait_for(
            self,
            "the session to be failed",
            lambda: (
                lambda s: s if s["status"] == "failed" else None
            )(gateway.expect(200, "GET", f"/sandboxes/{sandbox['session_id']}")),
        )
        self.assertEqual(ended["reason"], "engine_lost")
        lease = gateway.expect(200, "GET", f"/leases/{grant['lease']['lease_id']}")
        self.assertEqual(lease["state"], "closed")
        self.assert_nothing_left()

    def assert_nothing_left(self):
        wait_for(self, "no process to be left", lambda: not self.gateway.sandboxes_left())
        left = [n for n in os.listdir(self.gateway.run_dir) if len(n) == 36]
        self.assertEqual(left, [])
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            self.assertNotIn(self.gateway.dir, mounts.read())

    def killed_part_is_noticed(self, name, reason):
        gateway = self.start(sandbox={"cleanup_interval_seconds": 3600})
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        victims = self.processes_named(name)
        self.assertTrue(victims, f"no {name} runs")
        for victim in victims:
            victim.send(signal.SIGKILL)
        # It is noticed, not found by a clean-up round.
        ended = wait_for(
            self,
            "the session to be failed",
            lambda: (
                lambda s: s if s["status"] == "failed" else None
            )(gateway.expect(200, "GET", f"/sandboxes/{sandbox['session_id']}")),
        )
        self.assertRegex(ended["reason"], reason)
        lease = gateway.expect(200, "GET", f"/leases/{grant['lease']['lease_id']}")
        self.assertEqual(lease["state"], "closed")
        self.assertIn(client.wait_closed(), (4403, 4411, 1006))
        self.assert_nothing_left()
        fresh, _ = gateway.open(self.chat)
        self.assertNotEqual(fresh["session_id"], sandbox["session_id"])

    def test_a_killed_door_ends_the_session_with_door_lost(self):
        self.killed_part_is_noticed("leasedoor", "^door_lost$")

    def test_a_killed_leasekeep_takes_the_sandbox_with_it(self):
        self.killed_part_is_noticed("leasekeep", "^engine_lost$")

    def test_a_killed_agent_ends_the_session(self):
        self.killed_part_is_noticed("demo-agent", "^(exited|signaled)")

    def test_without_a_gateway_a_sandbox_ends_after_its_longest_life(self):
        gateway = self.start(sandbox={"ttl_seconds": 2, "max_ttl_seconds": 2,
                                      "cleanup_interval_seconds": 1})
        sandbox, _ = gateway.open(self.chat)
        gateway.kill9()
        wait_for(self, "the end of the sandbox", lambda: not self.processes_named("leaseinit") and
                 not self.processes_named("leasekeep"))
        gateway.start()
        row = wait_for(self, "its record", lambda: (
            lambda s: s["status"] in ("stopped", "failed") and s
        )(gateway.expect(200, "GET", f"/sandboxes/{sandbox['session_id']}")))
        self.assertEqual(row["reason"], "max_ttl")

    def test_a_killed_leaseinit_ends_the_session(self):
        self.killed_part_is_noticed("leaseinit", "^(exited|signaled|engine_lost)")

    def test_nothing_acknowledged_is_lost_by_kill_9_at_random_moments(self):
        gateway = self.start(lease={"per_session": 1000})
        chats, leases, revoked = [], [], []
        for round_number in range(4):
            sandbox, _ = gateway.open(self.chat)
            for _ in range(5 + round_number):
                chats.append(gateway.new_chat()["chat_id"])
                grant = gateway.expect(201, "POST", "/leases", {"chat_id": self.chat})
                leases.append(grant["lease"]["lease_id"])
            victim = leases[-1]
            gateway.expect(202, "DELETE", f"/leases/{victim}")
            revoked.append(victim)
            gateway.kill9()
            gateway.start()
        for chat in chats:
            gateway.expect(200, "GET", f"/chats/{chat}")
        for lease in leases:
            state = gateway.expect(200, "GET", f"/leases/{lease}")["state"]
            if lease in revoked:
                self.assertIn(state, ("revoking", "unconfirmed", "closed"))
            else:
                self.assertIn(state, ("pending", "active"))

    def test_a_half_started_sandbox_of_a_killed_gateway_is_removed_at_the_next_start(self):
        gateway = self.start()
        sandbox, _ = gateway.open(self.chat)
        gateway.kill9()
        # As if the gateway had died between start and record.
        with sqlite3.connect(os.path.join(gateway.dir, "data", "leasehold.db")) as db:
            db.execute(
                "UPDATE sandboxes SET status = 'starting', door_pid = 0, door_start = 0,"
                " keep_pid = 0, keep_start = 0"
            )
        db.close()
        gateway.start()
        wait_for(
            self,
            "the session to be ended",
            lambda: gateway.expect(200, "GET", f"/sandboxes/{sandbox['session_id']}")["status"]
            == "failed",
        )
        self.assert_nothing_left()

    def test_a_stop_that_could_not_remove_everything_is_finished_by_a_cleanup_round(self):
        gateway = self.start(sandbox={"cleanup_interval_seconds": 1})
        sandbox, _ = gateway.open(self.chat, lease={})
        # What is a mount point cannot be unlinked.
        log = os.path.join(gateway.run_dir, sandbox["session_id"], "door.log")
        subprocess.run(["mount", "--bind", log, log], check=True)
        try:
            path = f"/sandboxes/{sandbox['session_id']}"
            status, _, body = gateway.rest("POST", path + "/stop", {})
            self.assertEqual((status, body["code"]), (500, "sandbox_stop_failed"))
            self.assertEqual(gateway.expect(200, "GET", path)["status"], "stopping")
            # Also by a gateway that was started into it.
            gateway.kill9()
            gateway.start()
            self.assertEqual(gateway.expect(200, "GET", path)["status"], "stopping")
        finally:
            subprocess.run(["umount", log], check=True)
        wait_for(
            self, "the stop", lambda: gateway.expect(200, "GET", path)["status"] == "stopped"
        )
        self.assert_nothing_left()

    def test_a_run_directory_without_a_row_is_swept(self):
        gateway = self.start()
        sandbox, _ = gateway.open(self.chat)
        gateway.kill9()
        with sqlite3.connect(os.path.join(gateway.dir, "data", "leasehold.db")) as db:
            db.execute("PRAGMA foreign_keys = OFF")
            db.execute("DELETE FROM sandboxes")
        db.close()
        gateway.start()
        self.assert_nothing_left()

    def test_a_second_gateway_on_one_run_directory_is_refused(self):
        gateway = self.start()
        done = gateway.run_program("leasehold", "run", "--config", gateway.config)
        self.assertEqual(done.returncode, 1)
        self.assertIn("another gateway runs", done.stderr)
        with open(os.path.join(gateway.run_dir, "ready"), encoding="ascii") as ready:
            self.assertEqual(ready.read().split(), [gateway.url, str(gateway.process.pid)])

    def test_a_store_that_is_gone_is_never_silently_made_anew(self):
        gateway = self.start()
        gateway.stop()
        db = os.path.join(gateway.dir, "data", "leasehold.db")
        os.rename(db, db + ".away")
        done = gateway.run_program("leasehold", "run", "--config", gateway.config)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no metadata at", done.stderr)
        self.assertFalse(os.path.exists(db))
        os.rename(db + ".away", db)
        gateway.start()
        gateway.expect(200, "GET", f"/chats/{self.chat}")

    def test_a_further_admin_key_and_the_audit_trail_by_command(self):
        gateway = self.start()
        done = gateway.run_program("leasehold", "audit-verify", "--config", gateway.config)
        self.assertEqual(done.returncode, 1)  # it runs
        gateway.stop()
        done = gateway.run_program("leasehold", "admin-key", "--config", gateway.config)
        self.assertEqual(done.returncode, 1)
        self.assertIn("exists already", done.stderr)
        os.remove(os.path.join(gateway.dir, "admin.key"))
        done = gateway.run_program("leasehold", "admin-key", "--config", gateway.config)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = gateway.run_program("leasehold", "audit-verify", "--config", gateway.config)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the chain is whole", done.stdout)
        gateway.start()
        with open(os.path.join(gateway.dir, "admin.key"), encoding="ascii") as key:
            gateway.expect(200, "GET", f"/chats/{self.chat}", key=key.read().strip())


if __name__ == "__main__":
    unittest.main()
