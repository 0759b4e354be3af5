#!/usr/bin/python3
"""leasectl against a gateway and a door that misbehave on command.

Needs only the built leasectl (LEASEHOLD_BIN, default build/release/bin) and openssl.
"""

import contextlib
import datetime
import hashlib
import json
import os
import pty
import select
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from fake_gateway import FakeGateway, problem
from waiting import PATIENCE_S
from ws import OP_BINARY, OP_TEXT, WsError, WsServer

BIN = os.environ.get("LEASEHOLD_BIN") or os.path.join(HERE, "..", "..", "build", "release", "bin")
LEASECTL = os.path.join(BIN, "leasectl")

KEY = "lhk_canary_0123456789abcdef"
TOKEN = "eyJ.canary-token.sig"
CHAT = "0b7f3c9e-5a64-4c0e-9b1d-2f6a8e4d7c10"
SESSION = "9a1e2d3c-4b5f-4687-9a0b-c1d2e3f40516"
LEASE = "5d2b7c1a-90ef-4b3c-8d7e-6f5a4b3c2d1e"
LEASE_2 = "6e3c8d2b-a1f0-4c4d-9e8f-706b5c4d3e2f"
USER = "c3d4e5f6-0718-4293-a4b5-c6d7e8f90a1b"
API = "/api/v1"


def rfc3339(seconds_from_now):
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds_from_now)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (at.microsecond // 1000)


def lease(lease_id=LEASE, ttl=120):
    return {"lease_id": lease_id, "session_id": SESSION, "chat_id": CHAT, "user_id": USER,
            "scope": ["read", "write"], "use": "multi", "max_connections": 1, "state": "pending",
            "issued_at": rfc3339(0), "expires_at": rfc3339(ttl), "max_expires_at": rfc3339(43200),
            "revoked_at": None, "revoked_reason": None, "connections": 0}


def grant(url="ws://127.0.0.1:1/", lease_id=LEASE, ttl=120, renew_in=60, token=TOKEN, ca_pem="",
          cert_sha256=""):
    return {"lease": lease(lease_id, ttl), "token": token,
            "endpoint": {"url": url, "protocol": "leasehold.door.v1", "ca_pem": ca_pem,
                         "cert_sha256": cert_sha256},
            "renew_after": rfc3339(renew_in)}


def sandbox():
    return {"session_id": SESSION, "chat_id": CHAT, "user_id": USER, "container_id": "local-1",
            "engine": "local", "node": "n1", "profile": "default", "generation": 1,
            "status": "running", "reason": None, "created_at": rfc3339(0),
            "started_at": rfc3339(0), "last_activity_at": None, "expires_at": rfc3339(300),
            "isolation": {"network": "none", "netns": True, "userns": True, "uid": 10001,
                          "seccomp": True}}


def environment(url):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LEASEHOLD_")}
    return dict(env, LEASEHOLD_URL=url, LEASEHOLD_KEY=KEY)


class GatewayTest(unittest.TestCase):
    def setUp(self):
        self.gateway = FakeGateway()
        self.addCleanup(self.gateway.close)
        self.dir = tempfile.mkdtemp(prefix="leasectl-")
        self.addCleanup(shutil.rmtree, self.dir)

    def path(self, name):
        return os.path.join(self.dir, name)

    def run_cli(self, *args, env=None, code=0):
        done = subprocess.run([LEASECTL, *args], env=env or environment(self.gateway.url),
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
        out, err = done.stdout.decode(), done.stderr.decode()
        self.assertEqual(done.returncode, code, (args, out, err))
        self.assertNotIn(KEY, out + err)
        return out, err

    def only_request(self):
        self.assertEqual(len(self.gateway.requests), 1, self.gateway.requests)
        return self.gateway.requests[0]

    def assert_sent(self, method, path, body=None, query=None):
        request = self.only_request()
        self.assertEqual((request.method, request.path), (method, API + path))
        self.assertEqual(request.query, query or {})
        self.assertEqual(json.loads(request.body) if request.body else None, body)
        self.assertEqual(request.headers["authorization"], "Bearer " + KEY)


class CommandsTest(GatewayTest):
    def check(self, args, method, path, body=None, query=None, answer=(200, {}), shows=()):
        self.gateway.on(method, API + path, answer)
        out, _ = self.run_cli(*args)
        self.assert_sent(method, path, body, query)
        for text in shows:
            self.assertIn(text, out)
        self.gateway.requests.clear()
        out, _ = self.run_cli("--json", *args)
        self.assertEqual(json.loads(out), answer[1] if isinstance(answer, tuple) else answer)

    def test_health_needs_no_key(self):
        self.gateway.on("GET", API + "/health", {"status": "ok", "name": "leasehold",
                                                 "version": "1", "env": "local"})
        env = environment(self.gateway.url)
        del env["LEASEHOLD_KEY"]
        out, _ = self.run_cli("health", env=env)
        self.assertEqual(out.splitlines()[0].split(), ["status", "ok"])
        self.assertNotIn("authorization", self.only_request().headers)

    def test_chat_create(self):
        chat = {"chat_id": CHAT, "user_id": USER, "workspace_id": SESSION, "title": "a b",
                "metadata": {"k": [1]}, "created_at": rfc3339(0), "updated_at": rfc3339(0)}
        self.check(["chat", "create", "--user", USER, "--chat-id", CHAT.upper(), "--title", "a b",
                    "--metadata", '{"k":[1]}'], "POST", "/chats",
                   {"user_id": USER, "chat_id": CHAT, "title": "a b", "metadata": {"k": [1]}},
                   answer=(201, chat), shows=[CHAT, "a b"])

    def test_chat_get(self):
        self.check(["chat", "get", "{%s}" % CHAT], "GET", "/chats/" + CHAT,
                   answer={"chat_id": CHAT}, shows=[CHAT])

    def test_sandbox_create(self):
        self.check(["sandbox", "create", CHAT], "POST", "/create", {"chat_id": CHAT},
                   answer={"session_id": SESSION, "status": "running"}, shows=[SESSION, "running"])

    def test_sandbox_open_without_lease(self):
        self.check(["sandbox", "open", CHAT, "--profile", "p", "--idle-ttl", "9"], "POST",
                   "/sandboxes", {"chat_id": CHAT, "profile": "p", "idle_ttl_s": 9},
                   answer=(201, {"sandbox": sandbox(), "grant": None}), shows=[SESSION, "local-1"])

    def test_sandbox_open_with_an_environment(self):
        file = self.path("env")
        with open(file, "w") as out:
            out.write('# a comment\n\nA=1\nTOKEN=canary=" \\ \n_b=\n \t\nlast=x')
        env = {"A": "1", "TOKEN": 'canary=" \\ ', "_b": "", "last": "x"}
        self.check(["sandbox", "open", CHAT, "--env-file", file], "POST", "/sandboxes",
                   {"chat_id": CHAT, "env": env},
                   answer=(201, {"sandbox": sandbox(), "grant": None}), shows=[SESSION])

    def test_an_environment_that_cannot_be_read_costs_no_request(self):
        for text in ("A=1\nnonsense-canary\n", "=canary\n", "A=canary\0\n", "A=" + "x" * 70000):
            with open(self.path("env"), "w") as out:
                out.write(text)
            _, err = self.run_cli("sandbox", "open", CHAT, "--env-file", self.path("env"), code=2)
            self.assertNotIn("canary", err)
        self.assertIn("too long", err)
        self.run_cli("sandbox", "open", CHAT, "--env-file", self.path("none"), code=2)
        self.assertEqual(self.gateway.requests, [])

    def test_sandbox_open_without_waiting(self):
        self.check(["sandbox", "open", CHAT, "--no-wait"], "POST", "/sandboxes",
                   {"chat_id": CHAT, "wait": False},
                   answer=(202, {"sandbox": dict(sandbox(), status="starting"), "grant": None}),
                   shows=[SESSION, "starting"])

    def test_sandbox_open_with_lease(self):
        self.check(["sandbox", "open", CHAT, "--lease", "--scope", "read", "--ttl", "60",
                    "--max-connections", "2"], "POST", "/sandboxes",
                   {"chat_id": CHAT,
                    "lease": {"scope": ["read"], "ttl_s": 60, "max_connections": 2}},
                   answer=(201, {"sandbox": sandbox(), "grant": grant()}), shows=[SESSION, LEASE])

    def test_sandbox_get_and_stop(self):
        self.check(["sandbox", "get", SESSION], "GET", "/sandboxes/" + SESSION, answer=sandbox(),
                   shows=["running"])
        self.gateway.requests.clear()
        self.check(["sandbox", "stop", SESSION, "--reason", "done", "--grace", "0"], "POST",
                   "/sandboxes/%s/stop" % SESSION, {"reason": "done", "grace_s": 0},
                   answer=sandbox())

    def test_lease_grant(self):
        self.check(["lease", "grant", "--chat", CHAT, "--user", USER], "POST", "/leases",
                   {"chat_id": CHAT, "user_id": USER}, answer=(201, grant()), shows=[LEASE])

    def test_lease_get_and_renew(self):
        self.check(["lease", "get", LEASE], "GET", "/leases/" + LEASE, answer=lease(),
                   shows=["read,write", "pending"])
        self.gateway.requests.clear()
        self.check(["lease", "renew", LEASE], "POST", "/leases/%s/renew" % LEASE, {},
                   answer=grant())

    def test_revoke_of_one_lease(self):
        door = {"session_id": SESSION, "acked": True, "cut": 2, "latency_us": 412}
        self.check(["lease", "revoke", LEASE, "--reason", "a/b", "--wait", "50"], "DELETE",
                   "/leases/" + LEASE, query={"reason": "a/b", "wait_ms": "50"},
                   answer={"matched": 1, "revoked": 1, "doors": [door], "unconfirmed": []},
                   shows=["matched", "cut 2", "latency_us 412"])

    def test_revoke_by_session(self):
        self.check(["lease", "revoke", "--session", SESSION], "POST", "/leases/revoke",
                   {"selector": {"session_id": SESSION}},
                   answer=(202, {"matched": 3, "revoked": 3, "doors": [], "unconfirmed": []}))

    def test_revoke_by_every_selector(self):
        for option, member, value in (("--chat", "chat_id", CHAT), ("--user", "user_id", USER),
                                      ("--key", "api_key_id", LEASE_2), ("--kid", "kid", "k-1"),
                                      ("--all", "all", True)):
            args = [option] if value is True else [option, value]
            self.check(["lease", "revoke", *args, "--dry-run", "--expected-count", "3"], "POST",
                       "/leases/revoke", {"selector": {member: value}, "dry_run": True,
                                          "expected_count": 3},
                       answer={"matched": 3, "revoked": 0, "doors": [], "unconfirmed": []})
            self.gateway.requests.clear()

    def test_a_dry_run_of_one_lease_ends_nothing(self):
        self.check(["lease", "revoke", LEASE, "--dry-run"], "POST", "/leases/revoke",
                   {"selector": {"lease_id": LEASE}, "dry_run": True},
                   answer={"matched": 1, "revoked": 0, "doors": [], "unconfirmed": []})

    def test_a_lease_for_one_connection(self):
        self.check(["lease", "grant", "--chat", CHAT, "--once"], "POST", "/leases",
                   {"chat_id": CHAT, "use": "once"}, answer=(201, grant()), shows=[LEASE])
        self.gateway.requests.clear()
        self.check(["sandbox", "open", CHAT, "--lease", "--once"], "POST", "/sandboxes",
                   {"chat_id": CHAT, "lease": {"use": "once"}},
                   answer=(201, {"sandbox": sandbox(), "grant": grant()}), shows=[SESSION])

    def test_a_dry_run_of_retention_is_asked_for_in_the_query(self):
        self.check(["retention", "run", "--dry-run"], "POST", "/retention/run", {},
                   {"dry_run": "true"}, answer={"items": [
                       {"kind": "file", "id": CHAT, "reason": "unused", "size_bytes": 7}]},
                   shows=["unused"])

    def test_an_audit_trail_that_is_whole_has_no_first_broken_entry(self):
        self.check(["audit", "verify"], "GET", "/audit/verify",
                   answer={"ok": True, "checked": 0, "first_broken": None},
                   shows=["checked       0", "first_broken  -"])

    def test_a_wait_that_was_too_short_fails(self):
        answer = {"matched": 1, "revoked": 1, "doors": [], "unconfirmed": [LEASE]}
        self.gateway.on("DELETE", API + "/leases/" + LEASE, (202, answer))
        out, _ = self.run_cli("lease", "revoke", LEASE, "--wait", "1", code=1)
        self.assertIn(LEASE, out)
        self.run_cli("lease", "revoke", LEASE)

    def test_key_create_shows_the_key_once(self):
        key = {"key_id": "k1", "name": "bot", "role": "bot", "allowed_users": [USER]}
        self.check(["key", "create", "--name", "bot", "--role", "bot", "--allowed-user", USER,
                    "--default-user", USER], "POST", "/api-keys",
                   {"name": "bot", "role": "bot", "allowed_users": [USER], "default_user": USER},
                   answer=(201, {"api_key": key, "key": "lhk_k1_secret"}), shows=["lhk_k1_secret"])


class SecretsTest(GatewayTest):
    def assert_private(self, path, text):
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        with open(path) as file:
            self.assertEqual(file.read(), text + "\n")

    def test_the_token_is_shown_only_with_json(self):
        self.gateway.on("POST", API + "/leases", (201, grant()))
        out, err = self.run_cli("lease", "grant", "--session", SESSION)
        self.assertNotIn(TOKEN, out + err)
        self.assertRegex(err, "^leasectl: the token is lost: .*--token-file.*--json.*lease renew")
        out, err = self.run_cli("lease", "grant", "--session", SESSION, "--json")
        self.assertEqual(json.loads(out)["token"], TOKEN)
        self.assertEqual(err, "")

    def test_the_token_file_is_private_and_replaced(self):
        self.gateway.on("POST", API + "/leases", (201, grant()), (201, grant(token="ne.w.er")))
        file = self.path("token")
        out, err = self.run_cli("lease", "grant", "--session", SESSION, "--token-file", file)
        self.assertNotIn(TOKEN, out)
        self.assertEqual(err, "")
        self.assert_private(file, TOKEN)
        self.run_cli("lease", "grant", "--session", SESSION, "--token-file", file)
        self.assert_private(file, "ne.w.er")

    def test_a_refused_request_leaves_no_file(self):
        self.gateway.on("POST", API + "/leases", (403, problem(403, "forbidden", "No")))
        self.run_cli("lease", "grant", "--session", SESSION, "--token-file", self.path("t"),
                     code=4)
        self.assertEqual(os.listdir(self.dir), [])

    def test_a_file_that_cannot_be_written_costs_no_request(self):
        self.run_cli("lease", "grant", "--session", SESSION, "--token-file",
                     self.path("missing/t"), code=1)
        self.assertEqual(self.gateway.requests, [])

    def test_key_out_never_overwrites(self):
        self.gateway.on("POST", API + "/api-keys", (201, {"api_key": {"key_id": "k1"}, "key": "lhk_x_y"}))
        args = ["key", "create", "--name", "n", "--role", "bot", "--out", self.path("key")]
        out, err = self.run_cli(*args)
        self.assertNotIn("lhk_x_y", out + err)
        self.assert_private(self.path("key"), "lhk_x_y")
        self.gateway.requests.clear()
        self.run_cli(*args, code=1)
        self.assertEqual(self.gateway.requests, [])

    def write_key(self, text, mode=0o600):
        file = self.path("admin.key")
        with open(file, "w") as out:
            out.write(text)
        os.chmod(file, mode)
        return file

    def test_the_key_file_goes_before_the_environment(self):
        self.gateway.on("GET", API + "/chats/" + CHAT, {"chat_id": CHAT})
        file = self.write_key("lhk_other_key\n")
        _, err = self.run_cli("chat", "get", CHAT, "--key-file", file)
        self.assertEqual(err, "")
        self.assertEqual(self.only_request().headers["authorization"], "Bearer lhk_other_key")

    def test_a_key_file_that_others_can_read_is_warned_about(self):
        self.gateway.on("GET", API + "/chats/" + CHAT, {"chat_id": CHAT})
        _, err = self.run_cli("--key-file", self.write_key("k\n", 0o640), "chat", "get", CHAT)
        self.assertIn("warning", err)

    def test_what_is_no_key_is_refused_unseen(self):
        for text in ("", "two words\n", "a\nb\n", "x" * 600, "bell\a"):
            _, err = self.run_cli("--key-file", self.write_key(text), "chat", "get", CHAT, code=2)
            self.assertIn("does not hold a key", err)
        self.run_cli("--key-file", self.path("none"), "chat", "get", CHAT, code=2)
        env = environment(self.gateway.url)
        del env["LEASEHOLD_KEY"]
        self.run_cli("chat", "get", CHAT, env=env, code=2)
        self.assertEqual(self.gateway.requests, [])


class FailuresTest(GatewayTest):
    def get_chat(self, answer, code):
        self.gateway.on("GET", API + "/chats/" + CHAT, answer)
        return self.run_cli("chat", "get", CHAT, code=code)

    def test_statuses_become_exit_codes(self):
        for status, code in ((401, 4), (403, 4), (404, 3), (409, 1), (422, 1), (429, 1), (500, 1),
                             (503, 1), (507, 1)):
            _, err = self.get_chat((status, problem(status, "some_code", "Some title", "more")),
                                   code)
            self.assertEqual(err,
                             "leasectl: some_code: Some title: more (request id r-1)\n")

    def test_refused_members_are_named(self):
        answer = problem(422, "invalid_request", "The request is not valid", "too long",
                         errors=[{"pointer": "/title", "detail": "too long"}])
        _, err = self.get_chat((422, answer), 1)
        self.assertIn("too long, at /title", err)

    def test_the_old_detail_of_create_is_not_repeated(self):
        self.gateway.on("POST", API + "/create",
                        (404, problem(404, "chat_not_found", "No chat", "chat_not_found")))
        _, err = self.run_cli("sandbox", "create", CHAT, code=3)
        self.assertEqual(err, "leasectl: chat_not_found: No chat (request id r-1)\n")

    def test_answers_of_something_else(self):
        for answer, code in (((502, b"<html>bad gateway</html>"), 1), ((404, b""), 3),
                             ((200, b"<html>"), 1), ((200, b""), 1), ((200, b"[]"), 1),
                             ((200, b'{"chat_id":5}'), 1), ((200, b'{"a":1}{"a":1}'), 1),
                             ((200, b'{"title":"\xff"}'), 1), ((302, b""), 1)):
            _, err = self.get_chat(answer, code)
            self.assertTrue(err.startswith("leasectl: "), (answer, err))

    def test_a_huge_answer_is_not_taken(self):
        self.get_chat((200, b'{"title":"' + b"x" * (64 << 20) + b'"}'), 1)
        self.get_chat((500, b"x" * (64 << 20)), 1)

    def test_a_deep_answer_is_refused(self):
        self.get_chat((200, b'{"metadata":' + b'{"a":' * 5000 + b"1" + b"}" * 5001), 1)

    def test_a_slow_gateway_counts_as_unreachable(self):
        hold = threading.Event()
        self.addCleanup(hold.set)
        self.gateway.on("GET", API + "/chats/" + CHAT, lambda request: hold.wait(PATIENCE_S) or {})
        _, err = self.run_cli("chat", "get", CHAT, "--timeout", "1", code=5)
        self.assertIn(self.gateway.url, err)

    def test_nobody_there(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = "http://127.0.0.1:%d" % free.getsockname()[1]
            _, err = self.run_cli("--url", url, "chat", "get", CHAT, code=5)
            self.assertIn(url, err)

    def test_what_is_no_http_counts_as_unreachable(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            def serve():
                conn, _ = server.accept()
                conn.recv(65536)
                conn.sendall(b"\x00\x01garbage\r\n\r\n")
                conn.close()
            threading.Thread(target=serve, daemon=True).start()
            self.run_cli("--url", "http://127.0.0.1:%d" % server.getsockname()[1], "chat", "get",
                         CHAT, code=5)

    def test_text_of_the_server_cannot_steer_a_terminal(self):
        evil = "\x1b]0;owned\x07\x9b31m\r\nnext"
        out, _ = self.get_chat({"chat_id": CHAT, "title": evil}, 0)
        self.assertNotRegex(out, "[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        self.assertIn("?]0;owned??31m??next", out)
        _, err = self.get_chat((403, problem(403, "forbidden", evil, evil)), 4)
        self.assertNotRegex(err, "[\x00-\x09\x0b-\x1f\x7f-\x9f]")

    def test_stdout_that_is_full_is_a_failure(self):
        self.gateway.on("GET", API + "/chats/" + CHAT, {"chat_id": CHAT})
        with open("/dev/full", "w") as full:
            done = subprocess.run([LEASECTL, "chat", "get", CHAT], stdout=full,
                                  stderr=subprocess.PIPE, env=environment(self.gateway.url))
        self.assertEqual(done.returncode, 1)


class UsageTest(GatewayTest):
    def commands(self):
        out, _ = self.run_cli("--help")
        lines = out.split("Commands:\n")[1].split("\n\n")[0].splitlines()
        return [line[2:18].split() for line in lines]

    def test_every_command_has_help(self):
        self.assertIn(["connect"], self.commands())
        for words in self.commands():
            out, _ = self.run_cli(*words, "--help")
            self.assertTrue(out.startswith("Usage: leasectl " + " ".join(words)))

    def test_mistakes(self):
        for args in ([], ["nonsense"], ["chat"], ["chat", "nonsense"], ["chat", "get"],
                     ["chat", "get", "no-uuid"], ["chat", "get", CHAT, CHAT],
                     ["lease", "revoke"], ["lease", "revoke", LEASE, "--session", SESSION],
                     ["sandbox", "open", CHAT, "--ttl", "5"], ["connect", CHAT, "--linger", "-1"],
                     ["chat", "create"], ["key", "create", "--name", "n", "--role", "boss"],
                     ["sandbox", "ls", "--status", "up"], ["lease", "ls", "--state", "open"],
                     ["connect", CHAT, "--scope", "read,all"], ["--nope"], ["chat", "get", CHAT, "--url", "ftp://x"],
                     ["chat", "get", CHAT, "--url", "http://u:p@x"]):
            out, err = self.run_cli(*args, code=2)
            self.assertEqual(out, "")
            self.assertTrue(err.startswith("leasectl: "), err)
        self.assertEqual(self.gateway.requests, [])

    def test_a_mistake_is_told_with_one_line_where_help_is(self):
        for args, why, where in (
                (["--nope"], "no such option: --nope", "leasectl --help"),
                ([], "a command is missing", "leasectl --help"),
                (["lease", "get", "--nope"], "no such option: --nope", "leasectl lease get --help"),
                (["lease", "get"], "ID is missing", "leasectl lease get --help")):
            _, err = self.run_cli(*args, code=2)
            self.assertEqual(err, "leasectl: %s\n'%s' tells more.\n" % (why, where))
            self.run_cli(*where.split()[1:])

    def test_help_and_version_have_short_forms_and_words(self):
        usage, version = self.run_cli("--help"), self.run_cli("--version")
        self.assertEqual(self.run_cli("help"), usage)
        self.assertEqual(self.run_cli("-h"), usage)
        self.assertEqual(self.run_cli("-v"), version)
        self.assertEqual(self.run_cli("version"), version)
        self.assertRegex(version[0], r"^leasectl \d")
        of_one = self.run_cli("lease", "grant", "--help")
        self.assertEqual(self.run_cli("lease", "grant", "-h"), of_one)
        self.assertEqual(self.run_cli("help", "lease", "grant"), of_one)
        self.assertIn("lease revoke", self.run_cli("help", "lease")[0])
        self.assertEqual(self.run_cli("lease", "-h"), self.run_cli("help", "lease"))
        self.run_cli("help", "nonsense", code=2)

    def test_an_unknown_command_is_repeated_and_lists_what_there_is(self):
        _, err = self.run_cli("tip", code=2)
        self.assertTrue(err.startswith("leasectl: no such command: tip\n"), err)
        for words in self.commands():
            self.assertIn(" ".join(words), err)

    def test_of_a_group_only_its_commands_are_listed(self):
        for args, first in ((["chat"], "chat what?"), (["chat", "up"], "no such command: chat up")):
            _, err = self.run_cli(*args, code=2)
            lines = err.splitlines()
            self.assertEqual(lines[:2], ["leasectl: " + first, "Commands:"])
            self.assertEqual({line.split()[0] for line in lines[2:]}, {"chat"})

    def test_words_that_are_not_offered_are_answered_with_those_that_are(self):
        _, err = self.run_cli("key", "create", "--name", "n", "--role", "boss", code=2)
        self.assertIn("--role takes admin, bot or viewer", err)

    def test_words_of_which_several_may_be_given_are_told_as_such(self):
        _, err = self.run_cli("lease", "grant", "--chat", CHAT, "--scope", "all", code=2)
        self.assertIn("--scope takes read or write, or several with commas between", err)

    def test_a_url_with_the_api_root_is_taken(self):
        self.gateway.on("GET", API + "/health", {"status": "ok"})
        for end in ("", "/", API, API + "/"):
            self.run_cli("--url", self.gateway.url + end, "health")

    def test_certificates_are_not_printed_for_people(self):
        self.gateway.on("POST", API + "/leases", (201, grant(ca_pem="-----BEGIN\nx\n")))
        out, _ = self.run_cli("lease", "grant", "--chat", CHAT)
        [line] = [line for line in out.splitlines() if "ca_pem" in line]
        self.assertEqual(line.split(None, 1)[1], "(not shown)")
        self.gateway.on("POST", API + "/leases", (201, grant()))
        out, _ = self.run_cli("lease", "grant", "--chat", CHAT)
        [line] = [line for line in out.splitlines() if "ca_pem" in line]
        self.assertEqual(line.split(None, 1)[1], "-")

    def test_version(self):
        self.assertRegex(self.run_cli("--version")[0], r"^leasectl \d+\.\d+\.\d+\n$")


class Connection:
    """A leasectl connect that runs, with pipes on all three ends."""

    def __init__(self, test, *args, json_events=True, stdin=subprocess.PIPE):
        args = [LEASECTL, *(["--json"] if json_events else []), "connect", CHAT, *args]
        self.test = test
        self.process = subprocess.Popen(args, stdin=stdin, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE,
                                        env=environment(test.gateway.url))
        self.events = []
        self.errors = b""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def _read_errors(self):
        for line in self.process.stderr:
            with self._changed:
                self.errors += line
                with contextlib.suppress(ValueError):
                    self.events.append(json.loads(line))
                self._changed.notify_all()

    def wait_event(self, name, count=1):
        """The count-th event of that name."""
        def found():
            return [e for e in self.events if e["event"] == name][count - 1:]
        with self._changed:
            self._changed.wait_for(found, PATIENCE_S)
            self.test.assertTrue(found(), (name, self.errors))
            return found()[0]

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read_line(self):
        return self.process.stdout.readline()

    def finish(self, code):
        """Ends stdin, reads the rest of stdout and checks the exit code."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        out = self.process.stdout.read()
        self.test.assertEqual(self.process.wait(PATIENCE_S), code, self.errors)
        self._reader.join(PATIENCE_S)
        self.test.assertNotIn(KEY.encode(), out + self.errors)
        self.test.assertNotIn(TOKEN.encode(), out + self.errors)
        return out

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()


class DoorTest(GatewayTest):
    def setUp(self):
        super().setUp()
        self.door = WsServer(("127.0.0.1", 0), protocols=["leasehold.door.v1"])
        self.addCleanup(self.door.close)
        self.door_url = "ws://127.0.0.1:%d/" % self.door.address[1]
        self.offer(grant(self.door_url))
        for lease_id in (LEASE, LEASE_2):
            self.gateway.on("DELETE", API + "/leases/" + lease_id,
                            (202, {"matched": 1, "revoked": 1, "doors": [], "unconfirmed": []}))

    def offer(self, a_grant):
        self.gateway.on("POST", API + "/sandboxes", (201, {"sandbox": sandbox(),
                                                           "grant": a_grant}))

    def start(self, *args, **kw):
        c = Connection(self, *args, **kw)
        self.addCleanup(c.close)
        return c

    def accept(self, ready=True):
        conn = self.door.accept(PATIENCE_S)
        self.addCleanup(conn.close)
        if ready:
            conn.send_text(json.dumps({"type": "ready", "session_id": SESSION, "lease_id": LEASE,
                                       "expires_at": rfc3339(120), "scope": ["read", "write"]}))
        return conn

    def expect(self, conn, *messages):
        for message in messages:
            self.assertEqual(conn.recv(PATIENCE_S), message)

    def given_back(self):
        return [r.path.rsplit("/", 1)[1] for r in self.gateway.requests if r.method == "DELETE"]


class ConnectTest(DoorTest):
    # -- messages ------------------------------------------------------------------------------

    def test_lines_go_out_and_come_back(self):
        c = self.start("--linger", "3000", "--profile", "p", "--ttl", "60")
        conn = self.accept()
        self.assertEqual(conn.headers["authorization"], "Bearer " + TOKEN)
        self.assertEqual(conn.headers["sec-websocket-protocol"], "leasehold.door.v1")
        self.assertNotIn("sec-websocket-extensions", conn.headers)
        c.send(b"one\n\ntwo \xc3\xa9\n\xff\nlast without line feed")
        c.process.stdin.close()
        self.expect(conn, (OP_TEXT, b"one"), (OP_TEXT, b""), (OP_TEXT, "two \u00e9".encode()),
                    (OP_BINARY, b"\xff"), (OP_TEXT, b"last without line feed"))
        conn.send_text("answer")
        conn.send_fragments(OP_TEXT, [b"in ", b"", b"pieces"])
        conn.send_text("")
        conn.send_text("with its own end\n")
        conn.send_binary(b"\x00raw\n")
        conn.send_binary(b"\x01")
        self.assertEqual(conn.wait_closed(PATIENCE_S), 1000)
        out = c.finish(0)
        self.assertEqual(out, b"answer\nin pieces\n\nwith its own end\n\x00raw\n\x01")
        self.assertEqual(c.wait_event("ready")["scope"], ["read", "write"])
        self.assertEqual(c.wait_event("closed")["code"], 1000)
        opened = self.gateway.seen("POST", API + "/sandboxes")[0]
        self.assertEqual(json.loads(opened.body),
                         {"chat_id": CHAT, "profile": "p", "lease": {"ttl_s": 60}})
        self.assertEqual(self.given_back(), [LEASE])

    def test_nothing_is_sent_before_the_door_is_ready(self):
        c = self.start()
        conn = self.accept(ready=False)
        c.send(b"early\n")
        with self.assertRaises(TimeoutError):
            conn.recv(0.3)
        conn.send_text('{"type":"ready"}')
        self.expect(conn, (OP_TEXT, b"early"))
        c.finish(0)

    def test_it_lingers_anew_behind_each_answer_also_when_stopped_for_longer(self):
        """What comes while it is stopped has come in time, and the next has all of the linger again."""
        linger_s = 3
        c = self.start("--linger", str(linger_s * 1000))
        conn = self.accept()
        c.send(b"go\n")
        c.process.stdin.close()
        self.expect(conn, (OP_TEXT, b"go"))
        for answer in (b"one", b"two"):
            c.process.send_signal(signal.SIGSTOP)
            conn.send_text(answer.decode())
            time.sleep(linger_s + 0.5)
            c.process.send_signal(signal.SIGCONT)
            self.assertEqual(c.read_line(), answer + b"\n")
        conn.send_text("three")
        self.assertEqual(conn.wait_closed(PATIENCE_S), 1000)
        self.assertEqual(c.finish(0), b"three\n")

    def test_large_messages_pass_both_ways(self):
        c = self.start()
        conn = self.accept()
        big = b"x" * (1 << 20)
        threading.Thread(target=c.send, args=(big + b"\n",), daemon=True).start()
        self.expect(conn, (OP_TEXT, big))
        threading.Thread(target=conn.send_text, args=(big * 8,), daemon=True).start()
        self.assertEqual(len(c.read_line()), (8 << 20) + 1)
        c.finish(0)

    def test_a_line_without_end_is_refused(self):
        c = self.start()
        self.accept()
        with contextlib.suppress(BrokenPipeError):
            c.send(b"x" * (3 << 20))
        with contextlib.suppress(BrokenPipeError):
            c.process.stdin.close()
        c.finish(1)
        self.assertIn("line", c.wait_event("error")["detail"])

    def test_a_door_that_does_not_read_stops_stdin(self):
        c = self.start()
        self.accept()
        c.wait_event("ready")
        fd = c.process.stdin.fileno()
        os.set_blocking(fd, False)
        line = b"y" * 65535 + b"\n"
        taken = 0
        while taken < (64 << 20) and select.select([], [fd], [], 1.5)[1]:
            with contextlib.suppress(BlockingIOError):
                taken += os.write(fd, line)
        self.assertLess(taken, 24 << 20)

    def test_a_door_that_reads_late_gets_everything(self):
        c = self.start("--linger", "1")
        conn = self.accept()
        lines = [b"%06d" % i + b"y" * 4000 for i in range(2000)]

        def feed():
            c.send(b"\n".join(lines))
            c.process.stdin.close()

        threading.Thread(target=feed, daemon=True).start()
        time.sleep(1)
        self.expect(conn, *((OP_TEXT, line) for line in lines))
        self.assertEqual(conn.wait_closed(PATIENCE_S), 1000)
        c.finish(0)

    def test_a_stdout_that_is_not_read_stops_the_door(self):
        c = self.start()
        conn = self.accept()
        c.wait_event("ready")
        conn.sock.settimeout(1.5)
        sent = 0
        with self.assertRaises(TimeoutError):
            while sent < (64 << 20):
                conn.send_text(b"z" * 65536)
                sent += 65536
        self.assertLess(sent, 24 << 20)
        got = 0
        while got < sent:
            got += len(c.read_line()) - 1
        self.assertGreaterEqual(got, sent)

    def test_the_lease_is_renewed_while_nobody_reads(self):
        renewed = grant(self.door_url, renew_in=1)
        self.offer(grant(self.door_url, renew_in=1))
        self.gateway.on("POST", API + "/leases/%s/renew" % LEASE, renewed)
        c = self.start()
        conn = self.accept()
        conn.sock.settimeout(1)
        with self.assertRaises(TimeoutError):
            while True:
                conn.send_text(b"z" * 65536)
        c.wait_event("renewed", 2)

    def test_a_reader_that_goes_away_ends_it(self):
        c = self.start()
        conn = self.accept()
        c.wait_event("ready")
        c.process.stdout.close()
        conn.send_text("nobody reads this")
        self.assertEqual(c.process.wait(PATIENCE_S), 1)
        self.assertEqual(self.given_back(), [LEASE])

    # -- ends ----------------------------------------------------------------------------------

    def test_close_codes(self):
        for code, exit_code in ((1000, 0), (4411, 0), (4401, 4), (4403, 4), (4430, 4), (4408, 1),
                                (4409, 1), (1003, 1), (1013, 1), (4999, 1)):
            with self.subTest(code=code):
                c = self.start()
                conn = self.accept()
                conn.send_text("before")
                conn.send_close(code, "why it ends")
                self.assertEqual(c.finish(exit_code), b"before\n")
                closed = c.wait_event("closed")
                # libwebsockets 4.1 does not know 1013 yet and calls it 1002.
                self.assertIn(closed["code"], (code, 1002) if code == 1013 else (code,))
                self.assertEqual(closed["reason"], "why it ends")

    def test_a_lease_that_ended_is_not_given_back(self):
        c = self.start(json_events=False)
        conn = self.accept()
        conn.send_close(4403)
        c.finish(4)
        self.assertEqual(c.errors, b"leasectl: closed (4403): the lease was revoked\n")
        self.assertEqual(self.given_back(), [])

    def test_a_close_before_ready_counts_as_well(self):
        c = self.start()
        self.accept(ready=False).send_close(4401, "unauthenticated")
        c.finish(4)

    def test_what_is_no_door_is_left(self):
        for hello in ("hello", '{"type":"challenge","nonce":"x"}', "x" * 200000):
            with self.subTest(hello=hello[:20]):
                c = self.start()
                conn = self.accept(ready=False)
                with contextlib.suppress(OSError):
                    conn.send_text(hello)
                c.finish(1)
                c.wait_event("error")

    def test_grants_that_lack_a_part_are_refused(self):
        broken = [None, dict(grant(self.door_url), token=None),
                  dict(grant(self.door_url), token="a b"), dict(grant(self.door_url), lease=None),
                  dict(grant(self.door_url), endpoint=None), grant("http://127.0.0.1:1/"),
                  dict(grant(self.door_url), renew_after=None)]
        for a_grant in broken:
            with self.subTest(grant=a_grant):
                self.offer(a_grant)
                self.start().finish(1)

    def test_refusals_of_the_gateway(self):
        for status, code in ((404, 3), (403, 4), (503, 1)):
            self.gateway.on("POST", API + "/sandboxes", (status, problem(status, "c_o", "Title")))
            c = self.start()
            c.finish(code)
            self.assertEqual(c.wait_event("error")["code"], "c_o")

    def test_a_signal_ends_politely(self):
        c = self.start()
        conn = self.accept()
        c.wait_event("ready")
        c.process.send_signal(signal.SIGTERM)
        self.assertEqual(conn.wait_closed(PATIENCE_S), 1000)
        c.finish(-signal.SIGTERM)
        self.assertEqual(self.given_back(), [LEASE])

    # -- renewal -------------------------------------------------------------------------------

    def test_it_renews_by_itself(self):
        self.offer(grant(self.door_url, renew_in=1))
        self.gateway.on("POST", API + "/leases/%s/renew" % LEASE, grant(self.door_url, renew_in=1),
                        grant(self.door_url, renew_in=60))
        c = self.start("--ttl", "90")
        conn = self.accept()
        c.wait_event("renewed", 2)
        for request in self.gateway.seen("POST", API + "/leases/%s/renew" % LEASE):
            self.assertEqual(json.loads(request.body), {"ttl_s": 90})
        c.send(b"still here\n")
        self.expect(conn, (OP_TEXT, b"still here"))
        c.finish(0)

    def test_a_clock_that_differs_from_the_gateways_does_no_harm(self):
        a_grant = grant(self.door_url, ttl=3600 + 120, renew_in=3600 + 1)
        a_grant["lease"]["issued_at"] = rfc3339(3600)
        self.offer(a_grant)
        self.gateway.on("POST", API + "/leases/%s/renew" % LEASE,
                        grant(self.door_url, ttl=7200, renew_in=7000))
        c = self.start()
        self.accept()
        c.wait_event("renewed")
        c.finish(0)

    def test_a_slow_renewal_does_not_hold_up_the_stream(self):
        asked, hold = threading.Event(), threading.Event()

        def slow(request):
            asked.set()
            hold.wait(PATIENCE_S)
            return grant(self.door_url)

        self.addCleanup(hold.set)
        self.offer(grant(self.door_url, renew_in=0.6))
        self.gateway.on("POST", API + "/leases/%s/renew" % LEASE, slow)
        c = self.start()
        conn = self.accept()
        self.assertTrue(asked.wait(PATIENCE_S))
        for _ in range(20):  # the gateway has not answered yet
            c.send(b"ping\n")
            self.expect(conn, (OP_TEXT, b"ping"))
            conn.send_text("pong")
            self.assertEqual(c.read_line(), b"pong\n")
        hold.set()
        c.finish(0)

    def test_a_failed_renewal_is_tried_again_and_only_the_door_ends_it(self):
        self.offer(grant(self.door_url, renew_in=0))
        self.gateway.on("POST", API + "/leases/%s/renew" % LEASE,
                        (503, problem(503, "busy", "Busy")), (200, b"garbage"),
                        (409, problem(409, "lease_terminal", "Over")), grant(self.door_url))
        c = self.start()
        conn = self.accept()
        reasons = [c.wait_event("renew_failed", i)["reason"] for i in (1, 2, 3)]
        self.assertEqual((reasons[0], reasons[2]), ("busy", "lease_terminal"))
        c.wait_event("renewed")
        conn.send_close(4401, "expired")
        c.finish(4)

    # -- connecting again ----------------------------------------------------------------------

    def test_a_lost_door_is_found_again_with_a_fresh_grant(self):
        self.gateway.on("POST", API + "/leases",
                        (201, grant(self.door_url, LEASE_2, token="sec.ond.token")))
        ends = {"4503": lambda conn: conn.send_close(4503, "not_live"),
                "1001": lambda conn: conn.send_close(1001),
                "tcp": lambda conn: conn.close()}
        for name, end in ends.items():
            with self.subTest(name):
                self.gateway.requests.clear()
                c = self.start()
                conn = self.accept()
                c.send(b"first\n")
                self.expect(conn, (OP_TEXT, b"first"))
                end(conn)
                c.wait_event("reconnecting")
                c.send(b"meanwhile\n")
                conn = self.accept()
                self.assertEqual(conn.headers["authorization"], "Bearer sec.ond.token")
                self.expect(conn, (OP_TEXT, b"meanwhile"))
                c.finish(0)
                asked = self.gateway.seen("POST", API + "/leases")[0]
                self.assertEqual(json.loads(asked.body),
                                 {"session_id": SESSION, "scope": ["read", "write"]})
                self.assertEqual(sorted(self.given_back()), [LEASE, LEASE_2])

    def test_a_message_broken_off_ends_its_line(self):
        self.gateway.on("POST", API + "/leases", (201, grant(self.door_url, LEASE_2)))
        c = self.start()
        conn = self.accept()
        conn.send_frame(OP_TEXT, b"half", fin=False)
        self.assertEqual(c.process.stdout.read1(4), b"half")
        conn.close()
        self.accept().send_text("whole")
        self.assertEqual(c.read_line() + c.read_line(), b"\nwhole\n")
        c.finish(0)

    def test_a_session_that_has_ended_is_not_asked_for_for_long(self):
        self.gateway.on("POST", API + "/leases",
                        (409, problem(409, "session_not_running", "It does not run")))
        c = self.start()
        self.accept().close()
        begin = time.monotonic()
        self.gateway.on("GET", API + "/sandboxes/" + SESSION,
                        dict(sandbox(), status="stopped", reason="idle"))
        c.finish(1)
        self.assertGreaterEqual(time.monotonic() - begin, 4)
        error = c.wait_event("error")
        self.assertEqual((error["code"], error["detail"]),
                         ("session_not_running", "the session has ended: stopped, idle"))
        self.assertEqual(len(self.gateway.seen("POST", API + "/sandboxes")), 1)

    def test_a_session_that_has_failed_is_opened_again(self):
        self.gateway.on("POST", API + "/leases",
                        (409, problem(409, "session_not_running", "It does not run")))
        self.gateway.on("GET", API + "/sandboxes/" + SESSION,
                        dict(sandbox(), status="failed", reason="door_lost"))
        c = self.start("--profile", "p", "--scope", "write")
        first = self.accept()
        self.gateway.on("POST", API + "/sandboxes",
                        (201, {"sandbox": sandbox(), "grant": grant(self.door_url, LEASE_2)}))
        first.close()
        conn = self.accept()
        c.wait_event("ready", 2)
        self.assertEqual(c.wait_event("reopening")["reason"], "door_lost")
        conn.send_text("anew")
        self.assertEqual(c.finish(0), b"anew\n")
        opened = [json.loads(r.body) for r in self.gateway.seen("POST", API + "/sandboxes")]
        self.assertEqual(opened, 2 * [{"chat_id": CHAT, "profile": "p",
                                       "lease": {"scope": ["write"]}}])

    def test_a_replaced_session_is_followed(self):
        self.gateway.on("POST", API + "/leases",
                        (409, problem(409, "session_not_running", "It was replaced")),
                        (201, grant(self.door_url, LEASE_2)))
        c = self.start()
        self.accept().send_close(4410, "old generation")
        self.accept()
        c.wait_event("ready", 2)
        c.finish(0)
        asked = [json.loads(r.body) for r in self.gateway.seen("POST", API + "/leases")]
        self.assertEqual([("session_id" in a, "chat_id" in a) for a in asked],
                         [(True, False), (False, True)])

    def test_a_session_that_is_being_ended_is_asked_for_again(self):
        refused = (409, problem(409, "session_not_running", "It is stopping"))
        self.gateway.on("POST", API + "/leases", refused, refused,
                        (201, grant(self.door_url, LEASE_2)))
        c = self.start()
        self.accept().close()
        self.accept()
        c.wait_event("ready", 2)
        c.finish(0)
        away = [e["away"] for e in c.events if e["event"] == "reconnecting"]
        self.assertEqual(away, ["the door", "the session", "the session"])
        asked = [json.loads(r.body) for r in self.gateway.seen("POST", API + "/leases")]
        self.assertEqual([("session_id" in a, "chat_id" in a) for a in asked],
                         [(True, False), (False, True), (False, True)])

    def test_a_door_that_stays_away_is_given_up(self):
        self.door.close()
        self.gateway.on("POST", API + "/leases", (201, grant(self.door_url, LEASE_2)))
        c = self.start("--retry", "6")
        c.send(b"one\ntwo\n")
        c.finish(5)
        self.assertEqual([e["event"] for e in c.events[-2:]], ["error", "unsent"])
        self.assertEqual((c.events[-2]["code"], c.events[-1]["lines"]), ("unreachable", 2))
        self.assertIn("the door cannot be reached (tried for 6 s)", c.events[-2]["detail"])
        tries = c.events[:-2]
        self.assertEqual([e["attempt"] for e in tries], list(range(1, len(tries) + 1)))
        self.assertGreater(len(tries), 2)

    def test_a_gateway_that_stays_away_is_named_and_not_repeated(self):
        c = self.start("--retry", "6", json_events=False)
        conn = self.accept()
        c.send(b"first\n")
        self.expect(conn, (OP_TEXT, b"first"))
        self.gateway.close()
        conn.send_close(4503, "not_live")
        c.send(b"second\n")
        c.finish(5)
        lines = c.errors.decode().splitlines()
        self.assertEqual(lines[0], "leasectl: the door is away: not_live; connecting again")
        self.assertIn("leasectl: the gateway is away: http://", lines[1])
        self.assertEqual(lines[2], "leasectl: the gateway is still away (attempt 3)")
        self.assertIn("leasectl: the gateway cannot be reached (tried for 6 s): ", lines[-2])
        self.assertEqual(lines[-1], "leasectl: 1 line was not sent")

    def test_with_retry_0_nothing_is_tried_again(self):
        c = self.start("--retry", "0")
        self.accept().close()
        c.finish(5)
        self.assertEqual([e["event"] for e in c.events], ["ready", "error"])

    # -- a person at a terminal ----------------------------------------------------------------

    def test_on_a_terminal_status_is_told_and_control_characters_are_shown(self):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        process = subprocess.Popen([LEASECTL, "connect", CHAT], stdin=slave, stdout=slave,
                                   stderr=slave, env=environment(self.gateway.url))
        self.addCleanup(process.wait)
        os.close(slave)
        conn = self.accept()
        conn.send_text("\x1b[2Jred\ttab")
        seen = b""
        while b"red\ttab" not in seen:
            self.assertTrue(select.select([master], [], [], PATIENCE_S)[0], seen)
            seen += os.read(master, 4096)
        self.assertIn(b"connected to session", seen)
        self.assertIn(b"?[2Jred\ttab", seen)
        os.write(master, b"typed\n")
        self.expect(conn, (OP_TEXT, b"typed"))
        os.write(master, b"\x04")
        self.assertEqual(conn.wait_closed(PATIENCE_S), 1000)
        self.assertEqual(process.wait(PATIENCE_S), 0)


class TlsTest(DoorTest):
    """A door behind a certificate of its own CA, which no file of the client names."""

    @classmethod
    def setUpClass(cls):
        cls.certs = tempfile.mkdtemp(prefix="leasectl-certs-")
        cls.addClassCleanup(shutil.rmtree, cls.certs)
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        for ca in ("ca", "other"):
            cls.openssl("req", "-x509", *key, "-keyout", ca + ".key", "-out", ca + ".pem",
                        "-days", "2", "-subj", "/CN=" + ca)
        cls.openssl("req", *key, "-keyout", "door.key", "-out", "door.csr", "-subj", "/CN=door")
        cls.openssl("x509", "-req", "-in", "door.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                    "-CAcreateserial", "-days", "2", "-out", "door.pem")

    @classmethod
    def openssl(cls, *args):
        subprocess.run(["openssl", *args], check=True, cwd=cls.certs, capture_output=True)

    def pem(self, name):
        with open(os.path.join(self.certs, name)) as file:
            return file.read()

    def setUp(self):
        super().setUp()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(self.certs, "door.pem"),
                                os.path.join(self.certs, "door.key"))
        self.door.sock = context.wrap_socket(self.door.sock, server_side=True)
        self.door_url = self.door_url.replace("ws://", "wss://")
        self.pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(self.pem("door.pem"))).hexdigest()

    def try_to_connect(self, ca, pin):
        """True if the client came as far as to show its token."""
        self.offer(grant(self.door_url, ca_pem=self.pem(ca), cert_sha256=pin))
        self.gateway.on("POST", API + "/leases", (404, problem(404, "not_found", "Gone")))
        c = self.start()
        try:
            conn = self.accept()
        except (OSError, WsError):
            c.finish(3)  # as many attempts as this gateway allows
            self.why = c.events[0]["reason"]
            return False
        c.send(b"hello\n")
        self.expect(conn, (OP_TEXT, b"hello"))
        conn.send_text("world")
        self.assertEqual(c.read_line(), b"world\n")
        c.finish(0)
        return True

    def test_the_ca_and_the_pin_of_the_grant_are_enough(self):
        self.assertTrue(self.try_to_connect("ca.pem", self.pin))

    def test_another_certificate_never_sees_the_token(self):
        self.assertFalse(self.try_to_connect("ca.pem", "0" * 64))

    def test_another_ca_never_sees_the_token(self):
        self.assertFalse(self.try_to_connect("other.pem", self.pin))
        self.assertEqual(self.why, "the door's certificate is not of the CA in the grant")

    def test_without_a_pin_the_name_must_fit(self):
        self.assertFalse(self.try_to_connect("ca.pem", ""))
        self.assertEqual(self.why, "the door's certificate is for another name")

    def test_a_door_without_tls_is_told_of_in_words(self):
        plain = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(plain.close)
        url = f"wss://127.0.0.1:{plain.getsockname()[1]}/"
        self.offer(grant(url, ca_pem=self.pem("ca.pem"), cert_sha256=self.pin))
        c = self.start("--retry", "0")
        conn, _ = plain.accept()
        with conn:
            conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            c.finish(5)
        self.assertIn("the TLS handshake failed: is it a door with TLS?", c.events[-1]["detail"])


if __name__ == "__main__":
    unittest.main()
