"""What runs a user's tools is killed: it comes back by itself, as it was, and not for ever. FR-016."""

import os
import re
import signal
import threading
import time
import unittest

from user_tools import AGENT, PROFILE, ToolSession

AWAY = "what ran them has ended and is being started again; try again in a moment"
FOR_GOOD = "what ran them has ended; a new sandbox has them again"

# Differ from one process to the next, and say nothing of what it may do.
OF_EACH = r"^(Pid|Tgid|Ngid|NSpid|NStgid|NSpgid|NSsid|PPid|TracerPid|Vm|Rss|Hugetlb|Sig|Shd|.*ctxt|Seccomp_filters_)"


def held_by(pid):
    """All that the kernel lets a process do, and sees of it."""
    held = {}
    for name in ("status", "limits", "environ", "cmdline", "cgroup", "oom_score_adj", "mountinfo"):
        with open(f"/proc/{pid}/{name}", "rb") as file:
            text = file.read().decode()
        if name == "status":
            text = "\n".join(l for l in text.splitlines() if not re.match(OF_EACH, l))
        if name == "mountinfo":  # the numbers of mounts and devices are of each
            text = "\n".join(" ".join(l.split()[3:]) for l in text.splitlines())
        held[name] = text
    held["kinds of descriptors"] = sorted(
        re.sub(r"\d+", "", os.readlink(f"/proc/{pid}/fd/{fd}")) for fd in os.listdir(f"/proc/{pid}/fd"))
    held["namespaces shared with us"] = {
        n for n in os.listdir(f"/proc/{pid}/ns")
        if os.readlink(f"/proc/{pid}/ns/{n}") == os.readlink(f"/proc/self/ns/{n}")}
    return held


class Again(unittest.TestCase):
    def setUp(self):
        self.s = ToolSession(self)
        self.s.script("fine", "echo fine")
        self.s.script("beats", "(setsid sh -c 'while :; do echo b >> beat; sleep 0.05; done' &) ; sleep 60")

    def assert_taken(self):
        """As tools_box_take() leaves it."""
        runs = os.path.join(self.s.gateway.dir, "data", "tool-runs", self.s.session)
        for path, mode in ((runs, 0o100600), (self.s.run_path("box", "tools"), 0o40755)):
            found = os.stat(path)
            self.assertEqual((found.st_uid, found.st_gid, found.st_mode), (0, 0, mode), path)

    def test_tools_come_back_and_nothing_of_before_is_left(self):
        run = self.s.open()
        run("(/opt/user-tools/beats < /dev/null > said 2>&1; echo $? >> said) > /dev/null 2>&1 & sleep 0.5")
        server = self.s.tool_server_of_many()
        os.kill(server, signal.SIGKILL)
        said = set()
        for _ in range(200):
            status, output = run("/opt/user-tools/fine")
            if status == 0:
                break
            said.add((status, output))
            time.sleep(0.02)
        self.assertEqual((status, output), (0, "fine"))
        for status, output in said:
            self.assertEqual(status, 125)
            self.assertIn(AWAY, output)
        self.assert_taken()
        self.assertEqual(run("cat said; a=$(wc -c < beat); sleep 0.3; echo $(($(wc -c < beat) - a))"),
                         (0, "lease-tool: beats: what ran it has ended 125 0"))
        self.assertEqual(len([p for p in self.s.gateway.sandboxes_left() if p.name == "leasetools"]), 1)
        ends = [e["detail"].split(" ", 1)[1] for e in self.s.audited_ends(2)]
        self.assertEqual(sorted(ends), ["cut", "exit 0"])
        self.assertEqual(len(self.s.gateway.log_lines("user_tools_restarted")), 1)
        self.assertFalse(os.path.exists(self.s.run_path("keep.tools")))

    def test_the_next_one_is_held_as_the_first_was(self):
        self.s.open()
        first = held_by(self.s.tool_server())
        again = held_by(self.s.kill_server())
        for name, value in first.items():
            self.assertEqual(again[name], value, name)
        self.assertIn("NoNewPrivs:\t1", first["status"])
        self.assertIn("10003\t10003\t10003\t10003", first["status"])

    def test_it_comes_back_when_what_started_it_is_killed_too(self):
        run = self.s.open()
        server = self.s.tool_server()
        with open(f"/proc/{server}/stat", encoding="ascii") as file:
            os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)  # bwrap
        for _ in range(200):
            if run("/opt/user-tools/fine") == (0, "fine"):
                break
            time.sleep(0.05)
        self.assertNotEqual(self.s.tool_server(), server)
        self.assert_taken()

    def test_one_that_ends_again_and_again_is_given_up(self):
        run = self.s.open()
        waits = []
        for _ in range(6):
            begun = time.monotonic()
            self.s.kill_server()
            waits.append(time.monotonic() - begun)
        for i, waited in enumerate(waits):
            self.assertGreaterEqual(waited, 0.2 * 2 ** i)
        self.assertEqual(run("/opt/user-tools/fine"), (0, "fine"))
        os.kill(self.s.tool_server(), signal.SIGKILL)
        for _ in range(200):
            if os.path.exists(self.s.run_path("keep.tools")):
                break
            time.sleep(0.02)
        status, output = run("/opt/user-tools/fine")
        self.assertEqual(status, 125)
        self.assertIn(FOR_GOOD, output)
        time.sleep(1)
        self.assertEqual([p for p in self.s.gateway.sandboxes_left() if p.name == "leasetools"], [])
        self.assertEqual(run("echo on"), (0, "on"))
        self.assert_taken()

    def test_a_session_that_ends_while_it_is_away_ends(self):
        self.s.open()
        self.s.kill_server()
        self.s.kill_server()
        os.kill(self.s.tool_server(), signal.SIGKILL)
        self.s.gateway.expect(200, "DELETE", f"/sandboxes/{self.s.session}")
        time.sleep(1)
        self.assertEqual(self.s.gateway.sandboxes_left(), [])

    def test_a_session_that_is_being_stopped_has_no_new_one(self):
        deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + AGENT
        self.s = ToolSession(
            self, {"profiles": [{**PROFILE, "command": ["/usr/bin/python3", "-c", deaf]}]})
        self.s.script("fine", "echo fine")
        self.s.open()
        self.s.kill_server()
        self.s.kill_server()
        os.kill(self.s.tool_server(), signal.SIGKILL)
        stop = threading.Thread(
            target=self.s.gateway.expect, args=(200, "DELETE", f"/sandboxes/{self.s.session}"))
        stop.start()
        looks, seen = 0, []
        while stop.is_alive():
            seen += [p for p in self.s.gateway.sandboxes_left() if p.name == "leasetools"]
            looks += 1
            time.sleep(0.05)
        self.assertGreater(looks, 30)  # through the grace: it would be back in a second
        self.assertEqual(seen, [])
        self.assertEqual(self.s.gateway.sandboxes_left(), [])


if __name__ == "__main__":
    unittest.main()
