#!/usr/bin/python3
"""leasedoor itself: cuts, gateways that come and go, agents that end, its sandbox and floods.

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

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import door_fixture
import processes
import ws
from door_fixture import AGENT_GID, GID, LINK_LINE, SEAL_S, UID, DoorTest, Key
from waiting import PATIENCE_S, wait_equal, wait_for

MIB = 1024 * 1024


def setUpModule():
    door_fixture.require()


def is_admitted(door, token):
    try:
        door.connect(token).close()
    except ws.WsClosed:
        return False
    return True


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
        thread.join(PATIENCE_S)
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
        thread = threading.Thread(target=lambda: [got.append(other.recv()) for _ in
                                                  range(60)])
        thread.start()
        for _ in range(60):
            agent.line(b"f" * 16000)
        thread.join(PATIENCE_S)
        door.gateway.op("REVOKE", jti=client.ready["lease_id"], code=4403)
        close = door.gateway.wait("CLOSE", jti=client.ready["lease_id"])
        self.assertEqual(close["code"], 4403)

    def test_a_client_that_ignores_the_close_loses_its_socket(self):
        door = self.door()
        client = door.connect(door.grant())
        door.gateway.op("REVOKE", jti=client.ready["lease_id"], code=4403)
        fin, opcode, payload = client.recv_frame()
        self.assertEqual((opcode, payload[:2]), (ws.OP_CLOSE, struct.pack(">H", 4403)))
        client.wait_eof()
        door.gateway.wait("CLOSE", jti=client.ready["lease_id"])

    def test_a_lease_that_runs_out_is_closed_with_4401(self):
        door = self.door()
        client = door.connect(door.grant(ttl=60))
        door.gateway.op("EXTEND", jti=client.ready["lease_id"], exp=int(time.time()) + 1)
        self.assertEqual(client.wait_closed(), 4401)

    def test_an_extended_lease_stays(self):
        door = self.door()
        client, other = (door.connect(door.grant(ttl=60)) for _ in range(2))
        door.gateway.op("EXTEND", jti=client.ready["lease_id"], exp=int(time.time()) + 600)
        door.gateway.clock_ms = lambda: int(time.time() * 1000) + 120_000
        self.assertEqual(other.wait_closed(), 4401)
        with self.assertRaises(TimeoutError):
            client.recv(timeout=0.3)

    def test_expiry_follows_the_gateways_clock(self):
        door = self.door()
        client = door.connect(door.grant(ttl=60))
        door.gateway.clock_ms = lambda: int(time.time() * 1000) + 120_000
        self.assertEqual(client.wait_closed(), 4401)

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
        self.assertEqual(door.process.wait(PATIENCE_S), 0)
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
            wait_for(self, "a new HELLO", lambda: len(door.gateway.hellos) > hellos)
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
            wait_for(self, "a new HELLO after " + text, lambda: len(door.gateway.hellos) > hellos)
            wait_for(self, "its HELLO", lambda: door.gateway._conn is door.gateway.hellos[-1][0])
        self.assert_serves(door)

    def admitted(self, door):
        """A client, at last: pings may be late for a second on a busy machine."""

        def connect():
            try:
                return door.connect(door.grant())
            except ws.WsClosed as closed:
                self.assertEqual(closed.code, 4503)
                return None

        return wait_for(self, "a client", connect)

    def test_silence_makes_it_refuse_then_seal(self):
        door = self.door(stale_s=1, seal_s=3)
        client = self.admitted(door)
        token = door.grant()
        door.gateway.ping_every = 1000
        door.gateway.answer_hello = False
        door.gateway.vanish()
        started = time.monotonic()
        wait_equal(self, 4503, lambda: door.refused(token))
        self.assertIsNone(client.close_code)
        self.assertEqual(client.wait_closed(), 4503)
        self.assertGreater(time.monotonic() - started, 2)
        door.gateway.answer_hello = True
        door.gateway.ping_every = 0.5
        door.gateway.listen()
        door.gateway.wait_ack(door.gateway.seq)
        wait_for(self, "life", lambda: '"state":"live"' in door.log().split('"state":"sealed"')[-1])
        wait_for(self, "an admission", lambda: is_admitted(door, token))  # pings may be late again


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
                    b"\x07\x00\x00\x00\x00", b"\x01\x00\x00\x00\x06\x02stdio",
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
        for hello in (b"", b"\x01stdio", b"\x02tcp:1", b"\x02stdiox", b"\x02" + b"x" * 100):
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
        self.assertEqual(door.process.wait(PATIENCE_S), 0)

    def test_without_a_gateway_it_ends_when_its_sandbox_must_have(self):
        door = self.door(stale_s=1, seal_s=2, life_s=3)
        agent = door.agent()
        door.gateway.wait("AGENT")
        door.gateway.vanish()
        self.assertEqual(door.process.wait(timeout=PATIENCE_S), 0)
        agent.close()


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
        links = processes.descriptors(door.process.pid)
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
        wait_for(self, "a new HELLO", lambda: len(door.gateway.hellos) > 1)
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
        self.assertIsNotNone(door.process.wait(PATIENCE_S))

    def test_a_bad_spec_is_refused(self):
        for change in ({"secret": "short"}, {"unknown": 1}, {"ep": 0}, {"transport": "pigeon:1"},
                       {"stale_s": SEAL_S + 1}):
            door = self.door(start=False)
            door.spec.update(change)
            door.start(wait=False)
            self.assertEqual(door.process.wait(PATIENCE_S), 1, change)
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
        client = door.connect(token)
        for sock in crowd:
            sock.close()
        client.close()
        self.assert_serves(door)

    def idle(self, door, source):
        sock = socket.socket()
        self.addCleanup(sock.close)
        sock.bind((source, 0))
        sock.connect(("127.0.0.1", door.port))
        return sock

    def test_a_flood_of_one_address_puts_out_nobody_of_another(self):
        door = self.door()
        token = door.grant()
        waits = door.open(source="127.0.0.9")  # has not said its token yet, for which it has two seconds
        oldest = door.open()
        flood = [self.idle(door, "127.0.0.1") for _ in range(150)]
        others = [self.idle(door, f"127.0.0.{n}") for n in range(10, 20)]
        self.assertEqual(oldest.wait_closed(), 4503)
        flood[80].settimeout(PATIENCE_S)
        self.assertEqual(flood[80].recv(1), b"")
        waits.send_text(json.dumps({"type": "auth", "token": token}))
        self.assertEqual(json.loads(waits.recv()[1])["type"], "ready")
        for sock in others:
            sock.settimeout(0.01)
            with self.assertRaises(TimeoutError):
                sock.recv(1)
        door.gateway.wait("DENY", verdict="crowded_out")
        self.assert_serves(door)

    def test_running_out_of_descriptors_does_not_spin(self):
        door = self.door(start=False)
        door.start(descriptors=20)
        crowd = [socket.create_connection(("127.0.0.1", door.port)) for _ in range(20)]
        wait_for(self, "a refusal", lambda: "accept_failed" in door.log())
        self.assert_idle(door)
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
                    with socket.create_connection(("127.0.0.1", door.port), PATIENCE_S) as sock:
                        sock.sendall(noise)
                    continue
                client = door.open(token if round_number % 3 == 1 else None)
                client.send_raw(noise)
                client.close()
            except (OSError, ws.WsError):
                pass
        self.assert_idle(door)
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
