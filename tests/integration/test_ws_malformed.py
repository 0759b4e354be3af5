"""Malformed frames of every kind, at the gateway and at a door: each ends its own connection with the
right code, and nobody else's."""

import os
import socket
import struct
import unittest
import urllib.parse

import ws
from bot import Bot
from gateway import Gateway
from waiting import PATIENCE_S

MASK = b"abcd"


def masked(opcode, payload=b"", fin=True, rsv=0):
    return ws.frame(opcode, payload, fin, MASK, rsv)


def close(code, reason=b""):
    return masked(ws.OP_CLOSE, struct.pack(">H", code) + reason)


# what, the bytes, the code
KINDS = [
    *((f"reserved bit {bit}", masked(ws.OP_TEXT, b"x", rsv=bit), 1002) for bit in (1, 2, 4)),
    *((f"opcode {n}", masked(n, b"x"), 1002) for n in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)),
    ("a ping in pieces", masked(ws.OP_PING, b"x", fin=False), 1002),
    ("a close in pieces", masked(ws.OP_CLOSE, b"", fin=False), 1002),
    ("a ping that is long", masked(ws.OP_PING, b"x" * 126), 1002),
    ("a close that is long", masked(ws.OP_CLOSE, b"\x03\xe8" + b"x" * 124), 1002),
    ("a continuation of nothing", masked(ws.OP_CONT, b"x"), 1002),
    ("a text in a text", masked(ws.OP_TEXT, b"x", fin=False) + masked(ws.OP_TEXT, b"y"), 1002),
    ("no UTF-8", masked(ws.OP_TEXT, b"\xff\xfe"), 1007),
    ("a surrogate", masked(ws.OP_TEXT, b"\xed\xa0\x80"), 1007),
    ("no UTF-8 across fragments",
     masked(ws.OP_TEXT, b"\xe2", fin=False) + masked(ws.OP_CONT, b"\x28\xa1"), 1007),
    ("a character that is cut off", masked(ws.OP_TEXT, b"\xe2\x82"), 1007),
    *((f"close code {code}", close(code), 1002)
      for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535)),
    ("half a close code", masked(ws.OP_CLOSE, b"\x03"), 1002),
    ("a reason that is no UTF-8", close(1000, b"\xff"), 1007),
    ("a length of 2^63", b"\x81\xff\xff" + b"\0" * 7 + MASK, 1002),
    ("no mask", ws.frame(ws.OP_TEXT, b"x"), 1002),
    ("a length in too many bytes", b"\x81\xfe\x00\x01" + MASK + b"x", 1002),
]
TOO_LONG = ("a length of 2^62", b"\x81\xff" + struct.pack(">Q", 1 << 62) + MASK)
GOOD = [(code, close(code, b"bye")) for code in (1000, 1001, 1013, 3000, 4999)]


class Malformed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls, {"lease": {"per_user": 1000, "per_session": 1000}})
        cls.sandbox, cls.grant = cls.gateway.open(cls.gateway.new_chat()["chat_id"], lease={})

    def ended(self, client, data):
        self.addCleanup(client.close)
        try:
            client.send_raw(data)
        except OSError:
            pass  # it was closed while we wrote
        return client.wait_closed()

    def bot(self):
        return Bot(self, self.gateway, self.gateway.admin_key)

    def client(self):
        body = {"session_id": self.sandbox["session_id"]}
        return self.gateway.connect(self.gateway.expect(201, "POST", "/leases", body))

    def test_at_the_gateway(self):
        bystander = self.bot()
        for what, data, code in [*KINDS, (*TOO_LONG, 1009)]:
            self.assertEqual(self.ended(self.bot().ws, data), code, what)
            self.assertEqual(bystander.ok("health.get")["status"], "ok")
        for code, data in GOOD:
            self.assertEqual(self.ended(self.bot().ws, data), code)

    def test_at_a_door(self):
        bystander = self.gateway.connect(self.grant)
        self.addCleanup(bystander.close)
        for what, data, code in [*KINDS, (*TOO_LONG, 4409)]:
            self.assertEqual(self.ended(self.client(), data), code, what)
        for code, data in GOOD:
            self.assertEqual(self.ended(self.client(), data), code)
        bystander.send_text("still here")
        while bystander.recv() != (ws.OP_TEXT, b"still here"):
            pass  # what others wrote goes to all

    def test_in_single_bytes(self):
        for what, data, code in KINDS[:2] + KINDS[-5:]:
            self.assertEqual(self.ended_by_bytes(self.bot().ws, data), code, what)
            self.assertEqual(self.ended_by_bytes(self.client(), data), code, what)

    def ended_by_bytes(self, client, data):
        self.addCleanup(client.close)
        try:
            for byte in data:
                client.send_raw(bytes([byte]))
        except OSError:
            pass
        return client.wait_closed()


class Keys(unittest.TestCase):
    """Sec-WebSocket-Key is base64 of 16 bytes (RFC 6455, 4.2.1), or it is no handshake."""

    BAD = ["", "short", "x" * 24, "!" * 22 + "==", "A" * 23 + "=", "A" * 21 + "===", "=" * 24,
           "A" * 10 + "=" + "A" * 11 + "==", "A" * 20 + "-_==", "A" * 22, "A" * 26 + "=="]
    GOOD = ["dGhlIHNhbXBsZSBub25jZQ==", "A" * 22 + "==", "+" * 21 + "w=="]

    def statuses(self, target, protocol, path="/"):
        return {key: self.status(target, protocol, path, key) for key in self.BAD + self.GOOD}

    @staticmethod
    def status(target, protocol, path, key):
        if isinstance(target, str):
            sock = socket.socket(socket.AF_UNIX)
        else:
            sock = socket.socket()
        with sock:
            sock.settimeout(PATIENCE_S)
            sock.connect(target)
            sock.sendall(
                f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
                f"Sec-WebSocket-Protocol: {protocol}\r\n\r\n".encode()
            )
            return int(ws.read_head(sock, 10)[0].split()[1])

    def test_others_are_refused_everywhere(self):
        gateway = Gateway.for_test(self, {})
        _, grant = gateway.open(gateway.new_chat()["chat_id"], lease={})
        places = [
            ("127.0.0.1", urllib.parse.urlsplit(gateway.url).port), "leasehold.v1", "/api/v1/ws"
        ], [
            os.path.join(gateway.run_dir, "control.sock"), "leasehold.control.v1", "/api/v1/door"
        ], [
            ("127.0.0.1", urllib.parse.urlsplit(grant["endpoint"]["url"]).port),
            "leasehold.door.v1"
        ]
        for place in places:
            self.assertEqual(self.statuses(*place),
                             {**dict.fromkeys(self.BAD, 400), **dict.fromkeys(self.GOOD, 101)},
                             place)


class Origins(unittest.TestCase):
    def upgrade(self, gateway, origin):
        try:
            bot = Bot(self, gateway, gateway.admin_key, headers={"Origin": origin})
        except ws.WsHandshakeError as refused:
            return refused.status
        return bot.ok("health.get")["status"]

    def test_pages_of_the_list_and_of_the_gateway_itself_may_connect(self):
        gateway = Gateway.for_test(self, {"http": {"origins": ["https://app.example"]}})
        for origin in ("https://app.example", gateway.url):
            self.assertEqual(self.upgrade(gateway, origin), "ok")
        for origin in ("https://evil.example", "null", "https://app.example.evil", "http://app.example",
                       "https://app.example:444", gateway.url + "1", gateway.url + "@evil.example"):
            self.assertEqual(self.upgrade(gateway, origin), 403, origin)


if __name__ == "__main__":
    unittest.main()
