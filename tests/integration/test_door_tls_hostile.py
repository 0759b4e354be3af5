"""Clients that use TLS against the door: records that carry next to nothing, messages of the handshake in
pieces. Whoever does so costs the door no more than a turn among others, and nobody else a wait."""

import hashlib
import hmac
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import time
import unittest

import ws
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from door_fixture import PROTOCOL, DoorTest

HANDSHAKE, DATA = 22, 23
KEY_UPDATE = b"\x18\x00\x00\x01\x00"  # update_not_requested


def expand(secret, label, size):
    """HKDF-Expand-Label without a context (RFC 8446, 7.1), for as much as one hash is long."""
    name = b"tls13 " + label
    info = struct.pack(">HB", size, len(name)) + name + b"\0\x01"
    return hmac.new(secret, info, hashlib.sha384).digest()[:size]


class Records:
    """What OpenSSL would not send: TLS 1.3 records of any content, by a client after its handshake."""

    def __init__(self, secret, sent):
        self._sent = sent
        self._use(secret)

    def _use(self, secret):
        self._secret = secret
        self._aead, self._iv = AESGCM(expand(secret, b"key", 32)), expand(secret, b"iv", 12)

    def seal(self, kind, content):
        head = struct.pack(">BHH", DATA, 0x0303, len(content) + 17)
        nonce = bytes(a ^ b for a, b in zip(self._iv, self._sent.to_bytes(12, "big")))
        self._sent += 1
        return head + self._aead.encrypt(nonce, content + bytes([kind]), head)

    def key_update(self):
        record = self.seal(HANDSHAKE, KEY_UPDATE)
        self._use(expand(self._secret, b"traffic upd", 48))
        self._sent = 0
        return record


class Hostile(DoorTest):
    def start_tls(self):
        self.files = tempfile.mkdtemp(prefix="door-tls-")
        self.addCleanup(shutil.rmtree, self.files)
        key, cert = os.path.join(self.files, "key.pem"), os.path.join(self.files, "cert.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert,
                        "-subj", "/CN=door", "-days", "2"], check=True, capture_output=True)
        with open(key, encoding="ascii") as key_text, open(cert, encoding="ascii") as cert_text:
            self.served = self.door(key_pem=key_text.read(), cert_pem=cert_text.read())
        self.served.url = self.served.url.replace("ws:", "wss:")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.load_verify_locations(cert)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.keylog_filename = os.path.join(self.files, "secrets")
        self.agent = self.served.agent()

    def last_secret(self):
        with open(self.context.keylog_filename, encoding="ascii") as text:
            words = [line.split() for line in text if line.startswith("CLIENT_TRAFFIC_SECRET_0")]
        return bytes.fromhex(words[-1][2])

    def admitted(self):
        """A client after its `ready`, and what makes records of its."""
        client = self.served.connect(self.served.grant(), ssl_context=self.context)
        self.assertEqual(client.sock.cipher()[0], "TLS_AES_256_GCM_SHA384")
        return client, Records(self.last_secret(), sent=1)

    @staticmethod
    def raw(tls, data):
        """Past OpenSSL: on its descriptor."""
        plain = socket.socket(fileno=os.dup(tls.fileno()))
        try:
            plain.settimeout(20)
            plain.sendall(data)
        finally:
            plain.close()

    def test_half_a_key_update_makes_no_line_of_the_agent_a_spin(self):
        self.start_tls()
        client, records = self.admitted()
        self.raw(client.sock, records.seal(HANDSHAKE, KEY_UPDATE[:4]))
        time.sleep(0.2)
        used = self.served.cpu_seconds()
        self.agent.line("hello")
        time.sleep(1)
        self.assertLess(self.served.cpu_seconds() - used, 0.3)
        self.assert_serves_tls()

    def assert_serves_tls(self):
        client = self.served.connect(self.served.grant(), ssl_context=self.context)
        self.agent.line("to all")
        self.assertEqual(client.recv(5)[1], b"to all")
        client.close()

    def test_whole_key_updates_are_taken(self):
        self.start_tls()
        client, records = self.admitted()
        self.raw(client.sock, b"".join(records.key_update() for _ in range(100)))
        self.raw(client.sock, records.seal(DATA, ws.frame(1, b"still", mask=b"abcd")))
        self.assertEqual(self.agent.recv_line(), b"still")
        self.agent.line("hello")
        self.assertEqual(client.recv(5)[1], b"hello")

    def first_line(self, flood):
        """What the agent hears first when the door finds a client's flood and another's line at once."""
        other, records = self.admitted()
        client = self.served.connect(self.served.grant(), ssl_context=self.context)
        data = flood(records) + records.seal(DATA, ws.frame(1, b"done", mask=b"abcd"))
        self.served.process.send_signal(signal.SIGSTOP)
        self.raw(other.sock, data)
        client.send_text("now")
        self.served.process.send_signal(signal.SIGCONT)
        lines = [self.agent.recv_line(20), self.agent.recv_line(20)]
        self.assertEqual(set(lines), {b"now", b"done"})
        return lines[0]

    def test_a_flood_of_key_updates_keeps_nobody_waiting(self):
        self.start_tls()
        flood = lambda records: b"".join(records.key_update() for _ in range(5000))
        self.assertEqual(self.first_line(flood), b"now")

    def test_records_of_one_byte_keep_nobody_waiting(self):
        self.start_tls()
        pongs = ws.frame(10, b"x" * 94, mask=b"abcd") * 50
        flood = lambda records: b"".join(records.seal(DATA, bytes([b])) for b in pongs)
        self.assertEqual(self.first_line(flood), b"now")


if __name__ == "__main__":
    unittest.main()
