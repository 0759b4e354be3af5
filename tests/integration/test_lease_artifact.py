"""lease-artifact: a program in a sandbox stores files of its own chat as artifacts, and no others."""

import hashlib
import os
import struct
import unittest

from gateway import Gateway

# Each line it reads are the arguments of one call, whose output it says.
AGENT = "while read -r line; do /run/leasehold/lease-artifact $line 2>&1; echo \"status $?\"; done"
PUT, PUT_DONE = 7, 8
# Says raw bytes at the door's socket and tells what came back.
RAW = (
    "import socket, sys\n"
    "for line in sys.stdin:\n"
    "    s = socket.socket(socket.AF_UNIX)\n"
    "    s.settimeout(30)\n"
    "    s.connect('/run/leasehold/agent.sock')\n"
    "    try:\n"
    "        s.sendall(bytes.fromhex(line.strip()))\n"
    "        answer = s.recv(4096)\n"
    "    except OSError as e:\n"
    "        answer = str(e).encode()\n"
    "    s.close()\n"
    "    print(answer.hex() or 'closed', flush=True)\n"
)


class LeaseArtifact(unittest.TestCase):
    def open(self, command, transport="stdio"):
        profile = {"name": "default", "command": command, "transport": transport}
        self.gateway = Gateway.for_test(self, {"profiles": [profile]})
        self.chat = self.gateway.new_chat()
        self.sandbox, grant = self.gateway.open(self.chat["chat_id"], lease={})
        self.client = self.gateway.connect(grant)
        self.addCleanup(self.client.close)
        workspaces = os.path.join(self.gateway.dir, "data/workspaces", self.chat["user_id"])
        self.files = os.path.join(workspaces, "chats", self.chat["chat_id"], "files")

    def heard(self):
        return self.client.recv()[1].decode()

    def say(self, line):
        self.client.send_text(line)
        return self.heard()

    def artifact_of(self, line):
        answer = self.say(line)
        self.assertEqual(self.heard(), "status 0", answer)
        return self.gateway.expect(200, "GET", f"/artifacts/{answer}")

    def refused(self, line):
        answer = self.say(line)
        self.assertEqual(self.heard(), "status 1")
        return answer

    def write(self, name, data):
        path = os.path.join(self.files, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, 0o644)

    def test_a_file_of_the_chat_becomes_its_artifact(self):
        self.open(["/bin/sh", "-c", AGENT])
        data = b"result" * 50_000
        self.write("out/report.txt", data)
        os.chmod(os.path.join(self.files, "out"), 0o755)
        artifact = self.artifact_of("out/report.txt")
        self.assertEqual(artifact["chat_id"], self.chat["chat_id"])
        self.assertEqual((artifact["name"], artifact["state"]), ("report.txt", "stored"))
        self.assertEqual(artifact["sha256"], hashlib.sha256(data).hexdigest())
        named = self.artifact_of("/workspace/chat/out/report.txt final.txt")
        self.assertEqual(named["name"], "final.txt")
        said = self.gateway.expect(200, "GET", f"/audit?object=artifact:{named['artifact_id']}")
        actors = {entry["actor"] for entry in said["items"] if entry["action"] == "artifact.put"}
        self.assertEqual(actors, {f"door:{self.sandbox['session_id']}"})

    def test_nothing_else_becomes_one(self):
        self.open(["/bin/sh", "-c", AGENT])
        os.symlink(os.path.join(self.gateway.dir, "admin.key"), os.path.join(self.files, "key"))
        for line in ("/etc/passwd", "../history.md", "/workspace/history.md", "none", ".", "key"):
            with self.subTest(line=line):
                self.assertIn("lease-artifact: ", self.refused(line))
        listed = self.gateway.expect(200, "GET", f"/chats/{self.chat['chat_id']}/artifacts")
        self.assertEqual(listed["items"], [])

    def test_what_is_said_raw_is_not_believed(self):
        self.open(["/usr/bin/python3", "-I", "-u", "-c", RAW])
        outside = os.path.join(self.gateway.dir, "admin.key").encode()
        for payload in (
            outside + b"\0x",
            b"/workspace/chat/../../history.md\0x",
            b"/workspace/chat//etc/passwd\0x",
            b"/workspace/chat\0x",
            b"\0x",
            b"no end",
            b"/workspace/chat/a\0b\0c",
            b"/workspace/chat/a\0../b",
        ):
            with self.subTest(payload=payload):
                frame = struct.pack(">BI", PUT, len(payload)) + payload
                answer = bytes.fromhex(self.say(frame.hex()))
                self.assertEqual((answer[0], answer[5]), (PUT_DONE, 0), answer)
        for frame in (b"\x07\xff\xff\xff\xff", b"\x02\0\0\0\x01x", b"\x01\0\0\0\x01x"):
            self.assertEqual(self.say(frame.hex()), "closed")
        listed = self.gateway.expect(200, "GET", "/artifacts")
        self.assertEqual(listed["items"], [])

    def test_the_gateway_may_be_away(self):
        self.open(["/bin/sh", "-c", AGENT])
        self.write("result", b"x")
        self.gateway.kill9()
        self.client.send_text("result")
        self.assertIn("gateway_", self.heard())
        self.assertEqual(self.heard(), "status 1")
        self.gateway.start()


if __name__ == "__main__":
    unittest.main()
