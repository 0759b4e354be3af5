"""An agent that fills the disk is ended all the same: what ends has room of its own."""

import os
import shutil
import subprocess
import unittest

from gateway import Gateway
from metrics import Metrics
from waiting import wait_equal, wait_for
from ws import WsClosed

# Two sizes of the block, so that not a byte is left; and again for whatever comes free.
AGENT = r"""
import os, sys, threading
def fill():
    with open("/workspace/chat/fill", "wb", buffering=0) as out:
        size = 65536
        while True:
            try:
                out.write(b"x" * size)
            except OSError:
                if size == 65536:
                    size = 1
                else:
                    size = 65536
                    full.set()
full = threading.Event()
for line in sys.stdin:
    if line == "fill\n":
        threading.Thread(target=fill, daemon=True).start()
        full.wait()
    print(line, end="", flush=True)
"""

CONFIG = {
    "sandbox": {"cleanup_interval_seconds": 1},
    "lease": {"per_session": 400, "per_user": 400},
    "metrics": {"enabled": True},
    "profiles": [
        {
            "name": "default",
            "command": ["/usr/bin/python3", "-u", "-c", AGENT],
            "transport": "stdio",
        }
    ],
}


class Case(unittest.TestCase):
    size = "64m"

    def setUp(self):
        self.gateway = Gateway.for_test(self, CONFIG, start=False)
        self.data = os.path.join(self.gateway.dir, "data")
        if os.geteuid() != 0:
            self.skipTest("mounts a file system")
        self.mount()
        self.gateway.start()

    def mount(self):
        """The data directory in a file system of this size of its own."""
        made = self.data + ".made"
        shutil.copytree(self.data, made, symlinks=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={self.size},mode=0700", "full-disk", self.data],
            check=True,
        )
        self.addCleanup(self.unmount)
        subprocess.run(["cp", "-a", "--sparse=always", made + "/.", self.data], check=True)
        shutil.rmtree(made)

    def unmount(self):
        gateway = self.gateway
        try:
            if gateway.process and gateway.process.poll() is None:
                gateway.stop()
            gateway._end_sandboxes()
        finally:
            subprocess.run(["umount", "-l", self.data], check=True)

    def talk(self, client, line):
        client.send_text(line)
        return client.recv(60)[1].decode().strip()

    def session(self, lease=None, **members):
        """(sandbox, grant, a client that has been answered)"""
        chat = self.gateway.new_chat()["chat_id"]
        sandbox, grant = self.gateway.open(chat, lease=lease or {"ttl_s": 600}, **members)
        client = self.gateway.connect(grant)
        self.assertEqual(self.talk(client, "hello"), "hello")
        return sandbox, grant, client

    def fill(self):
        sandbox, grant, client = self.session()
        self.assertEqual(self.talk(client, "fill"), "fill")
        return sandbox, grant, client

    def revoke(self, grant):
        return self.gateway.rest(
            "POST",
            "/leases/revoke",
            {"selector": {"lease_id": grant["lease"]["lease_id"]}, "wait_ms": 5000},
        )

    def assert_refused(self, method, path, body):
        status, _, answer = self.gateway.rest(method, path, body)
        self.assertEqual((status, answer.get("code")), (507, "storage_full"), (path, answer))

    def is_ready(self):
        return self.gateway.rest("GET", "//readyz", key="")[0] == 200

    def assert_audit_is_whole(self):
        self.gateway.stop()
        done = self.gateway.run_program(
            "leasehold", "audit-verify", "--config", self.gateway.config
        )
        self.assertEqual(done.returncode, 0, done.stderr)


class FullDisk(Case):
    def test_all_that_ends_goes_on_and_all_else_is_refused_until_there_is_room(self):
        gateway = self.gateway
        key = gateway.expect(201, "POST", "/api-keys", {"name": "b", "role": "bot"})["api_key"]
        stopped, _, stopped_client = self.session()
        idle, _, idle_client = self.session(idle_ttl_s=4)
        _, short, short_client = self.session(lease={"ttl_s": 4})
        kept, _, kept_client = self.session()
        chats = [gateway.new_chat()["chat_id"] for _ in range(20)]
        filler, grant, client = self.fill()

        self.assert_refused("POST", "/leases", {"session_id": kept["session_id"]})
        self.assert_refused("POST", "/leases/%s/renew" % grant["lease"]["lease_id"], {})
        self.assert_refused("POST", "/api-keys", {"name": "c", "role": "bot"})
        status, _, ready = gateway.rest("GET", "//readyz", key="")
        self.assertEqual(status, 503)
        self.assertEqual([c["name"] for c in ready["checks"] if not c["ok"]], ["store"])

        self.assertEqual(self.talk(client, "still there"), "still there")
        status, _, answer = self.revoke(grant)
        self.assertEqual((status, answer.get("revoked")), (200, 1), answer)
        self.assertEqual(client.wait_closed(), 4403)
        gateway.expect(200, "POST", f"/sandboxes/{stopped['session_id']}/stop", {"grace_s": 0})
        self.assertEqual(stopped_client.wait_closed(), 4403)
        gateway.expect(204, "DELETE", "/api-keys/" + key["key_id"])
        self.assertEqual(idle_client.wait_closed(), 4408)
        self.assertEqual(short_client.wait_closed(), 4401)
        path = f"/sandboxes/{idle['session_id']}"
        wait_equal(self, "stopped", lambda: gateway.expect(200, "GET", path)["status"])
        self.assertEqual(self.talk(kept_client, "kept"), "kept")
        self.assertFalse(self.is_ready())

        gateway.expect(200, "POST", f"/sandboxes/{filler['session_id']}/stop", {"grace_s": 0})
        self.assert_refused("POST", "/leases", {"session_id": kept["session_id"]})
        gateway.expect(204, "DELETE", "/chats/" + filler["chat_id"])
        wait_for(self, "readiness", self.is_ready)
        gateway.expect(201, "POST", "/leases", {"session_id": kept["session_id"]})
        self.session()
        self.assertEqual(len(gateway.log_lines("store_reserve_whole")), 1)
        gateway.kill9()
        gateway.start()
        for chat in chats:
            gateway.expect(200, "GET", "/chats/" + chat)
        lease = gateway.expect(200, "GET", "/leases/" + short["lease"]["lease_id"])
        self.assertEqual(lease["state"], "closed")
        self.assert_audit_is_whole()

    def test_the_reserve_outlives_a_stop_and_a_kill_on_a_full_disk(self):
        gateway = self.gateway
        _, grant, client = self.fill()
        gateway.restart()
        self.assertFalse(self.is_ready())
        self.assertEqual(self.talk(client, "on"), "on")
        gateway.kill9()
        gateway.start()
        self.assertFalse(self.is_ready())
        wait_equal(self, 200, lambda: self.revoke(grant)[0])
        with self.assertRaises(WsClosed) as closed:
            self.talk(client, "cut")
        self.assertEqual(closed.exception.code, 4403)

    def test_ends_in_great_number_find_room(self):
        gateway = self.gateway
        sandbox, _, _ = self.session()
        leases = [
            gateway.expect(201, "POST", "/leases", {"session_id": sandbox["session_id"]})["lease"]
            for _ in range(300)
        ]
        self.fill()
        for lease in leases:
            gateway.expect(202, "DELETE", "/leases/" + lease["lease_id"])
        self.assertGreater(Metrics.of(gateway)["leasehold_store_reserve_bytes"], 1 << 20)
        self.assertFalse(self.is_ready())


class TinyDisk(Case):
    size = "7m"

    def test_where_no_reserve_fits_the_store_says_so_and_works(self):
        self.assertEqual(len(self.gateway.log_lines("store_without_reserve")), 1)
        self.assertTrue(self.is_ready())
        self.session()


if __name__ == "__main__":
    unittest.main()
