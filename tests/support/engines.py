"""A gateway on either engine, for tests of what holds on both.

    class Contract: ...                                  # tests; they use what stands here
    OnLocal, OnDocker = on_each_engine(Contract)

The agent of profile "shell" runs each line it is sent, so a test can look around in the sandbox.
"""

import os
import unittest

import processes
from docker import Docker, busybox
from gateway import Gateway
from waiting import PATIENCE_S, until

SHELL = ["/bin/sh", "-c", 'exec 3>&2; while read -r line; do eval "$line" 2>&1; done']
END = "__end__"


class Shell:
    """The agent behind a connection, as a shell."""

    def __init__(self, client):
        self.client = client

    def run(self, line, timeout=PATIENCE_S):
        """(status, lines of output)"""
        self.client.send_text(line + f"; echo {END} $?")
        lines = []
        while True:
            _, text = self.client.recv(timeout)
            text = text.decode()
            if text.startswith(END):
                return int(text.split()[1]), lines
            lines.append(text)


class Engine:
    """Of a test: `gateway` and `chat`, once it has called start()."""

    def start(self, **more):
        profiles = [
            {"name": "default", "command": ["/run/leasehold/demo-agent"]},
            {"name": "shell", "command": SHELL},
            {"name": "missing", "command": ["/no/such/program"]},
            {"name": "three", "command": ["/bin/sh", "-c", "sleep 0.5; exit 3"]},
            {"name": "killed", "command": ["/bin/sh", "-c", "sleep 0.5; kill -9 $$"]},
        ]
        overrides = {"profiles": profiles, **self.overrides()}
        overrides["sandbox"] = {**overrides.get("sandbox", {}), **more.pop("sandbox", {})}
        overrides.update(more)
        self.gateway = Gateway.for_test(self, overrides)
        self.chat = self.gateway.new_chat()["chat_id"]
        return self.gateway

    def shell(self, **members):
        self.sandbox, grant = self.gateway.open(self.chat, lease={}, profile="shell", **members)
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        return Shell(client)

    def wait(self, what, condition):
        if not until(condition):
            self.fail(f"in vain: {what}\n{self.gateway.log_tail(8)}")


class LocalEngine(Engine):
    ENGINE = "local"
    LATE = [
        "/usr/bin/python3",
        "-c",
        "import socket, time; time.sleep(2); s = socket.create_server(('127.0.0.1', 7000))\n"
        "while True: s.accept()",
    ]

    def overrides(self):
        return {"sandbox": {"engine": "local"}}

    def running(self):
        return [p for p in self.gateway.sandboxes_left() if p.name == "leasekeep"]

    def everything(self):
        return self.gateway.sandboxes_left()

    def end_by_force(self):
        for process in self.gateway.sandboxes_left():
            process.send(9)

    def everything_seen_outside(self):
        seen = []
        for process in self.gateway.sandboxes_left():
            if process.name in ("sh", "leaseinit"):
                continue  # inside
            for name in ("cmdline", "environ"):
                try:
                    with open(f"/proc/{process.pid}/{name}", "rb") as text:
                        seen.append(text.read().decode(errors="replace"))
                except OSError:
                    pass
        return seen

    def sessions(self):
        """Of which something runs."""
        return {os.path.basename(processes.cwd(p.pid)) for p in self.running()}


class DockerEngine(Engine):
    ENGINE = "docker"
    LATE = ["/bin/sh", "-c", "sleep 2; while :; do nc -l -p 7000 </dev/null >/dev/null; done"]

    @classmethod
    def setUpClass(cls):
        cls.docker = Docker()
        cls.addClassCleanup(cls.docker.cleanup)
        cls.docker.image("lh/busybox", busybox())

    def overrides(self):
        return {
            "sandbox": {"engine": "docker", "image": "lh/busybox"},
            "docker": {"base_url": self.docker.url},
            "app": {"instance": self.id().rsplit(".", 1)[1]},
        }

    def running(self):
        return [c for c in self.everything() if c["State"] == "running"]

    def everything(self):
        label = "leasehold.run_dir=" + os.path.realpath(self.gateway.run_dir)
        return self.docker.containers(label=label)

    def end_by_force(self):
        for container in self.everything():
            self.docker.remove(container["Id"])

    def everything_seen_outside(self):
        return [self.docker.inspect(c["Id"]) for c in self.everything()]

    def sessions(self):
        return {c["Labels"]["leasehold.session"] for c in self.running()}


def on_each_engine(contract):
    """The tests of the contract, for each engine."""
    return [
        type(name, (contract, engine, unittest.TestCase), {"__module__": contract.__module__})
        for name, engine in (("OnLocal", LocalEngine), ("OnDocker", DockerEngine))
    ]
