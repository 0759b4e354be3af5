"""Clients that use TLS against door and gateway: records that carry next to nothing, messages of the
handshake in pieces. Whoever does so gets no more than a turn among others, and costs nobody a wait."""

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
import urllib.parse

import ws
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from door_fixture import DoorTest
from gateway import Gateway
from waiting import PATIENCE_S, wait_equal

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


def make_pair(directory):
    """(key, certificate): files."""
    key, cert = os.path.join(directory, "key.pem"), os.path.join(directory, "cert.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert,
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-days", "2"], check=True, capture_output=True)
    return key, cert


def telling(cert, directory):
    """A context that leaves its secrets where last_records finds them."""
    context = ssl.create_default_context(cafile=cert)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.keylog_filename = os.path.join(directory, "secrets")
    return context


def last_records(context, tls, sent):
    """Of the connection opened last, over which so many records went."""
    if tls.cipher()[0] != "TLS_AES_256_GCM_SHA384":
        raise AssertionError(tls.cipher())
    with open(context.keylog_filename, encoding="ascii") as text:
        words = [line.split() for line in text if line.startswith("CLIENT_TRAFFIC_SECRET_0")]
    return Records(bytes.fromhex(words[-1][2]), sent)


def send_raw(tls, data):
    """Past OpenSSL: on its descriptor."""
    with socket.socket(fileno=os.dup(tls.fileno())) as plain:
        plain.settimeout(PATIENCE_S)
        plain.sendall(data)


def key_updates(records):
    return b"".join(records.key_update() for _ in range(5000))


class Door(DoorTest):
    def start_tls(self):
        files = tempfile.mkdtemp(prefix="door-tls-")
        self.addCleanup(shutil.rmtree, files)
        key, cert = make_pair(files)
        with open(key, encoding="ascii") as key_text, open(cert, encoding="ascii") as cert_text:
            self.served = self.door(key_pem=key_text.read(), cert_pem=cert_text.read())
        self.served.url = self.served.url.replace("ws:", "wss:")
        self.context = telling(cert, files)
        self.agent = self.served.agent()

    def admitted(self):
        """A client after its `ready`, and what makes records of its."""
        client = self.served.connect(self.served.grant(), ssl_context=self.context)
        return client, last_records(self.context, client.sock, sent=1)

    def test_half_a_key_update_makes_no_line_of_the_agent_a_spin(self):
        self.start_tls()
        client, records = self.admitted()
        send_raw(client.sock, records.seal(HANDSHAKE, KEY_UPDATE[:4]))
        self.assert_idle(self.served)
        self.agent.line("hello")
        time.sleep(0.5)  # for it to have heard that
        self.assert_idle(self.served)
        self.assert_serves_tls()

    def assert_serves_tls(self):
        client = self.served.connect(self.served.grant(), ssl_context=self.context)
        self.agent.line("to all")
        self.assertEqual(client.recv()[1], b"to all")
        client.close()

    def test_whole_key_updates_are_taken(self):
        self.start_tls()
        client, records = self.admitted()
        send_raw(client.sock, b"".join(records.key_update() for _ in range(100)))
        send_raw(client.sock, records.seal(DATA, ws.frame(1, b"still", mask=b"abcd")))
        self.assertEqual(self.agent.recv_line(), b"still")
        self.agent.line("hello")
        self.assertEqual(client.recv()[1], b"hello")

    def first_line(self, flood):
        """What the agent hears first when the door finds a client's flood and another's line at once."""
        other, records = self.admitted()
        client = self.served.connect(self.served.grant(), ssl_context=self.context)
        data = flood(records) + records.seal(DATA, ws.frame(1, b"done", mask=b"abcd"))
        self.served.process.send_signal(signal.SIGSTOP)
        send_raw(other.sock, data)
        client.send_text("now")
        self.served.process.send_signal(signal.SIGCONT)
        lines = [self.agent.recv_line(), self.agent.recv_line()]
        self.assertEqual(set(lines), {b"now", b"done"})
        return lines[0]

    def test_a_flood_of_key_updates_keeps_nobody_waiting(self):
        self.start_tls()
        self.assertEqual(self.first_line(key_updates), b"now")

    def test_records_of_one_byte_keep_nobody_waiting(self):
        self.start_tls()
        pongs = ws.frame(10, b"x" * 94, mask=b"abcd") * 50

        def flood(records):
            return b"".join(records.seal(DATA, bytes([byte])) for byte in pongs)

        self.assertEqual(self.first_line(flood), b"now")


class Server(unittest.TestCase):
    def test_a_flood_of_key_updates_keeps_nobody_waiting(self):
        gateway = Gateway.for_test(self, start=False)
        key, cert = make_pair(gateway.dir)
        gateway.edit_config({"http": {"tls": {"cert_file": cert, "key_file": key}}})
        context = gateway.ssl_context = telling(cert, gateway.dir)
        gateway.start()

        def connect():
            sock = socket.create_connection(
                ("127.0.0.1", urllib.parse.urlsplit(gateway.url).port), timeout=PATIENCE_S)
            tls = context.wrap_socket(sock, server_hostname="127.0.0.1")
            self.addCleanup(tls.close)
            return tls

        def ask(name):
            return b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + name + b"\r\n\r\n"

        other = connect()
        records = last_records(context, other, sent=0)
        client = connect()
        data = key_updates(records) + records.seal(DATA, ask(b"other"))
        gateway.process.send_signal(signal.SIGSTOP)
        send_raw(other, data)
        client.sendall(ask(b"client"))
        gateway.process.send_signal(signal.SIGCONT)
        other.settimeout(PATIENCE_S)
        for sock in (client, other):
            self.assertIn(b"200 OK", sock.recv(4096))
        done = lambda: [line["request_id"] for line in gateway.log_lines("request")]
        wait_equal(self, ["client", "other"], done)


if __name__ == "__main__":
    unittest.main()
