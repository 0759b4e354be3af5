#!/usr/bin/python3
"""What holds of a sandbox whatever engine runs it: one suite, for `local` and for `docker`. What it costs
time to see stands in test_engine_times.py.
"""

import glob
import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest
import uuid
from concurrent.futures import ThreadPoolExecutor

from compiling import compile_c
from engines import SHELL, Shell, on_each_engine
from gateway import BIN, Gateway
from test_logs import Follower


# Prints what it is told of sockets of SMC, over which no filter of the kernel's firewall stands.
SMC = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int main(void)
{
    int tcp = socket(AF_INET, SOCK_STREAM, 0);
    errno = 0, socket(43, SOCK_STREAM, 0), puts(strerrorname_np(errno));
    errno = 0, socket(43, SOCK_STREAM, 1), puts(strerrorname_np(errno));
    errno = 0, socket(AF_INET, SOCK_STREAM, 256), puts(strerrorname_np(errno));
    errno = 0, socket(AF_INET6, SOCK_STREAM, 256), puts(strerrorname_np(errno));
    errno = 0, setsockopt(tcp, IPPROTO_TCP, 31, "smc", 4), puts(strerrorname_np(errno));
    errno = 0, setsockopt(tcp, IPPROTO_TCP, 31, "tls", 4), puts(strerrorname_np(errno));
}
"""
SMC_TOLD = ["EAFNOSUPPORT"] * 2 + ["EPROTONOSUPPORT"] * 2 + ["ENOENT"] * 2

# Who drops the last of such a socket, which nobody reads, waits for a minute: the door, if we are quick.
LINGERER = r"""
#include "lingering.h"

int main(void)
{
    int listener = lingering_listen(), sent = 0;
    if (fork() == 0) {
        close(0), close(1), close(2);
        sleep(20);
        return 0;
    }
    for (int i = 0; i < 20; i++)
        sent += lingering_send(lingering_connect("/run/leasehold/agent.sock"), listener);
    printf("sent %d\n", sent > 0);
    return 0;
}
"""


class Contract:
    """Mixed into a class of engines.py."""

    def test_a_conversation_runs_through_the_door(self):
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        client.send_text("hello")
        self.assertEqual(client.recv()[1], b"hello")
        self.assertEqual(sandbox["engine"], self.ENGINE)
        self.assertEqual(sandbox["status"], "running")
        again, _ = gateway.open(self.chat)
        self.assertEqual(again["session_id"], sandbox["session_id"])
        self.assertEqual(again["container_id"], sandbox["container_id"])
        gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})
        self.assertEqual(client.wait_closed(), 4403)

    def test_the_old_form_of_create_is_answered(self):
        gateway = self.start()
        key = gateway.new_key(default_user=str(uuid.uuid4()))
        chat = str(uuid.uuid4())
        first = gateway.expect(200, "POST", "/create", {"chat_id": chat.upper()}, key=key)
        self.assertEqual(set(first), {"session_id", "chat_id", "container_id", "status", "expires_at"})
        self.assertEqual(first["chat_id"], chat)
        second = gateway.expect(200, "POST", "/create", {"chat_id": "{" + chat + "}"}, key=key)
        self.assertEqual(second["session_id"], first["session_id"])
        self.assertEqual(len(self.running()), 1)
        for body in ({"chat_id": "../x"}, {"chat_id": chat, "image": "x"}):
            self.assertEqual(gateway.rest("POST", "/create", body, key=key)[0], 422)
        self.assertEqual(len(self.running()), 1)

    def test_the_agent_is_the_configured_user_without_privileges(self):
        self.start()
        status, lines = self.shell().run("cat /proc/self/status")
        self.assertEqual(status, 0)
        found = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        self.assertEqual(found["Uid"].split(), ["10001"] * 4)
        self.assertEqual(found["Gid"].split(), ["10001"] * 4)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(found[name], 16), 0, name)
        self.assertEqual((found["NoNewPrivs"], found["Seccomp"]), ("1", "2"))
        isolation = self.sandbox["isolation"]
        self.assertEqual(
            (isolation["network"], isolation["netns"], isolation["uid"], isolation["seccomp"]),
            ("none", True, 10001, True),
        )

    def test_mounts_are_writable_and_not_as_they_should(self):
        self.start()
        shell = self.shell()
        self.assertEqual(shell.run("echo hi > /workspace/chat/f")[0], 0)
        [outside] = glob.glob(os.path.join(self.gateway.dir, "data", "**", "files", "f"), recursive=True)
        with open(outside, encoding="ascii") as text:
            self.assertEqual(text.read(), "hi\n")
        for path in ("/workspace/history.md", "/opt/dependencies/x", "/opt/lambda-tools/x",
                     "/opt/user-tools/x", "/run/leasehold/x", "/run/leasehold/agent.sock", "/x",
                     "/usr/x", "/bin/x", "/proc/sys/kernel/core_pattern"):  # fmt: skip
            self.assertNotEqual(shell.run(f"(echo x > {path})")[0], 0, path)
        self.assertEqual(shell.run("echo x > /tmp/x && cat /tmp/x"), (0, ["x"]))

    def test_nothing_but_loopback_is_there(self):
        self.start()
        status, lines = self.shell().run("cat /proc/net/dev")
        self.assertEqual(status, 0)
        devices = [line.split(":")[0].strip() for line in lines if ":" in line]
        self.assertEqual(devices, ["lo"])

    def test_an_environment_reaches_the_agent_and_nobody_else(self):
        self.start()
        shell = self.shell(env={"TOKEN": "s3cret value", "EMPTY": ""})
        self.assertEqual(shell.run('echo "$TOKEN|$EMPTY|"'), (0, ["s3cret value||"]))
        self.assertNotIn("s3cret", json.dumps(self.everything_seen_outside()))

    def start_with_secret(self, file="db-password"):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        with open(os.path.join(directory, "real"), "w", encoding="ascii") as out:
            out.write("hunter2-\n")
        os.symlink("real", os.path.join(directory, "db-password"))
        own = {
            "name": "shell",
            "command": SHELL,
            "environment": ["COLOUR=blue", "SIZE=a=b", "EMPTY="],
            "secrets": [{"name": "db", "file": os.path.join(directory, file)}],
        }
        profiles = [{"name": "default", "command": ["/run/leasehold/demo-agent"]}, own]
        return self.start(profiles=profiles)

    def copies_of_secret(self):
        pattern = os.path.join(self.gateway.run_dir, "*", "box", "secrets", "db")
        return glob.glob(pattern)

    def test_a_profiles_environment_and_secrets_reach_the_agent_alone(self):
        gateway = self.start_with_secret()
        shell = self.shell(env={"SIZE": "9"})
        self.assertEqual(shell.run('echo "$COLOUR|$SIZE|$EMPTY|"'), (0, ["blue|9||"]))
        self.assertEqual(shell.run("cat /run/leasehold/secrets/db"), (0, ["hunter2-"]))
        self.assertEqual(
            shell.run("cd /run/leasehold/secrets; stat -c '%a %u' . db")[1],
            ["700 10001", "400 10001"],
        )
        for line in ("(echo x > db)", "(echo x > more)", "rm -f db", "chmod 600 db"):
            self.assertNotEqual(shell.run(line)[0], 0, line)
        [copy] = self.copies_of_secret()
        self.assertEqual(os.stat(os.path.dirname(os.path.dirname(os.path.dirname(copy)))).st_mode & 0o777, 0o700)
        seen = json.dumps(self.everything_seen_outside()) + gateway.log_text()
        for secret in ("hunter2", "COLOUR", "blue"):
            self.assertNotIn(secret, seen)
        gateway.expect(200, "POST", f"/sandboxes/{self.sandbox['session_id']}/stop", {})
        self.assertEqual(self.copies_of_secret(), [])

    def test_secrets_go_with_a_sandbox_that_died_while_nobody_looked(self):
        gateway = self.start_with_secret()
        self.shell()
        gateway.kill9()
        self.end_by_force()
        self.assertEqual(len(self.copies_of_secret()), 1)
        gateway.start()
        self.wait("no secrets left", lambda: self.copies_of_secret() == [])

    def test_a_secret_that_is_not_there_fails_the_start_and_leaves_nothing(self):
        gateway = self.start_with_secret(file="none")
        body = {"chat_id": self.chat, "profile": "shell"}
        answer = gateway.expect(503, "POST", "/sandboxes", body)
        self.assertEqual(answer["code"], "sandbox_start_failed")
        self.assertIn("secret db", answer["detail"])
        self.assertNotIn(tempfile.gettempdir(), answer["detail"])
        command = [os.path.join(BIN, "leasehold"), "check-config", "--config", gateway.config]
        said = subprocess.run(command, env={}, capture_output=True, text=True, check=False, timeout=30)
        self.assertEqual(said.returncode, 1)
        self.assertIn("secret db: open its file: No such file", said.stderr)
        self.assertEqual((self.everything(), self.copies_of_secret()), ([], []))

    def test_a_command_that_is_not_there_is_said_and_leaves_nothing(self):
        gateway = self.start()
        body = {"chat_id": self.chat, "profile": "missing"}
        answer = gateway.expect(503, "POST", "/sandboxes", body)
        self.assertEqual(answer["code"], "sandbox_start_failed")
        self.assertIn("/no/such/program", answer["detail"])
        self.assertEqual(self.everything(), [])
        gateway.open(self.chat)

    def program(self, name, source):
        [files] = glob.glob(os.path.join(self.gateway.dir, "data", "workspaces", "*", "chats", "*", "files"))
        compile_c(source, os.path.join(files, name), "-static")

    def test_no_socket_of_smc_is_to_be_had(self):
        self.start()
        shell = self.shell()
        self.program("smc", SMC)
        self.assertEqual(shell.run("/workspace/chat/smc"), (0, SMC_TOLD))

    def test_a_socket_that_lingers_holds_up_no_revocation(self):
        gateway = self.start()
        shell = self.shell()
        self.program("lingerer", LINGERER)
        self.assertEqual(shell.run("/workspace/chat/lingerer"), (0, ["sent 1"]))
        gateway.expect(200, "POST", "/leases/revoke",
                       {"selector": {"session_id": self.sandbox["session_id"]}, "wait_ms": 5000})
        self.assertEqual(shell.client.wait_closed(), 4403)
        _, grant = gateway.open(self.chat, lease={}, profile="shell")
        client = gateway.connect(grant)
        self.addCleanup(client.close)
        self.assertEqual(Shell(client).run("echo still"), (0, ["still"]))

    def test_a_long_line_that_comes_in_pieces_is_followed_to_its_end(self):
        gateway = self.start()
        shell = self.shell()
        follower = Follower(self, gateway, f"/sandboxes/{self.sandbox['session_id']}/logs?follow=true")
        said = b""
        for letter in "abcd":
            self.assertEqual(shell.run(f"head -c 20000 /dev/zero | tr '\\0' {letter} >&3")[0], 0)
            said += letter.encode() * 20000
            follower.wait_for(said[: len(said) // 16384 * 16384])
        shell.run("echo >&3; echo end >&3")
        follower.wait_for(b"end\n")
        gateway.expect(200, "DELETE", f"/sandboxes/{self.sandbox['session_id']}")
        self.assertEqual(follower.wait_end(), said + b"\nend\n")

    def assert_ends(self, profile, reason):
        gateway = self.gateway
        sandbox, grant = gateway.open(self.chat, lease={}, profile=profile)
        path = f"/sandboxes/{sandbox['session_id']}"
        self.wait("failed", lambda: gateway.expect(200, "GET", path)["status"] == "failed")
        self.assertEqual(gateway.expect(200, "GET", path)["reason"], reason)
        lease = gateway.expect(200, "GET", f"/leases/{grant['lease']['lease_id']}")
        self.assertEqual(lease["state"], "closed")
        self.assertEqual(self.everything(), [])
        return sandbox

    def test_an_own_end_is_seen_with_its_reason(self):
        self.start()
        first = self.assert_ends("three", "exited(3)")
        second = self.assert_ends("killed", "signaled(9)")
        self.assertEqual(second["generation"], first["generation"] + 1)

    def test_fifty_creates_at_once_start_one_sandbox(self):
        gateway = self.start()
        with ThreadPoolExecutor(50) as pool:
            answers = list(pool.map(lambda _: gateway.open(self.chat)[0], range(50)))
        self.assertEqual(len({a["session_id"] for a in answers}), 1)
        self.assertEqual(len({a["container_id"] for a in answers}), 1)
        self.assertEqual(len(self.running()), 1)
        body = {"chat_id": gateway.new_chat()["chat_id"], "wait": False}
        with ThreadPoolExecutor(50) as pool:
            answers = list(pool.map(lambda _: gateway.expect((200, 202), "POST", "/sandboxes", body), range(50)))
        [session] = {a["sandbox"]["session_id"] for a in answers}
        path = f"/sandboxes/{session}"
        self.wait("running", lambda: gateway.expect(200, "GET", path)["status"] == "running")
        self.assertEqual(len(self.running()), 2)

    def test_a_restarted_gateway_adopts_what_goes_on(self):
        gateway = self.start()
        sandbox, grant = gateway.open(self.chat, lease={})
        client = gateway.connect(grant)
        self.addCleanup(client.close)
        for end in (gateway.kill9, gateway.stop):
            end()
            client.send_text("alone")
            self.assertEqual(client.recv()[1], b"alone")
            gateway.start()
            again, _ = gateway.open(self.chat)
            self.assertEqual(again["session_id"], sandbox["session_id"])
            self.assertEqual(len(self.running()), 1)
        path = f"/sandboxes/{sandbox['session_id']}/stop"
        for _ in range(2):
            stopped = gateway.expect(200, "POST", path, {"reason": "done", "grace_s": 2})
            self.assertEqual((stopped["status"], stopped["reason"]), ("stopped", "done"))
        self.assertEqual(self.everything(), [])

    def test_an_idle_one_is_stopped_and_leaves_nothing(self):
        gateway = self.start(sandbox={"ttl_seconds": 1, "cleanup_interval_seconds": 1})
        sandbox, _ = gateway.open(self.chat)
        path = f"/sandboxes/{sandbox['session_id']}"
        self.wait("stopped", lambda: gateway.expect(200, "GET", path)["status"] == "stopped")
        self.assertEqual(gateway.expect(200, "GET", path)["reason"], "idle")
        self.assertEqual(self.everything(), [])

    def test_without_a_gateway_it_ends_by_itself_some_time(self):
        gateway = self.start(
            sandbox={"ttl_seconds": 3, "max_ttl_seconds": 3, "cleanup_interval_seconds": 1},
            lease={"stale_after_seconds": 1, "seal_after_seconds": 3},
        )
        gateway.open(self.chat)
        gateway.kill9()
        self.assertEqual(gateway.log_lines("sandbox_cleaned"), [])
        self.wait("the end", lambda: self.running() == [])
        gateway.start()
        self.wait("nothing left", lambda: self.everything() == [])

    def test_a_host_path_that_is_missing_fails_the_start_and_leaves_nothing(self):
        gateway = self.start(sandbox={"dependencies_host_path": "/no/such/bundles"})
        answer = gateway.expect(503, "POST", "/sandboxes", {"chat_id": self.chat})
        self.assertEqual(answer["code"], "sandbox_start_failed")
        self.assertIn("dependencies_host_path", answer["detail"])
        self.assertEqual(self.everything(), [])

    def test_what_is_reused_and_replaced_is_told_with_its_own_names(self):
        gateway = self.start(sandbox={"cleanup_interval_seconds": 3600})
        first, _ = gateway.open(self.chat)
        gateway.open(self.chat, idle_ttl_s=1)
        time.sleep(1.2)
        second, _ = gateway.open(self.chat)
        self.assertEqual(second["generation"], first["generation"] + 1)
        names = ("sandbox_created", "sandbox_reused", "sandbox_replaced", "sandbox_created")
        told = [line for line in gateway.log_lines() if line["event"] in names]
        self.assertEqual(tuple(line["event"] for line in told), names)
        ids = [line["session_id"] for line in told]
        self.assertEqual(ids, [first["session_id"]] * 2 + [second["session_id"]] * 2)
        self.assertEqual(told[2]["previous_session_id"], first["session_id"])
        self.assertEqual(told[2]["previous_container_id"], first["container_id"])
        self.assertEqual(told[3]["container_id"], second["container_id"])
        self.assertNotEqual(first["container_id"], second["container_id"])
        self.assertEqual(len(self.running()), 1)

    def test_a_chat_whose_directory_is_a_link_is_mounted_nowhere(self):
        gateway = self.start()
        sandbox, _ = gateway.open(self.chat)
        gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})
        pattern = os.path.join(gateway.dir, "data", "workspaces", "*", "chats", self.chat)
        [chat] = glob.glob(pattern)
        secret = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, secret)
        for what in (os.path.join(chat, "files"), chat):
            with self.subTest(os.path.basename(what)):
                os.rename(what, what + ".away")
                os.symlink(secret, what)
                status, _, answer = gateway.rest("POST", "/sandboxes", {"chat_id": self.chat})
                self.assertGreaterEqual(status, 400, answer)
                self.assertEqual((self.everything(), os.listdir(secret)), ([], []))
                os.unlink(what)
                os.rename(what + ".away", what)
        gateway.open(self.chat)

    def test_a_start_that_cannot_be_recorded_is_undone(self):
        late = {"name": "late", "transport": "tcp:7000", "command": self.LATE}
        default = {"name": "default", "command": ["/run/leasehold/demo-agent"]}
        overrides = {"profiles": [default, late], **self.overrides()}
        gateway = self.gateway = Gateway.for_test(self, overrides, start=False)
        data = os.path.join(gateway.dir, "data")
        made = data + ".made"
        shutil.copytree(data, made, symlinks=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=700", "tmpfs", data], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", data], check=True)
        subprocess.run(["cp", "-a", "--sparse=always", made + "/.", data], check=True)
        gateway.start()
        self.chat = gateway.new_chat()["chat_id"]
        body = {"chat_id": self.chat, "profile": "late", "wait": False}
        begun = gateway.expect(202, "POST", "/sandboxes", body)["sandbox"]
        filler = os.path.join(data, "filler")
        with open(filler, "wb", buffering=0) as out:
            for size in (65536, 1):
                try:
                    while True:
                        out.write(bytes(size))
                except OSError:
                    pass
        path = f"/sandboxes/{begun['session_id']}"
        self.wait("its end", lambda: gateway.expect(200, "GET", path)["status"] == "failed")
        self.assertEqual(gateway.expect(200, "GET", path)["reason"], "start_failed")
        self.wait("nothing left", lambda: self.everything() == [])
        os.unlink(filler)
        sandbox, _ = gateway.open(self.chat)
        self.assertEqual(len(self.running()), 1)
        gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})


OnLocal, OnDocker = on_each_engine(Contract)


if __name__ == "__main__":
    unittest.main()
