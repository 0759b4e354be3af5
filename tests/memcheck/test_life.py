"""Gateway, leasectl and door under memcheck, once through their lives.

An error, or memory lost at the end, is the exit status 99 of tests/tools/memcheck.py.
"""

import os
import sys
import tempfile
import unittest

import door_fixture
from door_fixture import Door
from gateway import BIN, ROOT, Gateway

sys.path.insert(0, os.path.join(ROOT, "tests", "tools"))

import memcheck  # noqa: E402


class Launcher:
    """Of the gateway's fixture."""

    def new_dir(self, prefix):
        return tempfile.mkdtemp(prefix=prefix)

    def command(self, name, *args):
        return memcheck.command(os.path.join(BIN, name), *args)


def talk(client):
    client.send_text("hello")
    return client.recv(60)[1]


class GatewayLife(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, launcher=Launcher())
        self.chat = self.gateway.new_chat(title="memcheck")["chat_id"]

    def assert_clean_end(self):
        self.assertEqual(self.gateway.stop(), 0, self.gateway.log_tail(200))

    def test_from_start_to_sigterm(self):
        sandbox, grant = self.gateway.open(self.chat, lease={})
        client = self.gateway.connect(grant)
        self.assertEqual(talk(client), b"hello")
        lease = grant["lease"]["lease_id"]
        self.gateway.expect(200, "POST", f"/leases/{lease}/renew", {})
        self.gateway.expect((200, 202), "DELETE", f"/leases/{lease}")
        self.assertEqual(client.wait_closed(60), 4403)
        self.gateway.expect(404, "GET", "/no-such-thing")
        self.gateway.expect(422, "POST", "/chats", {"user_id": 5})
        for path in ("//metrics", "//openapi.json", "/leases", "/sandboxes", "/chats"):
            self.gateway.expect(200, "GET", path)
        self.gateway.expect(200, "POST", f"/sandboxes/{sandbox['session_id']}/stop", {})
        self.assert_clean_end()

    def test_with_a_live_session_and_again_over_it(self):
        _, grant = self.gateway.open(self.chat, lease={})
        client = self.gateway.connect(grant)
        self.assert_clean_end()
        self.gateway.start()
        self.assertEqual(talk(client), b"hello")
        self.assert_clean_end()

    def test_leasectl(self):
        for words in (
            ("health",),
            ("chat", "ls"),
            ("chat", "get", self.chat),
            ("sandbox", "open", self.chat),
            ("lease", "ls"),
            ("sandbox", "ls"),
            ("key", "ls"),
        ):
            done = self.gateway.ctl(*words)
            self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")
        done = self.gateway.ctl("chat", "get", "00000000-0000-4000-8000-000000000000")
        self.assertNotIn(done.returncode, (0, 99), done.stderr)
        self.assert_clean_end()


class DoorLife(unittest.TestCase):
    def test_from_hello_to_retirement(self):
        with tempfile.NamedTemporaryFile("w", prefix="leasedoor-", delete=False) as script:
            script.write("#!/bin/sh\nexec %s\n" % " ".join(memcheck.command(f"{BIN}/leasedoor")))
        self.addCleanup(os.unlink, script.name)
        os.chmod(script.name, 0o755)
        original = door_fixture.program
        self.addCleanup(setattr, door_fixture, "program", original)
        door_fixture.program = lambda name: script.name if name == "leasedoor" else original(name)
        door = Door(stale_s=60, seal_s=120)
        self.addCleanup(door.close)
        agent = door.agent()
        agent.echo_forever()
        client = door.connect(door.grant())
        self.assertEqual(talk(client), b"hello")
        door.refused("not a token")
        door.gateway.op("REVOKE_ALL", code=4403)
        self.assertEqual(client.wait_closed(60), 4403)
        door.gateway.send({"t": "RETIRE"})
        self.assertEqual(door.process.wait(60), 0, door.log())


if __name__ == "__main__":
    unittest.main()
