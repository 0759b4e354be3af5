#!/usr/bin/python3
"""Sandboxes on Docker: what only containers have, and what only an engine can do to them."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "soak"))

import docker_many
import ports
from docker import Docker, busybox, glibc, musl, scratch, tar_of
from gateway import BIN
from registry import Registry
from waiting import PATIENCE_S, wait_for

ECHO = ["/bin/sh", "-c", 'while read -r l; do echo "$l"; done']
SHELL = ["/bin/sh", "-c", 'while read -r line; do eval "$line" 2>&1; done']
MUSL_ECHO = r"""
#include <stdio.h>
int main(void)
{
    char line[1000];
    while (fgets(line, sizeof line, stdin)) {
        printf("musl %s", line);
        fflush(stdout);
    }
    return 0;
}
"""


MISSING = (
    b"leasehold: the agent said more than is kept before it could be read: a part is missing here\n"
)


class DockerTest(unittest.TestCase):
    live_restore = False

    @classmethod
    def setUpClass(cls):
        cls.docker = Docker(live_restore=cls.live_restore)
        cls.addClassCleanup(cls.docker.cleanup)
        cls.docker.image("lh/busybox", busybox())

    def start(self, *profiles, **overrides):
        options = {key: overrides.pop(key) for key in ("url", "image") if key in overrides}
        default = {"name": "default", "command": ["/run/leasehold/demo-agent"]}
        overrides["profiles"] = [default, *profiles]
        self.gateway = self.docker.gateway(self, overrides, **options)
        self.chat = self.gateway.new_chat()["chat_id"]
        return self.gateway

    def session(self, session_id):
        return self.gateway.expect(200, "GET", f"/sandboxes/{session_id}")

    def wait_status(self, session_id, status, seconds=PATIENCE_S):
        wait_for(
            self,
            f"{status}, is {self.session(session_id)}",
            lambda: self.session(session_id)["status"] == status,
            seconds,
        )
        return self.session(session_id)

    def say(self, grant, line="hello"):
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        client.send_text(line)
        return client.recv()[1].decode()

    def assert_nothing_left(self):
        self.assertEqual(self.docker.of_gateway(self.gateway), [])
        self.assertEqual(self.gateway.sandboxes_left(), [])
        left = [n for n in os.listdir(self.gateway.run_dir) if len(n) == 36]
        self.assertEqual(left, [])


class Images(DockerTest):
    def own(self, name, files, *changes):
        self.docker.image(name, files, changes)
        return {"name": name.rpartition("/")[2], "image": name}

    def open(self, profile):
        self.start(profile)
        sandbox, grant = self.gateway.open(self.chat, lease={}, profile=profile["name"])
        return sandbox, grant

    def test_an_images_own_command_directory_and_environment_are_kept(self):
        profile = self.own(
            "lh/own",
            busybox(),
            'ENTRYPOINT ["/bin/sh", "-c", "while read l; do echo $0 $1 $COLOUR $(pwd) $(id -u); done"]',
            'CMD ["first", "second"]',
            "WORKDIR /srv",
            "ENV COLOUR=blue",
            "USER root",
        )
        _, grant = self.open(profile)
        self.assertEqual(self.say(grant), "first second blue /srv 10001")

    def test_an_image_that_is_missing_is_pulled(self):
        registry = Registry([tar_of(busybox())], {"Cmd": ECHO})
        self.addCleanup(registry.close)
        _, grant = self.open({"name": "far", "image": f"{registry.address}/far/agent:7"})
        self.assertEqual(self.say(grant), "hello")

    def test_an_image_without_a_shell_runs(self):
        profile = self.own("lh/scratch", scratch(os.path.join(BIN, "demo-agent")), 'CMD ["/agent"]')
        _, grant = self.open(profile)
        self.assertEqual(self.say(grant), "hello")

    def test_an_image_of_musl_runs(self):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        profile = self.own("lh/musl", musl(MUSL_ECHO, directory), 'CMD ["/bin/agent"]')
        _, grant = self.open(profile)
        self.assertEqual(self.say(grant), "musl hello")

    def test_an_image_of_glibc_runs(self):
        profile = self.own("lh/glibc", glibc("/bin/cat"), 'CMD ["/bin/agent"]')
        _, grant = self.open(profile)
        self.assertEqual(self.say(grant), "hello")

    def test_an_image_without_a_command_is_refused(self):
        profile = self.own("lh/none", busybox())
        self.start(profile)
        body = {"chat_id": self.chat, "profile": "none"}
        answer = self.gateway.expect(503, "POST", "/sandboxes", body)
        self.assertIn("no command", answer["detail"])
        self.assert_nothing_left()

    def test_an_image_that_is_nowhere_is_said_and_leaves_nothing(self):
        self.start({"name": "gone", "image": "127.0.0.1:9/no/such:1"})
        body = {"chat_id": self.chat, "profile": "gone"}
        answer = self.gateway.expect(503, "POST", "/sandboxes", body)
        self.assertEqual(answer["code"], "sandbox_start_failed")
        self.assertIn("127.0.0.1:9/no/such:1 cannot be pulled", answer["detail"])
        self.assert_nothing_left()


class Hardening(DockerTest):
    def test_a_container_has_all_that_holds_it(self):
        limits = {"memory_bytes": 67108864, "cpus": 0.5, "pids": 32}
        self.start({"name": "tight", "command": SHELL, "limits": limits, "tmpfs": ["/var/x"]})
        sandbox, grant = self.gateway.open(self.chat, lease={}, profile="tight")
        seen = self.docker.inspect(sandbox["container_id"])
        host = seen["HostConfig"]
        self.assertEqual(
            {key: host[key] for key in ("Privileged", "ReadonlyRootfs", "NetworkMode", "CapAdd",
                                        "CapDrop", "SecurityOpt", "Binds", "PidMode", "IpcMode",
                                        "Devices", "VolumesFrom", "AutoRemove")},
            {"Privileged": False, "ReadonlyRootfs": True, "NetworkMode": "none", "CapAdd": None,
             "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "Binds": None,
             "PidMode": "", "IpcMode": "private", "Devices": None, "VolumesFrom": None,
             "AutoRemove": False},
        )  # fmt: skip
        self.assertEqual(
            (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]),
            (67108864, 67108864, 500000000, 33),
        )
        self.assertEqual(host["RestartPolicy"]["Name"], "no")
        self.assertEqual(seen["Config"]["User"], "10001:10001")
        for mount in host["Mounts"]:
            wanted = mount["Target"] == "/workspace/chat"
            self.assertEqual(not mount.get("ReadOnly", False), wanted, mount)
            self.assertEqual(mount["BindOptions"]["Propagation"], "rprivate")
        self.assertEqual(self.say(grant, "echo x > /var/x/y && cat /var/x/y"), "x")

    def test_labels_tell_whose_it_is_and_nothing_else(self):
        self.start()
        sandbox, _ = self.gateway.open(self.chat, env={"SECRET": "s3cret"})
        labels = self.docker.inspect(sandbox["container_id"])["Config"]["Labels"]
        self.assertEqual(labels["leasehold.instance"], self.id().rsplit(".", 1)[1][:60])
        self.assertEqual(labels["leasehold.run_dir"], os.path.realpath(self.gateway.run_dir))
        self.assertEqual(labels["leasehold.session"], sandbox["session_id"])
        self.assertEqual(labels["leasehold.chat"], self.chat)
        self.assertEqual(labels["leasehold.generation"], str(sandbox["generation"]))
        self.assertEqual(labels["leasehold.kind"], "sandbox")
        self.assertEqual(labels["leasehold.created_at"], sandbox["created_at"])
        self.assertEqual(labels["session_id"], sandbox["session_id"])
        self.assertEqual(labels["chat_id"], self.chat)
        self.assertIn("T", labels["expires_at"])
        self.assertEqual(len(labels), 10)

    def test_a_runtime_that_is_not_there_is_refused(self):
        self.start({"name": "kata", "command": ECHO, "runtime": "kata"})
        body = {"chat_id": self.chat, "profile": "kata"}
        answer = self.gateway.expect(503, "POST", "/sandboxes", body)
        self.assertIn("kata", answer["detail"])
        self.assert_nothing_left()

    def test_too_much_memory_ends_it_as_oom(self):
        eat = "read l; echo on; exec tail /dev/zero"
        limits = {"memory_bytes": 33554432}
        self.start({"name": "eater", "command": ["/bin/sh", "-c", eat], "limits": limits})
        sandbox, grant = self.gateway.open(self.chat, lease={}, profile="eater")
        self.assertEqual(self.say(grant, "go"), "on")
        self.assertEqual(self.wait_status(sandbox["session_id"], "failed")["reason"], "oom")
        self.assert_nothing_left()

    def listen_on_the_host(self):
        listener = socket.socket()
        self.addCleanup(listener.close)
        listener.bind(("0.0.0.0", 0))
        listener.listen(4)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing; chooses the address we would use
            return listener.getsockname()[1], probe.getsockname()[0]

    def test_an_internal_network_leads_nowhere_and_goes_with_its_session(self):
        self.start({"name": "inner", "command": SHELL, "network": "internal"})
        sandbox, grant = self.gateway.open(self.chat, lease={}, profile="inner")
        self.assertEqual(sandbox["isolation"]["network"], "internal")
        self.assertEqual(len(self.docker.networks()), 1)
        port, address = self.listen_on_the_host()
        look = f"nc -w 2 {address} {port} </dev/null >/dev/null 2>&1"
        line = f"{look} && in=in; echo $(ip -o link | grep -c eth0)$in"
        self.assertEqual(self.say(grant, line), "1")
        self.gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})
        self.assertEqual(self.docker.networks(), [])
        self.assert_nothing_left()


class Logs(DockerTest):
    """The engine keeps a MiB or two of what is said."""

    def follow(self):
        """(session, its log as it comes, a function that runs a line there; its 9 is the log)"""
        self.start({"name": "shell", "command": [*SHELL[:2], "exec 9>&2; " + SHELL[2]]})
        sandbox, grant = self.gateway.open(self.chat, lease={}, profile="shell")
        address = urllib.parse.urlsplit(self.gateway.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", f"/api/v1/sandboxes/{sandbox['session_id']}/logs?follow=true",
                           headers={"Authorization": f"Bearer {self.gateway.admin_key}"})
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)

        def run(line):
            client.send_text(line + "; echo said")
            self.assertEqual(client.recv(60)[1], b"said")

        return sandbox["session_id"], connection.getresponse(), run

    def test_a_follower_is_told_what_it_has_missed(self):
        session, log, run = self.follow()

        def say(first, last):
            lines = f'BEGIN {{ for (i = {first}; i <= {last}; i++) printf "%099d\\n", i }}'
            run(f"awk '{lines}' >&9")

        data = b""
        for first, last in ((1, 10), (11, 20)):
            say(first, last)
            while b"%099d\n" % last not in data:
                data += log.read1(65536)
        self.assertEqual([int(line) for line in data.split()], list(range(1, 21)))
        self.gateway.process.send_signal(signal.SIGSTOP)
        say(21, 60000)
        self.gateway.process.send_signal(signal.SIGCONT)
        while b"%099d\n" % 60000 not in data:
            data += log.read1(65536)
        self.gateway.expect(200, "DELETE", f"/sandboxes/{session}")
        pieces = [[int(line) for line in piece.split()] for piece in data.split(MISSING)]
        self.assertGreater(len(pieces), 1)
        self.assertEqual(pieces[0], list(range(1, 21)))
        for before, numbers in zip(pieces, pieces[1:]):  # the engine may go on faster than is read
            self.assertGreater(numbers[0], before[-1] + 1)
            self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
        self.assertEqual(pieces[-1][-1], 60000)

    def test_what_is_left_of_a_line_longer_than_is_kept_is_told_once(self):
        """The engine gives all pieces of a line, 16 KiB each, the time of the first. Were the first two
        alike, a loss might be told while there is none."""
        session, log, run = self.follow()

        def say(letter, pieces):
            run(f"head -c {pieces * 16384} /dev/zero | tr '\\0' {letter} >&9")

        def read(data, letter, pieces):
            while data.count(letter.encode()) < pieces * 16384:
                data += log.read1(65536)
            return data

        say("Z", 1)
        say("A", 120)
        data = read(b"", "A", 120)
        self.gateway.process.send_signal(signal.SIGSTOP)
        say("B", 40)
        self.gateway.process.send_signal(signal.SIGCONT)
        data = read(data, "B", 40)
        for letter in "CDE":
            say(letter, 1)
            data = read(data, letter, 1)
        known, left = data.split(MISSING)
        self.assertEqual(known, b"Z" * 16384 + b"A" * 120 * 16384)
        new = b"".join(letter * 16384 for letter in (b"C", b"D", b"E"))
        self.assertEqual(left.lstrip(b"A"), b"B" * 40 * 16384 + new)


class Ends(DockerTest):
    def opened(self):
        sandbox, grant = self.gateway.open(self.chat, lease={"max_connections": 2})
        self.assertEqual(self.say(grant), "hello")
        return sandbox, grant

    def assert_failed(self, sandbox, grant, *reasons):
        ended = self.wait_status(sandbox["session_id"], "failed")
        self.assertIn(ended["reason"], reasons)
        lease = self.gateway.expect(200, "GET", f"/leases/{grant['lease']['lease_id']}")
        self.assertEqual(lease["state"], "closed")
        self.assert_nothing_left()

    def test_one_that_is_killed_by_somebody_else_is_failed(self):
        self.start()
        sandbox, grant = self.opened()
        self.docker.ok("POST", f"/containers/{sandbox['container_id']}/kill")
        self.assert_failed(sandbox, grant, "signaled(9)")

    def test_one_that_is_removed_by_somebody_else_is_failed(self):
        self.start()
        sandbox, grant = self.opened()
        self.docker.remove(sandbox["container_id"])
        # It is killed before it is removed: who looks in between is told so.
        self.assert_failed(sandbox, grant, "engine_lost", "signaled(9)")

    def test_one_that_was_removed_while_the_gateway_was_away_is_failed(self):
        self.start()
        sandbox, grant = self.opened()
        self.gateway.kill9()
        self.docker.remove(sandbox["container_id"])
        self.gateway.start()
        self.assert_failed(sandbox, grant, "engine_lost")

    def copy_of(self, sandbox, name, **labels):
        """A container with the labels of this session's, some of them changed."""
        own = self.docker.inspect(sandbox["container_id"])["Config"]["Labels"]
        body = {
            "Image": "lh/busybox",
            "Cmd": ["/bin/sleep", "1000"],
            "Labels": {**own, **labels},
            "HostConfig": {"NetworkMode": "none"},
        }
        made = self.docker.ok("POST", f"/containers/create?name={name}", body)["Id"]
        self.addCleanup(self.docker.remove, made)
        self.docker.ok("POST", f"/containers/{made}/start")
        return made

    def ids(self):
        return {c["Id"] for c in self.docker.containers()}

    def test_an_orphan_goes_after_its_grace_and_what_is_foreign_stays(self):
        self.start(
            sandbox={"cleanup_interval_seconds": 1, "start_timeout_seconds": 3},
            lease={"clock_skew_seconds": 0},
        )
        sandbox, _ = self.opened()
        lost = "11111111-2222-4333-8444-555555555555"
        foreign = {
            self.copy_of(sandbox, "other-instance", **{"leasehold.instance": "another"}),
            self.copy_of(sandbox, "other-run-dir", **{"leasehold.run_dir": "/elsewhere"}),
            self.copy_of(sandbox, "other-kind", **{"leasehold.kind": "service"}),
            self.copy_of(sandbox, "garbled", **{"leasehold.session": "x"}),
        }
        orphan = self.copy_of(sandbox, f"leasehold-{lost}", **{"leasehold.session": lost})
        wait_for(self, "the mark", lambda: self.gateway.log_lines("sandbox_orphaned"))
        self.assertIn(orphan, self.ids())
        wait_for(self, "the orphan's end", lambda: orphan not in self.ids())
        self.assertLessEqual(foreign, self.ids())
        self.assertIn(sandbox["container_id"], self.ids())
        again, _ = self.gateway.open(self.chat)
        self.assertEqual(again["session_id"], sandbox["session_id"])


class Many(DockerTest):
    def test_a_dozen_opened_used_adopted_and_stopped_leave_nothing(self):
        self.start()
        self.assertEqual(docker_many.run(self.docker, self.gateway, 12, 6, lambda text: None), {})


class Outages(DockerTest):
    """Each test has an engine of its own, as it is not well afterwards."""

    @classmethod
    def setUpClass(cls):
        pass

    def engine(self, **options):
        self.docker = Docker(**options)
        self.addCleanup(self.docker.cleanup)
        self.docker.image("lh/busybox", busybox())

    def readyz(self):
        status, _, answer = self.gateway.rest("GET", "//readyz")
        return status, next(c for c in answer["checks"] if c["name"] == "engine")

    def test_without_an_engine_nothing_is_started_until_it_comes(self):
        self.engine()
        self.docker.stop()
        self.start()
        answer = self.gateway.expect(503, "POST", "/sandboxes", {"chat_id": self.chat})
        self.assertEqual(answer["code"], "sandbox_list_failed")
        status, check = self.readyz()
        self.assertEqual((status, check["ok"]), (503, False))
        self.assertIn("d.sock", check["detail"])
        self.docker.start()
        wait_for(self, "readiness", lambda: self.readyz()[0] == 200)
        self.assertIn("live-restore", self.readyz()[1]["detail"])
        _, grant = self.gateway.open(self.chat, lease={})
        self.assertEqual(self.say(grant), "hello")

    def test_with_live_restore_sandboxes_outlive_the_engine(self):
        self.engine(live_restore=True)
        self.start()
        sandbox, grant = self.gateway.open(self.chat, lease={})
        client = self.gateway.connect(grant)
        self.docker.kill()
        client.send_text("still")
        self.assertEqual(client.recv()[1], b"still")
        again, _ = self.gateway.open(self.chat)
        self.assertEqual(again["session_id"], sandbox["session_id"])
        self.docker.start()
        wait_for(self, "readiness", lambda: self.readyz()[0] == 200)
        client.send_text("and again")
        self.assertEqual(client.recv()[1], b"and again")
        self.assertEqual(self.session(sandbox["session_id"])["status"], "running")
        self.gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})
        self.assert_nothing_left()

    def test_a_death_during_an_outage_is_seen_and_cleaned_up_after_it(self):
        self.engine(live_restore=True)
        self.start(sandbox={"cleanup_interval_seconds": 1})
        sandbox, grant = self.gateway.open(self.chat, lease={})
        client = self.gateway.connect(grant)
        pid = self.docker.inspect(sandbox["container_id"])["State"]["Pid"]
        self.docker.kill()
        os.kill(pid, 9)
        client.wait_closed()
        lease = f"/leases/{grant['lease']['lease_id']}"
        wait_for(
            self,
            "the revocation",
            lambda: self.gateway.expect(200, "GET", lease)["state"] not in ("pending", "active"),
        )
        self.docker.start()
        self.wait_status(sandbox["session_id"], "failed")
        self.assertEqual(self.gateway.expect(200, "GET", lease)["state"], "closed")
        self.assert_nothing_left()

    def test_without_live_restore_a_restart_of_the_engine_fails_what_it_ended(self):
        self.engine()
        self.start()
        sandbox, grant = self.gateway.open(self.chat, lease={})
        client = self.gateway.connect(grant)
        self.docker.kill()
        self.docker.start()
        client.wait_closed()
        self.wait_status(sandbox["session_id"], "failed")
        self.assert_nothing_left()
        again, _ = self.gateway.open(self.chat)
        self.assertNotEqual(again["session_id"], sandbox["session_id"])


class OverTls(DockerTest):
    @classmethod
    def setUpClass(cls):
        cls.certs = tempfile.mkdtemp(prefix="lhc-")
        cls.addClassCleanup(shutil.rmtree, cls.certs)
        make_certificates(cls.certs)
        cls.address = f"127.0.0.1:{ports.reserve()}"
        cls.docker = Docker(hosts=["tcp://" + cls.address], start=False)
        cls.addClassCleanup(cls.docker.cleanup)
        files = {"cacert": "ca.pem", "cert": "server.pem", "key": "server.key"}
        cls.docker.options = ["--tlsverify"] + [
            f"--tls{name}={cls.certs}/{file}" for name, file in files.items()
        ]
        cls.docker.start()
        cls.docker.image("lh/busybox", busybox())

    def engine(self, **tls):
        return {"base_url": "tcp://" + self.address, "tls": tls}

    def test_an_engine_is_reached_over_tls_with_a_client_certificate(self):
        own = {"ca_file": "ca.pem", "cert_file": "client.pem", "key_file": "client.key"}
        self.start(docker=self.engine(**{k: os.path.join(self.certs, v) for k, v in own.items()}))
        _, grant = self.gateway.open(self.chat, lease={})
        self.assertEqual(self.say(grant), "hello")

    def test_without_a_certificate_of_its_own_it_is_refused(self):
        self.start(docker=self.engine(ca_file=os.path.join(self.certs, "ca.pem")))
        answer = self.gateway.expect(503, "POST", "/sandboxes", {"chat_id": self.chat})
        self.assertEqual(answer["code"], "sandbox_list_failed")

    def test_an_engine_that_proves_nothing_is_not_spoken_to(self):
        own = {"cert_file": "client.pem", "key_file": "client.key"}  # and the system's authorities
        self.start(docker=self.engine(**{k: os.path.join(self.certs, v) for k, v in own.items()}))
        answer = self.gateway.expect(503, "POST", "/sandboxes", {"chat_id": self.chat})
        self.assertEqual(answer["code"], "sandbox_list_failed")


def make_certificates(directory):
    """ca.pem, and server and client .pem and .key signed by it."""

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test ca")
    for name, use in (("server", "serverAuth"), ("client", "clientAuth")):
        with open(os.path.join(directory, "ext"), "w", encoding="ascii") as out:
            out.write(f"extendedKeyUsage={use}\nsubjectAltName=IP:127.0.0.1\n")
        openssl("req", *new_key, "-keyout", name + ".key", "-out", "csr", "-subj", "/CN=" + name)
        openssl("x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-extfile", "ext", "-out", name + ".pem")  # fmt: skip


if __name__ == "__main__":
    unittest.main()
