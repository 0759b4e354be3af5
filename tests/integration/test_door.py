#!/usr/bin/python3
"""leasedoor itself, between a gateway, an agent and clients made of Python.

Needs root (the door drops to its own uid) and the built programs (LEASEHOLD_BIN, default
build/release/bin).
"""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import door_fixture
import ws
from door_fixture import AGENT_GID, GID, LINK_LINE, PROTOCOL, UID, Door, Key, wait_until

MIB = 1024 * 1024


def setUpModule():
    if os.geteuid() != 0:
        raise AssertionError("needs root")
    door_fixture.program("leasedoor")
    door_fixture.program("mint_token")


class DoorTest(unittest.TestCase):
    def door(self, **options):
        door = Door(**options)
        self.addCleanup(door.close)
        return door

    def assert_serves(self, door):
        """A fresh lease still gets through to the agent and back."""
        self.assertTrue(door.alive(), door.log())
        client = door.connect(door.grant())
        self.assertEqual(client.ready["session_id"], door.session)
        client.close()


class Admission(DoorTest):
    def test_ready_names_the_lease_and_comes_first(self):
        door = self.door()
        claims = door.claims(scope=["read"], ttl=60)
        door.allow(claims)
        client = door.connect(door.key.sign(claims))
        self.assertEqual(client.ready["session_id"], door.session)
        self.assertEqual(client.ready["lease_id"], claims["jti"])
        self.assertEqual(client.ready["scope"], ["read"])
        self.assertRegex(client.ready["expires_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z$")
        self.assertEqual(client.protocol, PROTOCOL)
        door.gateway.wait("ADMIT", jti=claims["jti"])

    def test_the_token_may_be_the_first_message(self):
        door = self.door()
        client = door.open()
        client.send_text(json.dumps({"type": "auth", "token": door.grant()}))
        self.assertEqual(json.loads(client.recv()[1])["type"], "ready")

    def test_a_line_right_behind_the_first_message_is_not_lost(self):
        door = self.door()
        agent = door.agent()
        client = door.open()
        auth = json.dumps({"type": "auth", "token": door.grant()}).encode()
        mask = b"abcd"
        client.send_raw(ws.frame(ws.OP_TEXT, auth, mask=mask) +
                        ws.frame(ws.OP_TEXT, b"early", mask=mask))
        self.assertEqual(agent.recv_line(), b"early")

    def test_a_first_message_that_is_no_auth_is_refused(self):
        door = self.door()
        token = door.grant()
        good = json.dumps({"type": "auth", "token": token})
        for message in ("{}", "hello", good + " x", json.dumps({"type": "hello", "token": token}),
                        '{"type":"auth","type":"auth","token":"x"}', " " * 5000,
                        json.dumps({"type": "auth", "token": token, "more": 1}),
                        json.dumps({"type": "auth", "token": "x" * 2049})):
            client = door.open()
            client.send_text(message)
            self.assertEqual(client.wait_closed(), 4401, message[:60])
        client = door.open()
        client.send_binary(good.encode())
        self.assertEqual(client.wait_closed(), 4401)

    def test_who_says_nothing_is_closed_after_two_seconds(self):
        door = self.door()
        client = door.open()
        self.assertEqual(client.wait_closed(timeout=4), 4401)
        door.gateway.wait("DENY", verdict="no_token")

    def test_tokens_that_are_not_good_get_4401(self):
        door = self.door()
        other = Key(door.directory, "other")
        good = door.claims()
        door.allow(good)
        token = door.key.sign(good)
        now = int(time.time())
        cases = {
            "nothing": "x",
            "a bit of the signature": token[:-2] + ("A" if token[-2] != "A" else "B") + token[-1],
            "another key": other.sign(good),
            "another audience": door.key.sign(dict(good, aud="door:" + str(uuid.uuid4()))),
            "another node": door.key.sign(dict(good, node="elsewhere")),
            "another issuer": door.key.sign(dict(good, iss="https://evil.example")),
            "expired": door.key.sign(dict(good, iat=now - 60, nbf=now - 60, exp=now - 1)),
            "not yet": door.key.sign(dict(good, nbf=now + 60)),
            "never granted": door.key.sign(door.claims()),
            "alg none": door.key.sign(good, header={"alg": "none", "typ": "lease+jwt",
                                                    "kid": door.key.public["kid"]}),
            "bound to a key": door.key.sign(dict(good, cnf={"jkt": door.key.public["kid"]})),
        }
        for name, bad in cases.items():
            self.assertEqual(door.refused(bad), 4401, name)
        door.connect(token).close()

    def test_an_authorization_of_another_kind_gets_4401(self):
        door = self.door()
        for value in ("Basic eDp5", "Bearer", "Bearer " + "x" * 3000, "bogus"):
            self.assertEqual(door.refused(headers={"Authorization": value}), 4401, value[:20])

    def test_another_generation_gets_4410(self):
        door = self.door()
        for ep in (door.ep - 1, door.ep + 1):
            claims = door.claims(ep=ep)
            door.allow(claims)
            self.assertEqual(door.refused(door.key.sign(claims)), 4410)

    def test_more_connections_than_the_lease_has_get_4409(self):
        door = self.door()
        token = door.grant(mc=2)
        first, second = door.connect(token), door.connect(token)
        self.assertEqual(door.refused(token), 4409)
        first.send_close()
        first.wait_closed()
        door.gateway.wait("CLOSE", code=1000)
        third = door.connect(token)
        for client in (second, third):
            client.close()

    def test_a_lease_for_once_is_admitted_once(self):
        door = self.door()
        token = door.grant(use="once")
        door.connect(token).close()
        door.gateway.wait("CLOSE")
        self.assertEqual(door.refused(token), 4401)

    def test_a_token_ahead_of_the_door_waits_for_the_log(self):
        door = self.door()
        claims = door.claims(rq=door.gateway.seq + 1)
        client = door.open(door.key.sign(claims))
        time.sleep(0.2)
        door.allow(claims)
        self.assertEqual(json.loads(client.recv()[1])["type"], "ready")

    def test_and_gets_4503_when_the_log_does_not_come(self):
        door = self.door()
        started = time.monotonic()
        self.assertEqual(door.refused(door.key.sign(door.claims(rq=door.gateway.seq + 1))), 4503)
        self.assertGreater(time.monotonic() - started, 0.9)

    def test_before_the_snapshot_every_token_gets_4503(self):
        door = self.door(start=False)
        door.gateway.answer_hello = False
        claims = door.claims()
        token = door.key.sign(claims)
        door.start(wait=False)
        door.gateway.wait("HELLO")
        self.assertEqual(door.refused(token), 4503)

    def test_the_hello_proves_who_the_door_is(self):
        door = self.door()
        conn, hello = door.gateway.hellos[0]
        self.assertEqual(conn.path, "/api/v1/door")
        self.assertEqual(conn.protocol, "leasehold.control.v1")
        self.assertEqual((hello["sid"], hello["ep"], hello["secret"]),
                         (door.session, door.ep, door.secret))
        self.assertEqual((hello["applied"], hello["agent"], hello["conns"]), (0, "none", []))


class Upgrade(DoorTest):
    def test_it_completes_whatever_subprotocols_are_offered(self):
        door = self.door()
        token = door.grant(mc=8)
        self.assertEqual(door.connect(token, protocols=()).protocol, None)
        for offer in ([PROTOCOL], ["chat", PROTOCOL], [PROTOCOL, "chat"]):
            self.assertEqual(door.connect(token, protocols=offer).protocol, PROTOCOL)

    def test_only_foreign_subprotocols_end_with_4401(self):
        door = self.door()
        token = door.grant()
        for offer in (["chat"], ["chat", "superchat"], ["leasehold.control.v1"], ["fd"],
                      ["leasehold.door.v11"], ["leasehold.door.v"]):
            self.assertEqual(door.refused(token, protocols=offer), 4401, offer)
        self.assert_serves(door)

    def test_browsers_need_an_origin_of_the_list(self):
        door = self.door(origins=["https://app.example"])
        token = door.grant()
        for origin in ("https://evil.example", "null", "https://app.example.evil", "x" * 400):
            self.assertEqual(door.refused(token, headers={"Origin": origin}), 4401, origin[:30])
        door.connect(token, headers={"Origin": "https://app.example"})

    def test_other_paths_and_tokens_in_the_url_are_refused(self):
        door = self.door()
        token = door.grant()
        self.assertEqual(door.refused(token, path="/other"), 4401)
        started = time.monotonic()
        self.assertEqual(door.refused(path="/?token=" + token), 4401)
        self.assertGreater(time.monotonic() - started, 1)  # it was not even looked at

    def request(self, door, data):
        with socket.create_connection(("127.0.0.1", door.port), timeout=5) as sock:
            sock.sendall(data)
            answer = b""
            try:
                while True:
                    piece = sock.recv(65536)
                    if not piece:
                        return answer
                    answer += piece
            except ConnectionError:
                return answer

    def test_plain_http_is_answered_shortly_and_closed(self):
        door = self.door()
        self.assertIn(b" 426 ", self.request(door, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
        self.assertIn(b" 404 ", self.request(door, b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"))
        self.assertEqual(b"", self.request(
            door, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"))
        self.assert_serves(door)

    def test_requests_that_break_libwebsockets_do_not_break_the_door(self):
        door = self.door()
        key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        for data in (
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\nPUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings"
            b"\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: fds\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + key
            + b"Sec-WebSocket-Protocol: fd\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + key
            + b"Sec-WebSocket-Protocol: " + b"a" * 200 + b"\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + key
            + b"Sec-WebSocket-Protocol: ,,;=\"\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"X-A: " + b"b" * 20000 + b"\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"\r\n" * 4000,
        ):
            self.request(door, data)
        used = door.cpu_seconds()
        time.sleep(0.5)
        self.assertLess(door.cpu_seconds() - used, 0.2, "the loop spins")
        self.assert_serves(door)


class Bridge(DoorTest):
    def test_four_clients_at_once_get_their_lines_back_whole(self):
        door = self.door()
        agent = door.agent().echo_forever()
        sizes = [1, 2, 125, 126, 127, 1000, 65535, 65536, 65537, 131072, 262144]
        clients = [door.connect(door.grant()) for _ in range(4)]
        failures = []

        def talk(number, client):
            mine = [("%d:" % number + chr(97 + i) * n)[-n:] if n > 2 else chr(97 + i) * n
                    for i, n in enumerate(sizes)]
            try:
                for line in mine:
                    client.send_text(line)
                    wanted = line.encode()
                    # Everybody hears everything: stdio is one process for all.
                    while client.recv(timeout=20)[1] != wanted:
                        pass
            except Exception as error:  # noqa: BLE001 — told in the main thread
                failures.append((number, repr(error)))

        threads = [threading.Thread(target=talk, args=c) for c in enumerate(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(failures, [])
        agent.close()

    def test_order_is_kept_and_nothing_doubled(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        for i in range(5000):
            agent.line("out %d" % i)
        self.assertEqual([client.recv()[1].decode() for _ in range(5000)],
                         ["out %d" % i for i in range(5000)])
        for i in range(2000):
            client.send_text("in %d" % i)
        self.assertEqual([agent.recv_line().decode() for _ in range(2000)],
                         ["in %d" % i for i in range(2000)])

    def test_fragments_become_one_line_and_an_empty_line_stays_one(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        client.send_frame(ws.OP_TEXT, b"a", fin=False)
        client.send_frame(ws.OP_PING, b"between")
        client.send_frame(ws.OP_CONT, b"b", fin=False)
        client.send_frame(ws.OP_CONT, b"c")
        client.send_text("")
        self.assertEqual([agent.recv_line(), agent.recv_line()], [b"abc", b""])
        agent.line("")
        self.assertEqual(client.recv(), (ws.OP_TEXT, b""))

    def test_a_full_line_passes_both_ways_and_a_longer_one_gets_4409(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        line = b"x" * MIB
        client.send_text(line)
        self.assertEqual(agent.recv_line(timeout=20), line)
        talk = threading.Thread(target=lambda: [agent.line(line) for _ in range(8)])
        talk.start()
        for _ in range(8):
            self.assertEqual(client.recv(timeout=20)[1], line)
        talk.join(20)
        client.send_text(line + b"y")
        self.assertEqual(client.wait_closed(), 4409)

    def test_what_no_line_is_gets_1003_or_1007(self):
        door = self.door()
        door.agent()
        for code, send in ((1003, lambda c: c.send_binary(b"x")),
                           (1003, lambda c: c.send_text("a\nb")),
                           (1003, lambda c: c.send_fragments(ws.OP_TEXT, [b"a", b"b\n"])),
                           (1007, lambda c: c.send_text(b"\xff"))):
            client = door.connect(door.grant())
            send(client)
            self.assertEqual(client.wait_closed(), code)

    def test_scope_holds_in_both_directions(self):
        door = self.door()
        agent = door.agent()
        reader, writer = door.connect(door.grant(scope=["read"])), door.connect(
            door.grant(scope=["write"]))
        writer.send_text("to the agent")
        self.assertEqual(agent.recv_line(), b"to the agent")
        agent.line("to readers")
        self.assertEqual(reader.recv()[1], b"to readers")
        with self.assertRaises(TimeoutError):
            writer.recv(timeout=0.3)
        reader.send_text("no")
        self.assertEqual(reader.wait_closed(), 4430)
        with self.assertRaises(TimeoutError):
            agent.recv(timeout=0.2)

    def test_bytes_that_are_not_utf8_are_replaced(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        for raw in (b"ok \xff\xfe end", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\xaf",
                    "gr\u00fc\u00df \U0001f600".encode()):
            agent.line(raw)
            opcode, text = client.recv()
            self.assertEqual(opcode, ws.OP_TEXT)
            text.decode()
            if b"\xff" in raw:
                self.assertEqual(text.decode(), "ok \ufffd\ufffd end")
        self.assertEqual(text.decode(), "gr\u00fc\u00df \U0001f600")

    def test_lines_sent_before_the_agent_came_reach_it(self):
        door = self.door()
        client = door.connect(door.grant())
        client.send_text("first")
        client.send_text("second")
        agent = door.agent()
        self.assertEqual([agent.recv_line(), agent.recv_line()], [b"first", b"second"])

    def test_a_slow_reader_gets_1013_and_the_others_go_on(self):
        door = self.door()
        agent = door.agent()
        slow = door.connect(door.grant(), rcvbuf=4096)
        fast = door.connect(door.grant())
        line = b"z" * 65000
        total = 400
        got = []

        def read():
            for _ in range(total):
                got.append(fast.recv(timeout=20)[1])

        thread = threading.Thread(target=read)
        thread.start()
        for _ in range(total):
            agent.line(line)
        thread.join(60)
        self.assertEqual(len(got), total)
        self.assertEqual(set(got), {line})
        close = door.gateway.wait("CLOSE", jti=slow.ready["lease_id"])
        self.assertEqual(close["code"], 1013)
        agent.line("after")
        self.assertEqual(fast.recv()[1], b"after")

    def test_a_single_reader_is_given_time_but_not_for_ever(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant(), rcvbuf=4096)
        stop = threading.Event()

        def talk():
            try:
                while not stop.is_set():
                    agent.line(b"y" * 60000)
            except OSError:
                pass

        thread = threading.Thread(target=talk)
        thread.start()
        close = door.gateway.wait("CLOSE", timeout=10, jti=client.ready["lease_id"])
        self.assertEqual(close["code"], 1013)
        stop.set()
        thread.join(10)

    def test_an_agent_that_does_not_read_pauses_its_clients(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        client.sock.settimeout(0.5)
        line = ws.frame(ws.OP_TEXT, b"q" * 60000, mask=b"\0\0\0\0")
        sent, stalled = 0, False
        piece = line
        while not stalled and sent < 600:
            try:
                done = client.sock.send(piece)
                piece = piece[done:]
                if not piece:
                    sent, piece = sent + 1, line
            except TimeoutError:
                stalled = True
        self.assertTrue(stalled, "the door took %d lines for an agent that reads none" % sent)
        finisher = threading.Thread(target=lambda: (client.sock.settimeout(20),
                                                    client.sock.sendall(piece)))
        finisher.start()
        lines = [agent.recv_line(timeout=20) for _ in range(sent + 1)]
        finisher.join(20)
        self.assertEqual(set(lines), {b"q" * 60000})
        client.send_text("on it goes")
        self.assertEqual(agent.recv_line(), b"on it goes")

    def test_activity_and_closes_are_reported(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        jti = client.ready["lease_id"]
        client.send_text("12345")
        self.assertEqual(agent.recv_line(), b"12345")
        agent.line("1234567")
        client.recv()
        activity = wait_until(lambda: next(
            (m for _, m in door.gateway.received if m["t"] == "ACTIVITY" and m["bytes_out"] == 7),
            None), what="ACTIVITY")
        self.assertEqual((activity["bytes_in"], activity["conns"]), (5, [{"jti": jti, "n": 1}]))
        self.assertLess(abs(activity["last_in"] - time.time() * 1000), 5000)
        client.send_close(1001)
        close = door.gateway.wait("CLOSE", jti=jti)
        self.assertEqual((close["code"], close["bytes_in"], close["bytes_out"]), (1001, 5, 7))


class Cut(DoorTest):
    def test_revoking_a_lease_cuts_it_and_only_it(self):
        door = self.door()
        agent = door.agent()
        keep, cut = door.connect(door.grant()), door.connect(door.grant(mc=2))
        ack = door.gateway.op("REVOKE", jti=cut.ready["lease_id"], code=4403)
        self.assertEqual(ack["cut"], 1)
        self.assertEqual(cut.wait_closed(), 4403)
        self.assertEqual(cut.close_reason, "lease revoked")
        agent.line("still here")
        self.assertEqual(keep.recv()[1], b"still here")

    def test_revoking_all_cuts_everything_with_its_code(self):
        door = self.door()
        clients = [door.connect(door.grant()) for _ in range(5)]
        self.assertEqual(door.gateway.op("REVOKE_ALL", code=4403)["cut"], 5)
        self.assertEqual([c.wait_closed() for c in clients], [4403] * 5)

    def test_no_byte_passes_after_the_acknowledgement(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        stop = threading.Event()

        def talk():
            n = 0
            try:
                while not stop.is_set():
                    agent.line("n %d" % n)
                    client.send_text("c %d" % n)
                    n += 1
            except OSError:
                pass

        thread = threading.Thread(target=talk)
        thread.start()
        time.sleep(0.2)
        door.gateway.op("REVOKE", jti=client.ready["lease_id"], code=4403)
        # Lines that were on their way to the agent before are taken off; then it must be still.
        stop.set()
        thread.join(10)
        marker = door.connect(door.grant())
        marker.send_text("marker")
        seen = []
        while not seen or seen[-1] != b"marker":
            seen.append(agent.recv_line())
        with self.assertRaises(TimeoutError):
            agent.recv(timeout=0.3)
        client.wait_closed()

    def test_a_client_with_a_full_buffer_is_cut_as_well(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant(), rcvbuf=4096)
        other = door.connect(door.grant())
        got = []
        thread = threading.Thread(target=lambda: [got.append(other.recv(timeout=10)) for _ in
                                                  range(60)])
        thread.start()
        for _ in range(60):
            agent.line(b"f" * 16000)
        thread.join(20)
        door.gateway.op("REVOKE", jti=client.ready["lease_id"], code=4403)
        close = door.gateway.wait("CLOSE", timeout=3, jti=client.ready["lease_id"])
        self.assertEqual(close["code"], 4403)

    def test_a_client_that_ignores_the_close_loses_its_socket(self):
        door = self.door()
        client = door.connect(door.grant())
        door.gateway.op("REVOKE", jti=client.ready["lease_id"], code=4403)
        fin, opcode, payload = client.recv_frame()
        self.assertEqual((opcode, payload[:2]), (ws.OP_CLOSE, struct.pack(">H", 4403)))
        client.wait_eof(timeout=2)
        door.gateway.wait("CLOSE", timeout=2, jti=client.ready["lease_id"])

    def test_a_lease_that_runs_out_is_closed_with_4401(self):
        door = self.door()
        client = door.connect(door.grant(ttl=2))
        self.assertEqual(client.wait_closed(timeout=5), 4401)

    def test_an_extended_lease_stays(self):
        door = self.door()
        client = door.connect(door.grant(ttl=2))
        door.gateway.op("EXTEND", jti=client.ready["lease_id"], exp=int(time.time()) + 60)
        with self.assertRaises(TimeoutError):
            client.recv(timeout=3)

    def test_expiry_follows_the_gateways_clock(self):
        door = self.door()
        client = door.connect(door.grant(ttl=60))
        door.gateway.clock_ms = lambda: int(time.time() * 1000) + 120_000
        self.assertEqual(client.wait_closed(timeout=3), 4401)

    def test_a_killed_key_admits_nobody(self):
        door = self.door()
        token = door.grant()
        door.gateway.op("KEYS", keys=[Key(door.directory, "next").public])
        self.assertEqual(door.refused(token), 4401)

    def test_the_door_retires_when_told(self):
        door = self.door()
        client = door.connect(door.grant())
        door.gateway.send({"t": "RETIRE"})
        self.assertEqual(client.wait_closed(), 4403)
        self.assertEqual(door.process.wait(timeout=3), 0)
        door.gateway.wait("CLOSE", code=4403)


class Gateway(DoorTest):
    def test_a_restart_of_the_gateway_harms_no_connection(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        for _ in range(3):
            door.gateway.vanish()
            time.sleep(0.3)
            client.send_text("meanwhile")
            self.assertEqual(agent.recv_line(), b"meanwhile")
            hellos = len(door.gateway.hellos)
            door.gateway.listen()
            wait_until(lambda: len(door.gateway.hellos) > hellos, what="a new HELLO")
            hello = door.gateway.hellos[-1][1]
            self.assertEqual(hello["conns"], [{"jti": client.ready["lease_id"], "n": 1}])
            self.assertEqual((hello["applied"], hello["agent"]), (door.gateway.seq, "up"))
            agent.line("still")
            self.assertEqual(client.recv()[1], b"still")
        self.assert_serves(door)

    def test_a_snapshot_cuts_what_it_does_not_name(self):
        door = self.door()
        keep, gone = door.connect(door.grant()), door.connect(door.grant())
        door.gateway.vanish()
        del door.gateway.allow[gone.ready["lease_id"]]
        door.gateway.seq += 1
        door.gateway.listen()
        self.assertEqual(gone.wait_closed(), 4403)
        with self.assertRaises(TimeoutError):
            keep.recv(timeout=0.3)

    def test_a_gap_in_the_log_makes_the_door_ask_again(self):
        door = self.door()
        client = door.connect(door.grant())
        claims = door.claims()
        door.gateway.seq += 1
        door.gateway.allow[claims["jti"]] = {k: claims[k] for k in
                                             ("jti", "exp", "scope", "mc", "use")}
        hellos = len(door.gateway.hellos)
        door.gateway.op("EXTEND", jti=client.ready["lease_id"], exp=int(time.time()) + 300)
        self.assertEqual(len(door.gateway.hellos), hellos + 1)
        door.connect(door.key.sign(claims))
        with self.assertRaises(TimeoutError):
            client.recv(timeout=0.2)

    def test_nonsense_of_the_gateway_is_survived(self):
        door = self.door()
        for text in ("{", "[]", '{"t":"NO"}', '{"t":"OP","seq":1}', '{"t":"ACK","seq":1,"cut":0,'
                     '"latency_us":0}', '{"t":"SNAPSHOT"}'):
            hellos = len(door.gateway.hellos)
            door.gateway.send_text(text)
            wait_until(lambda: len(door.gateway.hellos) > hellos, what="a new HELLO after " + text)
            wait_until(lambda: door.gateway._conn is door.gateway.hellos[-1][0])
        self.assert_serves(door)

    def test_silence_makes_it_refuse_then_seal(self):
        door = self.door(stale_s=1, seal_s=3)
        client = door.connect(door.grant())
        token = door.grant()
        door.gateway.ping_every = 1000
        door.gateway.answer_hello = False
        door.gateway.vanish()
        started = time.monotonic()
        wait_until(lambda: door.refused(token) == 4503, timeout=2.5, what="stale")
        self.assertIsNone(client.close_code)
        self.assertEqual(client.wait_closed(timeout=4), 4503)
        self.assertGreater(time.monotonic() - started, 2)
        door.gateway.answer_hello = True
        door.gateway.ping_every = 0.5
        door.gateway.listen()
        door.gateway.wait_ack(door.gateway.seq)
        wait_until(lambda: '"state":"live"' in door.log().split('"state":"sealed"')[-1])
        door.connect(token).close()


class Agent(DoorTest):
    def test_the_end_of_the_link_ends_the_clients_with_4411(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        agent.close()
        self.assertEqual(client.wait_closed(), 4411)
        door.gateway.wait("AGENT", agent="ended")
        self.assertEqual(door.refused(door.grant()), 4411)

    def test_its_last_words_are_heard_before_that(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        for i in range(20):
            agent.line(b"w" * 50000)
        agent.line("goodbye")
        agent.exit(3)
        agent.close()
        for i in range(20):
            client.recv()
        self.assertEqual(client.recv()[1], b"goodbye")
        self.assertEqual(client.wait_closed(), 4411)

    def test_an_exit_alone_is_an_end(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        agent.exit()
        self.assertEqual(client.wait_closed(), 4411)
        agent.wait_ended()

    def test_hostile_frames_end_the_link_and_nothing_else(self):
        for raw in (b"\x02\xff\xff\xff\xff", struct.pack(">BI", LINK_LINE, MIB + 1),
                    b"\x07\x00\x00\x00\x00", b"\x01\x00\x00\x00\x06\x01stdio",
                    b"\x03\x00\x00\x00\x03abc", b"\x00" * 100000):
            door = self.door()
            agent = door.agent()
            client = door.connect(door.grant())
            agent.raw(raw)
            self.assertEqual(client.wait_closed(), 4411, raw[:8])
            agent.wait_ended()
            self.assertTrue(door.alive())
            door.close()

    def test_a_bad_hello_is_no_agent(self):
        door = self.door()
        for hello in (b"", b"\x02stdio", b"\x01tcp:1", b"\x01stdiox", b"\x01" + b"x" * 100):
            agent = door_fixture.FakeAgent(door.agent_path, hello=hello)
            agent.wait_ended()
        agent = door_fixture.FakeAgent(door.agent_path, hello=None)
        agent.line("before any hello")
        agent.wait_ended()
        good = door.agent()
        client = door.connect(door.grant())
        good.line("me")
        self.assertEqual(client.recv()[1], b"me")

    def test_a_second_link_is_closed(self):
        door = self.door()
        door.agent()
        second = door_fixture.FakeAgent(door.agent_path, hello=None)
        second.wait_ended()

    def test_frames_in_pieces_are_put_together(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        for byte in struct.pack(">BI", LINK_LINE, 4) + b"slow":
            agent.raw(bytes([byte]))
            time.sleep(0.005)
        self.assertEqual(client.recv()[1], b"slow")

    def test_without_agent_and_gateway_the_door_ends_by_itself(self):
        door = self.door(stale_s=1, seal_s=2)
        agent = door.agent()
        agent.close()
        door.gateway.wait("AGENT", agent="ended")
        door.gateway.vanish()
        self.assertEqual(door.process.wait(timeout=6), 0)


class Sandbox(DoorTest):
    def status(self, door):
        with open("/proc/%d/status" % door.process.pid) as file:
            return dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)

    def test_it_runs_as_its_own_user_without_a_way_back(self):
        door = self.door()
        status = self.status(door)
        self.assertEqual(status["Uid"].split(), [str(UID)] * 4)
        self.assertEqual(status["Gid"].split(), [str(GID)] * 4)
        self.assertEqual(status["Groups"].split(), [])
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertEqual(int(status["CapEff"], 16), 0)
        self.assertEqual(int(status["CapPrm"], 16), 0)

    def test_its_network_namespace_is_empty(self):
        door = self.door()
        with open("/proc/%d/net/dev" % door.process.pid) as file:
            names = re.findall(r"^\s*(\S+):", file.read(), re.M)
        self.assertEqual(names, ["lo"])
        self.assertNotEqual(os.readlink("/proc/%d/ns/net" % door.process.pid),
                            os.readlink("/proc/self/ns/net"))

    def test_the_agents_socket_is_the_agents_groups(self):
        door = self.door()
        info = os.stat(door.agent_path)
        self.assertEqual((info.st_gid, info.st_mode & 0o777), (AGENT_GID, 0o660))

    def test_the_pid_file_names_the_process_and_is_locked(self):
        door = self.door()
        path = os.path.join(door.directory, door.session, "door.pid")
        with open(path) as file:
            pid, ticks = file.read().split()
        with open("/proc/%s/stat" % pid) as file:
            self.assertEqual(file.read().rsplit(")", 1)[1].split()[19], ticks)
        self.assertEqual(int(pid), door.process.pid)
        probe = ("import fcntl,sys\nf=open(sys.argv[1],'r+')\n"
                 "try: fcntl.lockf(f, fcntl.LOCK_EX|fcntl.LOCK_NB)\n"
                 "except OSError: sys.exit(7)\n")
        self.assertEqual(subprocess.run([sys.executable, "-c", probe, path]).returncode, 7)

    def test_no_descriptor_of_the_gateway_stays_open(self):
        door = self.door()
        links = [os.readlink("/proc/%d/fd/%s" % (door.process.pid, fd))
                 for fd in os.listdir("/proc/%d/fd" % door.process.pid)]
        known = ("socket:", "anon_inode:", "/dev/null", "/dev/urandom", "pipe:", door.directory)
        self.assertEqual([x for x in links if not x.startswith(known)], [])

    def test_secret_and_tokens_stand_nowhere(self):
        door = self.door()
        token = door.grant()
        door.connect(token).close()
        door.refused("x" + token)
        client = door.open()
        client.send_text(json.dumps({"type": "auth", "token": "y" + token}))
        client.wait_closed()
        door.refused(token, path="/" + token)
        door.gateway.vanish()
        door.gateway.listen()
        wait_until(lambda: len(door.gateway.hellos) > 1)
        texts = [door.log()]
        for name in ("cmdline", "environ"):
            with open("/proc/%d/%s" % (door.process.pid, name)) as file:
                texts.append(file.read())
        for _, message in door.gateway.received:
            if message["t"] != "HELLO":
                texts.append(json.dumps(message))
        for text in texts:
            self.assertNotIn(door.secret, text)
            for part in token.split("."):
                self.assertNotIn(part, text)

    def test_its_log_has_an_end(self):
        door = self.door()
        with open("/proc/%d/limits" % door.process.pid) as file:
            limits = file.read()
        self.assertRegex(limits, r"Max file size\s+1048576\s+1048576")
        self.assertRegex(limits, r"Max core file size\s+0\s+0")

    def test_sigterm_ends_it(self):
        door = self.door()
        door.process.send_signal(signal.SIGTERM)
        self.assertIsNotNone(door.process.wait(timeout=3))

    def test_a_bad_spec_is_refused(self):
        for change in ({"secret": "short"}, {"unknown": 1}, {"ep": 0}, {"transport": "tcp:1"},
                       {"stale_s": 20}):
            door = self.door(start=False)
            door.spec.update(change)
            door.start(wait=False)
            self.assertEqual(door.process.wait(timeout=5), 1, change)
            self.assertNotIn(door.secret, door.log())

    def test_help_and_version_work(self):
        for argument, text in (("--help", "usage: leasedoor"), ("--version", "leasedoor ")):
            done = subprocess.run([door_fixture.program("leasedoor"), argument], check=True,
                                  capture_output=True)
            self.assertTrue(done.stdout.decode().startswith(text))


class Flood(DoorTest):
    def test_a_crowd_without_tokens_does_not_lock_clients_out(self):
        door = self.door()
        token = door.grant()
        crowd = []
        for i in range(200):
            sock = socket.socket()
            sock.setblocking(False)
            try:
                sock.connect(("127.0.0.1", door.port))
            except BlockingIOError:
                pass
            crowd.append(sock)
        time.sleep(0.3)
        self.assertLess(door.descriptors(), 64 + 24)
        self.assertLess(door.cpu_seconds(), 2)
        client = door.connect(token, timeout=20)
        for sock in crowd:
            sock.close()
        client.close()
        self.assert_serves(door)

    def test_running_out_of_descriptors_does_not_spin(self):
        door = self.door(start=False)
        door.start(descriptors=20)
        crowd = [socket.create_connection(("127.0.0.1", door.port)) for _ in range(20)]
        used = door.cpu_seconds()
        time.sleep(1)
        self.assertLess(door.cpu_seconds() - used, 0.3)
        self.assertIn("accept_failed", door.log())
        for sock in crowd:
            sock.close()
        self.assert_serves(door)

    def test_raw_bytes_do_not_kill_it(self):
        door = self.door()
        door.agent().echo_forever()
        token = door.grant(mc=8)
        seed = 4711
        for round_number in range(150):
            seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
            noise = bytes((seed >> (i % 23)) * (i + 7) & 0xFF for i in range(1 + seed % 900))
            try:
                if round_number % 3 == 0:
                    with socket.create_connection(("127.0.0.1", door.port), timeout=2) as sock:
                        sock.sendall(noise)
                    continue
                client = door.open(token if round_number % 3 == 1 else None, timeout=5)
                client.send_raw(noise)
                client.close()
            except (OSError, ws.WsError):
                pass
        used = door.cpu_seconds()
        time.sleep(0.5)
        self.assertLess(door.cpu_seconds() - used, 0.2)
        self.assert_serves(door)

    def test_frames_against_the_protocol_close_the_connection(self):
        door = self.door()
        door.agent()
        mask = b"abcd"
        for raw in (ws.frame(3, b"x", mask=mask), ws.frame(ws.OP_TEXT, b"x", mask=mask, rsv=4),
                    ws.frame(ws.OP_PING, b"x", fin=False, mask=mask),
                    ws.frame(ws.OP_CONT, b"x", mask=mask),
                    b"\x81\xff" + struct.pack(">Q", 1 << 62) + mask + b"x" * (MIB + 4096)):
            client = door.connect(door.grant())
            try:
                client.send_raw(raw)
            except OSError:
                pass
            self.assertIn(client.wait_closed(), (1002, 1006, 4409), raw[:4])
        self.assert_serves(door)


if __name__ == "__main__":
    unittest.main()
