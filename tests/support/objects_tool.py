"""Runs objects_tool (tests/support/objects_tool.c) on a store."""

import hashlib
import json
import os
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LEASEHOLD_BIN") or os.path.join(ROOT, "build", "release", "bin")
TOOL = os.path.join(BIN, "objects_tool")
TIMEOUT_S = 120


class ObjectError(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.code = text.strip().rsplit("\n", 1)[-1].split(":")[0]


class Store:
    """By the options that objects_tool takes."""

    def __init__(self, options):
        self.options = options

    def run(self, *command, data=b"", more=()):
        return subprocess.run(
            [TOOL, *self.options, *more, *command],
            input=data,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def ask(self, *command, data=b"", more=()):
        done = self.run(*command, data=data, more=more)
        if done.returncode:
            raise ObjectError(done.stderr.decode() or f"status {done.returncode}")
        return done.stdout

    def put(self, key, data, token="token", announced=True, more=()):
        length = [str(len(data))] if announced is True else [str(announced)] if announced else []
        return json.loads(self.ask("put", key, token, *length, data=data, more=more))

    def put_by_place(self, key, data, token="token", length=None, more=()):
        """From a file whose sum is known, as the gateway puts a body."""
        more = [*more, "by_place=1", f"sha256={hashlib.sha256(data).hexdigest()}"]
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            command = ("put", key, token, str(len(data) if length is None else length))
            done = subprocess.run(
                [TOOL, *self.options, *more, *command],
                stdin=file,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        if done.returncode:
            raise ObjectError(done.stderr.decode() or f"status {done.returncode}")
        return json.loads(done.stdout)

    def get(self, key, *bounds, more=()):
        return self.ask("get", key, *map(str, bounds), more=more)

    def head(self, key):
        return json.loads(self.ask("head", key))

    def delete(self, key):
        self.ask("del", key)

    def uploads(self, prefix=""):
        return [json.loads(line) for line in self.ask("uploads", prefix).splitlines()]

    def list(self, prefix, more=()):
        return self.ask("list", prefix, more=more).decode().splitlines()

    def presign(self, key, seconds, *more):
        return self.ask("presign", key, str(seconds), *more).decode().strip()
