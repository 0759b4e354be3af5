"""What the door costs: its memory, and an echo through it beside the same agent spoken to directly.

    bench_door.py [SECONDS]

The agent is tests/bench/ws_echo.c under transport `ws`; the client is tests/bench/ws_load.c. Each
figure is the median of several turns, direct and through the door in alternation. The same is done with
tests/bench/tcp_hop.c in the door's place, which only copies: no door can cost less.
"""

import glob
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.parse

import lean
from gateway import BIN, Gateway

TURNS = 5
PORT = 7000
BIG = 1 << 20
PIECE = 1 << 16  # of the copying program: what the door reads at once
GOALS = {"round_trips": 0.7, "bytes": 0.8, "private_bytes": 1 << 20}
CONFIG = {
    "logging": {"level": "error"},
    "lease": {"ttl_seconds": 900},
    "profiles": [
        {
            "name": "default",
            "command": ["/workspace/chat/ws_echo", str(PORT)],
            "transport": f"ws:{PORT}/",
            "record_history": False,
        }
    ],
}


def private_bytes(pid):
    """Memory that no other process shares."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as text:
        return 1024 * sum(int(line.split()[1]) for line in text if line.startswith("Private_"))


def load(port, path, protocol, size, seconds, token=""):
    """Messages a second."""
    done = subprocess.run(
        [os.path.join(BIN, "ws_load"), str(port), path, protocol, str(size), str(seconds)],
        input=token + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)
    return said["messages"] / said["seconds"]


class Listening:
    """A program that serves on loopback, outside any sandbox."""

    def __init__(self, name, *args):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [os.path.join(BIN, name), str(self.port), *map(str, args)]
        self.process = subprocess.Popen(command)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.01)

    def load(self, size, seconds):
        return load(self.port, "/", "-", size, seconds)

    def close(self):
        self.process.kill()
        self.process.wait()


class Through:
    """The same agent in a sandbox, by its door."""

    def __init__(self, gateway):
        chat = gateway.new_chat()
        [files] = glob.glob(f"{gateway.dir}/data/workspaces/**/{chat['chat_id']}/files", recursive=True)
        target = os.path.join(files, "ws_echo")
        shutil.copy(os.path.join(BIN, "ws_echo"), target)
        os.chmod(target, 0o755)
        self.sandbox, self.grant = gateway.open(chat["chat_id"], lease={})
        self.port = urllib.parse.urlsplit(self.grant["endpoint"]["url"]).port
        [self.pid] = [p.pid for p in gateway.sandboxes_left() if p.name == "leasedoor"]

    def load(self, size, seconds):
        return load(self.port, "/", "leasehold.door.v1", size, seconds, self.grant["token"])


def compare(direct, through, size, seconds):
    ours, peer = [], []
    for _ in range(TURNS):
        peer.append(direct.load(size, seconds))
        ours.append(through.load(size, seconds))
    ours, peer = statistics.median(ours), statistics.median(peer)
    return {"ours": round(ours, 1), "peer": round(peer, 1), "ratio": round(ours / peer, 3)}


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2
    gateway = Gateway(CONFIG)
    try:
        direct = Listening("ws_echo")
        hop = Listening("tcp_hop", direct.port, PIECE)
        try:
            through = Through(gateway)
            idle = private_bytes(through.pid)
            small = compare(direct, through, 16, seconds)
            big = compare(direct, through, BIG, seconds)
            after = private_bytes(through.pid)
            least = {"round_trips": compare(direct, hop, 16, seconds)["ratio"],
                     "bytes": compare(direct, hop, BIG, seconds)["ratio"]}
        finally:
            hop.close()
            direct.close()
    finally:
        gateway.cleanup()
    lean.emit(
        "door",
        small["ours"],
        "echoes of 16 bytes a second, one connection",
        TURNS,
        peer=small["peer"],
        peer_name="the same agent, spoken to directly",
        mib_per_s_at_1_mib=big,
        ratios_of_a_copying_program=least,
        private_bytes_idle=idle,
        private_bytes_after=after,
        goals=GOALS,
    )


if __name__ == "__main__":
    main()
