"""Connects and disconnects of bots and clients in every way there is; nothing of them may be left.

    connects.py [--count N]

What is looked at before and behind: descriptors and memory of the gateway and of a door, open
connections by /metrics, rows of the store. Prints what broke.
"""

import argparse
import os
import random
import socket
import struct
import sys
import time
import types
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "support")]

# pylint: disable=wrong-import-position
import processes
from bot import Bot
from gateway import Gateway
from ws import WsClosed, WsError

NOBODY = types.SimpleNamespace(addCleanup=lambda *_: None)
MEMORY_SLACK = 16 * 1024 * 1024  # of the allocator, whatever the count


def descriptors(pid):
    """What each of them is, without numbers of sockets and the like, sorted. A reader of the store opens
    the log when it first reads: the databases themselves are counted, their logs are not."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}").split(":[")[0])
        except FileNotFoundError:
            pass
    return sorted(what for what in found if not what.endswith("-wal"))


def difference(what, before, after):
    if not isinstance(before, list):
        return f"{what}: {before} before, {after} behind"
    more, less = (dict(Counter(x) - Counter(y)) for x, y in ((after, before), (before, after)))
    return f"{what}: {len(before)} before, {len(after)} behind; more {more}, less {less}"


def memory(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as text:
        return int(text.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sanitized(pid):
    """Its allocator keeps what was freed."""
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as text:
        return "libasan" in text.read()


def reset(sock):
    """Closes with RST instead of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Connects:
    def __init__(self, seed=5):
        self.chance = random.Random(seed)
        self.gateway = Gateway({"lease": {"per_user": 100000, "per_session": 100000}})
        chat = self.gateway.new_chat()
        self.user = chat["user_id"]
        self.sandbox, _ = self.gateway.open(chat["chat_id"])
        self.grant = self.gateway.expect(
            201, "POST", "/leases", {"session_id": self.sandbox["session_id"], "max_connections": 8,
                                     "ttl_s": 900})
        self.door = [p.pid for p in self.gateway.sandboxes_left() if p.name == "leasedoor"][0]
        self.address = self.gateway.url.split("//")[1].split(":")

    def close(self):
        self.gateway.cleanup()

    # -- ways to come and go -------------------------------------------------------------------------

    def bot(self):
        bot = Bot(NOBODY, self.gateway, self.gateway.admin_key)
        if self.chance.random() < 0.7:
            bot.subscribe("all", since=self.chance.choice((None, 0)))
        if self.chance.random() < 0.3:
            bot.send("chat.list")
        self.leave(bot.ws)

    def leave(self, ws):
        way = self.chance.randrange(4)
        if way == 0:
            ws.send_close()
            ws.wait_closed(5)
        elif way == 1:
            reset(ws.sock)
            return
        elif way == 2:
            ws.send_raw(b"\xff\xff")
            ws.wait_closed(5)
        ws.close()

    def unproved(self):
        bot = Bot(NOBODY, self.gateway)
        if self.chance.random() < 0.5:
            bot.send("auth", {"token": "lhk_no"})
        bot.ws.close()

    def half(self):
        sock = socket.create_connection((self.address[0], int(self.address[1])))
        sock.sendall(self.chance.choice((b"", b"GET /hea", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
                                         b"POST /api/v1/chats HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")))
        (reset if self.chance.random() < 0.5 else socket.socket.close)(sock)

    def client(self):
        client = self.gateway.connect(self.grant)
        self.leave(client)

    def round(self):
        way = self.chance.choices((self.bot, self.unproved, self.half, self.client), (5, 2, 2, 2))[0]
        try:
            way()
        except (WsClosed, WsError, OSError):
            pass  # the eighth of a lease's connections may not be gone yet: 4409

    # -- what is left --------------------------------------------------------------------------------

    def settle(self):
        """Until nobody is connected but the door, and we who ask."""
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline and self.connections() != {"http": 1, "websocket": 1}:
            time.sleep(0.1)

    def connections(self):
        text = self.gateway.rest("GET", "//metrics")[2].decode()
        start = "leasehold_connections{kind="
        lines = [x for x in text.splitlines() if x.startswith(start)]
        return {x.split('"')[1]: float(x.split()[-1]) for x in lines}

    def look(self):
        return {
            "connections": self.connections(),
            "gateway descriptors": descriptors(self.gateway.process.pid),
            "door descriptors": descriptors(self.door),
            "leases": len(self.gateway.expect(200, "GET", "/leases?limit=200")["items"]),
            "keys": len(self.gateway.expect(200, "GET", "/api-keys?limit=200")["items"]),
            "chats": len(self.gateway.expect(200, "GET", "/chats?limit=200")["items"]),
        }

    def run(self, count, say=print):
        for _ in range(200):  # what is made once, and the allocator's first fill
            self.round()
        self.look()
        self.settle()
        time.sleep(3)  # what a door lets linger
        before = self.look()
        sizes = {name: memory(pid) for name, pid in self.pids()}
        for n in range(count):
            self.round()
            if (n + 1) % 5000 == 0:
                say(f"{n + 1} rounds")
        self.settle()
        broken = self.compare(before)
        deadline = time.monotonic() + 10
        while broken and time.monotonic() < deadline:
            time.sleep(0.5)
            broken = self.compare(before)
        for name, pid in self.pids():
            grown = memory(pid) - sizes[name]
            say(f"{name}: {grown} bytes grown")
            if grown > MEMORY_SLACK and not sanitized(pid):
                broken.append(f"{name}: {grown} bytes grown")
        if not processes.look(self.door):
            broken.append("the door has gone")
        return broken

    def compare(self, before):
        after = self.look()
        return [difference(what, before[what], after[what]) for what in before
                if after[what] != before[what]]

    def pids(self):
        return (("gateway", self.gateway.process.pid), ("door", self.door))


def run(count, say=print):
    connects = Connects()
    try:
        return connects.run(count, say)
    finally:
        connects.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20000)
    found = run(parser.parse_args().count)
    for line in found:
        print(line)
    sys.exit(1 if found else 0)
