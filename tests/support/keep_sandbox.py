"""Starts the real leasekeep and leaseinit for tests, with a door in Python."""

import os
import shutil
import signal
import tempfile
import unittest
import uuid

from fake_door import FakeDoor
from waiting import PATIENCE_S, until

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.abspath(
    os.environ.get("LEASEHOLD_BIN", os.path.join(REPO, "build", "release", "bin"))
)
UID = 10001
LOG_MAX = 512 * 1024


def require():
    """What the tests need; they fail, never skip, without it."""
    problems = []
    if os.geteuid() != 0:
        problems.append("run the tests as root (sudo make test)")
    if not os.path.exists("/usr/bin/bwrap"):
        problems.append("apt-get install -y bubblewrap")
    for name in ("leasekeep", "leaseinit", "demo-agent"):
        if not os.path.exists(os.path.join(BIN, name)):
            problems.append(f"build {name} (make build) or set LEASEHOLD_BIN; looked in {BIN}")
    if problems:
        raise RuntimeError("; ".join(problems))


def start_ticks(pid):
    """Field 22 of /proc/PID/stat, None when there is no such process or only a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def processes_with(marker):
    """Pids whose command line or environment holds the marker."""
    found = []
    for pid in pids():
        for name in ("cmdline", "environ"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    if marker.encode() in file.read():
                        found.append(pid)
                        break
            except OSError:
                pass
    return found


class Sandbox:
    """One run directory below a 0700 directory of root's, as the gateway makes it."""

    def __init__(self):
        self.session = str(uuid.uuid4())
        self.root = tempfile.mkdtemp(prefix="leasehold-keep-")
        self.run = os.path.join(self.root, "run", self.session)
        self.box = os.path.join(self.run, "box")
        self.chat = os.path.join(self.root, "data", "chat", "files")
        os.makedirs(self.run, 0o700)
        os.mkdir(self.box, 0o755)
        os.makedirs(self.chat, 0o700)
        os.chown(self.chat, UID, UID)
        self.door = FakeDoor(os.path.join(self.box, "agent.sock"), gid=UID)
        self.pid = None
        self.status = None
        self.start_as = None
        self.bin = BIN
        self.notify_fd = None  # becomes leasekeep's descriptor 4

    def records(self, command, transport="stdio", env=(), binds=None, **limits):
        if binds is None:
            binds = [("rw", self.chat, "/workspace/chat")]
        numbers = {"memory_bytes": 0, "pids": 0, "cpus_milli": 0, "grace_ms": 2000}
        numbers.update(limits)
        records = [f"session={self.session}", f"uid={UID}", f"gid={UID}", "root="]
        records += [f"box={self.box}", "cwd=/workspace", f"transport={transport}"]
        records += [f"helper={n}\t{self.bin}/{n}" for n in ("leaseinit", "demo-agent")]
        records += ["bind=" + "\t".join(bind) for bind in binds]
        records += [f"env={name}={value}" for name, value in env]
        records += [f"{name}={value}" for name, value in numbers.items()]
        records += [f"arg={word}" for word in command]
        return records

    def start(self, command, **spec):
        self.start_raw("".join(r + "\0" for r in self.records(command, **spec)).encode())

    def start_raw(self, text):
        spec = os.memfd_create("spec")
        os.write(spec, text)
        os.lseek(spec, 0, os.SEEK_SET)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._become_keep(spec)
            finally:
                os._exit(99)
        os.close(spec)

    def _become_keep(self, spec):
        os.setsid()
        os.chdir(self.run)
        null = os.open("/dev/null", os.O_RDWR)
        spec = os.dup(spec)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.dup2(spec, 3)
        if self.notify_fd is not None:
            os.dup2(self.notify_fd, 4)
        path = os.path.join(self.bin, "leasekeep")
        # Not closed on purpose: leasekeep itself must keep strangers' descriptors out.
        leak = os.open("/etc/shadow", os.O_RDONLY)
        os.dup2(leak, 77)
        if self.start_as is not None:
            os.setgroups([])
            os.setresgid(self.start_as, self.start_as, self.start_as)
            os.setresuid(self.start_as, self.start_as, self.start_as)
        os.execve(path, [path], {"PATH": "/usr/bin:/bin"})

    def file(self, name):
        try:
            with open(os.path.join(self.run, name), errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def wait(self, timeout=PATIENCE_S):
        """The end of leasekeep: its exit status."""
        if self.status is None:
            done = until(lambda: os.waitpid(self.pid, os.WNOHANG)[1:] if self._ended() else 0,
                              timeout)
            if not done:
                raise TimeoutError("leasekeep still runs; log: " + self.file("keep.log"))
            self.status = os.waitstatus_to_exitcode(done[0])
        return self.status

    def _ended(self):
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def ended(self):
        """REASON, CODE, SIGNAL and detail of keep.state."""
        lines = self.file("keep.state").splitlines()
        if not lines or lines[0] != "ended":
            raise AssertionError(f"not ended: {lines}")
        reason, code, sig = lines[1].split()
        return reason, int(code), int(sig), lines[2] if len(lines) > 2 else ""

    def signal(self, number):
        os.kill(self.pid, number)

    def init_pid(self):
        text = until(lambda: self.file("keep.init"))
        return int(text.split()[0])

    def close(self):
        if self.pid is not None and self.status is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        self.door.close()
        shutil.rmtree(self.root, ignore_errors=True)


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
        return self.run_agent(["/usr/bin/python3", "-I", "-c", script], **spec)
