#!/usr/bin/python3
"""leasekeep, leaseinit and bubblewrap together: life, ends and isolation of a local sandbox.

Needs root, bubblewrap and the built programs (LEASEHOLD_BIN, default build/release/bin).
"""

import os
import signal
import stat
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import keep_sandbox
from fake_door import LINE_MAX, Ended
from keep_sandbox import LOG_MAX, UID, Sandbox, processes_with, start_ticks, wait_until

DEMO = ["/run/leasehold/demo-agent"]
PYTHON = "/usr/bin/python3"


def core_pattern():
    with open("/proc/sys/kernel/core_pattern") as file:
        return file.read()


def setUpModule():
    keep_sandbox.require()
    global CORE_PATTERN
    CORE_PATTERN = core_pattern()


def tearDownModule():
    if core_pattern() != CORE_PATTERN:
        with open("/proc/sys/kernel/core_pattern", "w") as file:
            file.write(CORE_PATTERN)
        raise AssertionError("a probe changed the host's core_pattern")


def mounts():
    with open("/proc/self/mountinfo") as file:
        return sorted(file.read().splitlines())


def cgroups_of(session):
    found = []
    for top, dirs, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(top, d) for d in dirs if session in d]
    return found


class SandboxTest(unittest.TestCase):
    def setUp(self):
        self.sandbox = Sandbox()
        self.addCleanup(self.sandbox.close)

    def start(self, command, **spec):
        self.sandbox.start(command, **spec)
        self.assertEqual(self.sandbox.door.accept(), "stdio")

    def run_agent(self, command, timeout=30.0, **spec):
        """Runs a command to its end: its output lines as text."""
        self.start(command, **spec)
        lines, self.exit = self.sandbox.door.until_exit(timeout)
        self.assertEqual(self.sandbox.wait(), 0, self.sandbox.file("keep.log"))
        return [line.decode(errors="replace") for line in lines]

    def sh(self, script, **spec):
        return self.run_agent(["/bin/sh", "-c", script], **spec)

    def python(self, script, **spec):
        return self.run_agent([PYTHON, "-I", "-c", script], **spec)


class Life(SandboxTest):
    def test_lines_of_any_length_and_content_are_echoed(self):
        self.start(DEMO)
        for size in (0, 1, 2, 100, 4095, 4096, 65535, 65536, 65537, LINE_MAX - 1, LINE_MAX):
            line = os.urandom(size).replace(b"\n", b"\xff")
            self.sandbox.door.send(line)
            self.assertEqual(self.sandbox.door.line(), line, f"{size} bytes")

    def test_many_messages_at_once_keep_their_order(self):
        self.start(DEMO)
        total = 20000
        sender = threading.Thread(
            target=lambda: [self.sandbox.door.send(b"%d" % i) for i in range(total)]
        )
        sender.start()
        for i in range(total):
            self.assertEqual(self.sandbox.door.line(), b"%d" % i)
        sender.join()

    def test_a_longer_line_arrives_in_frames_of_the_greatest_length(self):
        lines = self.python("print('x' * (2 * 1048576 + 5)); print('y' * 1048576); print('z')")
        self.assertEqual([len(line) for line in lines], [LINE_MAX, LINE_MAX, 5, LINE_MAX, 1])

    def test_output_waits_for_a_door_that_does_not_read(self):
        self.start([PYTHON, "-c", "for i in range(200000): print('line', i)"])
        time.sleep(0.3)
        lines, ended = self.sandbox.door.until_exit()
        self.assertEqual(len(lines), 200000)
        self.assertEqual((lines[-1], ended), (b"line 199999", (0, 0)))

    def test_the_exit_code_is_reported_after_all_output(self):
        self.assertEqual(self.sh("echo one; printf two; exit 7"), ["one", "two"])
        self.assertEqual(self.exit, (7, 0))
        self.assertEqual(self.sandbox.ended()[:3], ("exited", 7, 0))

    def test_an_exit_code_above_128_is_not_taken_for_a_signal(self):
        self.sh("exit 137")
        self.assertEqual(self.sandbox.ended()[:3], ("exited", 137, 0))

    def test_a_signal_is_reported(self):
        self.sh("kill -SEGV $$")
        self.assertEqual(self.exit, (139, 11))
        self.assertEqual(self.sandbox.ended()[:3], ("signaled", 139, 11))

    def test_a_missing_command_ends_with_127_and_a_message(self):
        self.run_agent(["/nowhere/agent"])
        self.assertEqual(self.exit, (127, 0))
        self.assertIn("cannot run /nowhere/agent: No such file", self.sandbox.file("keep.log"))

    def test_an_agent_that_closes_its_stdout_lives_on(self):
        self.start(["/bin/sh", "-c", "exec >&-; read line; exit 5"])
        with self.assertRaises(TimeoutError):
            self.sandbox.door.frame(0.3)
        self.sandbox.door.send(b"go on")
        self.assertEqual(self.sandbox.door.until_exit(), ([], (5, 0)))

    def test_orphans_in_the_sandbox_are_reaped(self):
        script = "(sleep 0.1 &) ; sleep 0.5; cat /proc/[0-9]*/stat"
        self.assertFalse([line for line in self.sh(script) if ") Z " in line])

    def test_stop_lets_the_agent_end_by_itself(self):
        self.start(DEMO)
        self.sandbox.door.send(b"up")
        self.assertEqual(self.sandbox.door.line(), b"up")
        self.sandbox.signal(signal.SIGTERM)
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[:3], ("exited", 0, 0))

    def test_stop_at_any_moment_of_the_start_ends_it(self):
        for delay_ms in range(0, 24, 2):
            with self.subTest(delay_ms=delay_ms):
                sandbox = Sandbox()
                self.addCleanup(sandbox.close)
                sandbox.start(DEMO, env=[("MARKER", sandbox.session)], pids=64)
                time.sleep(delay_ms / 1000)
                sandbox.signal(signal.SIGTERM)
                self.assertIn(sandbox.wait(), (0, 1, -signal.SIGTERM))
                self.assertEqual(processes_with(sandbox.session), [])
                self.assertEqual(cgroups_of(sandbox.session), [])

    def test_kill_9_at_any_moment_of_the_start_leaves_nothing(self):
        for delay_ms in range(0, 24, 2):
            with self.subTest(delay_ms=delay_ms):
                sandbox = Sandbox()
                self.addCleanup(sandbox.close)
                sandbox.start(DEMO, env=[("MARKER", sandbox.session)], pids=64)
                time.sleep(delay_ms / 1000)
                sandbox.signal(signal.SIGKILL)
                sandbox.wait()
                self.assertTrue(wait_until(lambda: not processes_with(sandbox.session)))
                self.assertTrue(wait_until(lambda: not cgroups_of(sandbox.session)))

    def test_stop_kills_an_agent_that_ignores_it(self):
        self.start(["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"],
                   grace_ms=300)
        self.assertEqual(self.sandbox.door.line(), b"up")
        self.sandbox.signal(signal.SIGTERM)
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[0::2][:2], ("signaled", 9))

    def test_a_second_stop_ends_the_grace(self):
        self.start(["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"],
                   grace_ms=3600000)
        self.assertEqual(self.sandbox.door.line(), b"up")
        self.sandbox.signal(signal.SIGTERM)
        time.sleep(0.1)
        self.assertIsNotNone(start_ticks(self.sandbox.pid))
        self.sandbox.signal(signal.SIGTERM)
        self.assertEqual(self.sandbox.wait(), 0)

    def test_the_end_of_the_doors_link_ends_the_sandbox(self):
        self.start(["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
        self.sandbox.door.conn.close()
        self.assertEqual(self.sandbox.wait(), 0)

    def test_a_frame_that_is_not_valid_ends_the_sandbox(self):
        self.start(DEMO)
        self.sandbox.door.send(b"x", kind=77)
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertIn("not valid", self.sandbox.file("keep.log"))

    def test_the_pid_file_names_and_locks_leasekeep(self):
        self.start(DEMO)
        pid, ticks = map(int, self.sandbox.file("keep.pid").split())
        self.assertEqual((pid, ticks), (self.sandbox.pid, start_ticks(pid)))
        self.assertTrue(wait_until(lambda: self.sandbox.file("keep.state") == "running\n"))
        second = Sandbox()
        self.addCleanup(second.close)
        second.run = self.sandbox.run
        second.start(DEMO)
        self.assertEqual(second.wait(), 1)
        self.assertEqual(self.sandbox.file("keep.state"), "running\n")

    def test_kill_9_of_leasekeep_leaves_nothing(self):
        before = mounts()
        marker = "MARK" + self.sandbox.session
        self.start(["/bin/sh", "-c", "sleep 1000 & (setsid sleep 1000 &) ; echo up; sleep 1000"],
                   env=[("MARKER", marker)], memory_bytes=1 << 28, pids=64, cpus_milli=1000)
        self.assertEqual(self.sandbox.door.line(), b"up")
        self.assertTrue(processes_with(marker))
        self.assertTrue(cgroups_of(self.sandbox.session))
        init = self.sandbox.init_pid()
        self.sandbox.signal(signal.SIGKILL)
        self.assertEqual(self.sandbox.wait(), -signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not processes_with(marker)))
        self.assertTrue(wait_until(lambda: start_ticks(init) is None))
        self.assertTrue(wait_until(lambda: not cgroups_of(self.sandbox.session)))
        self.assertEqual(mounts(), before)

    def test_kill_9_of_bwrap_ends_everything(self):
        self.start(["/bin/sh", "-c", "echo up; sleep 1000"])
        self.assertEqual(self.sandbox.door.line(), b"up")
        with open(f"/proc/{self.sandbox.init_pid()}/stat") as file:
            bwrap = int(file.read().rpartition(")")[2].split()[1])
        os.kill(bwrap, signal.SIGKILL)
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[0::2][:2], ("signaled", 9))

    def test_an_ordinary_end_leaves_nothing(self):
        before = mounts()
        self.sh("exit 0", memory_bytes=1 << 28, pids=64, cpus_milli=500)
        self.assertEqual(cgroups_of(self.sandbox.session), [])
        self.assertEqual(mounts(), before)
        with self.assertRaises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)

    def test_a_flood_on_stderr_blocks_nobody_and_is_cut(self):
        self.python("import sys\nfor i in range(100): sys.stderr.write('e' * 99999 + '\\n')")
        log = self.sandbox.file("keep.log")
        self.assertLessEqual(len(log), LOG_MAX)
        self.assertIn("the log is full", log[-100:])


class Refusals(SandboxTest):
    def refused(self, detail):
        self.assertEqual(self.sandbox.wait(), 1)
        reason, _, _, text = self.sandbox.ended()
        self.assertEqual(reason, "start_failed")
        self.assertIn(detail, text)

    def test_every_fault_of_the_spec_is_named(self):
        good = self.sandbox.records(DEMO)

        def without(name):
            return [r for r in good if not r.startswith(name + "=")]

        cases = [
            (good + ["what=1"], "unknown record"),
            (good + ["what"], "without ="),
            (good + ["uid=5"], "given twice"),
            (without("uid") + ["uid=0"], "never runs as root"),
            (without("gid") + ["gid=0"], "never runs as root"),
            (without("uid") + ["uid=-1"], "no number"),
            (without("pids") + ["pids=99999999999999999999"], "no number"),
            (without("session"), "session"),
            (without("session") + ["session=../x"], "session"),
            (without("box"), "box"),
            (without("box") + ["box=relative"], "box"),
            (without("arg"), "no command"),
            (without("transport"), "transport"),
            (without("root") + ["root=/"], "root"),
            (good + ["bind=ro\t/usr"], "bind 2"),
            (good + ["bind=rx\t/usr\t/x"], "bind 2"),
            (good + ["bind=ro\t/usr/../etc\t/x"], "bind 2"),
            (good + ["bind=ro\t/usr\t/proc/sys"], "target"),
            (good + ["bind=ro\t/usr\t/run"], "target"),
            (good + ["bind=ro\t/usr\t/run/leasehold/x"], "target"),
            (good + ["helper=../x\t/usr/bin/true"], "helper"),
            (good + ["env=1A=x"], "env 1"),
            (good + ["env=A"], "env 1"),
            (good + ["arg=x"] * 600, "words"),
            (good + ["env=A=" + "x" * 300000], "longer than"),
        ]
        for records, detail in cases:
            with self.subTest(detail=detail, last=records[-1][:40]):
                self.sandbox.start_raw("".join(r + "\0" for r in records).encode())
                self.sandbox.status = None
                self.refused(detail)
        self.sandbox.status = None
        self.sandbox.start_raw("\0".join(good).encode())
        self.refused("not complete")

    def test_an_unknown_transport_is_named(self):
        self.sandbox.start(DEMO, transport="pigeon:7")
        self.refused('no transport "pigeon:7"')

    def test_a_missing_source_is_named_by_its_target(self):
        self.sandbox.start(DEMO, binds=[("ro", self.sandbox.root + "/no", "/opt/dependencies")])
        self.refused("/opt/dependencies: No such file")

    def test_a_symlink_planted_in_a_source_is_refused(self):
        link = os.path.join(self.sandbox.chat, "planted")
        os.symlink("/etc", link)
        for source in (link, link + "/ssl"):
            with self.subTest(source=source):
                self.sandbox.status = None
                self.sandbox.start(DEMO, binds=[("ro", source, "/workspace/x")])
                self.refused("symlink")

    def test_a_device_or_fifo_is_no_source(self):
        fifo = os.path.join(self.sandbox.root, "fifo")
        os.mkfifo(fifo)
        for source in (fifo, "/dev/null"):
            with self.subTest(source=source):
                self.sandbox.status = None
                self.sandbox.start(DEMO, binds=[("ro", source, "/workspace/x")])
                self.refused("neither file nor directory")

    def test_a_symlink_at_a_helpers_mount_point_is_refused(self):
        victim = os.path.join(self.sandbox.root, "victim")
        os.symlink(victim, os.path.join(self.sandbox.box, "leaseinit"))
        self.sandbox.start(DEMO)
        self.refused("mount point of leaseinit")
        self.assertFalse(os.path.exists(victim))


class Isolation(SandboxTest):
    def test_proc_sys_cannot_be_written(self):
        script = """
import os
bad = []
for top, dirs, files in os.walk('/proc/sys'):
    for name in files:
        path = os.path.join(top, name)
        try:
            os.close(os.open(path, os.O_WRONLY))
            bad.append(path)
        except OSError:
            pass
try:
    open('/proc/sys/kernel/core_pattern', 'w').write('|/tmp/x')
    bad.append('written')
except OSError as e:
    print(type(e).__name__ in ('PermissionError', 'OSError'))
try:
    open('/proc/sysrq-trigger', 'w')
    bad.append('sysrq')
except OSError:
    pass
print(bad)
"""
        self.assertEqual(self.python(script), ["True", "[]"])
        self.assertEqual(core_pattern(), CORE_PATTERN)

    def test_identity_is_the_agents_and_without_privilege(self):
        lines = self.sh("cat /proc/self/status")
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        self.assertEqual(status["Uid"].split(), [str(UID)] * 4)
        self.assertEqual(status["Gid"].split(), [str(UID)] * 4)
        self.assertEqual(status["Groups"].strip(), "")
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        self.assertEqual(int(status["SigBlk"], 16), 0)
        self.assertEqual(int(status["SigIgn"], 16), 0)

    def test_leaseinit_has_no_privilege_on_the_host_either(self):
        self.start(DEMO)
        init = self.sandbox.init_pid()
        with open(f"/proc/{init}/stat") as file:
            bwrap = int(file.read().rpartition(")")[2].split()[1])
        for pid in (init, bwrap):
            with open(f"/proc/{pid}/status") as file:
                status = dict(l.rstrip("\n").split(":\t", 1) for l in file if ":\t" in l)
            self.assertEqual(status["Uid"].split(), [str(UID)] * 4)
            self.assertEqual(status["Groups"].strip(), "")
            self.assertEqual(status["NoNewPrivs"], "1")
            self.assertEqual((int(status["CapEff"], 16), int(status["CapBnd"], 16)), (0, 0))

    def test_only_its_own_processes_are_seen(self):
        self.assertEqual(sorted(self.sh("cat /proc/[0-9]*/comm")), ["leaseinit", "sh"])

    def test_only_descriptors_0_1_2_are_open(self):
        script = "import os\nfor n in os.listdir('/proc/self/fd'): print(n)"
        fds = sorted(int(n) for n in self.python(script))
        self.assertEqual(fds, [0, 1, 2, 3], "3 is the listing's own")
        self.sandbox.close()

    def test_leaseinit_holds_nothing_of_the_host(self):
        self.start(DEMO)
        self.sandbox.door.send(b"up")
        self.assertEqual(self.sandbox.door.line(), b"up")
        init = self.sandbox.init_pid()
        targets = {n: os.readlink(f"/proc/{init}/fd/{n}") for n in os.listdir(f"/proc/{init}/fd")}
        strange = [t for t in targets.values()
                   if not t.startswith(("pipe:", "socket:", "anon_inode:[signalfd]", "/dev/null"))]
        self.assertEqual(strange, [])

    def test_host_files_are_out_of_reach(self):
        other = Sandbox()
        self.addCleanup(other.close)
        secret = os.path.join(other.chat, "secret")
        with open(secret, "w") as file:
            file.write("s")
        paths = ["/etc/shadow", "/etc/hostname", "/etc/machine-id", "/root", "/home", "/var",
                 "/boot", "/sys", "/lost+found", "/srv", "/mnt", "/media", keep_sandbox.REPO,
                 self.sandbox.root, self.sandbox.run, other.root, other.run, secret,
                 "/run/leasehold/../" + other.session, "/proc/1/root/etc", "/proc/1/cwd"]
        script = f"import os\nfor p in {paths!r}:\n    if os.path.exists(p): print(p)"
        self.assertEqual(self.python(script), [])

    def test_the_tree_is_minimal(self):
        lines = self.sh("ls -A /; echo; ls -A /etc; echo; ls -A /run /run/leasehold /workspace")
        text = "\n".join(lines).split("\n\n")
        top = set(text[0].split())
        self.assertLessEqual(top, {"bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin",
                                   "tmp", "usr", "workspace"})
        self.assertLessEqual(set(text[1].split()), {"passwd", "group", "hosts", "nsswitch.conf",
                                                    "ld.so.cache", "alternatives", "ssl"})
        self.assertIn("agent.sock", lines)

    def test_only_the_chat_and_tmp_can_be_written(self):
        script = """
import os
for top, dirs, files in os.walk('/'):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in ('/proc', '/usr')]
    if os.access(top, os.W_OK):
        print(top)
for p in ('/usr', '/usr/bin', '/run/leasehold', '/', '/etc', '/dev', '/workspace'):
    try:
        open(p + '/x', 'w')
        print('wrote', p)
    except OSError:
        pass
open('/workspace/chat/result', 'w').write('kept')
"""
        lines = self.python(script)
        # devpts holds terminals alone, no files.
        self.assertEqual(sorted(lines), ["/dev/pts", "/dev/shm", "/tmp", "/workspace/chat"])
        st = os.stat(os.path.join(self.sandbox.chat, "result"))
        self.assertEqual((st.st_uid, st.st_gid), (UID, UID))

    def test_tmp_is_limited(self):
        script = """
import errno
for p in ('/tmp/x', '/dev/shm/x'):
    try:
        with open(p, 'wb') as f:
            for i in range(100): f.write(bytes(1 << 20))
        print('no limit')
    except OSError as e:
        print(errno.errorcode[e.errno])
"""
        self.assertEqual(self.python(script), ["ENOSPC", "ENOSPC"])

    def test_read_only_binds_stay_read_only(self):
        tools = os.path.join(self.sandbox.root, "tools")
        os.mkdir(tools)
        os.chown(tools, UID, UID)
        note = os.path.join(self.sandbox.root, "history.md")
        with open(note, "w") as file:
            file.write("past\n")
        os.chown(note, UID, UID)
        lines = self.sh("cat /workspace/history.md; touch /opt/tools/x 2>/dev/null || echo no; "
                        "(echo x >> /workspace/history.md) 2>/dev/null || echo no",
                        binds=[("ro", tools, "/opt/tools"), ("ro", note, "/workspace/history.md")])
        self.assertEqual(lines, ["past", "no", "no"])

    def test_what_is_mounted_below_a_source_is_not_shown(self):
        below = os.path.join(self.sandbox.chat, "below")
        os.mkdir(below)
        os.system(f"mount -t tmpfs none {below} && touch {below}/hidden")
        try:
            self.assertEqual(self.sh("ls /workspace/chat/below; echo end"), ["end"])
        finally:
            os.system(f"umount {below}")

    def test_a_setuid_program_of_the_chat_gains_nothing(self):
        tool = os.path.join(self.sandbox.chat, "id")
        with open("/usr/bin/id", "rb") as src, open(tool, "wb") as dst:
            dst.write(src.read())
        os.chown(tool, 0, 0)
        os.chmod(tool, 0o6755)
        self.assertEqual(self.sh("/workspace/chat/id -u; /workspace/chat/id -g"), [str(UID)] * 2)

    def test_there_is_no_network_but_loopback(self):
        script = """
import socket
print([l.split(':')[0].strip() for l in open('/proc/net/dev').readlines()[2:]])
s = socket.socket(); s.settimeout(2)
for address in (('192.0.2.1', 80), ('169.254.169.254', 80), ('10.0.0.1', 53)):
    try:
        s.connect(address); print('connected')
    except OSError:
        pass
for family in (40, 17, 38, 16 + 25):  # vsock, packet, alg, kcm
    try:
        socket.socket(family, socket.SOCK_STREAM if family != 17 else socket.SOCK_RAW)
        print('family', family)
    except OSError:
        pass
"""
        self.assertEqual(self.python(script), ["['lo']"])

    def test_a_listener_of_the_host_on_loopback_is_not_reached(self):
        import socket
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            name = "\0keep-test-" + self.sandbox.session
            with socket.socket(socket.AF_UNIX) as abstract:
                abstract.bind(name)
                abstract.listen()
                script = f"""
import socket
for family, address in ((socket.AF_INET, ('127.0.0.1', {port})), (socket.AF_UNIX, {name!r})):
    try:
        socket.socket(family).connect(address); print('connected')
    except OSError as e:
        print('refused')
"""
                self.assertEqual(self.python(script), ["refused", "refused"])

    def test_no_further_namespaces(self):
        lines = self.sh("for o in -U -m -n -p -u -i -r; do unshare $o true 2>/dev/null "
                        "&& echo $o; done; echo end")
        self.assertEqual(lines, ["end"])

    def test_clone_makes_no_user_namespace_either(self):
        script = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
pid = libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0:
    libc._exit(0)
print(pid, ctypes.get_errno() != 0)
"""
        self.assertEqual(self.python(script), ["-1 True"])

    def test_other_memory_and_pid_1_are_closed(self):
        script = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name in ('mem', 'environ', 'maps'):
    try:
        open('/proc/1/' + name, 'rb').read(1); print('read', name)
    except OSError:
        pass
try:
    print(os.listdir('/proc/1/fd'))
except OSError:
    pass
print(libc.ptrace(16, 1, 0, 0))
"""
        self.assertEqual(self.python(script), ["-1"])

    def test_dangerous_system_calls_are_refused(self):
        script = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
calls = {'keyctl': 250, 'add_key': 248, 'bpf': 321, 'io_uring_setup': 425, 'mount': 165,
         'perf_event_open': 298, 'userfaultfd': 323, 'open_tree': 428, 'setns': 308}
for name, number in calls.items():
    r = libc.syscall(number, 0, 0, 0, 0, 0)
    if r != -1 or ctypes.get_errno() != 1:
        print(name, r, ctypes.get_errno())
r = libc.syscall(0x40000000 | 39)
print(r, ctypes.get_errno())
"""
        self.assertEqual(self.python(script), ["-1 38"])

    def test_keys_of_the_host_are_not_listed(self):
        self.assertEqual(self.sh("cat /proc/keys /proc/key-users 2>/dev/null; echo end"), ["end"])

    def test_dev_is_minimal(self):
        names = set(self.sh("ls -A /dev"))
        self.assertLessEqual(names, {"core", "fd", "full", "null", "ptmx", "pts", "random", "shm",
                                     "stderr", "stdin", "stdout", "tty", "urandom", "zero"})

    def test_core_dumps_and_descriptors_are_limited(self):
        self.assertEqual(self.sh("ulimit -c; ulimit -Hc; ulimit -Sn; ulimit -Hn"),
                         ["0", "0", "1024", "4096"])

    def test_the_environment_is_what_the_spec_says(self):
        lines = self.sh("/usr/bin/env; pwd; hostname; id -un",
                        env=[("TOKEN", "a=b c"), ("EMPTY", "")])
        env = dict(line.split("=", 1) for line in lines[:-3])
        env.pop("_", None)
        self.assertEqual(env, {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/workspace",
                               "LANG": "C.UTF-8", "PWD": "/workspace", "TOKEN": "a=b c",
                               "EMPTY": ""})
        self.assertEqual(lines[-3:], ["/workspace", "sandbox", "sandbox"])

    def test_secrets_stand_in_no_command_line(self):
        secret = "S3CR3T" + self.sandbox.session
        self.start(DEMO, env=[("API_KEY", secret)])
        self.assertEqual(self.sandbox.file("keep.log"), "")
        for pid in keep_sandbox.pids():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    self.assertNotIn(secret.encode(), file.read())
            except OSError:
                pass
        with open(f"/proc/{self.sandbox.pid}/environ", "rb") as file:
            self.assertNotIn(secret.encode(), file.read())

    def test_the_agent_cannot_reach_another_socket_through_the_box(self):
        lines = self.sh("ln -s /x /run/leasehold/y 2>/dev/null || echo no; "
                        "rm -f /run/leasehold/agent.sock 2>/dev/null || echo no; "
                        "mv /run/leasehold/leaseinit /run/leasehold/z 2>/dev/null || echo no")
        self.assertEqual(lines, ["no"] * 3)
        self.assertTrue(stat.S_ISSOCK(os.stat(self.sandbox.box + "/agent.sock").st_mode))


class WithoutRoot(SandboxTest):
    def test_the_agent_runs_isolated_with_the_uid_of_its_starter(self):
        uid = 12345
        for top, dirs, files in os.walk(self.sandbox.root):
            for name in [top] + [os.path.join(top, f) for f in files]:
                os.chown(name, uid, uid)
        self.sandbox.start_as = uid
        lines = self.sh("id -u; cat /proc/self/status | grep CapEff; id -un; "
                        "ls /root /proc/sys/x 2>/dev/null; echo > /workspace/chat/x && echo wrote; "
                        "unshare -U true 2>/dev/null || echo no; ls -d /tmp/* 2>/dev/null")
        self.assertEqual(lines, [str(uid), "CapEff:\t0000000000000000", "sandbox", "wrote", "no"])
        self.assertEqual(os.stat(self.sandbox.chat + "/x").st_uid, uid)


class Limits(SandboxTest):
    def test_memory_over_the_limit_ends_as_oom(self):
        self.start([PYTHON, "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"],
                   memory_bytes=64 << 20)
        try:
            self.sandbox.door.until_exit()
        except Ended:
            pass
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[0], "oom", self.sandbox.file("keep.log"))
        self.assertEqual(cgroups_of(self.sandbox.session), [])

    def test_a_plain_kill_is_not_oom(self):
        self.sh("kill -9 $$", memory_bytes=64 << 20)
        self.assertEqual(self.sandbox.ended()[:3], ("signaled", 137, 9))

    def test_the_pids_limit_stops_a_fork_bomb(self):
        script = """
import os, time
n = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        n += 1
    except OSError:
        break
print(n + 1)
"""
        self.assertEqual(self.python(script, pids=32), ["32"])

    def test_the_cpu_quota_is_set(self):
        self.start(DEMO, cpus_milli=500)
        groups = [g for g in cgroups_of(self.sandbox.session)
                  if os.path.exists(g + "/cpu.cfs_quota_us") or os.path.exists(g + "/cpu.max")]
        self.assertEqual(len(groups), 1)
        name = "cpu.max" if os.path.exists(groups[0] + "/cpu.max") else "cpu.cfs_quota_us"
        with open(os.path.join(groups[0], name)) as file:
            self.assertEqual(file.read().split()[0], "50000")


if __name__ == "__main__":
    unittest.main(verbosity=2)
