"""A store that takes any upload, checks nothing and forgets it: for what no store here has room for.

    with S3Sink() as sink: sink.port
"""

import http.server
import threading
import urllib.parse

PIECE = 1 << 20


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def skip_body(self):
        left = int(self.headers.get("Content-Length") or 0)
        piece = memoryview(self.server.piece)  # shared: nobody reads it
        while left:
            n = self.rfile.readinto1(piece[: min(left, PIECE)])
            if not n:
                raise ConnectionError
            left -= n

    def answer(self, body=b"", **headers):
        self.send_response_only(200)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        self.skip_body()
        url = urllib.parse.urlsplit(self.path)
        with self.server.lock:
            size = self.server.sizes.get(url.path, 0)
            self.server.sizes[url.path] = size + int(self.headers.get("Content-Length") or 0)
        self.answer(ETag='"x"')

    def do_POST(self):
        self.skip_body()
        if "uploads" in urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query, True):
            path = urllib.parse.urlsplit(self.path).path
            self.server.tokens[path] = self.headers["x-amz-meta-leasehold-token"]
            return self.answer(b"<R><UploadId>u</UploadId></R>")
        return self.answer(b"<CompleteMultipartUploadResult></CompleteMultipartUploadResult>")

    def do_HEAD(self):
        path = urllib.parse.urlsplit(self.path).path
        self.answer(
            Content_Length=str(self.server.sizes[path]),
            x_amz_meta_leasehold_token=self.server.tokens[path],
        )


class S3Sink:
    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.piece, self.server.lock = bytearray(PIECE), threading.Lock()
        self.server.sizes, self.server.tokens = {}, {}
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
