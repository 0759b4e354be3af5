#!/usr/bin/python3
"""leasedoor itself: whom it admits, how it upgrades, what it carries.

Needs root (the door drops to its own uid) and the built programs (LEASEHOLD_BIN, default
build/release/bin).
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
import unittest
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import door_fixture
import ws
from door_fixture import PROTOCOL, DoorTest, Key
from waiting import PATIENCE_S, wait_for

MIB = 1024 * 1024


def setUpModule():
    door_fixture.require()


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
        token = door.grant()
        client = door.open()
        client.send_text(json.dumps({"type": "auth", "token": token}))
        self.assertEqual(json.loads(client.recv()[1])["type"], "ready")

    def test_a_line_right_behind_the_first_message_is_not_lost(self):
        door = self.door()
        agent = door.agent()
        auth = json.dumps({"type": "auth", "token": door.grant()}).encode()
        client = door.open()
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
        self.assertEqual(client.wait_closed(), 4401)
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
        }
        for name, bad in cases.items():
            self.assertEqual(door.refused(bad), 4401, name)
        door.connect(token).close()

    def bound(self, door):
        """(holder's key, claims, token) of a lease bound to a key."""
        holder = Key(door.directory, "holder-" + str(uuid.uuid4()))
        claims = door.claims(cnf={"jkt": holder.public["kid"]})
        door.allow(claims)
        return holder, claims, door.key.sign(claims)

    def test_a_bound_lease_is_opened_by_its_holder(self):
        door = self.door()
        agent = door.agent()
        holder, claims, token = self.bound(door)
        client = door.open(token)
        challenge = json.loads(client.recv()[1])
        self.assertEqual(challenge["type"], "challenge")
        client.send_text(json.dumps(holder.prove(challenge, door.session, claims["jti"])))
        self.assertEqual(json.loads(client.recv()[1])["type"], "ready")
        client.send_text("hello")
        self.assertEqual(agent.recv_line(), b"hello")

    def test_also_when_the_token_is_the_first_message(self):
        door = self.door()
        holder, claims, token = self.bound(door)
        client = door.open()
        client.send_text(json.dumps({"type": "auth", "token": token}))
        challenge = json.loads(client.recv()[1])
        client.send_text(json.dumps(holder.prove(challenge, door.session, claims["jti"])))
        self.assertEqual(json.loads(client.recv()[1])["type"], "ready")

    def test_a_bound_lease_is_not_opened_by_anyone_else(self):
        door = self.door()
        _, claims, token = self.bound(door)
        answers = [lambda c: json.dumps(door.key.prove(c, door.session, claims["jti"])),
                   lambda c: "hello", lambda c: json.dumps({"type": "proof"}),
                   lambda c: json.dumps({"type": "auth", "token": token})]
        for answer in answers:
            client = door.open(token)
            client.send_text(answer(json.loads(client.recv()[1])))
            self.assertEqual(client.wait_closed(), 4401)
        client = door.open(token)
        client.recv()
        self.assertEqual(client.wait_closed(), 4401)

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
        waits_s, taken_s = 1, None  # that it waits: a machine that took longer has shown nothing
        while taken_s is None or taken_s > waits_s:
            claims = door.claims(rq=door.gateway.seq + 1)
            token = door.key.sign(claims)
            asked = time.monotonic()
            client = door.open(token)
            time.sleep(0.2)
            door.allow(claims, ack=False)
            taken_s = time.monotonic() - asked
            door.gateway.wait_ack(door.gateway.seq)
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
        with socket.create_connection(("127.0.0.1", door.port), PATIENCE_S) as sock:
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
        self.assertIn(b" 405 ", self.request(
            door, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"))
        self.assert_serves(door)

    def upgrade(self, *lines, start="GET / HTTP/1.1", host="x", key="dGhlIHNhbXBsZSBub25jZQ==",
                version="13"):
        usual = [start, "Host: " + host, "Upgrade: websocket", "Connection: keep-alive, Upgrade",
                 "Sec-WebSocket-Key: " + key, "Sec-WebSocket-Version: " + version]
        return "\r\n".join([*usual, *lines, "", ""]).encode("latin-1")

    def test_upgrade_and_messages_may_come_in_pieces_of_any_size(self):
        door = self.door()
        agent = door.agent()
        for step in (1, 2, 13, 1000, 100000):
            data = self.upgrade("Authorization: Bearer " + door.grant(), "X-Other: " + "y" * 300)
            data += ws.frame(ws.OP_TEXT, b"first", mask=b"abcd")
            data += ws.frame(ws.OP_PING, b"there?", mask=b"efgh")
            data += ws.frame(ws.OP_TEXT, b"s" * 70000, mask=b"ijkl")
            with socket.create_connection(("127.0.0.1", door.port), timeout=PATIENCE_S) as sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                cut = min(len(data), 2000) if step < 1000 else 0
                for at in range(0, cut, step):
                    sock.sendall(data[at:min(at + step, cut)])
                for at in range(cut, len(data), max(step, 1000)):
                    sock.sendall(data[at:at + max(step, 1000)])
                status, _, rest = ws.read_head(sock, PATIENCE_S)
                self.assertEqual(status, "HTTP/1.1 101 Switching Protocols")
                client = ws.WsConn(sock, True, rest)
                self.assertEqual(json.loads(client.recv()[1])["type"], "ready")
                self.assertEqual(agent.recv_line(), b"first")
                self.assertEqual(agent.recv_line(), b"s" * 70000)

    def test_heads_that_are_no_start_of_a_websocket_are_told_why(self):
        door = self.door()
        token = door.grant()
        for status, data in (
            (400, b"GET / HTTP/1.1\r\n\r\n"),
            (400, b"nonsense\r\n\r\n"),
            (400, b"GET / HTTP/1.1\r\nHost: x\r\nX: \0\r\n\r\n"),
            (400, self.upgrade("Host: y")),
            (400, self.upgrade("Authorization: Bearer a", "Authorization: Bearer " + token)),
            (400, self.upgrade("Transfer-Encoding: chunked")),
            (400, self.upgrade("Content-Length: 5")),
            (400, self.upgrade(" folded: line")),
            (400, self.upgrade(key="short")),
            (400, self.upgrade(key="!" * 22 + "==")),
            (404, b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"),
            (405, self.upgrade(start="POST / HTTP/1.1")),
            (426, self.upgrade(version="12")),
            (426, self.upgrade(start="GET / HTTP/1.0")),
            (431, self.upgrade("X-Long: " + "x" * 17000)),
        ):
            answer = self.request(door, data)
            self.assertEqual(answer[:13], b"HTTP/1.1 %d " % status, data[:200])
            self.assertEqual(answer.count(b"HTTP/1.1"), 1)
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
        self.assert_idle(door)
        self.assert_serves(door)


class Bridge(DoorTest):
    def test_four_clients_at_once_get_their_lines_back_whole(self):
        door = self.door()
        agent = door.agent().echo_forever()
        sizes = [1, 2, 125, 126, 127, 1000, 65535, 65536, 65537, 131072, 262144]
        clients = [door.connect(door.grant()) for _ in range(4)]
        failures = []

        def talk(number, client):
            # The longest are one client's: a busy machine reads late, and the door keeps a MiB for each.
            mine = [("%d:" % number + chr(97 + i) * n)[-n:] if n > 2 else chr(97 + i) * n
                    for i, n in enumerate(sizes if number == 0 else sizes[:-2])]
            try:
                for line in mine:
                    client.send_text(line)
                    wanted = line.encode()
                    # Everybody hears everything: stdio is one process for all.
                    while client.recv()[1] != wanted:
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
        self.assertEqual(agent.recv_line(), line)
        talk = threading.Thread(target=lambda: [agent.line(line) for _ in range(8)])
        talk.start()
        for _ in range(8):
            self.assertEqual(client.recv()[1], line)
        talk.join(PATIENCE_S)
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
                got.append(fast.recv()[1])

        thread = threading.Thread(target=read)
        thread.start()
        for _ in range(total):
            agent.line(line)
        thread.join(60)
        self.assertEqual(len(got), total)
        self.assertEqual(set(got), {line})
        # It reads only after the door has closed its end, and comes to the Close that says why.
        close = door.gateway.wait("CLOSE", jti=slow.ready["lease_id"])
        self.assertEqual(close["code"], 1013)
        self.assertEqual(slow.wait_closed(), 1013)
        agent.line("after")
        self.assertEqual(fast.recv()[1], b"after")

    def test_a_slow_reader_that_is_revoked_gets_nothing_of_what_waits_for_it(self):
        door = self.door()
        agent = door.agent()
        taken = wait_for(self, "one revoked in time", lambda: self.taken_by_a_slow_one(door, agent))
        self.assertLess(taken, 200000)

    def taken_by_a_slow_one(self, door, agent):
        """After its revocation; None if the door had ended it before, as it does after some seconds."""
        slow = door.connect(door.grant(), rcvbuf=4096)
        fast = door.connect(door.grant())
        jti = slow.ready["lease_id"]
        reading = threading.Thread(target=lambda: [fast.recv() for _ in range(60)])
        reading.start()
        for _ in range(60):
            agent.line(b"z" * 65000)
        reading.join(60)  # the slow one is further behind than it may by now
        fast.close()
        ended = any(m["t"] == "CLOSE" and m.get("jti") == jti for _, m in list(door.gateway.received))
        door.gateway.op("REVOKE", jti=jti, code=4403)
        taken = 1
        with contextlib.suppress(ConnectionResetError):
            while piece := slow.sock.recv(65536):
                taken += len(piece)
        return None if ended else taken

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
        close = door.gateway.wait("CLOSE", jti=client.ready["lease_id"])
        self.assertEqual(close["code"], 1013)
        stop.set()
        thread.join(PATIENCE_S)
        self.assertEqual(client.wait_closed(), 1013)

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
        finisher = threading.Thread(target=lambda: (client.sock.settimeout(PATIENCE_S),
                                                    client.sock.sendall(piece)))
        finisher.start()
        lines = [agent.recv_line() for _ in range(sent + 1)]
        finisher.join(PATIENCE_S)
        self.assertEqual(set(lines), {b"q" * 60000})
        client.send_text("on it goes")
        self.assertEqual(agent.recv_line(), b"on it goes")

    def test_activity_and_closes_are_reported(self):
        door = self.door()
        agent = door.agent()
        client = door.connect(door.grant())
        jti = client.ready["lease_id"]
        before = int(time.time() * 1000)
        client.send_text("12345")
        self.assertEqual(agent.recv_line(), b"12345")
        agent.line("1234567")
        client.recv()
        activity = door.gateway.wait("ACTIVITY", bytes_out=7)
        self.assertEqual((activity["bytes_in"], activity["conns"]), (5, [{"jti": jti, "n": 1}]))
        said = door.gateway.clock_ms()
        self.assertTrue(before - 1000 <= activity["last_in"] <= said, (before, activity, said))
        client.send_close(1001)
        close = door.gateway.wait("CLOSE", jti=jti)
        self.assertEqual((close["code"], close["bytes_in"], close["bytes_out"]), (1001, 5, 7))


if __name__ == "__main__":
    unittest.main()
