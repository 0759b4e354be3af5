"""What a sandbox sees of the host: its chat to write, dependencies and tools to read, the user's own
tools to run. FR-013 to FR-016, through the running daemon."""

import os
import shutil
import unittest
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
PROFILE = {
    "name": "default",
    "command": ["/usr/bin/python3", "-c", AGENT],
    "transport": "stdio",
    "limits": {"memory_bytes": 268435456, "cpus": 1.0, "pids": 256},
    "network": "none",
    "record_history": False,
}
STATIC_TOOL = 'int puts(const char *); int main(void) { puts("MARK-of-the-tool"); return 7; }'


class Mounts(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, {"profiles": [PROFILE]})
        self.user = str(uuid.uuid4())
        self.chat = self.gateway.new_chat(self.user)["chat_id"]
        self.tools = os.path.join(self.gateway.dir, "data", "workspaces", self.user, "tools")

    def data(self, *names):
        return os.path.join(self.gateway.dir, "data", *names)

    def add_tool(self, name, *flags):
        os.makedirs(self.tools, exist_ok=True)
        compile_c(STATIC_TOOL, os.path.join(self.tools, name), *flags)

    def open(self):
        _, grant = self.gateway.open(self.chat, lease={})
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)

        def run(line):
            client.send_text(line)
            status, _, output = client.recv()[1].decode().partition(" ")
            return int(status), output

        return run

    def test_the_chat_is_writable_and_what_is_written_is_on_the_host(self):
        run = self.open()
        self.assertEqual(run("echo kept > /workspace/chat/a && cat /workspace/chat/a"), (0, "kept"))
        path = self.data("workspaces", self.user, "chats", self.chat, "files", "a")
        with open(path, encoding="ascii") as text:
            self.assertEqual(text.read(), "kept\n")

    def test_dependencies_and_tools_are_read_only(self):
        for name in ("bundles", "tools"):
            os.makedirs(self.data(name, "x"), exist_ok=True)
            with open(self.data(name, "x", "file"), "w", encoding="ascii") as out:
                out.write(f"of {name}")
            for path in (self.data(name), self.data(name, "x"), self.data(name, "x", "file")):
                os.chmod(path, 0o777)  # the mount alone forbids it
        run = self.open()
        for name, target in (("bundles", "/opt/dependencies"), ("tools", "/opt/lambda-tools")):
            self.assertEqual(run(f"cat {target}/x/file"), (0, f"of {name}"))
            for attempt in ("echo no > {}/new", "echo no >> {}/x/file", "rm -r {}/x", "mkdir {}/d"):
                status, output = run(attempt.format(target))
                self.assertNotEqual(status, 0, attempt)
                self.assertIn("Read-only file system", output, attempt)

    def test_a_static_user_tool_runs_and_is_not_read_copied_or_changed(self):
        self.add_tool("hello", "-static")
        run = self.open()
        self.assertEqual(run("/opt/user-tools/hello"), (7, "MARK-of-the-tool"))
        for attempt in (
            "cat /opt/user-tools/hello",
            "cp /opt/user-tools/hello /tmp/copy",
            "ls /opt/user-tools",
            "echo no > /opt/user-tools/new",
            "chmod 755 /opt/user-tools/hello",
            "rm /opt/user-tools/hello",
            "ln /opt/user-tools/hello /tmp/link",
        ):
            self.assertNotEqual(run(attempt)[0], 0, attempt)

    def test_a_running_user_tool_shows_no_memory_and_no_program(self):
        source = "int pause(void); int main(void) { pause(); return 0; }"
        os.makedirs(self.tools, exist_ok=True)
        compile_c(source, os.path.join(self.tools, "wait"), "-static")
        run = self.open()
        for what in ("exe", "mem", "maps", "root/"):
            line = (
                "/opt/user-tools/wait & p=$!; "
                "for i in $(seq 100); do [ $(cat /proc/$p/comm) = wait ] && break; sleep 0.05; done; "
                f"head -c 64 /proc/$p/{what} >/dev/null; r=$?; kill $p; exit $r"
            )
            status, output = run(line)
            self.assertNotEqual(status, 0, f"{what}: {output}")

    def test_the_tools_of_another_user_are_not_there(self):
        self.add_tool("mine", "-static")
        other = self.gateway.new_chat()["chat_id"]
        _, grant = self.gateway.open(other, lease={})
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        client.send_text("/opt/user-tools/mine")
        self.assertEqual(client.recv()[1].partition(b" ")[0], b"127")

    def test_a_missing_host_path_fails_the_start_by_its_name_and_leaves_nothing(self):
        for key, name in (("dependencies_host_path", "bundles"), ("lambda_tools_host_path", "tools")):
            os.rename(self.data(name), self.data(name + ".away"))
            problem = self.gateway.expect(503, "POST", "/sandboxes", {"chat_id": self.chat})
            self.assertEqual(problem["code"], "sandbox_start_failed")
            self.assertIn(key, problem["detail"])
            self.assertEqual(self.gateway.sandboxes_left(), [])
            os.rename(self.data(name + ".away"), self.data(name))
        self.open()

    def test_a_directory_of_tools_that_is_a_symlink_is_refused(self):
        elsewhere = os.path.join(self.gateway.dir, "elsewhere")
        os.mkdir(elsewhere)
        shutil.rmtree(self.tools, ignore_errors=True)
        os.symlink(elsewhere, self.tools)
        problem = self.gateway.expect(409, "POST", "/sandboxes", {"chat_id": self.chat})
        self.assertIn("tools", problem["detail"])
        self.assertEqual(self.gateway.sandboxes_left(), [])


if __name__ == "__main__":
    unittest.main()
