"""A session whose user has tools, and a shell in its sandbox."""

import os
import signal
import subprocess
import textwrap
import time
import uuid

from compiling import compile_c
from gateway import Gateway

# Answers each line, run by the shell, with one line: exit status and output.
AGENT = """
import subprocess, sys
for line in sys.stdin:
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=30)
    print(done.returncode, (done.stdout + done.stderr).replace("\\n", " ").strip(), flush=True)
"""
# The same where there is a shell and no more.
SHELL_AGENT = 'while read -r l; do o=$(sh -c "$l" 2>&1); s=$?; echo $s $o; done'
PROFILE = {
    "name": "default",
    "command": ["/usr/bin/python3", "-c", AGENT],
    "transport": "stdio",
    "limits": {"memory_bytes": 268435456, "cpus": 1.0, "pids": 64},
    "network": "none",
    "record_history": False,
}
SECRET = "MARK-within-the-tool"


class ToolSession:
    """setUp(), then tools, then open()."""

    def __init__(self, test, overrides=None, docker=None, chats_on=None):
        self.test = test
        if docker:
            profile = {**PROFILE, "command": ["/bin/sh", "-c", SHELL_AGENT]}
            self.gateway = docker.gateway(test, {"profiles": [profile], **(overrides or {})})
        else:
            self.gateway = Gateway.for_test(test, {"profiles": [PROFILE], **(overrides or {})})
        if chats_on:
            where = os.path.join(self.gateway.dir, "data", "workspaces")
            os.makedirs(where, exist_ok=True)
            subprocess.run(["mount", "-t", chats_on, chats_on, where], check=True)
            test.addCleanup(subprocess.run, ["umount", "-l", where], check=True)
        self.user = str(uuid.uuid4())
        self.chat = self.gateway.new_chat(self.user)["chat_id"]
        self.tools = self.path("tools")
        self.files = self.path("chats", self.chat, "files")
        self.session = None
        os.makedirs(self.tools, exist_ok=True)

    def path(self, *names):
        return os.path.join(self.gateway.dir, "data", "workspaces", self.user, *names)

    def script(self, name, text, interpreter="/bin/sh"):
        path = os.path.join(self.tools, name)
        with open(path, "w", encoding="ascii") as out:
            out.write(f"#!{interpreter}\n# {SECRET}\n{textwrap.dedent(text)}\n")
        os.chmod(path, 0o755)

    def program(self, name, source, *flags):
        compile_c(source, os.path.join(self.tools, name), *flags)

    def put(self, name, text):
        """A file of the agent's in its chat."""
        path = os.path.join(self.files, name)
        with open(path, "w", encoding="ascii") as out:
            out.write(textwrap.dedent(text))
        os.chown(path, 10001, 10001)

    def kill_server(self):
        """Until the next one is there: its pid."""
        before = self.tool_server()
        os.kill(before, signal.SIGKILL)
        for _ in range(400):
            time.sleep(0.05)
            if self.server_log("is there again") > self.restarts:
                break
        self.restarts += 1
        self.test.assertNotEqual(self.tool_server(), before)
        return self.tool_server()

    def server_log(self, words):
        """How often the supervisor has said so."""
        with open(self.run_path("keep.log"), encoding="utf-8", errors="replace") as file:
            return file.read().count(words)

    def run_path(self, *names):
        return os.path.join(self.gateway.dir, "run", self.session, *names)

    def open(self):
        """run(line) → (exit status, output)"""
        sandbox, grant = self.gateway.open(self.chat, lease={})
        client = self.gateway.connect(grant)
        self.test.addCleanup(client.close)
        self.session = sandbox["session_id"]
        self.restarts = 0
        self.client = client

        def run(line):
            client.send_text(line)
            status, _, output = client.recv()[1].decode().partition(" ")
            return int(status), output

        return run

    def audited(self, action="tool.run"):
        items = self.gateway.expect(200, "GET", f"/audit?action={action}")["items"]
        return [e for e in items if self.session in (e["actor"] or "")]

    def audited_ends(self, n=2):
        """So many ends of runs; they are taken in with what the agent's client says next."""
        for _ in range(200):
            ends = self.audited("tool.end")
            if len(ends) >= n:
                break
            self.client.send_text(":")
            self.client.recv()
            time.sleep(0.1)
        return ends

    def tool_server(self):
        """The pid of leasetools, which serves the session's runs."""
        (pid,) = [p.pid for p in self.gateway.sandboxes_left() if p.name == "leasetools"]
        return pid

    def tool_server_of_many(self):
        """While runs have processes of the same name below it."""
        servers = [p.pid for p in self.gateway.sandboxes_left() if p.name == "leasetools"]
        return min(servers)

    def supervisor(self):
        with open(self.run_path("keep.pid"), encoding="ascii") as file:
            return int(file.read().split()[0])
