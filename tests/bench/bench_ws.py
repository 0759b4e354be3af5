"""Bots at load: WebSocket sessions beside NATS and Node, operations, one event to all, reads over HTTP.

    bench_ws.py [SESSIONS [ROUNDS]]

All sides have the same client (bot_load, http_load), which is one process and shares the machine. In each
of ROUNDS (3) every server is started anew and measured in turns; medians are compared. Each figure is a
line and build/bench/NAME.json.

    ws_memory_nats   of an idle session; ours is authenticated         Debian nats-server, by token
    ws_memory_node   the same                                          npm ws, which asks for no proof
    ws_connects      sessions a second, 64 handshakes at a time        the better of both
    ws_ops           chat.get, 10 a second on each of 1,000 sessions   (none); refused: each round's 503
    ws_fanout        from asking for a lease to the last session's having its event; nats-server: from PUB
                     on, of as many bytes, nothing durable
    http_get         a chat, authenticated and audited                 nginx, the same bytes from a file

Memory is what the server's own pages have grown (Pss), not what sockets cost the kernel.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import lean
from bench_file import Nginx
from gateway import BIN, ROOT, Gateway

WINDOW = 64
OPS_SESSIONS, OPS_RATE, OPS_S = 1000, 10, 10
FANOUTS = 5
GETS, GET_CONNECTIONS = 20000, 16
CONFIG = {
    "logging": {"level": "error"},
    "http": {"max_connections_per_address": 0},
    "security": {"rate_limit": {"requests_per_second": 1000000, "burst": 1000000}},
}
TOKEN = "bench-of-sessions"
NATS = """
listen: 127.0.0.1:{port}
authorization {{ token: "{token}" }}
max_connections: 100000
websocket {{ listen: "127.0.0.1:{ws_port}", no_tls: true }}
"""


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as text:
        return [1024 * int(line.split()[1]) for line in text if line.startswith("Pss:")][0]


def cpu_s(pid):
    """Of all its threads, to the nanosecond."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as text:
            total += int(text.read().split()[0])
    return total / 1e9


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


# --- servers ------------------------------------------------------------------------------------


class Ours:
    name, kind = "leasehold", "leasehold"

    def __init__(self):
        self.gateway = Gateway(CONFIG)
        self.chat = self.gateway.new_chat()["chat_id"]
        self.gateway.open(self.chat)
        self.key = self.gateway.admin_key
        self.port = int(self.gateway.url.rsplit(":", 1)[1])
        self.pid = self.gateway.process.pid
        self.subscription, self.event = '{"topics":["all"]}', "lease.granted"

    def tidy(self):
        pass

    def ask(self, method, path, body=None):
        """On a connection of its own: idle ones are closed when there is little room left."""
        http = lean.Http(self.gateway.url, self.gateway.admin_key)
        answer = http.body(http.prepare(method, path, body))
        http.close()
        return answer

    def publish(self):
        self.ask("POST", "/leases", {"chat_id": self.chat})

    def close(self):
        self.gateway.cleanup()


class Nats:
    kind, key = "nats", TOKEN
    subscription, event = "bench", "MSG bench"

    def __init__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="lh-nats-")
        plain, self.port = free_port(), free_port()
        config = os.path.join(self.dir.name, "nats.conf")
        with open(config, "w", encoding="ascii") as out:
            out.write(NATS.format(port=plain, ws_port=self.port, token=TOKEN))
        self.process = subprocess.Popen(["nats-server", "-c", config], stderr=subprocess.DEVNULL)
        self.pid = self.process.pid
        self.name = "Debian " + subprocess.check_output(["nats-server", "-v"], text=True).strip()
        self.plain = self.await_port(plain)
        self.plain.sendall(b'CONNECT {"verbose":false,"auth_token":"%s"}\r\n' % TOKEN.encode())

    @staticmethod
    def await_port(port):
        for _ in range(100):
            try:
                return socket.create_connection(("127.0.0.1", port), 5)
            except OSError:
                time.sleep(0.05)
        raise SystemExit("bench: nats-server does not start")

    def tidy(self):
        time.sleep(2)  # it collects its garbage when it likes

    def publish(self):
        self.plain.sendall(b"PUB bench 400\r\n" + b"x" * 400 + b"\r\n")

    def close(self):
        self.plain.close()
        self.process.terminate()
        self.process.wait()
        self.dir.cleanup()


class Node:
    kind, key = "bare", ""
    subscription, event = "", "x" * 400

    def __init__(self):
        modules = os.path.join(ROOT, "build", "example-bot")
        script = os.path.join(modules, "ws_bare.mjs")  # where its import looks for npm's packages
        with open(os.path.join(ROOT, "tests/bench/ws_bare.mjs"), encoding="ascii") as source:
            with open(script, "w", encoding="ascii") as out:
                out.write(source.read())
        self.process = subprocess.Popen(
            ["node", "--expose-gc", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        with open(os.path.join(modules, "node_modules/ws/package.json"), encoding="utf-8") as package:
            self.name = "npm ws " + json.load(package)["version"]
        self.port = int(self.process.stdout.readline())

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def tidy(self):
        self.say("gc")

    def publish(self):
        self.say("x" * 400)

    def close(self):
        self.process.communicate()


# --- sessions -----------------------------------------------------------------------------------


class Sessions:
    def __init__(self, side, count):
        self.process = subprocess.Popen(
            [os.path.join(BIN, "bot_load"), side.kind, str(side.port), str(count), str(WINDOW)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.say(side.key)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def heard(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("bench: bot_load has ended")
        return line

    def do(self, command):
        self.say(command)
        return json.loads(self.heard())

    def close(self):
        self.process.communicate()


def fanout(side, sessions):
    """Seconds until the last one has it."""
    took = []
    for _ in range(FANOUTS):
        sessions.say("await " + side.event)
        assert sessions.heard() == "armed\n"
        begin = time.monotonic()
        side.publish()
        took.append(json.loads(sessions.heard())["end_us"] / 1e6 - begin)
    return statistics.median(took)


def idle_round(make, count):
    """One server with so many sessions: what they cost, and one event to all of them."""
    side = make()
    try:
        warm = Sessions(side, 100)
        warm.do("connect")
        warm.close()
        side.tidy()
        before, cpu = pss(side.pid), cpu_s(side.pid)
        sessions = Sessions(side, count)
        connected = sessions.do("connect")
        cpu = cpu_s(side.pid) - cpu
        side.tidy()
        found = {
            "name": side.name,
            "bytes": (pss(side.pid) - before) / count,
            "connects_per_s": count / connected["seconds"],
            "connect_p99_ms": connected["p99_us"] / 1000,
            "connect_cpu_us": cpu / count * 1e6,
        }
        sessions.do("subscribe " + side.subscription)
        found["bytes_subscribed"] = (pss(side.pid) - before) / count
        cpu = cpu_s(side.pid)
        found["fanout_ms"] = fanout(side, sessions) * 1000
        found["fanout_cpu_us"] = (cpu_s(side.pid) - cpu) / FANOUTS / count * 1e6
        sessions.close()
        return found
    finally:
        side.close()


def medians(rounds):
    return {k: v if isinstance(v, str) else statistics.median(r[k] for r in rounds)
            for k, v in rounds[0].items()}


def bench_idle(count, rounds):
    found = {make: [] for make in (Ours, Nats, Node)}
    for _ in range(rounds):
        for make, figures in found.items():
            figures.append(idle_round(make, count))
            lean.note(f"{make.__name__}: {figures[-1]}")
    ours, nats, node = (medians(found[make]) for make in (Ours, Nats, Node))
    for name, peer, goal in (("ws_memory_nats", nats, 0.35), ("ws_memory_node", node, 0.8)):
        lean.emit(name, round(ours["bytes"]), f"bytes of each of {count} idle sessions", rounds,
                  peer=round(peer["bytes"]), peer_name=peer["name"], keep=True, goal=goal,
                  ours_subscribed=round(ours["bytes_subscribed"]))
    best = max(nats, node, key=lambda side: side["connects_per_s"])
    cpu = {f"{side['name']}_cpu_us": round(side["connect_cpu_us"], 1) for side in (ours, nats, node)}
    lean.emit("ws_connects", round(ours["connects_per_s"]), f"connects a second, {WINDOW} at a time",
              rounds, peer=round(best["connects_per_s"]), peer_name=best["name"], keep=True, goal=1,
              nats_per_s=round(nats["connects_per_s"]), node_per_s=round(node["connects_per_s"]),
              ours_p99_ms=round(ours["connect_p99_ms"], 1), **cpu)
    lean.emit("ws_fanout", round(ours["fanout_ms"], 1), f"ms until the last of {count} has the event",
              rounds * FANOUTS, peer=round(nats["fanout_ms"], 1), peer_name=nats["name"], keep=True,
              node_ms=round(node["fanout_ms"], 1),
              cpu_us_each={side["name"]: round(side["fanout_cpu_us"], 2) for side in (ours, nats, node)})


# --- operations and reads -----------------------------------------------------------------------


def bench_ops(side, rounds):
    sessions = Sessions(side, OPS_SESSIONS)
    sessions.do("connect")
    args = json.dumps({"chat_id": side.chat})
    found, cpus = [], []
    for _ in range(rounds):
        cpu = cpu_s(side.pid)
        found.append(sessions.do(f"ask {OPS_S} {OPS_RATE} chat.get {args}"))
        cpus.append((cpu_s(side.pid) - cpu) / (OPS_S * OPS_RATE * OPS_SESSIONS) * 1e6)
    sessions.close()
    middle = sorted(found, key=lambda f: f["p99_us"])[rounds // 2]
    lean.emit("ws_ops", round(middle["p50_us"] / 1000, 2), "ms, median of an operation", rounds, keep=True,
              sessions=OPS_SESSIONS, rate_each=OPS_RATE, p99_ms=round(middle["p99_us"] / 1000, 2),
              p999_ms=round(middle["p999_us"] / 1000, 2), refused=[f["failed"] for f in found], seconds=round(middle["seconds"], 2),
              cpu_us=round(statistics.median(cpus), 1))


def gets(port, paths, key, pid):
    cpu = cpu_s(pid)
    args = ["127.0.0.1", str(port), paths, str(GET_CONNECTIONS)]
    head = [f"Authorization: Bearer {key}"] if key else []
    done = subprocess.run([os.path.join(BIN, "http_load"), *args, *head], stdout=subprocess.PIPE,
                          check=True, text=True)
    figures = json.loads(done.stdout)
    return figures["requests"] / figures["seconds"], (cpu_s(pid) - cpu) / figures["requests"] * 1e6


def bench_get(side, rounds):
    with tempfile.TemporaryDirectory(prefix="lh-bench-") as work:
        os.chmod(work, 0o755)
        files = os.path.join(work, "files")
        os.mkdir(files)
        body = side.ask("GET", f"/chats/{side.chat}")
        with open(os.path.join(files, "chat.json"), "wb") as out:
            out.write(body)
        for name, path in (("ours", f"/api/v1/chats/{side.chat}"), ("peer", "/get/chat.json")):
            with open(os.path.join(work, name), "w", encoding="ascii") as out:
                out.write((path + "\n") * GETS)
        nginx = Nginx(work, files)
        ours, peer = [], []
        try:
            for _ in range(rounds):
                peer.append(gets(nginx.port, os.path.join(work, "peer"), "", nginx.process.pid))
                ours.append(gets(side.port, os.path.join(work, "ours"), side.key, side.pid))
        finally:
            nginx.stop()
    ours, peer = ([statistics.median(x) for x in zip(*figures)] for figures in (ours, peer))
    lean.emit("http_get", round(ours[0]), f"reads a second of {len(body)} bytes, {GET_CONNECTIONS} at a time",
              rounds, peer=round(peer[0]), peer_name="nginx, one worker, the same bytes", keep=True,
              goal=0.3, ours_cpu_us=round(ours[1], 1), peer_cpu_us=round(peer[1], 1))


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    subprocess.run(["scripts/npm.sh", "docs/examples/bot-node", "build/example-bot"], cwd=ROOT, check=True)
    side = Ours()
    try:
        bench_get(side, rounds)
        bench_ops(side, rounds)
    finally:
        side.close()
    bench_idle(count, rounds)


if __name__ == "__main__":
    main()
