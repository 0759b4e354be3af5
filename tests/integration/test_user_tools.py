"""A user's own scripts and dynamic programs: the agent has them run and reads, copies, alters, traces or
subverts none of them. FR-016, through the running daemon."""

import os
import unittest

from metrics import Metrics
from user_tools import SECRET, ToolSession

AGENT_UID = 10001


class UserTools(unittest.TestCase):
    def setUp(self):
        self.s = ToolSession(self)

    # --- what an agent can do with it --------------------------------------------------------------

    def test_scripts_and_dynamic_programs_are_run_with_arguments_streams_and_status(self):
        self.s.script("upper", 'echo "$# $1 $2" >&2; tr a-z A-Z; exit 3')
        self.s.script(
            "count.py", "import sys\nprint(sum(map(int, sys.stdin.read().split())), sys.argv[1:])\n",
            "/usr/bin/env python3",
        )
        self.s.program(
            "dynamic",
            f'#include <stdio.h>\nint main(int n, char **v) {{ printf("{SECRET} %d %s\\n", n, v[1]);'
            " return 9; }",
        )
        run = self.s.open()
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
        self.s.script("make", 'cat given; pwd; echo made > "$1"; mkdir sub; echo in > sub/x')
        run = self.s.open()
        self.assertEqual(
            run("mkdir d && cd d && umask 077 && echo private > given && /opt/user-tools/make out"),
            (0, "private /workspace/chat/d"),
        )
        self.assertEqual(
            run("cd d && echo more >> out && chmod 600 out && cat out sub/x && rm -r sub && ls"),
            (0, "made more in given out"),
        )
        self.assertEqual(os.stat(os.path.join(self.s.files, "d", "out")).st_uid, AGENT_UID)

    def test_each_run_is_audited_and_counted(self):
        self.s.script("good", "exit 0")
        self.s.script("bad", "exit 1")
        self.s.open()("/opt/user-tools/good a-secret-argument; /opt/user-tools/good; /opt/user-tools/bad")
        self.s.gateway.expect(200, "DELETE", f"/sandboxes/{self.s.session}")
        told = self.s.audited()
        self.assertEqual(sorted(e["object"].split("/")[-1] for e in told), ["bad", "good", "good"])
        self.assertEqual({e["actor"] for e in told}, {f"door:{self.s.session}"})
        self.assertNotIn("a-secret-argument", str(told))
        counted = Metrics.of(self.s.gateway)
        self.assertEqual(counted["leasehold_tool_runs_total", "ok"], 2)
        self.assertEqual(counted["leasehold_tool_runs_total", "failed"], 1)


    def test_tools_run_while_the_gateway_is_away_and_are_told_when_it_is_back(self):
        self.s.script("away", "echo ran")
        run = self.s.open()
        self.s.gateway.kill9()
        self.assertEqual(run("/opt/user-tools/away"), (0, "ran"))
        self.s.gateway.start()
        self.s.gateway.expect(200, "DELETE", f"/sandboxes/{self.s.session}")
        self.assertEqual(len(self.s.audited()), 1)

    def test_what_cannot_be_run_is_closed_and_told(self):
        os.symlink("/etc/passwd", os.path.join(self.s.tools, "link"))
        for name, text in {
            "text": "just text",
            "relative": "#!sh\necho no",
            "strange name": "#!/bin/sh\necho no",
            "gone": "#!/no/interpreter\n",
        }.items():
            with open(os.path.join(self.s.tools, name), "w", encoding="ascii") as out:
                out.write(text)
        run = self.s.open()
        told = {e["tool"]: e["reason"] for e in self.s.gateway.log_lines("user_tool_refused")}
        self.assertEqual(set(told), {"link", "text", "relative", "strange name"})
        self.assertIn("script", told["text"])
        self.assertIn("interpreter", told["relative"])
        self.assertIn("name", told["strange name"])
        for name in ("text", "relative"):
            self.assertIn(run(f"/opt/user-tools/{name}")[0], (126, 127))
            self.assertNotEqual(run(f"cat /opt/user-tools/{name}")[0], 0)
        status, output = run("/opt/user-tools/gone")
        self.assertEqual(status, 126)
        self.assertIn("its interpreter is not in the sandbox", output)


class OnRamfs(unittest.TestCase):
    def test_where_ids_cannot_be_mapped_the_agent_runs_and_such_tools_say_that_they_do_not(self):
        s = ToolSession(self, chats_on="ramfs")
        s.script("says", "echo said")
        s.program("itself", "int main(void) { return 6; }", "-static")
        run = s.open()
        told = s.gateway.log_lines("user_tools_unavailable")
        self.assertIn("takes no mount with other ids", told[0]["detail"])
        status, output = run("/opt/user-tools/says")
        self.assertEqual(status, 125)
        self.assertIn("cannot be run here", output)
        self.assertEqual(run("/opt/user-tools/itself"), (6, ""))
        self.assertNotEqual(run("cat /opt/user-tools.static/says")[0], 0)


if __name__ == "__main__":
    unittest.main()
