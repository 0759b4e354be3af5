"""Agents that are after their user's tools: none is read, traced, subverted or outlived. FR-016."""

import os
import re
import signal
import time
import unittest

import landlock
from user_tools import SECRET, ToolSession

# By the sockets that reach the tool an agent gets hold of processes it cannot see: the one that listens,
# and the one that writes to its socket. Then it asks for their descriptors, of which one is the script.
PIDFD_PROBE = """
    import ctypes, os, socket, struct, subprocess, sys
    libc = ctypes.CDLL(None, use_errno=True)
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, 76, 1)  # SO_PASSPIDFD
    tool = subprocess.Popen(["/opt/user-tools/says"], stdout=theirs, stdin=subprocess.PIPE)
    data, control, _, _ = ours.recvmsg(100, 1000)
    pidfds = [struct.unpack("i", d[:4])[0] for _, kind, d in control if kind == 4]
    listener = socket.socket(socket.AF_UNIX)
    listener.connect("/run/leasehold/tools/sock")
    try:
        pidfds += [struct.unpack("i", listener.getsockopt(socket.SOL_SOCKET, 77, 4))[0]]
    except OSError:
        pass
    stolen = [fd for p in pidfds for fd in range(300) if libc.syscall(438, p, fd, 0) >= 0]
    signaled = [p for p in pidfds if libc.syscall(424, p, 19, 0, 0) == 0]
    print("said", data.decode().strip(), len(pidfds) > 0, "stolen", stolen, "signaled", signaled)
    tool.stdin.close()
"""

# What comes to the socket as it should not.
PROTOCOL_PROBE = """
    import array, os, socket, struct
    def ask(data, fds):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(8)
        s.connect("/run/leasehold/tools/sock")
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            s.sendmsg([data], rights)
            return s.recv(300)[:2]
        except OSError as e:
            return str(e).encode()
    def body(*words):
        text = b"".join(w + b"\\0" for w in words)
        return struct.pack(">I", len(text)) + text
    bad = [
        (body(b"nsays"), []), (body(b"nsays"), [1, 1]), (body(b"nsays"), [1] * 4),
        (b"\\xff\\xff\\xff\\xff", [0, 1, 2]), (b"\\0\\0\\0\\0", [0, 1, 2]),
        (body(b"nsays")[:-1] + b"x", [0, 1, 2]), (body(b"zsays"), [0, 1, 2]),
        (body(b"n../user-tools/says"), [0, 1, 2]), (body(b"n"), [0, 1, 2]), (body(b""), [0, 1, 2]),
        (body(b"nsays", b"nsays"), [0, 1, 2]), (body(b"nsays", b"crelative"), [0, 1, 2]),
        (body(b"nsays", *[b"a"] * 5000), [0, 1, 2]),
    ]
    answers = [ask(*b) for b in bad]
    print("refused", sum(a == b"n\\x7e" for a in answers), "of", len(bad), answers)
"""

# A name of what the agent may not read, as the stream of a tool that opens /dev/stdin.
DESCRIPTOR_PROBE = """
    import array, os, socket, struct
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(8)
    s.connect("/run/leasehold/tools/sock")
    named = os.open("/opt/user-tools.static/shows", os.O_PATH)
    fds = array.array("i", [named, 1, 2])
    s.sendmsg([struct.pack(">I", 7) + b"nshows\\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    print("named", s.recv(300)[:2])
"""

# Its minder counts no time any more.
STOPS_ITS_MINDER = """
    import os, signal
    os.kill(os.getppid(), signal.SIGSTOP)
    while True:
        with open("beat", "a") as out:
            out.write("b")
"""

# A tool that the agent has talked into anything: what could it break?
SUBVERTED = """
    import os, resource
    for path in ("/run/leasehold/runs", "/run/leasehold/tools/x", "/opt/user-tools/own",
                 "/run/leasehold/x", "/x", "/opt/x"):
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
            print("wrote", path)
        except OSError:
            pass
    for path in ("/run/leasehold/agent.sock", "/proc/1/mem", "/proc/1/environ", "/proc/1/exe"):
        try:
            os.close(os.open(path, os.O_RDONLY))
            print("opened", path)
        except OSError:
            pass
    for pid in (1, os.getppid()):
        for what in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU):
            try:
                resource.prlimit(pid, what, (0, 0))
                print("limited", pid)
            except PermissionError:
                pass
    for sig in range(1, 65):
        if sig not in (9, 19, 32, 33):
            try:
                os.kill(1, sig)
            except PermissionError:
                pass
    os.symlink("/run/leasehold/tools/sock", "s") if not os.path.lexists("s") else None
    print(os.getuid(), os.getgid(), os.getgroups(), open("/proc/self/status").read().count("NoNewPrivs:\\t1"))
    print([l.split()[1] for l in open("/proc/self/status") if l.startswith("Cap")], flush=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.kill(os.getppid(), 9)
            while True:
                pass
        os._exit(0)
"""

# Ends what ends it: nothing of it hears of the minder's death, and one that it has started is no child of
# it. Another one starts two others again and again, each of which goes on as the next.
KILLS_ITS_MINDER = """
    import ctypes, os, sys, time
    minder = os.getppid()
    ctypes.CDLL(None).prctl(1, 0)
    def beat():
        while True:
            with open("beat", "a") as out:
                out.write("b")
            time.sleep(0.01)
            if sys.argv[1:] == ["forks"] and os.fork():
                os._exit(0)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, 0)
            ctypes.CDLL(None).prctl(36, 1)
            if os.fork() == 0:
                beat()
            beat()
        os._exit(0)
    time.sleep(0.2)
    os.kill(minder, 9)
    beat()
"""

# Every way to send a signal that does not need a right of its own.
REACHES = """
    import ctypes, fcntl, os, signal, socket, struct
    libc = ctypes.CDLL(None)
    minder = os.getppid()
    reached = []
    def look(what, fn):
        try:
            if fn() not in (None, 0):
                return
        except OSError:
            return
        reached.append(what)
    for pid in (minder, 1):
        look("kill", lambda: os.kill(pid, 0))
        look("stop", lambda: os.kill(pid, signal.SIGSTOP))
        look("tgkill", lambda: libc.syscall(234, pid, pid, 9))
        look("tkill", lambda: libc.syscall(200, pid, 9))
        look("queue", lambda: libc.syscall(129, pid, 9, struct.pack("iii116x", 9, 0, -1)))
        look("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 9))
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, fcntl.F_SETOWN, minder)
    fcntl.fcntl(ours, 10, 9)  # F_SETSIG
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    theirs.send(b"x")
    child = os.fork()
    if child == 0:
        signal.pause()
    os.kill(child, 9)
    print("reached", reached, "own", os.waitpid(child, 0)[1], flush=True)
    os.kill(-1, 9)
    print("lives")
"""


class Hostile(unittest.TestCase):
    def setUp(self):
        self.s = ToolSession(
            self, {"sandbox": {"user_tools_timeout_seconds": 4, "user_tools_at_once": 2}}
        )

    def test_a_tool_is_neither_read_nor_changed_nor_seen(self):
        self.s.script("says", "echo said; read line; exit 5")
        self.s.program("itself", "int main(void) { return 6; }", "-static")
        self.s.put("probe.py", PIDFD_PROBE)
        self.s.put("protocol.py", PROTOCOL_PROBE)
        run = self.s.open()
        for attempt in (
            "ls /opt/user-tools",
            "echo no > /opt/user-tools/says",
            "chmod 755 /opt/user-tools/says",
            "rm /opt/user-tools/says",
            "mv /opt/user-tools/says /tmp",
            "umount /opt/user-tools/says",
            "echo no > /run/leasehold/tools/x",
            "rm /run/leasehold/tools/sock",
            "ls /opt/user-tools.static",
            "cat /opt/user-tools.static/says",
            "grep says /proc/self/mountinfo",
            "cat /opt/user-tools.static/itself",
        ):
            self.assertNotEqual(run(attempt)[0], 0, attempt)
        # While it runs, nothing of it stands in a file or process that the agent can see.
        status, output = run(
            "sleep 0.8 | /opt/user-tools/says & sleep 0.3; "
            f"grep -rsl {SECRET[:-1]}[l] /opt /run /workspace/chat/probe.py /tmp; "
            "for p in /proc/[0-9]*; do readlink $p/exe; tr '\\0' ' ' < $p/cmdline; "
            f"cat $p/root/opt/user-tools/says 2>/dev/null | grep {SECRET[:-1]}[l]; done; wait"
        )
        self.assertNotIn(SECRET, output)
        self.assertIn("said", output)
        self.assertNotIn("leasetools", output)
        self.assertNotIn("/sh /opt/user-tools/says", output)
        status, output = run("python3 /workspace/chat/probe.py")
        self.assertRegex(output, r"said said (True|False) stolen \[\] signaled \[\]")
        status, output = run("python3 /workspace/chat/protocol.py")
        self.assertIn("refused 13 of 13", output)
        self.assertEqual(run("echo x | /opt/user-tools/says"), (5, "said"))
        self.assertEqual(run("/opt/user-tools/itself"), (6, ""))

    def test_an_environment_says_how_things_look_and_no_more(self):
        self.s.script("shows", "env; exec 9</dev/null; ls /proc/self/fd", "/bin/bash")
        self.s.script("shows.py", "import os, sys; print(dict(os.environ), sys.path[:1])",
                      "/usr/bin/env python3")
        self.s.put("evil.sh", "echo SUBVERTED")
        self.s.put("os.py", "print('SUBVERTED')")
        run = self.s.open()
        names = (
            "BASH_ENV=/workspace/chat/evil.sh ENV=/workspace/chat/evil.sh PYTHONPATH=/workspace/chat "
            "PYTHONSTARTUP=/workspace/chat/os.py LD_PRELOAD=/workspace/chat/evil.so LOCPATH=/workspace "
            "LD_LIBRARY_PATH=/workspace/chat PATH=/workspace/chat:$PATH HOME=/workspace/chat "
            "TZ=/workspace/chat/tz LC_ALL=../../workspace/chat LANG=C TERM=vt100 "
        )
        for tool in ("shows", "shows.py"):
            status, output = run(f"cd /workspace/chat && {names} /opt/user-tools/{tool}")
            self.assertEqual(status, 0, output)
            for word in ("SUBVERTED", "evil", "PYTHON", "LD_", "ENV=", "LOCPATH", "../.."):
                self.assertNotIn(word, output)
            self.assertRegex(output, "HOME'?[=:] ?'?/tmp")
            self.assertRegex(output, "TERM'?[=:] ?'?vt100")

    def test_a_run_ends_with_its_time_with_its_asker_and_with_a_signal(self):
        self.s.script("beats", "(setsid sh -c 'while :; do echo b >> beat; sleep 0.1; done' &) ; "
                               "trap '' TERM HUP; sleep 60 & wait; sleep 60")
        self.s.script("two", "trap 'echo caught; exit 4' INT; : > up; sleep 1.5 & wait; exit 0")
        run = self.s.open()
        status, output = run("/opt/user-tools/beats")
        self.assertEqual((status, "its time was over" in output), (124, True))
        self.assert_still()
        run("/opt/user-tools/beats & p=$!; sleep 0.3; kill -9 $p; sleep 2.3; :> beat")
        self.assert_still()
        # Sent to lease-tool, which the tool's own signal is. STOP is not the agent's to send.
        self.assertEqual(run("/opt/user-tools/two & p=$!; until [ -e up ]; do sleep 0.05; done; "
                             "kill -INT $p; wait $p"), (4, "caught"))
        status, output = run("for i in 1 2 3; do /opt/user-tools/two & done; wait")
        self.assertEqual(output.count("as many tools run already"), 1)

    def assert_still(self):
        path = os.path.join(self.s.files, "beat")
        before = os.path.getsize(path)
        time.sleep(0.4)
        self.assertEqual(os.path.getsize(path), before)

    def test_a_subverted_tool_gains_nothing_and_takes_nothing_with_it(self):
        self.s.script("own", SUBVERTED, "/usr/bin/env python3")
        self.s.script("fine", "echo fine")
        run = self.s.open()
        for _ in range(2):
            status, output = run("/opt/user-tools/own")
            self.assertNotIn("wrote", output)
            self.assertNotIn("opened", output)
            self.assertNotIn("limited", output)
            self.assertIn("10003 10003 [] 1", output)
            self.assertEqual(set(re.findall("'([0-9a-f]{16})'", output)), {"0" * 16})
        self.assertEqual(run("sleep 0.3; /opt/user-tools/fine"), (0, "fine"))

    def test_more_runs_than_may_begin_wait_for_their_turn(self):
        self.s = ToolSession(
            self, {"sandbox": {"user_tools_at_once": 2, "user_tools_per_second": 4}}
        )
        self.s.script("own", "exit 0")
        run = self.s.open()
        begun = time.monotonic()
        self.assertEqual(run("for i in 1 2 3 4 5 6 7 8; do /opt/user-tools/own || echo no; done"), (0, ""))
        self.assertGreaterEqual(time.monotonic() - begun, 1.25)  # two at once, then one each 0.25 s

    def test_a_descriptor_opens_nothing(self):
        self.s.script("shows", "cat /dev/stdin")
        self.s.put("probe.py", DESCRIPTOR_PROBE)
        run = self.s.open()
        status, output = run("python3 /workspace/chat/probe.py")
        self.assertIn("named b'n~'", output)
        self.assertNotIn(SECRET, output)
        self.assertEqual(run("echo x > x; /opt/user-tools/shows < x"), (0, "x"))

    def test_a_tool_reaches_no_process_but_its_own(self):
        if not landlock.keeps_signals():
            return  # such kernels are those of the class below
        self.s.script("reaches", REACHES, "/usr/bin/env python3")
        self.s.script("waits", "sleep 0.7; exit 6")
        run = self.s.open()
        self.assertEqual(
            run("/opt/user-tools/waits & w=$!; /opt/user-tools/reaches; echo $?; wait $w"),
            (6, "reached [] own 9 lives 0"))
        ends = sorted(e["detail"].split(" ", 1)[1] for e in self.s.audited_ends())
        self.assertEqual(ends, ["exit 0", "exit 6"])

    def test_nothing_runs_on_when_the_session_ends_in_any_way(self):
        self.s.script("beats", "while :; do echo b >> beat; sleep 0.05; done")
        for end in (
            lambda: self.s.gateway.expect(200, "DELETE", f"/sandboxes/{self.s.session}"),
            lambda: os.kill(self.s.supervisor(), signal.SIGKILL),
        ):
            run = self.s.open()
            run("(/opt/user-tools/beats </dev/null >/dev/null 2>&1 &) ; sleep 0.5")
            self.assertGreater(os.path.getsize(os.path.join(self.s.files, "beat")), 0)
            end()
            time.sleep(0.3)
            self.assert_still()


class OlderKernel(Hostile):
    """Without a scope of signals a tool can end its minder. It gains nothing by it, nor does it go on."""

    def setUp(self):
        with landlock.absent():
            self.s = ToolSession(
                self, {"sandbox": {"user_tools_timeout_seconds": 8, "user_tools_at_once": 3}})
        self.s.put("beat", "")
        self.s.script("fine", "echo fine")
        self.s.script("slow", "sleep ${1:-3}; exit 9")

    def assert_cut(self, run, how):
        self.assertEqual(
            run("/opt/user-tools/slow & p=$!; sleep 0.2; "
                f"{how} </dev/null >/dev/null 2>&1; r=$?; sleep 0.3; a=$(wc -c < beat); sleep 0.5; "
                "b=$(wc -c < beat); /opt/user-tools/fine; wait $p; echo $? $r $((b - a))"),
            (0, "fine 9 125 0"))
        ends = [e["detail"].split(" ", 1)[1] for e in self.s.audited_ends(3)]
        self.assertEqual(sorted(ends), ["cut", "exit 0", "exit 9"])

    def test_a_tool_that_kills_its_minder_ends_at_once_and_alone(self):
        self.s.script("kills", KILLS_ITS_MINDER, "/usr/bin/env python3")
        self.assert_cut(self.s.open(), "/opt/user-tools/kills")

    def test_a_tool_that_stops_its_minder_ends(self):
        self.s.script("stops", STOPS_ITS_MINDER, "/usr/bin/env python3")
        self.assert_cut(self.s.open(), "/opt/user-tools/stops")

    def test_one_that_starts_others_as_fast_as_they_end_does_not_last_either(self):
        self.s.script("kills", KILLS_ITS_MINDER, "/usr/bin/env python3")
        run = self.s.open()
        self.assertEqual(run("/opt/user-tools/kills forks </dev/null >/dev/null 2>&1; echo $?; sleep 3; "
                             "/opt/user-tools/fine"), (0, "125 fine"))
        self.assert_still()

    def test_when_what_runs_them_is_killed_each_run_has_its_end_and_the_reason_is_told(self):
        run = self.s.open()
        self.assertEqual(run("/opt/user-tools/fine"), (0, "fine"))
        server = self.s.tool_server()
        run("for i in 1 2; do (/opt/user-tools/slow 60 < /dev/null > said$i 2>&1; "
            "echo $? >> said$i) > /dev/null 2>&1 & done; sleep 0.5")
        os.kill(server, signal.SIGKILL)
        _, output = run("for i in $(seq 100); do grep -q 125 said1 && grep -q 125 said2 && break; sleep 0.1; "
                        "done; cat said1 said2")
        self.assertEqual(output.count("what ran it has ended 125"), 2)
        self.assert_runs_have_ends()
        self.s.gateway.expect(200, "DELETE", f"/sandboxes/{self.s.session}")
        self.assert_runs_have_ends()

    def assert_runs_have_ends(self):
        """While the session goes on, too, and each once."""
        ends = {e["detail"] for e in self.s.audited_ends(3)}
        runs = {e["detail"] for e in self.s.audited("tool.run")}
        self.assertEqual(len(runs), len(self.s.audited("tool.end")))
        self.assertEqual({d.split(" ", 1)[0] for d in ends}, runs)
        self.assertEqual(sorted(d.split(" ", 1)[1] for d in ends)[-1], "exit 0")
        self.assertEqual(sorted(d.split(" ", 1)[1] for d in ends)[0], "cut")


for name in [n for n in dir(Hostile) if n.startswith("test_") and n not in vars(OlderKernel)]:
    setattr(OlderKernel, name, None)  # once is enough


class StartedAgain(Hostile):
    """The same of the one that comes when what ran the tools has been killed."""

    def setUp(self):
        super().setUp()
        begin = self.s.open

        def begin_again():
            run = begin()
            self.s.kill_server()
            return run

        self.s.open = begin_again

    test_more_runs_than_may_begin_wait_for_their_turn = None  # makes a session of its own


if __name__ == "__main__":
    unittest.main()
