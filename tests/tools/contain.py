"""Runs one command and ends with it everything it has started.

    contain.py TIMEOUT_S -- COMMAND...

Sandboxes, doors and daemons leave their parent's session on purpose, so a process group is not
enough to end them: this process becomes their subreaper (prctl(2)), reaps what dies while the
command runs, and afterwards kills what is left among its own descendants and nothing else.

Exit status: the command's own; 128 + N when signal N ended it; 124 after the timeout; 125 when the
command succeeded but left processes behind; 127 when it could not be started.
"""

import ctypes
import os
import signal
import sys
import time

EXIT_TIMEOUT = 124
EXIT_LEFT_BEHIND = 125
EXIT_NOT_STARTED = 127

# Doors and sandboxes end a moment after the daemon that told them to.
SETTLE_S = 3.0
# What a test needs to run its own clean-up after SIGINT.
INTERRUPT_GRACE_S = 10.0

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def prctl(option, value):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children():
    """Pids and names of our direct children, zombies left out."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                text = stat.read()
        except OSError:
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        state, parent = text[text.rindex(")") + 2 :].split()[:2]
        if int(parent) == os.getpid() and state != "Z":
            found[int(entry)] = name
    return found


class Reaper:
    """Waits for all children; remembers how the one that matters ended."""

    def __init__(self, pid):
        self.pid = pid
        self.status = None

    def reap(self):
        """Collects every zombie there is. False when no child is left at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.status = status

    def wait(self, deadline, until_all=False):
        """True once the command (or every descendant) has ended, False at the deadline."""
        while time.monotonic() < deadline:
            alive = self.reap()
            if not alive or (self.status is not None and not until_all):
                return True
            time.sleep(0.02)
        return False


def kill_descendants(reaper):
    """Kills until no child is left: the children of a killed one become ours."""
    while reaper.reap():
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def interrupt(reaper, pid):
    """Lets the command clean up; its group is its own because it leads a session."""
    if reaper.status is None:
        os.killpg(pid, signal.SIGINT)
    reaper.wait(time.monotonic() + INTERRUPT_GRACE_S)


def exit_status(status):
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def spawn(command):
    """The pid of the command, in a session of its own.

    Not subprocess: its objects reap too. Not posix_spawn: it leaves two signals of the thread
    library ignored, and whoever the tests start inherits that.
    """
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # Some are ignored by Python, some perhaps by whoever started us (nohup, tmux).
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as e:
        print(f"contain: cannot start {command[0]}: {e.strerror}", flush=True)
    finally:
        os._exit(EXIT_NOT_STARTED)


class Stopped(Exception):
    """The test runner wants us to end."""


def stop(_signal, _frame):
    raise Stopped()


def run(timeout_s, command):
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would take the exit status with it
    pid = spawn(command)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    reaper = Reaper(pid)
    try:
        if not reaper.wait(time.monotonic() + timeout_s):
            print(f"contain: not done after {timeout_s:g} s, ended", flush=True)
            interrupt(reaper, pid)
            return EXIT_TIMEOUT
        code = exit_status(reaper.status)
        if not reaper.wait(time.monotonic() + SETTLE_S, until_all=True):
            left = ", ".join(f"{name} ({pid})" for pid, name in children().items())
            print(f"contain: left behind: {left}", flush=True)
            code = code or EXIT_LEFT_BEHIND
        return code
    except Stopped:
        interrupt(reaper, pid)
        return 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        kill_descendants(reaper)


def main(argv):
    if len(argv) < 4 or argv[2] != "--":
        print(__doc__, file=sys.stderr)
        return 2
    return run(float(argv[1]), argv[3:])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
