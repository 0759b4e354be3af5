"""A gateway that answers what a test tells it to: for what the real one cannot be made to show.

    gateway = FakeGateway()                       # listens on gateway.url
    gateway.on("GET", "/api/v1/health", {"status": "ok"})
    gateway.on("POST", "/api/v1/leases", lambda request: (201, {...}))
    gateway.requests                              # [Request(method, path, query, headers, body)]

An answer is an object (200), a (status, object or bytes) pair, or a function of the request that
returns one. A list of answers is given one after another, the last one for ever.
"""

import collections
import http.server
import json
import threading
import urllib.parse

Request = collections.namedtuple("Request", "method path query headers body")


class FakeGateway:
    def __init__(self):
        self.requests = []
        self._answers = {}
        self._lock = threading.Lock()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def on(self, method, path, *answers):
        self._answers[method, path] = list(answers)

    def seen(self, method, path):
        """The requests of one kind that came so far."""
        with self._lock:
            return [r for r in self.requests if (r.method, r.path) == (method, path)]

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request):
        with self._lock:
            self.requests.append(request)
            answers = self._answers.get((request.method, request.path))
            if not answers:
                return 404, problem(404, "not_found", "There is no such thing here")
            answer = answers[0] if len(answers) == 1 else answers.pop(0)
        if callable(answer):
            answer = answer(request)
        return answer if isinstance(answer, tuple) else (200, answer)

    def _handler(self):
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do(self):
                length = int(self.headers.get("Content-Length") or 0)
                url = urllib.parse.urlsplit(self.path)
                request = Request(self.command, url.path, dict(urllib.parse.parse_qsl(url.query)),
                                  {k.lower(): v for k, v in self.headers.items()},
                                  self.rfile.read(length))
                status, body = fake._answer(request)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.send_header("X-Request-Id", "fake-request")
                    self.end_headers()
                    self.wfile.write(data)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client's time was over

            do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = do

            def log_message(self, *args):
                pass

        return Handler


def problem(status, code, title, detail="", **more):
    return dict({"type": "urn:leasehold:error:" + code, "title": title, "status": status,
                 "detail": detail, "code": code, "request_id": "r-1"}, **more)
