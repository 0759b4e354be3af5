"""leasectl file: against the running daemon, also over a line that breaks off."""

import glob
import json
import os
import pty
import select
import socket
import subprocess
import threading
import unittest
import urllib.parse
import uuid

from files import FileClient
from gateway import BIN, Gateway

MIB = 1024 * 1024


class BreakingLine:
    """A TCP proxy: the answers of its first connections are cut off behind so many bytes."""

    def __init__(self, url, cuts):
        address = urllib.parse.urlsplit(url)
        self.to = (address.hostname, address.port)
        self.cuts = list(cuts)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            cut = self.cuts.pop(0) if self.cuts else None
            threading.Thread(target=self.carry, args=(client, cut), daemon=True).start()

    def carry(self, client, left):
        server = socket.create_connection(self.to)
        with client, server:
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for end in ready:
                    data = end.recv(65536)
                    if end is server and left is not None:
                        data = data[:left]
                        left -= len(data)
                    if not data:
                        return
                    (client if end is server else server).sendall(data)

    def close(self):
        self.listener.close()


class LeasectlFiles(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self)
        self.client = FileClient(self.gateway)
        self.here = os.path.join(self.gateway.dir, "here")
        os.mkdir(self.here)

    def ctl(self, *args, url=None, **options):
        env = {**os.environ, "LEASEHOLD_URL": url or self.gateway.url}
        env["LEASEHOLD_KEY"] = self.gateway.admin_key
        return subprocess.run(
            [os.path.join(BIN, "leasectl"), *args],
            env=env,
            cwd=self.here,
            capture_output=True,
            timeout=60,
            check=False,
            **options,
        )

    def write(self, name, data):
        with open(os.path.join(self.here, name), "wb") as file:
            file.write(data)

    def read(self, name):
        with open(os.path.join(self.here, name), "rb") as file:
            return file.read()

    def test_a_refused_get_says_why_as_a_list_does(self):
        chat = str(uuid.uuid4())
        for args, why in (
            (("get", self.client.chat_id, "none.txt"), b"not_found"),
            (("get", chat, "none.txt"), b"chat_not_found"),
            (("ls", chat), b"chat_not_found"),
        ):
            done = self.ctl("file", *args)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertRegex(done.stderr, rb"^leasectl: [a-z_]*" + why + rb": ")
            self.assertNotIn(b"not one of a leasehold gateway", done.stderr)
        self.assertEqual(os.listdir(self.here), [])

    def test_there_and_back(self):
        data = os.urandom(3 * MIB + 1)
        self.write("a b%.bin", data)
        done = self.ctl("--json", "file", "put", self.client.chat_id, "a b%.bin")
        self.assertEqual(done.returncode, 0, done.stderr)
        made = json.loads(done.stdout)
        self.assertEqual((made["name"], made["size_bytes"]), ("a b%.bin", len(data)))
        self.assertEqual(self.client.get("a b%.bin")[2], data)
        done = self.ctl("file", "get", self.client.chat_id, "a b%.bin", "--output", "back")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(self.read("back"), data)
        done = self.ctl("file", "get", self.client.chat_id, "a b%.bin", "--output", "-")
        self.assertEqual((done.returncode, done.stdout), (0, data))
        self.assertEqual(sorted(os.listdir(self.here)), ["a b%.bin", "back"])

    def test_names_types_and_replacing(self):
        self.write("x", b"1")
        put = ["file", "put", self.client.chat_id, "x"]
        self.assertEqual(self.ctl(*put, "--name", "n.md", "--type", "text/own").returncode, 0)
        self.assertEqual(self.client.list()[0]["content_type"], "text/own")
        done = self.ctl(*put, "--name", "n.md", "--keep")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"precondition_failed", done.stderr)
        self.assertEqual(self.ctl(*put, "--name", "..").returncode, 1)
        self.assertEqual(self.ctl("file", "put", self.client.chat_id, "none").returncode, 2)

    def test_get_replaces_only_a_file_that_was_named(self):
        self.client.put("a.txt", b"theirs")
        self.write("a.txt", b"mine")
        get = ["file", "get", self.client.chat_id, "a.txt"]
        done = self.ctl(*get)
        self.assertEqual((done.returncode, self.read("a.txt")), (2, b"mine"))
        self.assertIn(b"a.txt is there already", done.stderr)
        self.assertEqual(os.listdir(self.here), ["a.txt"])
        self.assertEqual(self.ctl(*get, "--output", "a.txt").returncode, 0)
        self.assertEqual(self.read("a.txt"), b"theirs")

    def test_an_agent_cannot_choose_what_artifact_get_replaces(self):
        self.write("data", b"theirs")
        for name in (".bashrc", "-rf", "a.txt", "b"):
            put = ["artifact", "put", self.client.chat_id, "data", f"--name={name}", "--json"]
            done = self.ctl(*put)
            self.assertEqual(done.returncode, 0, done.stderr)
            made = json.loads(done.stdout)["artifact_id"]
            self.write("a.txt", b"mine")
            self.write("b.part", b"mine, too")
            with self.subTest(name):
                self.assertEqual(self.ctl("artifact", "get", made).returncode, 2)
                self.assertEqual(sorted(os.listdir(self.here)), ["a.txt", "b.part", "data"])
                self.assertEqual((self.read("a.txt"), self.read("b.part")), (b"mine", b"mine, too"))
        self.assertEqual(self.ctl("artifact", "get", made, "--output", "a.txt").returncode, 0)
        self.assertEqual(self.read("a.txt"), b"theirs")
        os.remove(os.path.join(self.here, "b.part"))
        self.assertEqual(self.ctl("artifact", "get", made).returncode, 0)
        self.assertEqual(self.read("b"), b"theirs")

    def test_list_stat_remove_clear(self):
        for name in ("one", "two", "three"):
            self.client.put(name, name.encode())
        done = self.ctl("file", "ls", self.client.chat_id)
        lines = done.stdout.decode().splitlines()
        self.assertEqual([line.split()[-1] for line in lines[1:]], ["one", "two", "three"])
        done = self.ctl("--json", "file", "stat", self.client.list()[0]["file_id"])
        self.assertEqual(json.loads(done.stdout)["name"], "one")
        self.assertEqual(self.ctl("file", "rm", self.client.chat_id, "one").returncode, 0)
        self.assertEqual(self.ctl("file", "rm", self.client.chat_id, "one").returncode, 3)
        self.assertEqual(self.ctl("file", "get", self.client.chat_id, "one").returncode, 3)
        done = self.ctl("--json", "file", "clear", self.client.chat_id)
        self.assertEqual(json.loads(done.stdout), {"deleted": 2})

    def test_a_broken_download_goes_on_where_it_was(self):
        data = os.urandom(4 * MIB)
        self.client.put("big", data)
        line = BreakingLine(self.gateway.url, [MIB, MIB])
        self.addCleanup(line.close)
        done = self.ctl("file", "get", self.client.chat_id, "big", url=line.url)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.read("big") == data)
        self.assertEqual(os.listdir(self.here), ["big"])
        ranges = [e for e in self.gateway.log_lines("request") if e.get("status") == 206]
        self.assertGreaterEqual(len(ranges), 2)

    def test_the_next_get_goes_on_too_and_wrong_bytes_are_found(self):
        data = os.urandom(2 * MIB)
        made = self.client.put("big", data)[1]
        part = f"big.{made['sha256'][:16]}.part"
        self.write(part, data[:MIB])
        self.assertEqual(self.ctl("file", "get", self.client.chat_id, "big").returncode, 0)
        self.assertTrue(self.read("big") == data)
        self.write(part, bytes(MIB))
        done = self.ctl("file", "get", self.client.chat_id, "big", "--output", "big")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"SHA-256", done.stderr)
        self.assertEqual(glob.glob(os.path.join(self.here, "*.part")), [])

    def test_a_terminal_sees_how_far_it_is(self):
        self.write("big", bytes(8 * MIB))
        ours, theirs = pty.openpty()
        env = {**os.environ, "LEASEHOLD_URL": self.gateway.url}
        env["LEASEHOLD_KEY"] = self.gateway.admin_key
        with subprocess.Popen(
            [os.path.join(BIN, "leasectl"), "file", "put", self.client.chat_id, "big"],
            env=env,
            cwd=self.here,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
        ) as process:
            self.assertEqual(process.wait(60), 0)
        os.close(theirs)
        seen = os.read(ours, 65536).decode()
        os.close(ours)
        self.assertIn("100%", seen)
        self.assertRegex(seen, r"\d B/s|iB/s")
