"""A proxy before a real S3 server that plays its bad days: it answers by itself, breaks connections
off, or lets something happen at a step of a transfer; all else the real server does, and judges.

    with FaultProxy(server.port) as proxy:
        proxy.rule = lambda request: Answer(503) if request.n == 1 else None

A rule sees each request before it is forwarded; what it returns is done: None forwards, an Answer
is sent instead, DROP closes without one, LOSE forwards and closes without an answer. `after` sees
each request with the real answer, before the client does. A Cut shortens the real answer's body; a Drip
is an answer that comes a byte at a time.
"""

import http.client
import http.server
import os
import socket
import ssl
import threading
import time
import urllib.parse
from dataclasses import dataclass, field

DROP, LOSE = object(), object()
HOP = {"connection", "transfer-encoding", "keep-alive", "expect", "content-length"}


@dataclass
class Answer:
    status: int
    headers: dict = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Cut:
    after: int


@dataclass
class Drip:
    pause_s: float
    bytes: int


@dataclass
class Request:
    n: int  # from 1 on
    method: str
    path: str  # as it came
    query: dict
    headers: dict
    body: bytes
    connection: int  # which one it came by, from 1 on
    status: int = 0  # of the answer

    @property
    def step(self):
        """What it does, in a word."""
        if self.method == "POST":
            return "initiate" if "uploads" in self.query else "complete"
        if self.method == "PUT":
            return "part" if "partNumber" in self.query else "put"
        if self.method == "DELETE" and "uploadId" in self.query:
            return "abort"
        return self.method.lower()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.connection_n = self.server.proxy.count_connection(self.connection)

    def handle(self):
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def log_message(self, *_):
        pass

    def read_request(self):
        length = int(self.headers.get("Content-Length") or 0)
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        return self.server.proxy.record(
            Request(
                0,
                self.command,
                url.path,
                query,
                dict(self.headers),
                self.rfile.read(length),
                self.connection_n,
            )
        )

    def forward(self, request):
        wire = http.client.HTTPConnection("127.0.0.1", self.server.proxy.port_behind, timeout=120)
        try:
            wire.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers.items():
                if name.lower() not in HOP:
                    wire.putheader(name, value)
            if request.body or self.command in ("PUT", "POST"):
                wire.putheader("Content-Length", str(len(request.body)))
            wire.endheaders(request.body or None)
            answer = wire.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            wire.close()

    def send_answer(self, answer, cut=None):
        self.send_response_only(answer.status)
        length = answer.headers.get("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: cut.after] if cut else answer.body)
        if cut:
            self.drop()

    def drip(self, told):
        self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Length: {told.bytes}\r\n\r\n".encode())
        for _ in range(told.bytes):
            self.wfile.write(b" ")
            time.sleep(told.pause_s)

    def drop(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def serve(self):
        proxy = self.server.proxy
        request = self.read_request()
        told = proxy.rule(request) if proxy.rule else None
        if told is DROP:
            return self.drop()
        if isinstance(told, Drip):
            return self.drip(told)
        if isinstance(told, Answer):
            request.status = told.status
            return self.send_answer(told)
        answer = self.forward(request)
        request.status = answer.status
        if proxy.after:
            proxy.after(request, answer)
        if told is LOSE:
            return self.drop()
        return self.send_answer(answer, told if isinstance(told, Cut) else None)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve


class FaultProxy:
    def __init__(self, port_behind, tls=None):
        self.port_behind = port_behind
        self.rule = self.after = None
        self.requests, self.connections = [], []
        self.lock = threading.Lock()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.proxy = self
        if tls:  # a folder with server.pem and server.key
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(os.path.join(tls, "server.pem"), os.path.join(tls, "server.key"))
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.hang_up()

    def count_connection(self, connection):
        with self.lock:
            self.connections.append(connection)
            return len(self.connections)

    def record(self, request):
        with self.lock:
            self.requests.append(request)
            request.n = len(self.requests)
            return request

    def hang_up(self):
        """Ends all connections, without a word to the clients."""
        with self.lock:
            for connection in self.connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def steps(self):
        with self.lock:
            return [request.step for request in self.requests]
