"""Between a gateway and its engine: passes requests on, but for those that a rule spoils.

    proxy = EngineProxy(test, docker.socket)
    proxy.rule = lambda method, path: LOSE if path.endswith("/start") else None

    proxy.query_rule = …    # the same with what stands behind the "?"

One request a connection; what the engine answers is passed on as it comes, streams too.
"""

import os
import shutil
import socket
import tempfile
import threading

LOSE = "the engine acts, its answer is lost"
HANG = "the engine hears nothing, nobody answers"


def answer(status, body=b"", content_type="application/json"):
    head = f"HTTP/1.1 {status} x\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


class EngineProxy:
    def __init__(self, test, target):
        self.target = target
        self.rule = lambda method, path: None
        self.query_rule = lambda method, path, query: self.rule(method, path)
        self.dir = tempfile.mkdtemp(prefix="lhp-", dir="/tmp")
        self.path = os.path.join(self.dir, "p.sock")
        self.url = "unix://" + self.path
        self.closing = threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        test.addCleanup(self.close)

    def close(self):
        self.closing.set()
        self.listener.close()
        shutil.rmtree(self.dir)

    def _accept(self):
        while not self.closing.is_set():
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client:
            try:
                self._pass(client)
                client.shutdown(socket.SHUT_RDWR)  # another thread may still read it
            except OSError:
                pass

    def _pass(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            data = client.recv(65536)
            if not data:
                return
            head += data
        head, _, body = head.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        sizes = [int(l.split(b":")[1]) for l in lines if l.lower().startswith(b"content-length:")]
        while sizes and len(body) < sizes[0]:
            body += client.recv(65536)
        method, path, _ = lines[0].decode().split(" ")
        path, _, query = path.partition("?")
        verdict = self.query_rule(method, path, query)
        if isinstance(verdict, bytes):
            client.sendall(verdict)
        elif verdict == HANG:
            while client.recv(1):
                pass
        else:
            self._forward(client, b"\r\n".join([*lines, b"Connection: close"]), body, verdict)

    def _forward(self, client, head, body, verdict):
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(self.target)
            engine.sendall(head + b"\r\n\r\n" + body)
            threading.Thread(target=self._follow_end, args=(client, engine), daemon=True).start()
            while data := engine.recv(65536):
                if verdict != LOSE:
                    client.sendall(data)

    @staticmethod
    def _follow_end(client, engine):
        """A client that goes ends its stream at the engine."""
        try:
            while client.recv(1):
                pass
            engine.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
