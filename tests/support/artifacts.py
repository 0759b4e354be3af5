"""What the tests of artifacts share: a gateway with a chat, and what is done with its artifacts."""

import contextlib
import hashlib
import http.client
import os
import socket
import unittest
import urllib.parse

from gateway import Gateway
from waiting import wait_for

BUCKET = "artifacts"
MIB = 1 << 20
SOON_OVER = {"LEASEHOLD_TEST_DRAIN_MS": "500"}  # what still runs at SIGTERM
SOON = {"retention": {"interval_seconds": 1}}
NAME = "r\u00e9sum\u00e9 \"final\".txt"


def data_of(size):
    return (hashlib.sha512(b"artifact").digest() * (size // 64 + 1))[:size]


def fetch(url, headers=None):
    parts = urllib.parse.urlsplit(url)
    wire = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        wire.request("GET", f"{parts.path}?{parts.query}", headers=headers or {})
        answer = wire.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        wire.close()


def s3_config(server, directory, port=None, **more):
    """The configuration of objects in BUCKET of an S3 server, or of a proxy before it."""
    secret = os.path.join(directory, "s3.secret")
    with open(secret, "w", encoding="utf-8") as text:
        text.write(server.client.secret + "\n")
    return {
        "objects": {
            "kind": "s3",
            "path_style": True,
            "endpoint": f"http://127.0.0.1:{port or server.port}",
            "region": "us-east-1",
            "bucket": BUCKET,
            "prefix": "test",
            "access_key": server.client.access_key,
            "secret_key_file": secret,
            **more,
        }
    }


class ArtifactTest(unittest.TestCase):
    def make(self, overrides=None, env=None):
        self.gateway = Gateway.for_test(self, overrides or {}, env, start=False)
        self.configure()
        self.gateway.start()
        self.chat = self.gateway.new_chat()

    def put(self, data, name=NAME, status=201, **options):
        path = f"/chats/{self.chat['chat_id']}/artifacts?" + urllib.parse.urlencode({"name": name})
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        return self.gateway.expect(status, "POST", path, data, headers=headers, **options)

    @contextlib.contextmanager
    def half_a_body(self, announced=1_000_000):
        """A client that has sent half of what it announced, and says no more."""
        before = self.used()
        address = urllib.parse.urlsplit(self.gateway.url)
        path = f"/api/v1/chats/{self.chat['chat_id']}/artifacts?name=half"
        with socket.create_connection((address.hostname, address.port)) as wire:
            wire.sendall(
                f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.gateway.admin_key}"
                f"\r\nContent-Length: {announced}\r\n\r\n".encode()
                + b"x" * (announced // 2)
            )
            wait_for(self, "counted", lambda: self.used() == before + announced)
            yield wire

    def get(self, artifact):
        return self.gateway.expect(200, "GET", f"/artifacts/{artifact['artifact_id']}")

    def link(self, artifact):
        return self.gateway.expect(200, "GET", f"/artifacts/{artifact['artifact_id']}/download")

    def deliver(self, artifact, status="delivered", expect=200, **members):
        path = f"/artifacts/{artifact['artifact_id']}/delivery"
        body = {"status": status, "channel": "mail", **members}
        return self.gateway.expect(expect, "POST", path, body)

    def used(self):
        path = f"/users/{self.chat['user_id']}/workspace"
        return self.gateway.expect(200, "GET", path)["used_bytes"]

    def wait_deleted(self, artifact):
        wait_for(self, "deleted", lambda: self.get(artifact)["state"] == "deleted")
        self.assertEqual(self.objects(), [])

    def put_file(self, name, data):
        chats = os.path.join(self.gateway.dir, "data/workspaces", self.chat["user_id"], "chats")
        path = os.path.join(chats, self.chat["chat_id"], "files", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def objects_on_disk(self):
        """With what is being written, if it has a name."""
        root = os.path.join(self.gateway.dir, "data/objects")
        return [
            name
            for folder, _, names in os.walk(root)
            for name in names
            if name.endswith(".obj") or folder.endswith(".new")
        ]
