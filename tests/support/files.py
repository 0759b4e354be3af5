"""Files of chats over raw HTTP, for tests that look at heads and break connections."""

import http.client
import json
import os
import socket
import urllib.parse
import uuid


class FileClient:
    """One chat's files; every call is a connection of its own unless said otherwise."""

    def __init__(self, gateway, chat=None, key=None):
        self.gateway = gateway
        self.chat = chat or gateway.new_chat()
        self.chat_id = self.chat["chat_id"]
        self.key = key or gateway.admin_key
        self.base = f"/chats/{self.chat_id}/files"

    @property
    def directory(self):
        return os.path.join(
            self.gateway.dir, "data", "workspaces", self.chat["user_id"], "chats", self.chat_id
        )

    @property
    def files(self):
        return os.path.join(self.directory, "files")

    def path(self, name):
        return f"{self.base}/{urllib.parse.quote(name, safe='')}"

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, bytes)."""
        address = urllib.parse.urlsplit(self.gateway.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        try:
            sent = {"Authorization": f"Bearer {self.key}", **(headers or {})}
            connection.request(method, "/api/v1" + path, body, sent)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def put(self, name, body, headers=None):
        status, _, text = self.ask("PUT", self.path(name), body, headers)
        return status, json.loads(text)

    def get(self, name, headers=None, method="GET"):
        return self.ask(method, self.path(name), headers=headers)

    def delete(self, name):
        return self.ask("DELETE", self.path(name))[0]

    def form(self, name, content, content_type=None, boundary="b-o-u-n-d", headers=None, more=b""):
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        if content_type:
            head += f"Content-Type: {content_type}\r\n"
        body = head.encode() + b"\r\n" + content + f"\r\n--{boundary}".encode() + more + b"--\r\n"
        sent = {"Content-Type": f"multipart/form-data; boundary={boundary}", **(headers or {})}
        status, _, text = self.ask("POST", self.base, body, sent)
        return status, json.loads(text)

    def list(self, query=""):
        status, _, text = self.ask("GET", self.base + query)
        assert status == 200, text
        return json.loads(text)["items"]

    def names(self):
        return sorted(item["name"] for item in self.list("?limit=200"))

    def used(self):
        path = f"/users/{self.chat['user_id']}/workspace"
        return json.loads(self.ask("GET", path)[2])["used_bytes"]

    def begin_put(self, name, length, headers=()):
        """A socket on which the head of a put was sent."""
        address = urllib.parse.urlsplit(self.gateway.url)
        sock = socket.create_connection((address.hostname, address.port), timeout=60)
        lines = [
            f"PUT /api/v1{self.path(name)} HTTP/1.1",
            "Host: x",
            f"Authorization: Bearer {self.key}",
            f"Content-Length: {length}",
            *headers,
        ]
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        return sock

    def strays(self):
        """What stands in the chat's directory and should not."""
        known = {"history.db", "history.md", "files", "history.db-journal"}
        return sorted(set(os.listdir(self.directory)) - known)


def recount(gateway, user_id):
    """What the workspace really holds: every inode once."""
    root = os.path.join(gateway.dir, "data", "workspaces", user_id, "chats")
    seen, total = set(), 0
    for directory, _, names in os.walk(root):
        for name in names:
            status = os.lstat(os.path.join(directory, name))
            if os.path.isfile(os.path.join(directory, name)) and status.st_ino not in seen:
                seen.add(status.st_ino)
                total += status.st_size
    return total


def random_name():
    return f"{uuid.uuid4().hex}.bin"
