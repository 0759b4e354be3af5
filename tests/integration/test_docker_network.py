#!/usr/bin/python3
"""Networks of containers, each really tried: what a sandbox on `none`, `internal` and `bridge` reaches,
on an engine with a bridge whose packets the host forwards; and what the engine's set-up is warned of."""

import unittest

from docker import Docker, busybox
from outside import Outside
from test_docker import SHELL
from waiting import wait_for

NETWORKS = ("none", "internal", "bridge")


class Networks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.outside = Outside(cls)
        cls.docker = Docker(options=["--bridge=" + cls.outside.bridge, "--userland-proxy=true"])
        cls.addClassCleanup(cls.docker.cleanup)
        cls.docker.image("lh/busybox", busybox())

    def start(self):
        profiles = [{"name": "default", "command": ["/run/leasehold/demo-agent"]}]
        profiles += [{"name": n, "network": n, "command": list(SHELL)} for n in NETWORKS]
        self.gateway = self.docker.gateway(self, {"profiles": profiles})

    def ask(self, client, line):
        client.send_text(line)
        return client.recv()[1].decode()

    def opened(self, network):
        chat = self.gateway.new_chat()["chat_id"]
        sandbox, grant = self.gateway.open(chat, lease={}, profile=network)
        self.assertEqual(sandbox["isolation"]["network"], network)
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        return sandbox, client

    def reaches(self, client, address):
        look = f"nc -w 2 {address} {self.outside.port} </dev/null >/dev/null 2>&1"
        return self.ask(client, f"{look} && echo yes || echo no") == "yes"

    def test_only_a_bridge_leads_out(self):
        self.start()
        opened = {network: self.opened(network) for network in NETWORKS}
        links = "echo $(ip -o link | grep -c eth0)"
        self.assertEqual(
            {n: self.ask(client, links) for n, (_, client) in opened.items()},
            {"none": "0", "internal": "1", "bridge": "1"},
        )
        self.assertEqual(
            {n: self.reaches(client, self.outside.address) for n, (_, client) in opened.items()},
            {"none": False, "internal": False, "bridge": True},
        )
        for sandbox, _ in opened.values():
            self.gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})
        self.assertEqual(self.docker.of_gateway(self.gateway), [])
        self.assertEqual(self.docker.networks(), [])

    def test_an_engine_that_should_be_set_up_otherwise_is_told_of(self):
        self.start()
        wait_for(self, "the warnings", lambda: len(self.gateway.log_lines("engine_warning")) >= 2)
        check = next(
            c for c in self.gateway.expect(200, "GET", "//readyz")["checks"] if c["name"] == "engine"
        )
        for word in ("live-restore", "userland-proxy"):
            self.assertIn(word, check["detail"])


if __name__ == "__main__":
    unittest.main()
