"""Every command of leasectl at something that is no gateway, or refuses: none fails without a word, and none
takes for done what nobody did."""

import os
import shutil
import socketserver
import subprocess
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

from gateway import BIN

LEASECTL = os.path.join(BIN, "leasectl")
PATIENCE_S = 60
ID = "0189c0a0-0000-7000-8000-000000000001"
# What a command needs on its line.
WORDS = {
    "health": "",
    "chat create": f"--user {ID}",
    "chat get": ID,
    "chat ls": "",
    "chat rm": ID,
    "history append": f"{ID} --role user --content x",
    "history text": ID,
    "history": ID,
    "file put": f"{ID} FILE",
    "file get": f"{ID} name",
    "file ls": ID,
    "file stat": ID,
    "file rm": f"{ID} name",
    "file clear": ID,
    "artifact put": f"{ID} FILE",
    "artifact get": ID,
    "artifact ls": "",
    "artifact stat": ID,
    "artifact ack": f"{ID} delivered --channel c",
    "artifact rm": ID,
    "workspace create": ID,
    "workspace rm": ID,
    "workspace get": ID,
    "sandbox create": ID,
    "sandbox open": ID,
    "sandbox get": ID,
    "sandbox ls": "",
    "sandbox renew": ID,
    "sandbox logs": ID,
    "sandbox stats": ID,
    "sandbox stop": ID,
    "lease grant": f"--session {ID}",
    "lease get": ID,
    "lease ls": "",
    "lease renew": ID,
    "lease revoke": ID,
    "key create": "--name n --role bot",
    "key ls": "",
    "key update": f"{ID} --name n",
    "key revoke": ID,
    "key signing": "",
    "key rotate": "",
    "key kill": "k1",
    "node ls": "",
    "retention run": "",
    "audit verify": "",
    "audit": "",
    "top": "--once",
    "connect": f"{ID} --retry 0",
}
# Whatever they are given is what was asked for.
TAKE_ANY_BYTES = ("history text", "file get", "sandbox logs")


def answer(status, body, media="application/json"):
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n"
    return (head + "Connection: close\r\n\r\n").encode() + body


class Foreign:
    """Says the same to everybody, or closes (None)."""

    def __init__(self, test, said):
        class Handler(socketserver.StreamRequestHandler):
            timeout = PATIENCE_S

            def handle(self):
                length = 0
                for line in iter(self.rfile.readline, b"\r\n"):
                    name, _, value = line.lower().partition(b":")
                    length = int(value) if name == b"content-length" else length
                    if name == b"expect":
                        self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    if not line:
                        return
                self.rfile.read(length)
                if said is not None:
                    self.wfile.write(said)

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        test.addCleanup(server.server_close)
        test.addCleanup(server.shutdown)


class LeasectlForeign(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="leasectl-foreign-")
        self.addCleanup(shutil.rmtree, self.dir)
        with open(os.path.join(self.dir, "FILE"), "w", encoding="ascii") as file:
            file.write("x")

    def run_cli(self, url, *words):
        return subprocess.run(
            [LEASECTL, *words], env={"LEASEHOLD_URL": url, "LEASEHOLD_KEY": "lhk_x"}, cwd=self.dir,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def each(self, said):
        """(name of the command, how it ended) of all."""
        url = Foreign(self, said).url
        listed = self.run_cli(url, "--help").stdout.decode().partition("Commands:\n")[2]
        names = [line[2:19].strip() for line in listed.partition("\n\n")[0].splitlines()]
        self.assertEqual(sorted(names), sorted(WORDS))
        with ThreadPoolExecutor(4) as pool:
            return list(zip(names, pool.map(
                lambda name: self.run_cli(url, *name.split(), *WORDS[name].split()), names
            )))  # fmt: skip

    def assert_told(self, name, done, codes):
        self.assertIn(done.returncode, codes, (name, done))
        self.assertRegex(done.stderr.decode(), r"\Aleasectl: .+\n\Z", (name, done))

    def test_a_refusal_is_told(self):
        problem = b'{"code": "no_such_thing", "title": "It is not there", "status": %d}'
        for status, codes in ((404, (3,)), (500, (1,))):
            for name, done in self.each(answer(status, problem % status)):
                self.assert_told(name, done, codes)
                self.assertIn(b"no_such_thing: It is not there", done.stderr, name)

    def test_a_refusal_of_something_else_is_told_with_its_status(self):
        for name, done in self.each(answer(404, b"<html>no</html>", "text/html")):
            self.assert_told(name, done, (3,))
            self.assertIn(b"HTTP 404", done.stderr, name)

    def test_what_no_gateway_answers_is_never_taken_for_done(self):
        for body in (b"<html>Welcome</html>", b"{}"):
            for name, done in self.each(answer(200, body)):
                if name not in TAKE_ANY_BYTES:
                    self.assert_told(name, done, (1,))

    def test_a_connection_that_ends_without_an_answer_is_told(self):
        for name, done in self.each(None):
            self.assert_told(name, done, (1, 5))


if __name__ == "__main__":
    unittest.main()
