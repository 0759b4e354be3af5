"""A piece of network of the test's own: a bridge for an engine, and behind the host a neighbour that
only a forwarded packet reaches.

    outside = Outside(test_class)      # taken down again with the class
    Docker(options=["--bridge=" + outside.bridge])
    outside.address, outside.port      # somebody listens there

All names and addresses are the test's own; what of the host's settings is changed is put back.
"""

import os
import subprocess
import sys

FORWARD = "/proc/sys/net/ipv4/ip_forward"
SERVE = """
import socket
listener = socket.create_server(("0.0.0.0", 0), backlog=16)
print(listener.getsockname()[1], flush=True)
while True:
    listener.accept()[0].close()
"""


class Outside:
    def __init__(self, test_class):
        mark = f"{os.getpid() % 0xFFFF:x}"
        self.bridge, self.namespace = "lhb" + mark, "lhn" + mark
        ours, theirs = "lho" + mark, "lhi" + mark
        third = os.getpid() % 250
        self.host, self.address = f"10.215.{third}.1", f"10.215.{third}.2"
        test_class.addClassCleanup(self._ip_quiet, "link", "del", self.bridge)
        self._ip("link", "add", self.bridge, "type", "bridge")
        self._ip("addr", "add", f"10.214.{third}.1/24", "dev", self.bridge)
        self._ip("link", "set", self.bridge, "up")
        test_class.addClassCleanup(self._ip_quiet, "netns", "del", self.namespace)
        self._ip("netns", "add", self.namespace)
        test_class.addClassCleanup(self._ip_quiet, "link", "del", ours)
        self._ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", self.namespace)
        self._ip("addr", "add", self.host + "/30", "dev", ours)
        self._ip("link", "set", ours, "up")
        self._ip("-n", self.namespace, "addr", "add", self.address + "/30", "dev", theirs)
        self._ip("-n", self.namespace, "link", "set", theirs, "up")
        self._ip("-n", self.namespace, "route", "add", "default", "via", self.host)
        self._forward(test_class)
        self._serve(test_class)

    @staticmethod
    def _ip(*words):
        subprocess.run(["ip", *words], check=True)

    @staticmethod
    def _ip_quiet(*words):
        subprocess.run(["ip", *words], check=False, stderr=subprocess.DEVNULL)

    @staticmethod
    def _forward(test_class):
        def put(value):
            with open(FORWARD, "w", encoding="ascii") as out:
                out.write(value)

        with open(FORWARD, encoding="ascii") as text:
            test_class.addClassCleanup(put, text.read())
        put("1")

    def _serve(self, test_class):
        server = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, sys.executable, "-c", SERVE],
            stdout=subprocess.PIPE,
            text=True,
        )
        test_class.addClassCleanup(server.stdout.close)
        test_class.addClassCleanup(server.wait)
        test_class.addClassCleanup(server.kill)
        self.port = int(server.stdout.readline())
