"""A user's own scripts and dynamic programs: the agent has them run and reads, copies, alters, traces or
subverts none of them. FR-016, through the running daemon."""

import os
import socket
import stat
import subprocess
import threading
import unittest

import processes
from metrics import Metrics
from user_tools import PROFILE, SECRET, ToolSession
from waiting import PATIENCE_S, wait_for

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

    def test_the_environment_of_a_profile_is_the_agents_alone(self):
        s = ToolSession(self, {"profiles": [{**PROFILE, "environment": ["KEY=of-the-agent"]}]})
        s.script("shows", "env")
        run = s.open()
        self.assertEqual(run("echo $KEY"), (0, "of-the-agent"))
        status, output = run("/opt/user-tools/shows")
        self.assertEqual(status, 0)
        self.assertNotIn("of-the-agent", output)
        self.assertIn("HOME=/tmp", output)

    def test_without_descriptors_who_serves_the_tools_rests_and_then_goes_on(self):
        self.s.script("works", "exit 0")
        run = self.s.open()
        self.assertEqual(run("/opt/user-tools/works"), (0, ""))
        server = self.s.tool_server()
        limit = processes.descriptors_limit(server, len(os.listdir(f"/proc/{server}/fd")))
        done = []
        asking = threading.Thread(target=lambda: done.append(run("/opt/user-tools/works")))
        asking.start()
        asking.join(0.8)
        self.assertEqual(done, [])
        wait_for(self, "a rest", lambda: processes.is_idle(server))
        self.assertEqual(done, [])
        processes.descriptors_limit(server, limit)
        asking.join(PATIENCE_S)
        self.assertEqual(done, [(0, "")])

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

    def test_the_audit_trail_says_how_each_run_ended(self):
        s = ToolSession(self, {"sandbox": {"user_tools_timeout_seconds": 4}})
        s.script("good", "exit 0")
        s.script("bad", "exit 7")
        s.script("dead", "kill -9 $$")
        s.script("slow", "sleep 60")
        s.script("lost", "exit 0", "/no/interpreter")
        run = s.open()
        for name in ("good", "bad", "dead", "slow", "lost"):
            run(f"/opt/user-tools/{name}")
        run("timeout -s KILL 0.3 /opt/user-tools/slow")
        s.gateway.expect(200, "DELETE", f"/sandboxes/{s.session}")
        begun = {e["object"] + e["detail"] for e in s.audited()}
        ends = set()
        for entry in s.audited("tool.end"):
            at, _, how = entry["detail"].partition(" ")
            self.assertIn(entry["object"] + at, begun)
            ends.add((entry["object"].split("/")[-1], entry["outcome"], how))
        self.assertEqual(ends, {
            ("good", "ok", "exit 0"),
            ("bad", "failed", "exit 7"),
            ("dead", "failed", "signal 9"),
            ("slow", "failed", "timed out"),
            ("lost", "failed", "exit 126"),
            ("slow", "failed", "left"),
        })

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

    def test_what_is_no_file_is_closed_to_agents_with_all_below_it(self):
        os.makedirs(os.path.join(self.s.tools, "lib"))
        with open(os.path.join(self.s.tools, "lib", "common.sh"), "w", encoding="ascii") as out:
            out.write(f"#!/bin/sh\necho {SECRET}\n")
        os.chmod(out.name, 0o755)
        os.chmod(os.path.dirname(out.name), 0o755)
        os.mkfifo(os.path.join(self.s.tools, "pipe"))
        os.chmod(os.path.join(self.s.tools, "pipe"), 0o666)
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        here = os.open(self.s.tools, os.O_PATH)  # the whole path is too long for a socket's
        self.addCleanup(os.close, here)
        server.bind(f"/proc/self/fd/{here}/socket")
        os.chmod(os.path.join(self.s.tools, "socket"), 0o777)
        self.s.script("says", "echo said")  # so that the directory stands beside the links, too
        run = self.s.open()
        for place in ("/opt/user-tools", "/opt/user-tools.static"):
            for attempt in ("ls -la {}/lib", "cat {}/lib/common.sh", "{}/lib/common.sh", "cd {}/lib"):
                status, output = run(attempt.format(place))
                self.assertNotEqual(status, 0, (attempt, output))
                self.assertNotIn(SECRET, output)
        modes = {
            e.name: stat.S_IMODE(e.stat(follow_symlinks=False).st_mode)
            for e in os.scandir(self.s.tools) if e.name != "says"
        }
        self.assertEqual(modes, {"lib": 0o700, "pipe": 0, "socket": 0})
        told = {e["tool"] for e in self.s.gateway.log_lines("user_tool_refused")}
        self.assertEqual(told, set(modes))

    def refused_start(self):
        answer = self.s.gateway.expect(
            (500, 502, 503), "POST", "/sandboxes", {"chat_id": self.s.chat, "lease": {}}
        )
        self.assertEqual(answer["code"], "sandbox_start_failed")
        return str(answer)

    def test_what_stands_elsewhere_too_keeps_its_mode(self):
        inside, outside = os.path.join(self.s.tools, "own"), os.path.join(self.s.gateway.dir, "other")
        self.s.script("own", "echo own")
        os.link(inside, outside)
        self.assertIn("own: has another name (hard link)", self.refused_start())
        self.assertEqual(stat.S_IMODE(os.stat(outside).st_mode), 0o755)
        os.chmod(outside, 0o600)  # no agent can read that: it may stay
        self.assertIn(self.s.open()("/opt/user-tools/own")[0], (126, 127))
        self.assertEqual(stat.S_IMODE(os.stat(outside).st_mode), 0o600)

    def test_what_is_mounted_there_keeps_its_mode(self):
        for kind in ("directory", "file"):
            source, target = os.path.join(self.s.gateway.dir, kind), os.path.join(self.s.tools, kind)
            for path in (source, target):
                if kind == "file":
                    with open(path, "wb"):
                        pass
                else:
                    os.mkdir(path)
            os.chmod(source, 0o755)
            subprocess.run(["mount", "--bind", source, target], check=True)
            self.addCleanup(subprocess.run, ["umount", "-l", target], check=True)
            self.assertIn("it is mounted there", self.refused_start())
            self.assertEqual(stat.S_IMODE(os.stat(source).st_mode), 0o755)
            os.chmod(source, 0o700)

    def test_a_directory_mounted_as_tools_is_taken_when_it_is_meant(self):
        elsewhere = os.path.join(self.s.gateway.dir, "elsewhere")
        os.mkdir(elsewhere)
        os.chmod(elsewhere, 0o755)
        subprocess.run(["mount", "--bind", elsewhere, self.s.tools], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.s.tools], check=True)
        self.s.script("says", "echo said")
        self.assertIn("give it the mode 0711", self.refused_start())
        self.assertEqual(
            [stat.S_IMODE(os.stat(os.path.join(elsewhere, n)).st_mode) for n in (".", "says")],
            [0o755, 0o755],
        )
        os.chmod(elsewhere, 0o711)
        self.assertEqual(self.s.open()("/opt/user-tools/says"), (0, "said"))


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
