#!/usr/bin/python3
"""What holds of a sandbox's time and of a gateway's return, whatever engine runs it: the other half of
test_engine_contract.py.

Rows of the acceptance of sandboxes (sandbox_lifecycle.md), and where each is held on both engines. C is
test_engine_contract.py, T this file; other files are named where only one engine can show it, or each in
its own way.

 1  C old_form_of_create
 2  C reused_and_replaced
 3  C reused_and_replaced, T end_that_fails; names in the trace: test_traces.py
 4  C fifty_creates
 5  C mounts_are_writable, host_path_that_is_missing; tools: test_mounts.py, test_user_tools_docker.py
 6  docker: test_docker.py labels_tell; local has no labels, its run directory is named after the session
 7  C directory_is_a_link, old_form_of_create
 8  C command_that_is_not_there, host_path_that_is_missing; docker: test_docker_faults.py (garbage for an id)
 9  C start_that_cannot_be_recorded
10  C restarted_gateway (a stop of what is stopped), T cleanup_ends, end_that_fails
11  T cleanup_ends, cleanup_leaves_alone; to the very millisecond it is not shown
12  T locks_of_chats
13  C restarted_gateway, T the_newest_stays, over_while_nobody_looked, no_others_sandboxes; a list that fails:
    docker: test_docker.py without_an_engine, test_docker_faults.py list_that_fails; local lists a directory
14  C an_own_end; oom: test_docker.py, test_keep.py; the engine's restart: test_docker.py
15  C restarted_gateway
16  T use_and_renewal
"""

import os
import sqlite3
import subprocess
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from engines import on_each_engine
from gateway import Gateway
from metrics import Metrics

HOUR = 3600


class Contract:
    """Mixed into a class of engines.py."""

    def open(self, idle_s=HOUR):
        """A sandbox of a chat of its own."""
        chat = self.gateway.new_chat()["chat_id"]
        return self.gateway.open(chat, idle_ttl_s=idle_s)[0]

    def end_soon(self, *sandboxes, idle_s=1):
        """They have no longer, from now on."""
        for sandbox in sandboxes:
            self.gateway.open(sandbox["chat_id"], idle_ttl_s=idle_s)

    def get(self, sandbox):
        return self.gateway.expect(200, "GET", f"/sandboxes/{sandbox['session_id']}")

    def wait_ended(self, sandbox):
        self.wait("its end", lambda: self.get(sandbox)["status"] in ("stopped", "failed"))
        found = self.get(sandbox)
        return found["status"], found["reason"]

    def hold(self, sandbox):
        """It cannot be ended until the mount that this makes has gone; how to take it away."""
        path = os.path.join(self.gateway.run_dir, sandbox["session_id"], "held")
        os.mkdir(path)
        subprocess.run(["mount", "-t", "tmpfs", "none", path], check=True)
        self.addCleanup(subprocess.run, ["umount", path], stderr=subprocess.DEVNULL, check=False)
        return lambda: subprocess.run(["umount", path], check=True)

    def failed_ends(self, sandbox):
        told = self.gateway.log_lines("sandbox_clean_failed")
        return [line for line in told if line["session_id"] == sandbox["session_id"]]

    def test_the_cleanup_ends_what_is_over_and_goes_on_behind_a_failure(self):
        gateway = self.start(sandbox={"cleanup_interval_seconds": 1})
        lasting = self.open()
        over = [self.open() for _ in range(3)]
        let_go = self.hold(over[0])
        self.end_soon(*over)
        for sandbox in over[1:]:
            self.assertEqual(self.wait_ended(sandbox), ("stopped", "idle"))
        self.wait("the failure", lambda: self.failed_ends(over[0]))
        self.assertEqual(self.get(over[0])["status"], "stopping")
        let_go()
        self.assertEqual(self.wait_ended(over[0]), ("stopped", "idle"))
        self.assertEqual(self.get(lasting)["status"], "running")
        self.assertEqual(self.sessions(), {lasting["session_id"]})
        cleaned = {line["session_id"] for line in gateway.log_lines("sandbox_cleaned")}
        self.assertEqual(cleaned, {sandbox["session_id"] for sandbox in over})

    def test_the_cleanup_leaves_alone_what_was_replaced_or_used_meanwhile(self):
        gateway = self.start(sandbox={"cleanup_interval_seconds": 1})
        sandboxes = [self.open(idle_s=1) for _ in range(4)]
        time.sleep(0.9)  # each round finds some of them over, while they are opened again
        with ThreadPoolExecutor(4) as pool:
            again = list(pool.map(lambda s: gateway.open(s["chat_id"], idle_ttl_s=HOUR)[0], sandboxes))
        time.sleep(2.2)  # two rounds
        self.assertEqual([self.get(s)["status"] for s in again], ["running"] * 4)
        self.assertEqual(self.sessions(), {s["session_id"] for s in again})

    def test_an_end_that_fails_starts_nothing_new_and_forgets_nothing(self):
        gateway = self.start(sandbox={"cleanup_interval_seconds": HOUR})
        sandbox = self.open(idle_s=1)
        let_go = self.hold(sandbox)
        time.sleep(1.2)
        body = {"chat_id": sandbox["chat_id"]}
        self.assertEqual(gateway.expect(500, "POST", "/sandboxes", body)["code"], "sandbox_stop_failed")
        found = gateway.expect(200, "GET", f"/sandboxes?chat_id={sandbox['chat_id']}")["items"]
        self.assertEqual([s["session_id"] for s in found], [sandbox["session_id"]])
        self.assertEqual(self.sessions() - {sandbox["session_id"]}, set())
        let_go()
        fresh = gateway.expect(201, "POST", "/sandboxes", body)["sandbox"]
        self.assertEqual(self.sessions(), {fresh["session_id"]})

    def locks(self):
        return Metrics.of(self.gateway)["leasehold_chat_locks"]

    def test_locks_of_chats_do_not_pile_up_and_waiters_keep_theirs(self):
        late = {"name": "late", "transport": "tcp:7000", "command": self.LATE}
        gateway = self.start(profiles=[{"name": "default", "command": ["/run/leasehold/demo-agent"]}, late])
        with ThreadPoolExecutor(9) as pool:
            slow = [pool.submit(gateway.open, self.chat, profile="late") for _ in range(3)]
            self.wait("their lock", lambda: self.locks() == 1)
            list(pool.map(lambda _: self.open(), range(6)))
            self.wait("only theirs", lambda: self.locks() == 1 or all(s.done() for s in slow))
            self.assertEqual(len({s.result()[0]["session_id"] for s in slow}), 1)
        self.wait("no lock", lambda: self.locks() == 0)
        self.assertEqual(len(self.sessions()), 7)

    def test_of_two_of_a_chat_the_newest_stays(self):
        gateway = self.start(
            sandbox={"cleanup_interval_seconds": 1, "start_timeout_seconds": 4},
            lease={"clock_skew_seconds": 0},
        )
        old, _ = gateway.open(self.chat)
        gateway.kill9()
        db = sqlite3.connect(os.path.join(gateway.dir, "data", "leasehold.db"))
        with db:  # a database of before it was opened
            db.execute("PRAGMA foreign_keys = OFF")
            db.execute("DELETE FROM sandboxes")
        db.close()
        gateway.start()
        new, grant = gateway.open(self.chat, lease={})
        self.assertNotEqual(new["session_id"], old["session_id"])
        client = gateway.connect(grant)
        self.addCleanup(client.close)
        self.wait("one of them", lambda: self.sessions() == {new["session_id"]})
        client.send_text("still")
        self.assertEqual(client.recv()[1], b"still")

    def test_what_was_over_while_nobody_looked_is_ended_at_the_return(self):
        gateway = self.start(sandbox={"cleanup_interval_seconds": 1})
        over, lasting = self.open(idle_s=1), self.open()
        gateway.kill9()
        time.sleep(1.2)
        gateway.start()
        self.assertEqual(self.wait_ended(over), ("stopped", "idle"))
        self.assertEqual(self.get(lasting)["status"], "running")
        self.assertEqual(self.sessions(), {lasting["session_id"]})

    def test_a_return_touches_no_others_sandboxes(self):
        overrides = self.overrides()
        gateway = self.start()
        other = Gateway.for_test(self, overrides)  # of the same engine and name
        _, grant = other.open(other.new_chat()["chat_id"], lease={})
        client = other.connect(grant)
        self.addCleanup(client.close)
        sandbox = self.open()
        gateway.kill9()
        gateway.start()
        self.assertEqual(self.get(sandbox)["status"], "running")
        client.send_text("untouched")
        self.assertEqual(client.recv()[1], b"untouched")

    def test_use_and_renewal_put_off_the_end(self):
        gateway = self.start(sandbox={"ttl_seconds": 7, "cleanup_interval_seconds": 1})
        renewed, idle = self.open(), self.open()
        used, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        self.addCleanup(client.close)
        self.end_soon(renewed, idle, idle_s=7)
        until = time.monotonic() + 9
        while time.monotonic() < until or self.get(idle)["status"] == "running":
            client.send_text("here")
            self.assertEqual(client.recv()[1], b"here")
            gateway.expect(200, "POST", f"/sandboxes/{renewed['session_id']}/renew", {})
            time.sleep(0.2)
        self.assertEqual(self.wait_ended(idle), ("stopped", "idle"))
        self.assertEqual([self.get(s)["status"] for s in (used, renewed)], ["running"] * 2)


OnLocal, OnDocker = on_each_engine(Contract)


if __name__ == "__main__":
    unittest.main()
