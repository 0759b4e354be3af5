"""What /metrics and the log tell is what happened, counted against known sequences."""

import os
import signal
import subprocess
import threading
import time
import unittest
import uuid

import processes
from gateway import Gateway
from metrics import Metrics
from waiting import until, wait_equal, wait_for

KEPT_NAMES = {  # acceptance: sandbox life cycle
    "sandbox_create_total",
    "sandbox_active_count",
    "sandbox_cleanup_total",
    "sandbox_cleanup_error_total",
    "sandbox_runtime_create_duration_seconds",
    "sandbox_runtime_stop_duration_seconds",
    "sandbox_runtime_list_active_duration_seconds",
    "sandbox_runtime_error_total",
}
EVENTS = {
    "sandbox_created",
    "sandbox_reused",
    "sandbox_replaced",
    "sandbox_cleaned",
    "sandbox_clean_failed",
}
BROKEN = {"name": "broken", "command": ["/no/such/program"]}


class Case(unittest.TestCase):
    def events(self):
        return [e["event"] for e in self.gateway.log_lines() if e["event"] in EVENTS]

    def now(self):
        return Metrics.of(self.gateway)

    def eventually(self, name, wanted):
        wait_equal(self, wanted, lambda: self.now().named(name))


class Sandboxes(Case):
    def setUp(self):
        self.gateway = Gateway.for_test(
            self, {"sandbox": {"ttl_seconds": 300, "cleanup_interval_seconds": 3600}}
        )
        self.chat = self.gateway.new_chat()["chat_id"]

    def test_created_reused_replaced_and_cleaned(self):
        first, _ = self.gateway.open(self.chat)
        self.assertEqual(self.now()["sandbox_active_count"], 1)
        self.gateway.open(self.chat, idle_ttl_s=1)
        time.sleep(1.1)
        second, _ = self.gateway.open(self.chat)
        self.assertEqual(self.now()["sandbox_active_count"], 1)
        self.gateway.expect(200, "POST", f"/sandboxes/{second['session_id']}/stop", {})

        m = self.now()
        self.assertEqual(
            m.named("sandbox_create_total"), {"created": 1, "reused": 1, "replaced": 1}
        )
        self.assertEqual(m["sandbox_active_count"], 0)
        self.assertEqual(m["sandbox_cleanup_total"], 1)
        self.assertEqual(m.named("sandbox_cleanup_error_total"), {})
        self.assertEqual(
            m["sandbox_runtime_create_duration_seconds_count", "create_sandbox", "success"], 2
        )
        self.assertEqual(
            m["sandbox_runtime_stop_duration_seconds_count", "stop_sandbox", "success"], 2
        )
        self.assertEqual(
            self.events(),
            [
                "sandbox_created",
                "sandbox_reused",
                "sandbox_replaced",
                "sandbox_created",
                "sandbox_cleaned",
            ],
        )
        (replaced,) = self.gateway.log_lines("sandbox_replaced")
        self.assertEqual(replaced["previous_session_id"], first["session_id"])
        self.assertEqual(replaced["previous_container_id"], first["container_id"])
        self.assertEqual(replaced["session_id"], second["session_id"])

    def test_parallel_creates_are_one_created_and_the_rest_reused(self):
        def create():
            self.gateway.expect(200, "POST", "/create", {"chat_id": self.chat})

        threads = [threading.Thread(target=create) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        m = self.now()
        self.assertEqual(m.named("sandbox_create_total"), {"created": 1, "reused": 19})
        self.assertEqual(m["sandbox_active_count"], 1)
        self.eventually("leasehold_chat_locks", {})

    def test_a_sandbox_that_is_killed_is_cleaned(self):
        sandbox, _ = self.gateway.open(self.chat)
        for process in self.gateway.sandboxes_left():
            if process.name == "leasekeep":
                process.send(signal.SIGKILL)
        until(lambda: self.now()["sandbox_cleanup_total"] == 1)
        self.assertEqual(self.now()["sandbox_active_count"], 0)
        (cleaned,) = self.gateway.log_lines("sandbox_cleaned")
        self.assertEqual(cleaned["session_id"], sandbox["session_id"])

    def test_the_active_count_outlives_the_gateway(self):
        self.gateway.open(self.chat, lease={})
        self.gateway.kill9()
        self.gateway.start()
        m = self.now()
        self.assertEqual(m["sandbox_active_count"], 1)
        self.assertEqual(
            m["sandbox_runtime_list_active_duration_seconds_count", "list_active_sandboxes",
              "success"], 1
        )
        self.assertEqual(m.named("sandbox_create_total"), {})
        self.eventually("leasehold_leases", {"active": 1})
        self.assertEqual(self.now().named("leasehold_door_connects_total"), {"first": 1})


class Failures(Case):
    """Errors at start and at stop are counted, told once, and nothing is forgotten."""

    def setUp(self):
        self.gateway = Gateway.for_test(self, start=False)
        self.gateway.edit_config(
            {
                "sandbox": {"ttl_seconds": 1, "cleanup_interval_seconds": 3600},
                "profiles": [{"name": "default", "command": ["/run/leasehold/demo-agent"]}, BROKEN],
            }
        )
        self.gateway.start()
        self.chat = self.gateway.new_chat()["chat_id"]

    def stuck(self, sandbox):
        """A mount in the run directory keeps it from being removed."""
        path = os.path.join(self.gateway.run_dir, sandbox["session_id"], "stuck")
        os.mkdir(path)
        subprocess.run(["mount", "-t", "tmpfs", "none", path], check=True)
        self.addCleanup(subprocess.run, ["umount", path], stderr=subprocess.DEVNULL, check=False)
        return path

    def failed_tries(self):
        """How often it was tried: the end of each process of the sandbox is a reason to look."""

        def still():
            tries = len(self.events())
            time.sleep(1)
            return len(self.events()) == tries and self.now()["leasehold_lane_depth", "runtime"] == 0

        wait_for(self, "the last of them", still)
        tries = self.events()[1:]
        self.assertEqual(set(tries), {"sandbox_clean_failed"})
        return len(tries)

    def test_a_start_that_fails(self):
        body = {"chat_id": self.chat, "profile": "broken"}
        self.gateway.expect(503, "POST", "/sandboxes", body)
        m = self.now()
        self.assertEqual(m.named("sandbox_create_total"), {"error": 1})
        self.assertEqual(m["sandbox_active_count"], 0)
        self.assertEqual(
            m.named("sandbox_runtime_error_total"), {("create_sandbox", "sandbox_start_failed"): 1}
        )
        self.assertEqual(
            m["sandbox_runtime_create_duration_seconds_count", "create_sandbox", "error"], 1
        )
        self.assertEqual(self.events(), [])

    def test_a_stop_that_fails_is_reported_and_works_when_tried_again(self):
        sandbox, _ = self.gateway.open(self.chat)
        path = self.stuck(sandbox)
        stop = f"/sandboxes/{sandbox['session_id']}/stop"
        answer = self.gateway.expect(500, "POST", stop, {})
        self.assertEqual(answer["code"], "sandbox_stop_failed")
        tries = self.failed_tries()
        m = self.now()
        self.assertEqual(m.named("sandbox_cleanup_error_total"), {"sandbox_stop_failed": tries})
        self.assertEqual(
            m.named("sandbox_runtime_error_total"),
            {("stop_sandbox", "sandbox_stop_failed"): tries},
        )
        subprocess.run(["umount", path], check=True)
        self.gateway.expect(200, "POST", stop, {})
        self.assertEqual(self.now()["sandbox_cleanup_total"], 1)
        self.assertEqual(
            self.events(),
            ["sandbox_created", *["sandbox_clean_failed"] * tries, "sandbox_cleaned"],
        )

    def test_nothing_new_starts_when_the_old_one_cannot_be_ended(self):
        sandbox, _ = self.gateway.open(self.chat)
        path = self.stuck(sandbox)
        time.sleep(1.1)
        self.gateway.expect(500, "POST", "/sandboxes", {"chat_id": self.chat})
        m = self.now()
        self.assertEqual(m.named("sandbox_create_total"), {"created": 1, "error": 1})
        tries = self.failed_tries()
        subprocess.run(["umount", path], check=True)
        self.gateway.open(self.chat)
        self.assertEqual(
            self.events(),
            [
                "sandbox_created",
                *["sandbox_clean_failed"] * tries,
                "sandbox_replaced",
                "sandbox_created",
            ],
        )


class Leases(Case):
    def setUp(self):
        self.gateway = Gateway.for_test(self)
        self.chat = self.gateway.new_chat()["chat_id"]
        self.sandbox, self.grant = self.gateway.open(self.chat, lease={})

    def lease(self, **members):
        body = {"session_id": self.sandbox["session_id"], **members}
        return self.gateway.expect(201, "POST", "/leases", body)

    def test_a_lease_is_counted_in_each_state_and_each_end(self):
        second, third = self.lease(), self.lease()
        self.eventually("leasehold_leases", {"active": 3})
        renew = f"/leases/{second['lease']['lease_id']}/renew"
        self.gateway.expect(200, "POST", renew, {})
        client = self.gateway.connect(self.grant)
        self.addCleanup(client.close)
        self.eventually("leasehold_door_connections", {(): 1})
        revoke = {"selector": {"lease_id": self.grant["lease"]["lease_id"]}, "wait_ms": 5000}
        self.gateway.expect(200, "POST", "/leases/revoke", revoke)
        self.eventually("leasehold_leases", {"active": 2})
        m = self.now()
        self.assertEqual(m["leasehold_lease_grants_total"], 3)
        self.assertEqual(m["leasehold_lease_renewals_total"], 1)
        self.assertEqual(m["leasehold_lease_admissions_total"], 1)
        self.assertEqual(m.named("leasehold_lease_revocations_total"), {"revoked": 1})
        self.assertEqual(m["leasehold_lease_cut_latency_seconds_count"], 1)
        self.assertEqual(m["leasehold_door_cut_latency_seconds_count"], 1)
        self.assertGreaterEqual(
            m["leasehold_lease_cut_latency_seconds_sum"],
            m["leasehold_door_cut_latency_seconds_sum"],
        )
        self.eventually("leasehold_door_connections", {})

        self.gateway.expect(200, "POST", f"/sandboxes/{self.sandbox['session_id']}/stop", {})
        self.eventually("leasehold_leases", {})
        m = self.now()
        self.assertEqual(m.named("leasehold_lease_revocations_total"), {"revoked": 3})
        self.assertEqual(m["leasehold_doors_live"], 0)
        self.assertEqual(m.named("leasehold_door_connects_total"), {"first": 1})
        self.assertIn("lease_id", third["lease"])

    def test_a_lease_that_runs_out(self):
        self.lease(ttl_s=2)
        self.eventually("leasehold_lease_revocations_total", {"expired": 1})
        self.eventually("leasehold_leases", {"active": 1})

    def test_a_door_that_is_away_leaves_its_leases_unconfirmed(self):
        door = next(p for p in self.gateway.sandboxes_left() if p.name == "leasedoor")
        door.send(signal.SIGSTOP)
        try:
            revoke = {"selector": {"session_id": self.sandbox["session_id"]}}
            self.gateway.expect(202, "POST", "/leases/revoke", revoke)
            self.assertEqual(self.now().named("leasehold_leases"), {"revoking": 1})
            self.eventually("leasehold_leases", {"unconfirmed": 1})
        finally:
            door.send(signal.SIGCONT)
        self.eventually("leasehold_leases", {})

    def test_denials_by_verdict(self):
        revoke = {"selector": {"lease_id": self.grant["lease"]["lease_id"]}, "wait_ms": 5000}
        token = self.grant["token"]
        self.gateway.expect(200, "POST", "/leases/revoke", revoke)
        forged = token[:-4] + ("AAAA" if not token.endswith("AAAA") else "BBBB")
        for text in (token, forged, "nonsense"):
            with self.assertRaises(Exception):
                self.gateway.dial(self.grant["endpoint"], text).recv()
        until(lambda: sum(self.now().named("leasehold_lease_denials_total").values()) == 3)
        self.assertEqual(
            self.now().named("leasehold_lease_denials_total"),
            {"not_listed": 1, "bad_signature": 1, "malformed": 1},
        )


class Exposition(Case):
    def setUp(self):
        self.gateway = Gateway.for_test(self)

    def test_it_needs_no_key_and_says_its_format(self):
        status, headers, _ = self.gateway.rest("GET", "//metrics", key="")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")

    def test_every_metric_has_help_and_type_and_the_kept_names_are_there(self):
        _, _, body = self.gateway.rest("GET", "//metrics", key="")
        lines = body.decode().splitlines()
        helped = [line.split()[2] for line in lines if line.startswith("# HELP")]
        typed = [line.split()[2] for line in lines if line.startswith("# TYPE")]
        self.assertEqual(helped, typed)
        self.assertLessEqual(KEPT_NAMES, set(typed))

    def test_off_it_is_not_there(self):
        self.gateway.edit_config({"metrics": {"enabled": False}})
        self.gateway.restart()
        self.assertEqual(self.gateway.rest("GET", "//metrics", key="")[0], 404)

    def test_calls_by_operation_and_status(self):
        before = self.now()
        chat = self.gateway.new_chat()["chat_id"]
        self.gateway.expect(200, "GET", f"/chats/{chat}")
        self.gateway.expect(404, "GET", f"/chats/{uuid.uuid4()}")
        self.gateway.expect(401, "GET", f"/chats/{chat}", key="wrong")
        self.gateway.expect(404, "GET", "/nothing")
        after = self.now().since(before)
        self.assertEqual(
            after.named("leasehold_requests_total"),
            {
                ("chat.create", "2xx"): 1,
                ("chat.get", "2xx"): 1,
                ("chat.get", "4xx"): 2,
                ("none", "4xx"): 1,
                ("metrics", "2xx"): 1,
            },
        )
        self.assertEqual(after["leasehold_request_duration_seconds_count", "chat.get"], 3)

    def test_no_client_can_make_a_series(self):
        before = set(self.now().samples)
        for word in ("a", "b\"}", "%0a", "x" * 300):
            self.gateway.rest("GET", f"/{word}", key=word.replace("%", ""))
            self.gateway.rest("POST", "/leases/revoke", {"selector": {}, "reason": word})
        chat = self.gateway.new_chat()["chat_id"]
        sandbox, _ = self.gateway.open(chat, lease={})
        revoke = {"selector": {"session_id": sandbox["session_id"]}, "reason": "any\"thing"}
        self.gateway.expect((200, 202), "POST", "/leases/revoke", revoke)
        self.assertEqual(set(self.now().samples), before)

    def test_loop_store_and_process(self):
        before = self.now()
        for _ in range(10):
            self.gateway.new_chat()
        time.sleep(0.6)
        m = self.now()
        after = m.since(before)
        self.assertGreaterEqual(after["leasehold_loop_turns_total"], 10)
        self.assertEqual(
            after["leasehold_loop_turns_total"],
            after["leasehold_loop_turn_duration_seconds_count"],
        )
        busy = after.named("leasehold_loop_turn_duration_seconds_bucket")
        self.assertEqual(
            after["leasehold_loop_long_turn_cpu_seconds_count"],
            after["leasehold_loop_turn_duration_seconds_count"] - busy.get("0.001", 0),
        )
        self.assertGreaterEqual(after["leasehold_loop_lag_seconds_count"], 1)
        self.assertEqual(after["leasehold_store_commits_total"], 10)
        self.assertEqual(after["leasehold_store_group_writes_sum"], 10)
        self.assertEqual(after["leasehold_store_commit_errors_total"], 0)
        self.assertEqual(after["leasehold_lane_wait_seconds_count", "write"], 10)
        # The look at the disk that a start begins with may end only now.
        self.assertGreaterEqual(after["leasehold_lane_wait_seconds_count", "file"], 10)
        pid = self.gateway.process.pid
        wait_for(self, "as many descriptors", lambda: self.now()["process_open_fds"] == len(
            os.listdir(f"/proc/{pid}/fd")))
        self.assertGreater(m["process_resident_memory_bytes"], 1 << 20)
        self.assertLess(abs(m["process_start_time_seconds"] - time.time()), 60)
        self.assertEqual(processes.arguments(pid)[1], "run")

    def test_a_turn_that_had_no_cpu_is_long_but_had_no_cpu_time(self):
        before = self.now()
        over = threading.Event()
        threads = [threading.Thread(target=self.keep_busy, args=(over,), daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            wait_for(self, "a turn in which it was stopped", lambda: self.is_stopped_in_a_turn(before))
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self.assertEqual(self.turns_beyond("leasehold_loop_long_turn_cpu_seconds", before), 0)

    def keep_busy(self, over):
        while not over.is_set():
            self.gateway.rest("GET", "//openapi.json")

    def is_stopped_in_a_turn(self, before):
        """A stopped process has no CPU; in the middle of a turn only if it is in one just then."""
        os.kill(self.gateway.process.pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(self.gateway.process.pid, signal.SIGCONT)
        return self.turns_beyond("leasehold_loop_turn_duration_seconds", before)

    def turns_beyond(self, name, before):
        """Of a quarter of a second."""
        after = self.now().since(before)
        return after[name + "_count"] - after[name + "_bucket", "0.25"]


if __name__ == "__main__":
    unittest.main()
