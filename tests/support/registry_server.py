"""Debian's docker-registry, a real one, that lets nobody in without a login. With a certificate of its
own, or without TLS: it is at 127.0.0.1, where engines take both.

    server = RegistryServer()
    image = server.put("private/agent", "1", *image_of([tar_of(busybox())], {"Cmd": ["/bin/sh"]}))
"""

import base64
import http.client
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.parse

import ports
from docker import DockerError, needed
from registry import TYPES

START_S = 30
USER, PASSWORD = "agents", 'pass: "word" \\ of agents, schön'


def htpasswd(user, password):
    """A line of bcrypt, which is all that a registry takes."""
    salt = "$2y$05$" + "abcdefghijklmnopqrstuu"
    made = subprocess.run(
        ["perl", "-e", "local $/; print crypt(<STDIN>, $ARGV[0])", salt],
        input=password.encode(), stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return f"{user}:{made.stdout.decode()}\n"


class RegistryServer:
    def __init__(self, tls=True):
        needed("docker-registry", "docker-registry")
        self.dir = tempfile.mkdtemp(prefix="lhr-", dir="/tmp")
        self.process, self.tls = None, tls
        self.port = ports.reserve()
        self.address = f"127.0.0.1:{self.port}"
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _path(self, name):
        return os.path.join(self.dir, name)

    def _start(self):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", self._path("key.pem"), "-out", self._path("cert.pem")],
            check=True, capture_output=True,
        )  # fmt: skip
        with open(self._path("htpasswd"), "w", encoding="utf-8") as out:
            out.write(htpasswd(USER, PASSWORD))
        config = {
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": self._path("images")}},
            "http": {"addr": self.address},
            "auth": {"htpasswd": {"realm": "agents", "path": self._path("htpasswd")}},
        }
        if self.tls:
            config["http"]["tls"] = {
                "certificate": self._path("cert.pem"),
                "key": self._path("key.pem"),
            }
        with open(self._path("config.yml"), "w", encoding="utf-8") as out:
            json.dump(config, out)  # which is YAML, too
        with open(self._path("log"), "wb") as log:
            self.process = subprocess.Popen(
                ["docker-registry", "serve", self._path("config.yml")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.request("GET", "/v2/")[0] == 200:
                    return
            except OSError:
                time.sleep(0.02)
        raise DockerError(f"docker-registry is not ready:\n{self.log_text()[-2000:]}")

    def log_text(self):
        with open(self._path("log"), encoding="utf-8", errors="replace") as text:
            return text.read()

    def _connection(self):
        if not self.tls:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        context = ssl.create_default_context(cafile=self._path("cert.pem"))
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)

    def request(self, method, path, body=None, kind="application/octet-stream"):
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        connection = self._connection()
        try:
            headers = {"Authorization": f"Basic {login}", "Content-Type": kind}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.headers
        finally:
            connection.close()

    def _wanted(self, status, method, path, *rest):
        got, headers = self.request(method, path, *rest)
        if got != status:
            raise DockerError(f"{method} {path}: {got} instead of {status}")
        return headers

    def put(self, name, tag, manifest, blobs):
        """An image as registry.image_of() packs it."""
        for digest, data in blobs.items():
            at = self._wanted(202, "POST", f"/v2/{name}/blobs/uploads/")["Location"]
            at = urllib.parse.urlsplit(at)
            query = f"{at.query}&digest={urllib.parse.quote(digest)}"
            self._wanted(201, "PUT", f"{at.path}?{query}", data)
        self._wanted(201, "PUT", f"/v2/{name}/manifests/{tag}", manifest, TYPES)
        return f"{self.address}/{name}:{tag}"

    def close(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
