"""Bots that are connected, proved and subscribed: memory of each, connects a second, one event to all.

    bench_bots.py [BOTS [ROUNDS]]

Plain connections on the loopback; the client is one thread of this script and shares the machine.
Memory is what the gateway's own pages have grown (Pss), not what sockets cost the kernel.
"""

import resource
import selectors
import statistics
import sys
import time

import lean
from gateway import Gateway
from ws import OP_TEXT, frame

CONFIG = {"logging": {"level": "error"}}
UPGRADE = (
    "GET /api/v1/ws HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: leasehold.v1\r\nAuthorization: Bearer %s\r\n\r\n"
)
SUBSCRIBE = frame(OP_TEXT, b'{"id":"1","op":"subscribe","args":{"topics":["all"]}}', mask=lean.MASK)


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as text:
        return [1024 * int(line.split()[1]) for line in text if line.startswith("Pss:")][0]


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as text:
        words = text.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / 100


def connect_all(gateway, bots):
    request = (UPGRADE % gateway.admin_key).encode()
    socks = []
    for _ in range(bots):
        sock = lean.connect(gateway.url)
        sock.sendall(request)
        assert sock.recv(4096).startswith(b"HTTP/1.1 101")
        socks.append(sock)
    return socks


def subscribe_all(socks):
    for sock in socks:
        sock.sendall(SUBSCRIBE)
        assert b'"ok":true' in sock.recv(4096)


def event_to_all(http, chat, socks):
    """Seconds from asking for a lease to the last reader's having its event."""
    ready = selectors.DefaultSelector()
    for sock in socks:
        ready.register(sock, selectors.EVENT_READ)
    begin = time.perf_counter()
    http.call(http.prepare("POST", "/leases", {"chat_id": chat}))
    waiting = set(socks)
    while waiting:
        for key, _ in ready.select():
            if b"lease.granted" not in key.fileobj.recv(4096):
                continue  # a ping
            ready.unregister(key.fileobj)
            waiting.discard(key.fileobj)
    ready.close()
    return time.perf_counter() - begin


def measure(bots, rounds):
    gateway = Gateway(CONFIG)
    try:
        chat = gateway.new_chat()["chat_id"]
        gateway.open(chat)
        http = lean.Http(gateway.url, gateway.admin_key)
        pid = gateway.process.pid
        before, cpu_before, begin = pss(pid), cpu_s(pid), time.perf_counter()
        socks = connect_all(gateway, bots)
        connects_per_s = bots / (time.perf_counter() - begin)
        connect_cpu_us = (cpu_s(pid) - cpu_before) / bots * 1e6
        idle = pss(pid)
        subscribe_all(socks)
        fanout = [event_to_all(http, chat, socks) for _ in range(rounds)]
        return {
            "bytes_idle": round((idle - before) / bots),
            "bytes_subscribed": round((pss(pid) - before) / bots),
            "connects_per_s": round(connects_per_s),
            "connect_cpu_us": round(connect_cpu_us, 1),
            "fanout_ms": round(statistics.median(fanout) * 1000, 1),
        }
    finally:
        gateway.cleanup()


def main():
    bots = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found = measure(bots, rounds)
    lean.emit("bots", found.pop("bytes_idle"), "bytes a bot", rounds, bots=bots, **found)


if __name__ == "__main__":
    main()
