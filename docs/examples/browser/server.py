#!/usr/bin/python3
"""The site behind the page: it has the key, the page gets leases.

    LEASEHOLD_URL=… LEASEHOLD_KEY=… server.py [PORT]      prints its URL

The page's origin must be in door.origins of the gateway's configuration. A real site knows who is
logged in; here everybody is the same person.
"""

import json
import os
import sys
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HERE = os.path.dirname(os.path.abspath(__file__))
NAMESPACE = uuid.UUID("5d0c1f6e-8a51-4f0e-9c43-6d1d1a3f6b10")
USER, CHAT = (str(uuid.uuid5(NAMESPACE, f"{kind}:visitor")) for kind in ("user", "chat"))


def call(path, body):
    request = urllib.request.Request(
        os.environ["LEASEHOLD_URL"] + "/api/v1" + path,
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {os.environ['LEASEHOLD_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def for_the_page(grant):
    """What the page needs, and no more."""
    return {"url": grant["endpoint"]["url"], "protocol": grant["endpoint"]["protocol"],
            "token": grant["token"], "renew_after": grant["renew_after"],
            "lease_id": grant["lease"]["lease_id"]}


def begin():
    call("/chats", {"user_id": USER, "chat_id": CHAT})
    return for_the_page(call("/sandboxes", {"chat_id": CHAT, "lease": {}})["grant"])


class Handler(BaseHTTPRequestHandler):
    def answer(self, status, kind, data):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path != "/":
            self.answer(404, "text/plain", b"")
            return
        with open(os.path.join(HERE, "index.html"), "rb") as page:
            self.answer(200, "text/html; charset=utf-8", page.read())

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if self.path == "/begin":
                result = begin()
            else:  # /renew
                lease = str(uuid.UUID(json.loads(body)["lease_id"]))
                result = for_the_page(call(f"/leases/{lease}/renew", {}))
            self.answer(200, "application/json", json.dumps(result).encode())
        except (OSError, ValueError, KeyError) as fault:
            self.answer(502, "text/plain", str(fault).encode())

    def log_message(self, *_):
        pass


def main():
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
