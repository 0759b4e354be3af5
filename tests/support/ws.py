"""A small WebSocket (RFC 6455) client and server on blocking sockets, for tests.

It speaks plain enough to be wrong on purpose: single frames with any header bits, masks on or off,
raw bytes at any moment. Nothing here retries, pings by itself or hides a close.

    c = WsClient.connect("ws://127.0.0.1:1234/", headers={"Authorization": "Bearer …"},
                         protocols=["leasehold.door.v1"])
    c = WsClient.connect("/run/leasehold/control.sock", path="/api/v1/door")
    c.send_text('{"a":1}')
    opcode, payload = c.recv(timeout=2)      # whole message; TimeoutError, WsClosed
    c.wait_closed(timeout=2)                 # → close code; 1006 = ended without a Close frame

    server = WsServer("/run/x/control.sock")  # or WsServer(("127.0.0.1", 0))
    conn = server.accept(timeout=2)           # after the handshake; conn.path, conn.headers
"""

import base64
import hashlib
import os
import socket
import ssl
import struct
import time
import urllib.parse

TIMEOUT_S = 30  # as PATIENCE_S of waiting.py; an agent takes this file alone into its sandbox
OP_CONT, OP_TEXT, OP_BINARY, OP_CLOSE, OP_PING, OP_PONG = 0, 1, 2, 8, 9, 10
CLOSE_NO_CODE, CLOSE_ABNORMAL = 1005, 1006
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WsError(Exception):
    """The peer broke the protocol or refused the handshake."""


class WsHandshakeError(WsError):
    """The answer to the upgrade was not 101; `status`, `headers` and `body` say what it was."""

    def __init__(self, status, headers=None, body=b""):
        super().__init__("handshake answered %s" % status)
        self.status, self.headers, self.body = status, headers or {}, body


class WsClosed(Exception):
    """The connection has ended; `code` and `reason` as the peer gave them (1005, 1006 if not)."""

    def __init__(self, code, reason=""):
        super().__init__("closed with %s %s" % (code, reason))
        self.code, self.reason = code, reason


def accept_key(key):
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()


def apply_mask(payload, mask):
    if not payload:
        return payload
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    n = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return n.to_bytes(len(payload), "big")


def frame(opcode, payload=b"", fin=True, mask=None, rsv=0):
    """The bytes of one frame; `mask`: None for a server's, 4 bytes for a client's."""
    head = bytearray([(0x80 if fin else 0) | rsv << 4 | opcode])
    bit = 0x80 if mask is not None else 0
    if len(payload) < 126:
        head.append(bit | len(payload))
    elif len(payload) < 65536:
        head += bytes([bit | 126]) + struct.pack(">H", len(payload))
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", len(payload))
    if mask is not None:
        return bytes(head) + mask + apply_mask(payload, mask)
    return bytes(head) + payload


class WsConn:
    """One end of an open connection. `sock` is the plain or TLS socket; bytes read too far by the
    handshake come in `rest`."""

    note = staticmethod(lambda data: data)  # sees every message that is received (gateway.py)

    def __init__(self, sock, is_client, rest=b""):
        self.sock = sock
        self.is_client = is_client
        self.close_code = None  # None while open
        self.close_reason = ""
        self.closed_at = None  # time.monotonic() when the end was seen
        self.frames = 0  # data frames received
        self._rest = bytearray(rest)
        self._message = None  # (opcode, [pieces]) of a fragmented message

    # -- sending ---------------------------------------------------------------------------------

    def send_raw(self, data):
        self.sock.sendall(data)

    def send_frame(self, opcode, payload=b"", fin=True, rsv=0):
        mask = os.urandom(4) if self.is_client else None
        self.send_raw(frame(opcode, payload, fin, mask, rsv))

    def send_text(self, text):
        self.send_frame(OP_TEXT, text.encode() if isinstance(text, str) else text)

    def send_binary(self, data):
        self.send_frame(OP_BINARY, data)

    def send_fragments(self, opcode, pieces):
        for i, piece in enumerate(pieces):
            self.send_frame(opcode if i == 0 else OP_CONT, piece, fin=i == len(pieces) - 1)

    def send_close(self, code=1000, reason=""):
        self.send_frame(OP_CLOSE, struct.pack(">H", code) + reason.encode())

    # -- receiving -------------------------------------------------------------------------------

    def recv(self, timeout=TIMEOUT_S):
        """The next whole text or binary message. Answers pings and a Close on the way."""
        deadline = time.monotonic() + timeout
        while True:
            fin, opcode, payload = self.recv_frame(deadline - time.monotonic())
            if opcode == OP_PING:
                self.send_frame(OP_PONG, payload)
            elif opcode == OP_PONG:
                continue
            elif opcode == OP_CLOSE:
                self._on_close(payload)
            else:
                message = self._on_data(fin, opcode, payload)
                if message:
                    self.note(message[1])
                    return message

    def recv_frame(self, timeout=TIMEOUT_S):
        """(fin, opcode, unmasked payload) of the next frame, control frames too."""
        if self.close_code is not None:
            raise WsClosed(self.close_code, self.close_reason)
        deadline = time.monotonic() + timeout
        while True:
            parsed = self._parse_frame()
            if parsed:
                return parsed
            self._fill(deadline)

    def wait_closed(self, timeout=TIMEOUT_S):
        """Reads and drops until the connection ends; returns the close code."""
        deadline = time.monotonic() + timeout
        try:
            while True:
                self.recv(deadline - time.monotonic())
        except WsClosed:
            return self.close_code

    def wait_eof(self, timeout=TIMEOUT_S):
        """After a Close: waits until the peer has closed the socket as well."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.sock.settimeout(max(0.001, deadline - time.monotonic()))
                if not self.sock.recv(65536):
                    return
            except (ConnectionError, ssl.SSLError, BrokenPipeError):
                return

    def close(self):
        """Drops the socket without a Close frame (send_close first for a polite end)."""
        if self.close_code is None:
            self.close_code = CLOSE_ABNORMAL
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def _on_data(self, fin, opcode, payload):
        self.frames += 1
        if opcode == OP_CONT:
            if self._message is None:
                raise WsError("continuation of nothing")
            self._message[1].append(payload)
        elif self._message is not None:
            raise WsError("a new message inside a message")
        else:
            self._message = (opcode, [payload])
        if not fin:
            return None
        opcode, pieces = self._message
        self._message = None
        return opcode, b"".join(pieces)

    def _on_close(self, payload):
        if len(payload) >= 2:
            code, reason = struct.unpack(">H", payload[:2])[0], payload[2:].decode()
        else:
            code, reason = CLOSE_NO_CODE, ""
        try:
            self.send_frame(OP_CLOSE, payload[:2])
        except OSError:
            pass
        self._end(code, reason)

    def _end(self, code, reason=""):
        self.close_code, self.close_reason = code, reason
        self.closed_at = time.monotonic()
        raise WsClosed(code, reason)

    def _parse_frame(self):
        b = self._rest
        if len(b) < 2:
            return None
        length, at = b[1] & 0x7F, 2
        if length == 126:
            if len(b) < 4:
                return None
            length, at = struct.unpack(">H", b[2:4])[0], 4
        elif length == 127:
            if len(b) < 10:
                return None
            length, at = struct.unpack(">Q", b[2:10])[0], 10
        masked = b[1] & 0x80
        if masked:
            mask, at = bytes(b[at : at + 4]), at + 4
        if len(b) < at + length:
            return None
        fin, opcode, payload = bool(b[0] & 0x80), b[0] & 0x0F, bytes(b[at : at + length])
        del b[: at + length]
        return fin, opcode, apply_mask(payload, mask) if masked else payload

    def _fill(self, deadline):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("nothing received in time")
        self.sock.settimeout(left)
        try:
            data = self.sock.recv(1 << 18)
        except (ConnectionError, BrokenPipeError, ssl.SSLError):
            data = b""
        if not data:
            self._end(CLOSE_ABNORMAL)
        self._rest += data


class WsClient(WsConn):
    """The client's end."""

    protocol = None  # the subprotocol the server chose
    status = None
    headers = None

    @classmethod
    def connect(cls, target, headers=None, protocols=(), path=None, timeout=TIMEOUT_S, ssl_context=None,
                rcvbuf=None, source=None):
        """`target`: ws://… or wss://… or the path of a unix socket. Raises WsHandshakeError."""
        sock, host, path = cls._open(target, path, timeout, ssl_context, rcvbuf, source)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = ["GET %s HTTP/1.1" % path, "Host: %s" % host, "Upgrade: websocket",
                 "Connection: Upgrade", "Sec-WebSocket-Key: %s" % key, "Sec-WebSocket-Version: 13"]
        if protocols:
            lines.append("Sec-WebSocket-Protocol: %s" % ", ".join(protocols))
        lines += ["%s: %s" % item for item in (headers or {}).items()]
        try:
            sock.sendall("\r\n".join(lines + ["", ""]).encode("latin-1"))
            status, answer, rest = read_head(sock, timeout)
            if status.split(" ", 2)[1:2] != ["101"]:
                raise WsHandshakeError(int(status.split(" ", 2)[1]), answer, rest)
            if answer.get("sec-websocket-accept") != accept_key(key):
                raise WsError("wrong Sec-WebSocket-Accept")
        except BaseException:
            sock.close()
            raise
        conn = cls(sock, True, rest)
        conn.status, conn.headers = 101, answer
        conn.protocol = answer.get("sec-websocket-protocol")
        return conn

    @staticmethod
    def _open(target, path, timeout, ssl_context, rcvbuf, source):
        if "://" not in target:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(timeout)
            sock.connect(target)
            return sock, "localhost", path or "/"
        url = urllib.parse.urlsplit(target)
        secure = url.scheme in ("wss", "https")
        port = url.port or (443 if secure else 80)
        sock = socket.socket(socket.AF_INET6 if ":" in url.hostname else socket.AF_INET)
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        if source:
            sock.bind((source, 0))
        sock.settimeout(timeout)
        sock.connect((url.hostname, port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if secure:
            context = ssl_context or ssl.create_default_context()
            sock = context.wrap_socket(sock, server_hostname=url.hostname)
        whole = path or (url.path or "/") + ("?" + url.query if url.query else "")
        return sock, "%s:%d" % (url.hostname, port), whole


class WsServer:
    """Listens on a unix path or a (host, port) pair; `address` is what to connect to."""

    def __init__(self, address, protocols=()):
        self.protocols = list(protocols)
        if isinstance(address, str):
            self._path = address
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            self._path = None
            self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind(address)
        self.sock.listen(64)
        self.address = self.sock.getsockname()

    def accept(self, timeout=TIMEOUT_S):
        """The next client, handshake done: a WsConn with `path` and `headers` of its request."""
        self.sock.settimeout(timeout)
        sock, _ = self.sock.accept()
        request, headers, rest = read_head(sock, timeout)
        answer = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
                  "Sec-WebSocket-Accept: %s" % accept_key(headers.get("sec-websocket-key", ""))]
        offered = [p.strip() for p in headers.get("sec-websocket-protocol", "").split(",")]
        chosen = next((p for p in offered if p in self.protocols), None)
        if chosen:
            answer.append("Sec-WebSocket-Protocol: %s" % chosen)
        sock.sendall("\r\n".join(answer + ["", ""]).encode())
        conn = WsConn(sock, False, rest)
        conn.path, conn.headers, conn.protocol = request.split(" ")[1], headers, chosen
        return conn

    def close(self):
        self.sock.close()
        if self._path and os.path.exists(self._path):
            os.unlink(self._path)


def read_head(sock, timeout):
    """(first line, {lower-case name: value}, bytes behind the head) of an HTTP message."""
    deadline = time.monotonic() + timeout
    data = b""
    while b"\r\n\r\n" not in data:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        piece = sock.recv(65536)
        if not piece:
            raise WsError("the peer closed during the handshake after %d bytes" % len(data))
        data += piece
    head, rest = data.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return lines[0], headers, rest
