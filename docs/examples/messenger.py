#!/usr/bin/python3
"""A messenger to try the example bots with: what people say goes to the bot, what it answers to them.

    messenger.py [PORT]          prints its URL, then serves until it is ended

    POST /say      {"person": "ann", "text": "hello"}        a person writes
    GET  /shown?person=ann&after=0                           what the bot has written to her
    GET  /updates?after=0                                    the bot asks: waits up to 5 s for news
    POST /send     {"person": "ann", "text": "…"}            the bot writes
"""

import json
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WAIT_S = 5


class Messenger:
    def __init__(self):
        self.changed = threading.Condition()
        self.said, self.shown = [], []

    def add(self, where, message):
        with self.changed:
            entry = {"n": len(where) + 1, "person": message["person"], "text": message["text"]}
            where.append(entry)
            self.changed.notify_all()

    def after(self, where, number, person=None, wait_s=0.0):
        def news():
            return [m for m in where[number:] if person in (None, m["person"])]

        with self.changed:
            self.changed.wait_for(news, wait_s)
            return news()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        data = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            self.close_connection = True  # who asked has gone

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        messenger, after = self.server.messenger, int(query.get("after", 0))
        if url.path == "/updates":
            self.answer(200, messenger.after(messenger.said, after, wait_s=WAIT_S))
        elif url.path == "/shown":
            self.answer(200, messenger.after(messenger.shown, after, query.get("person")))
        else:
            self.answer(404, {})

    def do_POST(self):
        messenger = self.server.messenger
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        where = {"/say": messenger.said, "/send": messenger.shown}.get(self.path)
        if where is None:
            self.answer(404, {})
            return
        messenger.add(where, message)
        self.answer(201, {})

    def log_message(self, *_):
        pass


def main():
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
    server.daemon_threads = True
    server.messenger = Messenger()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
