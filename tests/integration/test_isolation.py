#!/usr/bin/python3
"""What an agent in a local sandbox can reach: nothing but its own.

The probes run as the agent. Needs root, bubblewrap and the built programs (LEASEHOLD_BIN, default
build/release/bin).
"""

import os
import socket
import stat
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import keep_sandbox
from keep_sandbox import UID, Sandbox, SandboxTest

DEMO = ["/run/leasehold/demo-agent"]


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
for family in (40, 17, 38, 16 + 25, 43):  # vsock, packet, alg, kcm, smc
    try:
        socket.socket(family, socket.SOCK_STREAM if family != 17 else socket.SOCK_RAW)
        print('family', family)
    except OSError:
        pass
"""
        self.assertEqual(self.python(script), ["['lo']"])

    def test_a_listener_of_the_host_on_loopback_is_not_reached(self):
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

    def test_no_socket_lingers(self):
        """Sent with SCM_RIGHTS, it would block whoever drops it, the door as well."""
        script = """
import socket, struct
s = socket.socket()
linger, tcp_congestion = struct.pack('ii', 1, 60), 13
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
print(s.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == bytes(8))
s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
print(s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
assert socket.SO_LINGER == tcp_congestion
try:
    s.setsockopt(socket.IPPROTO_TCP, tcp_congestion, b'nosuch')
except OSError as e:
    print(type(e).__name__)
"""
        self.assertEqual(self.python(script), ["True", "1", "FileNotFoundError"])

    def test_keys_of_the_host_are_not_listed(self):
        self.assertEqual(self.sh("cat /proc/keys /proc/key-users 2>/dev/null; echo end"), ["end"])

    def test_proc_tells_little_about_the_machine(self):
        script = """
import os
for name in ('cmdline', 'config.gz', 'diskstats', 'interrupts', 'kallsyms', 'kcore', 'key-users',
             'keys', 'latency_stats', 'modules', 'partitions', 'sched_debug', 'sysrq-trigger',
             'timer_list', 'timer_stats'):
    try:
        if open('/proc/' + name, 'rb').read(1): print('read', name)
    except OSError:
        pass
for name in ('acpi', 'asound', 'bus', 'fs', 'scsi'):
    path = '/proc/' + name
    if not os.path.exists(path): continue
    for found in os.listdir(path): print('listed', path, found)
    try:
        open(path + '/x', 'w'); print('wrote', path)
    except OSError:
        pass
"""
        self.assertEqual(self.python(script), [])

    def test_inotify_of_one_sandbox_does_not_starve_another(self):
        create = """
import ctypes, sys
libc = ctypes.CDLL(None)
n = 0
while n < 10000 and libc.inotify_init1(0) >= 0: n += 1
print(n, flush=True)
sys.stdin.read()
"""
        self.start(["/usr/bin/python3", "-I", "-c", create])
        with open("/proc/sys/fs/inotify/max_user_instances") as file:
            share = int(file.read()) // 4
        self.assertEqual(int(self.sandbox.door.line()), share)
        other = Sandbox()
        self.addCleanup(other.close)
        other.start(["/usr/bin/python3", "-I", "-c", create])
        other.door.accept()
        self.assertGreater(int(other.door.line()), 0)

    def test_pending_signals_of_one_sandbox_do_not_starve_another(self):
        create = """
import ctypes, sys
libc = ctypes.CDLL(None)
timer = ctypes.c_void_p()
n = 0
while n < 200000 and libc.timer_create(1, None, ctypes.byref(timer)) == 0: n += 1
print(n, flush=True)
sys.stdin.read()
"""
        self.start(["/usr/bin/python3", "-I", "-c", create])
        first = int(self.sandbox.door.line())
        self.assertTrue(0 < first <= 4096, first)
        other = Sandbox()
        self.addCleanup(other.close)
        other.start(["/usr/bin/python3", "-I", "-c", create])
        other.door.accept()
        self.assertEqual(int(other.door.line()), first)

    def test_there_are_no_posix_message_queues(self):
        [line] = self.sh("grep msgqueue /proc/self/limits")
        self.assertEqual(line.split()[3:5], ["0", "0"])

    def test_dev_is_minimal(self):
        names = set(self.sh("ls -A /dev"))
        self.assertLessEqual(names, {"core", "fd", "full", "null", "ptmx", "pts", "random", "shm",
                                     "stderr", "stdin", "stdout", "tty", "urandom", "zero"})

    def test_core_dumps_and_descriptors_are_limited(self):
        self.assertEqual(self.sh("ulimit -c; ulimit -Hc; ulimit -Sn; ulimit -Hn"),
                         ["0", "0", "1024", "3072"])

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
