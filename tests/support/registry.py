"""An image registry for tests: as much of the distribution API, version 2, as pulls of one image need.

    registry = Registry([tar_of(busybox()), tar_of({"more": b"x"})], {"Cmd": ["/bin/sh"]})
    registry.hold()      # blobs of layers stop half way …
    registry.let_go()    # … and go on
    registry.spoil = lambda path: (404, b"{}") if "/manifests/" in path else None
"""

import collections
import gzip
import hashlib
import http.server
import json
import threading

TYPES = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def image_of(layers, config):
    """The manifest of such an image, and all of its blobs by their digests, that of `config` last."""
    packed = [gzip.compress(layer) for layer in layers]
    image = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
            "history": [{"created_by": "a test"} for _ in layers],
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": TYPES,
            "config": {"mediaType": CONFIG, "size": len(image), "digest": digest(image)},
            "layers": [
                {"mediaType": LAYER, "size": len(data), "digest": digest(data)} for data in packed
            ],
        }
    ).encode()
    return manifest, {digest(data): data for data in [*packed, image]}


class Registry:
    """Serves one image under every name, on a port of 127.0.0.1, which engines trust without TLS."""

    def __init__(self, layers, config):
        self.manifest, blobs = image_of(layers, config)
        self.layers = dict(list(blobs.items())[:-1])
        self.blobs = {**blobs, digest(self.manifest): self.manifest}
        self.asked = collections.Counter()  # by "manifests" (of a tag) and digest
        self.spoil = lambda path: None
        self._free = threading.Event()
        self._free.set()
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                registry.answer(self)

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def hold(self):
        self._free.clear()

    def let_go(self):
        self._free.set()

    def answer(self, request):
        name = request.path.rpartition("/")[2]
        status, kind, data = 200, "application/octet-stream", self.blobs.get(name, b"{}")
        if "/manifests/" in request.path:
            kind, data = TYPES, self.blobs.get(name, self.manifest)
        spoiled = self.spoil(request.path)
        if spoiled:
            status, data = spoiled
        if request.command == "GET":
            self.asked["manifests" if "/manifests/" in request.path else name] += 1
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(data)))
        request.send_header("Docker-Content-Digest", digest(data))
        request.end_headers()
        if request.command == "GET":
            self._send(request, data, name in self.layers)

    def _send(self, request, data, is_layer):
        try:
            request.wfile.write(data[: len(data) // 2])
            if is_layer:
                self._free.wait()
            request.wfile.write(data[len(data) // 2 :])
        except OSError:
            pass  # it was given up

    def close(self):
        self.let_go()
        self.server.shutdown()
        self.server.server_close()
