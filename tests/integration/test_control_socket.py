"""The socket by which doors reach their gateway: who else comes there keeps no door out, and a door that
has been subverted can say no more than a door may."""

import base64
import functools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import unittest
import uuid
from unittest import mock

import ws
from gateway import Gateway
from metrics import Metrics
from waiting import PATIENCE_S, wait_for

HOG = """
import os, socket, sys
path, wanted = sys.argv[1], int(sys.argv[2])
os.chdir(path)  # as a door: the way there is closed to its user
os.setgroups([]); os.setgid(10002); os.setuid(10002)
HELLO = (b"GET /api/v1/door HTTP/1.1\\r\\nHost: x\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n"
         b"Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n"
         b"Sec-WebSocket-Protocol: leasehold.control.v1\\r\\n\\r\\n")
held, first = [], True
while True:
    while len(held) < wanted:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)
        try:
            s.connect("control.sock")
            s.sendall(HELLO)
            held.append(s)
        except OSError:
            s.close()
            break
    alive = []
    for s in held:
        try:
            answer = s.recv(4096)
        except OSError:
            answer = b""
        if answer:
            alive.append(s)
        else:
            s.close()
    held = alive
    if first:
        print(len(held), flush=True)
    first = False
"""
CONNS = 40


class Base(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, {})
        self.path = os.path.join(self.gateway.run_dir, "control.sock")

    def until(self, condition):
        return wait_for(self, "", condition)

    def door(self, session):
        with open(os.path.join(self.gateway.run_dir, session, "door.pid"), encoding="ascii") as file:
            return int(file.read().split()[0])


class Strangers(Base):
    def hog(self, conns=CONNS):
        """Connects again and again under the uid of doors; how many of its first connections it got."""
        process = subprocess.Popen([sys.executable, "-c", HOG, self.gateway.run_dir, str(conns)],
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, int(process.stdout.readline())

    def test_a_process_that_proves_nothing_has_a_few_places_only(self):
        process, got = self.hog()
        self.assertEqual(got, 8)
        [line] = self.until(lambda: self.gateway.log_lines("process_over_connections"))
        self.assertEqual((line["pid"], line["uid"]), (process.pid, 10002))
        self.assertGreaterEqual(
            Metrics.of(self.gateway)["leasehold_connections_refused_total"], CONNS - 8)
        _, other = self.hog()
        self.assertEqual(other, 8)

    def test_doors_come_past_one_that_takes_all_it_gets(self):
        self.gateway.stop()
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (512, 512))
        with mock.patch("subprocess.Popen", functools.partial(subprocess.Popen, preexec_fn=limit)):
            self.gateway.start()
        process, _ = self.hog(500)
        for _ in range(3):
            _, grant = self.gateway.open(self.gateway.new_chat()["chat_id"], lease={})
            client = self.gateway.connect(grant)
            client.close()
        self.assertIsNone(process.poll())

    def test_a_door_is_one_process_and_stays_one(self):
        sandbox, _ = self.gateway.open(self.gateway.new_chat()["chat_id"], lease={})
        with open(f"/proc/{self.door(sandbox['session_id'])}/limits", encoding="ascii") as limits:
            self.assertRegex(limits.read(), r"Max processes +0 +0 ")


class SubvertedDoor(Base):
    """Somebody who has a door in his hand: its secret is its own, so its gateway takes him for it."""

    def setUp(self):
        super().setUp()
        self.sandbox, self.grant = self.gateway.open(self.gateway.new_chat()["chat_id"], lease={})
        self.session = self.sandbox["session_id"]
        self.pid = self.door(self.session)
        os.kill(self.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.pid, signal.SIGCONT)
        claims = self.grant["token"].split(".")[1]
        self.claims = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))

    def secrets(self):
        with open(f"/proc/{self.pid}/maps", encoding="ascii") as maps:
            places = [line.split() for line in maps if " rw" in line]
        with open(f"/proc/{self.pid}/mem", "rb") as memory:
            for place in places:
                start, end = (int(x, 16) for x in place[0].split("-"))
                memory.seek(start)
                try:
                    text = memory.read(end - start)
                except OSError:
                    continue
                yield from re.findall(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", text)

    def link(self, secret, conns=()):
        link = ws.WsClient.connect(self.path, path="/api/v1/door", timeout=PATIENCE_S,
                                   protocols=["leasehold.control.v1"])
        self.addCleanup(link.close)
        link.send_text(json.dumps({
            "t": "HELLO", "sid": self.session, "ep": self.claims["ep"], "boot_id": str(uuid.uuid4()),
            "secret": secret, "applied": 0, "agent": "up", "conns": list(conns), "consumed": []}))
        return link

    def live(self):
        """As the door of the session."""
        for secret in {s.decode() for s in self.secrets()}:
            link = self.link(secret)
            try:
                if json.loads(link.recv()[1])["t"] in ("SNAPSHOT", "DELTA"):
                    return link, secret
            except ws.WsClosed:
                pass
        raise AssertionError("no secret found")

    def told(self):
        items = self.gateway.expect(200, "GET", "/audit?action=door.fault")["items"]
        return [(e["actor"], e["object"], e["outcome"], e["detail"]) for e in items]

    def test_what_it_cannot_have_ends_its_link_and_is_audited(self):
        link, secret = self.live()
        jti = self.claims["jti"]
        for said, why in (
            ([{"t": "ADMIT", "jti": jti}] * 2, "more connections than the lease has"),
            ([{"t": "ACTIVITY", "last_in": 0, "last_out": 0, "bytes_in": -1, "bytes_out": 0,
               "conns": []}], "malformed /bytes_in"),
            ([{"t": "PING", "now": 1e300}], "malformed"),
        ):
            for message in said:
                link.send_text(json.dumps(message))
            self.assertEqual(link.wait_closed(), 1002)
            actor, what, outcome, _ = self.until(self.told)[0]
            self.assertEqual((actor, what, outcome),
                             ("door:" + self.session, "sandbox:" + self.session, "failed"))
            self.until(lambda why=why: any(t[3].startswith(why) for t in self.told()))
            self.assertEqual(Metrics.of(self.gateway)["leasehold_door_connections"], 0)
            link = self.link(secret)
        self.assertEqual(self.link(secret, [{"jti": jti, "n": 8}]).wait_closed(), 1002)
        self.assertEqual(len(self.until(lambda: len(self.told()) == 4 and self.told())), 4)
        os.kill(self.pid, signal.SIGCONT)  # the true one comes back, and serves
        self.gateway.connect_again(self.grant).close()


if __name__ == "__main__":
    unittest.main()
