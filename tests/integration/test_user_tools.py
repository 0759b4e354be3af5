"""A user's own scripts and dynamic programs: the agent has them run and reads, copies, alters, traces or
subverts none of them. FR-016, through the running daemon."""

import os
import signal
import subprocess
import textwrap
import unittest
import uuid

from gateway import Gateway
from metrics import Metrics

# Answers each line, run by the shell, with one line: exit status and output.
AGENT = """
import subprocess, sys
for line in sys.stdin:
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=20)
    print(done.returncode, (done.stdout + done.stderr).replace("\\n", " ").strip(), flush=True)
"""
PROFILE = {
    "name": "default",
    "command": ["/usr/bin/python3", "-c", AGENT],
    "transport": "stdio",
    "limits": {"memory_bytes": 268435456, "cpus": 1.0, "pids": 64},
    "network": "none",
    "record_history": False,
}
AGENT_UID = 10001
SECRET = "MARK-within-the-tool"


class UserTools(unittest.TestCase):
    config = {"profiles": [PROFILE]}

    def setUp(self):
        self.gateway = Gateway.for_test(self, self.config)
        self.user = str(uuid.uuid4())
        self.chat = self.gateway.new_chat(self.user)["chat_id"]
        self.tools = os.path.join(self.gateway.dir, "data", "workspaces", self.user, "tools")
        self.files = os.path.join(
            self.gateway.dir, "data", "workspaces", self.user, "chats", self.chat, "files"
        )
        os.makedirs(self.tools, exist_ok=True)

    def script(self, name, text, interpreter="/bin/sh"):
        path = os.path.join(self.tools, name)
        with open(path, "w", encoding="ascii") as out:
            out.write(f"#!{interpreter}\n# {SECRET}\n{textwrap.dedent(text)}")
        os.chmod(path, 0o755)

    def program(self, name, source):
        subprocess.run(
            ["gcc", "-x", "c", "-o", os.path.join(self.tools, name), "-"],
            input=source, text=True, check=True,
        )

    def open(self):
        sandbox, grant = self.gateway.open(self.chat, lease={})
        client = self.gateway.connect(grant)
        self.addCleanup(client.close)
        self.session = sandbox["session_id"]

        def run(line):
            client.send_text(line)
            status, _, output = client.recv(25)[1].decode().partition(" ")
            return int(status), output

        return run

    # --- what an agent can do with it --------------------------------------------------------------

    def test_scripts_and_dynamic_programs_are_run_with_arguments_streams_and_status(self):
        self.script("upper", 'echo "$# $1 $2" >&2; tr a-z A-Z; exit 3')
        self.script(
            "count.py", "import sys\nprint(sum(map(int, sys.stdin.read().split())), sys.argv[1:])\n",
            "/usr/bin/env python3",
        )
        self.program(
            "dynamic",
            f'#include <stdio.h>\nint main(int n, char **v) {{ printf("{SECRET} %d %s\\n", n, v[1]);'
            " return 9; }",
        )
        run = self.open()
        self.assertEqual(
            run("echo text | /opt/user-tools/upper 'a  b' ''"), (3, "TEXT 2 a  b")
        )
        self.assertEqual(run("echo 4 5 | /opt/user-tools/count.py x"), (0, "9 ['x']"))
        self.assertEqual(run("/opt/user-tools/dynamic q"), (9, f"{SECRET} 2 q"))
        self.assertEqual(run("/run/leasehold/lease-tool dynamic r"), (9, f"{SECRET} 2 r"))
        self.assertEqual(run("/opt/user-tools/none")[0], 127)
        status, output = run("/run/leasehold/lease-tool none")
        self.assertEqual((status, output), (127, "lease-tool: none: there is no such tool"))

    def test_what_a_tool_leaves_in_the_chat_is_the_agents_own(self):
        self.script("make", 'cat given; pwd; echo made > "$1"; mkdir sub; echo in > sub/x')
        run = self.open()
        self.assertEqual(
            run("mkdir d && cd d && umask 077 && echo private > given && /opt/user-tools/make out"),
            (0, "private /workspace/chat/d"),
        )
        self.assertEqual(
            run("cd d && echo more >> out && chmod 600 out && cat out sub/x && rm -r sub && ls"),
            (0, "made more in given out"),
        )
        self.assertEqual(os.stat(os.path.join(self.files, "d", "out")).st_uid, AGENT_UID)

    def test_each_run_is_audited_and_counted(self):
        self.script("good", "exit 0")
        self.script("bad", "exit 1")
        self.open()("/opt/user-tools/good a-secret-argument; /opt/user-tools/good; /opt/user-tools/bad")
        self.gateway.expect(200, "DELETE", f"/sandboxes/{self.session}")
        page = self.gateway.expect(200, "GET", "/audit?action=tool.run")
        told = sorted((e["object"], e["actor"]) for e in page["items"])
        self.assertEqual([o for o, _ in told], [o for o, _ in told if "tool:" in o], told)
        self.assertEqual(len(told), 3, told)
        self.assertEqual({a for _, a in told}, {f"door:{self.session}"})
        self.assertNotIn("a-secret-argument", str(page))
        counted = Metrics.of(self.gateway)
        self.assertEqual(counted["leasehold_tool_runs_total", "ok"], 2)
        self.assertEqual(counted["leasehold_tool_runs_total", "failed"], 1)


if __name__ == "__main__":
    unittest.main()
