"""As much of an image registry (the distribution API, version 2) as one pull of one image needs."""

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


class Registry:
    """Serves one image under every name, on a port of 127.0.0.1, which engines trust without TLS."""

    def __init__(self, layer, config):
        packed = gzip.compress(layer)
        image = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": config,
                "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
                "history": [{"created_by": "a test"}],
            }
        ).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": TYPES,
                "config": {"mediaType": CONFIG, "size": len(image), "digest": digest(image)},
                "layers": [{"mediaType": LAYER, "size": len(packed), "digest": digest(packed)}],
            }
        ).encode()
        blobs = {digest(data): data for data in (packed, image, manifest)}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.rpartition("/")[2]
                kind, data = "application/octet-stream", blobs.get(name, b"{}")
                if "/manifests/" in self.path:
                    kind, data = TYPES, manifest
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Docker-Content-Digest", digest(data))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(data)

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
