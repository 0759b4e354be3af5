"""Leases beside etcd's, and admissions beside a bare WebSocket server.

    bench_lease.py [SECONDS [ROUNDS]]

Both sides run at the same time on the same machine and disk and are asked in turns, ROUNDS times for
SECONDS each; the figure is the round in the middle. Everything counted is durable on both sides but
etcd's keep-alives, which it does not write. Each figure is a line and build/bench/NAME.json.

    lease_grant_rest, lease_grant_ws    signed leases, 64 in flight      /v3/lease/grant
    lease_renew                         renewals with a fresh token      /v3/lease/keepalive
    lease_revoke                        revocations                      /v3/lease/revoke
    lease_memory                        anonymous memory of a lease      the same of etcd
    door_admit                          handshake, verification, ready   handshake of libwebsockets
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import lean
from gateway import BIN, Gateway

IN_FLIGHT = 64
WS_CONNECTIONS = 8
SESSIONS = 4
CLIENTS_AT_DOOR = 4
MEMORY_LEASES = 30000
PER_ROUND = 8000  # leases that are there to be revoked once
CONFIG = {
    "logging": {"level": "error"},
    "lease": {"ttl_seconds": 900, "per_session": 1000000, "per_user": 1000000},
    "security": {"rate_limit": {"requests_per_second": 1000000, "burst": 1000000}},
}


def run(program, args, lines):
    done = subprocess.run(
        [os.path.join(BIN, program), *map(str, args)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or done.stderr:
        raise SystemExit(f"bench: {program} {args}: {done.stderr}")
    return json.loads(done.stdout)


def rss_anon(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"RssAnon:\s+(\d+) kB", status.read()).group(1)) * 1024


class Side:
    """One that grants leases: how it is asked over HTTP, and what it has given out."""

    def load(self, face, seconds, lines, keep=None, connections=IN_FLIGHT):
        args = [face, self.port, connections, IN_FLIGHT, seconds, keep or "-"]
        return run("lease_load", args, [self.key, *lines])

    def granted(self, face, seconds, lines=None):
        """The figures, and the ids of the leases that were granted."""
        with tempfile.NamedTemporaryFile("r", prefix="lh-bench-") as kept:
            figures = self.load(face, seconds, lines or self.grant_lines(), kept.name)
            return figures, [self.lease_id(json.loads(line)) for line in kept]


class Ours(Side):
    name = "leasehold"

    def __init__(self):
        self.gateway = Gateway(CONFIG)
        self.key = self.gateway.admin_key
        self.port = int(self.gateway.url.rsplit(":", 1)[1])
        self.pid = self.gateway.process.pid
        self.sessions = []
        for _ in range(SESSIONS):
            sandbox, _ = self.gateway.open(self.gateway.new_chat()["chat_id"])
            self.sessions.append(sandbox["session_id"])
        self.door_port, self.tokens = self._admissible(CLIENTS_AT_DOOR)

    def grant_lines(self):
        return [f'POST /api/v1/leases {{"session_id":"{s}"}}' for s in self.sessions]

    def ws_lines(self):
        return [f'lease.grant {{"session_id":"{s}"}}' for s in self.sessions]

    def renew_lines(self, ids):
        return [f"POST /api/v1/leases/{i}/renew {{}}" for i in ids]

    def revoke_lines(self, ids):
        return [f"DELETE /api/v1/leases/{i} " for i in ids]

    @staticmethod
    def lease_id(answer):
        return answer["lease"]["lease_id"]

    def _admissible(self, n):
        body = {"session_id": self.sessions[0], "max_connections": 8}
        grants = [self.gateway.expect(201, "POST", "/leases", body) for _ in range(n)]
        port = int(grants[0]["endpoint"]["url"].rstrip("/").rsplit(":", 1)[1])
        return port, [grant["token"] for grant in grants]

    def close(self):
        self.gateway.cleanup()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Etcd(Side):
    key = ""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="lh-etcd-")  # beside the gateway's
        self.port = free_port()
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{free_port()}"
        self.process = subprocess.Popen(
            ["etcd", "--data-dir", self.dir, "--logger", "zap", "--log-level", "error"]
            + ["--listen-client-urls", client, "--advertise-client-urls", client]
            + ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            + ["--initial-cluster", f"default={peer}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.pid = self.process.pid
        self.name = "Debian etcd-server " + self.await_version(client)

    def await_version(self, url):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(url + "/health", timeout=5) as health:
                    if b"true" in health.read():
                        with urllib.request.urlopen(url + "/version", timeout=5) as version:
                            return json.load(version)["etcdserver"]
            except OSError:
                time.sleep(0.1)
        raise SystemExit("bench: etcd does not start")

    def grant_lines(self):
        return ['POST /v3/lease/grant {"TTL":900}']

    def renew_lines(self, ids):
        return [f'POST /v3/lease/keepalive {{"ID":"{i}"}}' for i in ids]

    def revoke_lines(self, ids):
        return [f'POST /v3/lease/revoke {{"ID":"{i}"}}' for i in ids]

    @staticmethod
    def lease_id(answer):
        return answer["ID"]

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.dir)


# --- figures ------------------------------------------------------------------------------------


def rate(figures):
    return figures["requests"] / figures["seconds"]


def middle(rounds):
    return sorted(rounds, key=rate)[len(rounds) // 2]


def latencies(figures):
    return {k: round(figures[k + "_us"] / 1000, 3) for k in ("p50", "p99", "p999")}


def emit_rates(name, unit, ours, peer, peer_name, goal, **more):
    failed = sum(f["failed"] for f in ours + peer)
    if failed:
        raise SystemExit(f"bench: {name}: {failed} requests failed")
    lean.emit(
        name,
        round(rate(middle(ours)), 1),
        unit,
        len(ours),
        peer=round(rate(middle(peer)), 1),
        peer_name=peer_name,
        keep=True,
        goal=goal,
        ours_ms=latencies(middle(ours)),
        peer_ms=latencies(middle(peer)),
        ours_rounds=[round(rate(f)) for f in ours],
        peer_rounds=[round(rate(f)) for f in peer],
        **more,
    )


def bench_memory(ours, etcd):
    """Of the leases that both hold at the same time, behind as many that have warmed them up."""
    grew = {}
    for side in (ours, etcd):
        lines = side.grant_lines() * (MEMORY_LEASES // len(side.grant_lines()))
        side.granted("http", 0, lines)
        before = rss_anon(side.pid)
        _, ids = side.granted("http", 0, lines)
        grew[side.name] = (rss_anon(side.pid) - before) / len(ids)
    lean.emit(
        "lease_memory",
        round(grew[ours.name]),
        f"bytes of anonymous memory for each of {MEMORY_LEASES} further leases",
        1,
        peer=round(grew[etcd.name]),
        peer_name=etcd.name,
        keep=True,
        goal=0.5,
    )


def bench_grants(ours, etcd, seconds, rounds):
    rest, ws, peer = [], [], []
    for _ in range(rounds):
        peer.append(etcd.load("http", seconds, etcd.grant_lines()))
        rest.append(ours.load("http", seconds, ours.grant_lines()))
        ws.append(ours.load("ws", seconds, ours.ws_lines(), connections=WS_CONNECTIONS))
    unit = f"durable signed leases a second, {IN_FLIGHT} in flight"
    more = {"sessions": SESSIONS}
    emit_rates("lease_grant_rest", unit, rest, peer, etcd.name, 3, connections=IN_FLIGHT, **more)
    emit_rates("lease_grant_ws", unit, ws, peer, etcd.name, 3, connections=WS_CONNECTIONS, **more)


def bench_renewals(ours, etcd, seconds, rounds):
    figures = {ours: [], etcd: []}
    lines = {}
    for side in figures:
        grants = side.grant_lines() * (PER_ROUND // len(side.grant_lines()))
        lines[side] = side.renew_lines(side.granted("http", 0, grants)[1])
    for _ in range(rounds):
        for side, rates in figures.items():
            rates.append(side.load("http", seconds, lines[side]))
    unit = f"durable renewals a second, {IN_FLIGHT} in flight"
    emit_rates("lease_renew", unit, figures[ours], figures[etcd], etcd.name, 2)


def bench_revocations(ours, etcd, rounds):
    figures = {ours: [], etcd: []}
    for _ in range(rounds):
        for side, rates in figures.items():
            grants = side.grant_lines() * (PER_ROUND // len(side.grant_lines()))
            _, ids = side.granted("http", 0, grants)
            rates.append(side.load("http", 0, side.revoke_lines(ids)))
    unit = f"durable revocations a second, {IN_FLIGHT} in flight"
    emit_rates("lease_revoke", unit, figures[ours], figures[etcd], etcd.name, 3)


def bench_admissions(ours, seconds, rounds):
    echo = subprocess.Popen(
        [os.path.join(BIN, "lws_echo")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    door, peer = [], []
    try:
        echo_port = int(echo.stdout.readline())
        for _ in range(rounds):
            bare = [echo_port, CLIENTS_AT_DOOR, seconds]
            peer.append(run("admit_load", bare, [""] * CLIENTS_AT_DOOR))
            door.append(run("admit_load", [ours.door_port, CLIENTS_AT_DOOR, seconds], ours.tokens))
    finally:
        echo.communicate()
    unit = f"admissions a second at one door, {CLIENTS_AT_DOOR} clients beside each other"
    emit_rates("door_admit", unit, door, peer, "libwebsockets echo server", 0.6)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    etcd = Etcd()
    try:
        ours = Ours()
        try:
            bench_memory(ours, etcd)
            bench_grants(ours, etcd, seconds, rounds)
            bench_renewals(ours, etcd, seconds, rounds)
            bench_revocations(ours, etcd, rounds)
            bench_admissions(ours, seconds, rounds)
        finally:
            ours.close()
    finally:
        etcd.close()


if __name__ == "__main__":
    main()
