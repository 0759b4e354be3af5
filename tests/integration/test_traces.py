"""Spans of the sandbox life cycle, taken by a small collector that speaks OTLP over HTTP."""

import http.server
import json
import os
import subprocess
import threading
import time
import unittest

from gateway import Gateway
from metrics import Metrics
from waiting import PATIENCE_S, wait_for

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def traceparent(flags="01"):
    return f"00-{TRACE}-{PARENT}-{flags}"


class Collector:
    """Keeps what it is sent; answers with the statuses given, then 200."""

    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.requests, self.spans = 0, []
        self.resource = None
        self.changed = threading.Condition()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(collector.take(self, body))
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request, body):
        assert request.path == "/v1/traces", request.path
        assert request.headers["Content-Type"] == "application/json"
        with self.changed:
            self.requests += 1
            status = self.statuses.pop(0) if self.statuses else 200
            if status == 200:
                [resource] = body["resourceSpans"]
                [scope] = resource["scopeSpans"]
                self.resource = attributes(resource["resource"])
                self.spans += scope["spans"]
            self.changed.notify_all()
        return status

    def wait(self, name, count=1, timeout=PATIENCE_S):
        """The spans of a name, oldest first, once there are so many."""
        with self.changed:
            found = lambda: [s for s in self.spans if s["name"] == name]
            if not self.changed.wait_for(lambda: len(found()) >= count, timeout):
                raise AssertionError(f"not {count} {name} among {[s['name'] for s in self.spans]}")
            return found()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def attributes(of):
    values = {a["key"]: a["value"] for a in of["attributes"]}
    return {k: v["stringValue"] if "stringValue" in v else int(v["intValue"]) for k, v in values.items()}


class TracesTest(unittest.TestCase):
    def start(self, collector=None, env=None, **config):
        self.collector = collector or Collector()
        self.addCleanup(self.collector.close)
        self.gateway = Gateway.for_test(
            self,
            {"tracing": {"enabled": True}, "otel": {"traces_endpoint": self.collector.url}, **config},
            env=env,
        )
        self.chat = self.gateway.new_chat()["chat_id"]

    def open(self, status=(200, 201), flags="01", **members):
        got, headers, body = self.gateway.rest(
            "POST", "/sandboxes", {"chat_id": self.chat, **members},
            headers={"traceparent": traceparent(flags)},
        )
        self.assertIn(got, (status,) if isinstance(status, int) else status, body)
        return headers["traceparent"].split("-"), body.get("sandbox")

    def logged(self, event):
        [line] = self.gateway.log_lines(event)
        return line


class LifeCycle(TracesTest):
    def test_a_start_and_a_reuse_are_told_with_their_parents(self):
        self.start()
        answered, sandbox = self.open()
        self.open()
        first, second = self.collector.wait("usecase.create_sandbox", 2)
        [start] = self.collector.wait("adapter.local.create_sandbox")
        self.assertEqual((first["traceId"], first["parentSpanId"]), (TRACE, PARENT))
        self.assertEqual(answered, ["00", TRACE, first["spanId"], "01"])
        self.assertEqual((start["traceId"], start["parentSpanId"]), (TRACE, first["spanId"]))
        names = {"chat.id": self.chat, "session.id": sandbox["session_id"],
                 "container.id": sandbox["container_id"]}
        self.assertEqual(attributes(first), {**names, "sandbox.result": "created"})
        self.assertEqual(attributes(second), {**names, "sandbox.result": "reused"})
        self.assertEqual(attributes(start), names)
        self.assertNotEqual(first["spanId"], second["spanId"])
        for span in (first, start):
            self.assertLess(int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
            self.assertAlmostEqual(int(span["startTimeUnixNano"]) / 1e9, time.time(), delta=60)
            self.assertEqual(span["status"], {"code": 0})
        created = self.logged("sandbox_created")
        self.assertEqual((created["trace_id"], created["span_id"]), (TRACE, first["spanId"]))
        self.assertEqual(self.logged("sandbox_reused")["span_id"], second["spanId"])
        request = [r for r in self.gateway.log_lines("request") if r["op"] == "sandbox.open"][0]
        self.assertEqual(request["trace_id"], TRACE)
        self.assertEqual(self.collector.resource["service.name"], "leasehold")

    def test_without_a_traceparent_a_trace_begins(self):
        self.start()
        self.gateway.expect(200, "POST", "/create", {"chat_id": self.chat})
        [span] = self.collector.wait("usecase.create_sandbox")
        self.assertNotIn("parentSpanId", span)
        self.assertRegex(span["traceId"], "^[0-9a-f]{32}$")
        self.assertEqual(self.logged("sandbox_created")["trace_id"], span["traceId"])

    def test_a_trace_that_its_sender_does_not_record_is_not_sent(self):
        self.start()
        self.open(flags="00")
        self.assertEqual(self.logged("sandbox_created")["trace_id"], TRACE)
        self.gateway.stop()
        self.assertNotIn(TRACE, {s["traceId"] for s in self.collector.spans})

    def test_a_replacement_names_both_sessions(self):
        self.start()
        _, old = self.open(idle_ttl_s=1)
        time.sleep(1.1)
        _, new = self.open(status=201)
        span = self.collector.wait("usecase.create_sandbox", 2)[1]
        self.assertEqual(attributes(span), {
            "chat.id": self.chat, "session.id": new["session_id"],
            "container.id": new["container_id"], "sandbox.result": "replaced",
            "sandbox.previous_session.id": old["session_id"],
            "sandbox.previous_container.id": old["container_id"],
            "sandbox.new_session.id": new["session_id"],
            "sandbox.new_container.id": new["container_id"]})
        [stop] = self.collector.wait("adapter.local.stop_sandbox")
        self.assertEqual(stop["parentSpanId"], span["spanId"])
        self.assertEqual(attributes(stop)["session.id"], old["session_id"])
        self.assertEqual(self.logged("sandbox_replaced")["span_id"], span["spanId"])

    def test_a_replacement_that_fails_names_a_new_session_and_no_container(self):
        self.start()
        _, old = self.open(idle_ttl_s=1)
        stuck = os.path.join(self.gateway.run_dir, old["session_id"], "stuck")
        os.mkdir(stuck)
        subprocess.run(["mount", "-t", "tmpfs", "stuck", stuck], check=True)
        try:
            time.sleep(1.1)
            self.open(status=500)
        finally:
            subprocess.run(["umount", stuck], check=True)
        span = self.collector.wait("usecase.create_sandbox", 2)[1]
        got = attributes(span)
        self.assertNotIn(got.pop("sandbox.new_session.id"), ("", old["session_id"]))
        self.assertEqual(got, {
            "chat.id": self.chat, "sandbox.result": "error",
            "sandbox.previous_session.id": old["session_id"],
            "sandbox.previous_container.id": old["container_id"]})
        self.assertEqual(span["status"], {"code": 2, "message": "sandbox_stop_failed"})
        # Its processes have ended, and each end is a reason to try again.
        tries = self.collector.wait("adapter.local.stop_sandbox")
        [stop] = [t for t in tries if t["parentSpanId"] == span["spanId"]]
        self.assertEqual(stop["status"]["code"], 2)
        self.assertEqual(len(self.collector.wait("adapter.local.create_sandbox")), 1)

    def test_a_start_that_fails_is_an_error(self):
        self.start(profiles=[{"name": "default", "command": ["/no/such/program"]}])
        self.open(status=503)
        [span] = self.collector.wait("usecase.create_sandbox")
        self.assertEqual(attributes(span), {"chat.id": self.chat, "sandbox.result": "error"})
        self.assertEqual(span["status"], {"code": 2, "message": "sandbox_start_failed"})

    def test_rounds_of_cleaning_up_and_reconciling_are_told(self):
        self.start(sandbox={"cleanup_interval_seconds": 1})
        _, sandbox = self.open(idle_ttl_s=1)
        [one] = self.collector.wait("usecase.cleanup_expired_sandbox")
        got = attributes(one)
        self.assertEqual(got, {
            "chat.id": self.chat, "session.id": sandbox["session_id"],
            "container.id": sandbox["container_id"], "sandbox.result": "cleaned",
            "sandbox.reason": "idle"})
        rounds = self.collector.wait("usecase.cleanup_expired_sandboxes")
        [round_of_it] = [r for r in rounds if r["spanId"] == one["parentSpanId"]]
        self.assertEqual(attributes(round_of_it)["sandbox.cleaned_count"], 1)
        [stop] = self.collector.wait("adapter.local.stop_sandbox")
        self.assertEqual(stop["parentSpanId"], one["spanId"])
        self.assertEqual(self.logged("sandbox_cleaned")["span_id"], one["spanId"])
        self.open(idle_ttl_s=600)
        self.gateway.kill9()
        self.gateway.start()
        adoption = self.collector.wait("adapter.sandbox.reconcile_sessions", 2)[1]
        self.assertEqual(attributes(adoption),
                         {"sandbox.discovered_count": 1, "sandbox.active_count": 1})
        listed = self.collector.wait("adapter.local.list_active_sandboxes", 2)[1]
        self.assertEqual(listed["parentSpanId"], adoption["spanId"])


class Export(TracesTest):
    def test_what_the_collector_cannot_take_now_is_sent_again(self):
        self.start(Collector(503, 429))
        self.open()
        self.collector.wait("usecase.create_sandbox")
        self.assertGreaterEqual(self.collector.requests, 3)
        self.assertEqual(Metrics.of(self.gateway)["leasehold_trace_spans_dropped_total"], 0)

    def test_what_is_queued_at_the_end_is_sent(self):
        self.start()
        self.collector.wait("adapter.sandbox.reconcile_sessions")
        self.open()
        self.gateway.stop()
        self.assertEqual(len(self.collector.wait("usecase.create_sandbox")), 1)

    def test_a_collector_that_refuses_or_is_away_holds_up_nothing(self):
        self.start(Collector(*[400] * 1000), env={"LEASEHOLD_TEST_SPANS_MAX": "2"})
        self.collector.close()
        for _ in range(10):
            self.open()
        dropped = lambda: Metrics.of(self.gateway)["leasehold_trace_spans_dropped_total"]
        wait_for(self, "spans that are dropped", lambda: dropped() >= 5)
        self.gateway.stop()
        self.assertEqual(len(self.gateway.log_lines("traces_export_failed")), 1)


if __name__ == "__main__":
    unittest.main()
