"""What the benches in Python share: a client that costs little, and the line they print."""

import json
import os
import platform
import socket
import sys
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

MASK = b"\x11\x22\x33\x44"
REPEATED = MASK * 65536


def connect(url):
    address = urllib.parse.urlsplit(url)
    sock = socket.create_connection((address.hostname, address.port), 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Http:
    """Requests one after the other on one connection that stays open."""

    def __init__(self, url, key):
        self.sock = connect(url)
        self.key = key
        self.rest = b""

    def prepare(self, method, path, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} /api/v1{path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data

    def call(self, request):
        return json.loads(self.body(request))

    def body(self, request):
        """Of the answer; anything but 2xx ends the bench."""
        self.sock.sendall(request)
        data = self.rest
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, data = data.split(b"\r\n\r\n", 1)
        lower = head.lower()
        at = lower.index(b"content-length:") + 15
        length = int(lower[at:].split(b"\r\n", 1)[0])
        while len(data) < length:
            data += self._more()
        body, self.rest = data[:length], data[length:]
        if head[9:10] != b"2":
            raise SystemExit(f"bench: {head.decode()}\n{body.decode()}")
        return body

    def _more(self):
        data = self.sock.recv(65536)
        if not data:
            raise SystemExit("bench: the gateway closed the connection")
        return data

    def close(self):
        self.sock.close()


def text_frame(payload):
    """A client's frame of up to 64 KiB - 1."""
    n = len(payload)
    head = bytes([0x81, 0x80 | n]) if n < 126 else b"\x81\xfe" + n.to_bytes(2, "big")
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(REPEATED[:n], "big")
    return head + MASK + masked.to_bytes(n, "big")


class Door:
    """A connection to a door, up once it has said `ready`."""

    def __init__(self, grant):
        self.sock = connect(grant["endpoint"]["url"])
        self.sock.sendall(
            b"GET / HTTP/1.1\r\nHost: door\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: leasehold.door.v1\r\nAuthorization: Bearer "
            + grant["token"].encode()
            + b"\r\n\r\n"
        )
        self.rest = b""
        while b"\r\n\r\n" not in self.rest:
            self._more()
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        ready = self.recv() if b" 101 " in head else head
        if b'"ready"' not in ready:
            raise SystemExit(f"bench: the door said {ready!r}")

    def recv(self):
        """The payload of the next frame, which is shorter than 64 KiB."""
        while len(self.rest) < 2:
            self._more()
        n, at = self.rest[1], 2
        if n == 126:
            while len(self.rest) < 4:
                self._more()
            n, at = int.from_bytes(self.rest[2:4], "big"), 4
        while len(self.rest) < at + n:
            self._more()
        payload, self.rest = self.rest[at : at + n], self.rest[at + n :]
        return payload

    def _more(self):
        data = self.sock.recv(65536)
        if not data:
            raise SystemExit("bench: the door closed the connection")
        self.rest += data

    def echo(self, payload):
        self.sock.sendall(text_frame(payload))
        while self.recv() != payload:
            pass

    def close(self):
        self.sock.close()


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * q))]


def note(text):
    print(text, file=sys.stderr, flush=True)


def emit(name, ours, unit, runs, peer=None, peer_name=None, keep=False, **more):
    """The line of a figure. keep: of one of several that a script has, each in a file of its own."""
    line = {
        "name": name,
        "ours": ours,
        "peer": peer,
        "peer_name": peer_name,
        "ratio": None if not peer else round(ours / peer, 3),
        "unit": unit,
        "runs": runs,
        **more,
        "host": f"{os.cpu_count()} cpus, Linux {platform.release()}",
    }
    print(json.dumps(line), flush=True)
    if keep:
        folder = os.path.join(ROOT, "build", "bench")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name + ".json"), "w", encoding="ascii") as out:
            out.write(json.dumps(line) + "\n")
