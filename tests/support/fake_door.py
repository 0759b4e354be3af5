"""A door in Python for tests: listens where leaseinit connects and speaks agent_link.h."""

import os
import socket
import struct
import time
from waiting import PATIENCE_S

HELLO, LINE, EXIT = 1, 2, 3
LINE_MAX = 1024 * 1024


class Ended(Exception):
    """leaseinit closed the link."""


class FakeDoor:
    def __init__(self, path, gid=None):
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(4)
        os.chmod(path, 0o660)
        if gid is not None:
            os.chown(path, -1, gid)
        self.conn = None
        self.pending = b""

    def accept(self, timeout=PATIENCE_S):
        """Waits for leaseinit and returns the transport named in its HELLO."""
        self.listener.settimeout(timeout)
        self.conn, _ = self.listener.accept()
        kind, payload = self.frame(timeout)
        if kind != HELLO or payload[:1] != b"\x02":
            raise AssertionError(f"not a HELLO: {kind} {payload[:40]!r}")
        return payload[1:].decode()

    def send(self, payload, kind=LINE):
        self.conn.sendall(struct.pack(">BI", kind, len(payload)) + payload)

    def _take(self, size, deadline):
        chunks, have = [self.pending], len(self.pending)
        while have < size:
            left = deadline - time.monotonic()
            if left <= 0:
                self.pending = b"".join(chunks)
                raise TimeoutError("no frame from leaseinit")
            self.conn.settimeout(left)
            try:
                chunk = self.conn.recv(262144)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise Ended()
            chunks.append(chunk)
            have += len(chunk)
        data = b"".join(chunks)
        self.pending = data[size:]
        return data[:size]

    def frame(self, timeout=PATIENCE_S):
        deadline = time.monotonic() + timeout
        kind, size = struct.unpack(">BI", self._take(5, deadline))
        return kind, self._take(size, deadline)

    def line(self, timeout=PATIENCE_S):
        kind, payload = self.frame(timeout)
        if kind != LINE:
            raise AssertionError(f"not a line: frame {kind} {payload[:100]!r}")
        return payload

    def until_exit(self, timeout=PATIENCE_S):
        """All lines up to EXIT, and (code, signal)."""
        lines = []
        while True:
            kind, payload = self.frame(timeout)
            if kind == EXIT:
                return lines, (payload[0], payload[1])
            lines.append(payload)

    def close(self):
        if self.conn is not None:
            self.conn.close()
        self.listener.close()
