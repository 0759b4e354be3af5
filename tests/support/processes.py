"""Looking at processes through /proc, and ending exactly the ones that were looked at."""

import os
import signal
import subprocess
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    pid: int
    start_ticks: int  # with the pid: this process and no later one of the same number
    parent: int
    name: str

    def alive(self):
        now = look(self.pid)
        return now is not None and now.start_ticks == self.start_ticks

    def send(self, number):
        """False when it has gone. By pidfd, so that no other process of that pid is ever hit."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True


def look(pid):
    """The process, or None when it has gone or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            text = stat.read()
    except OSError:
        return None
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return Process(int(pid), int(fields[19]), int(fields[1]), name)


def is_stopped(pid):
    """By a signal: it answers nobody."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as text:
            return text.read().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def cpu_seconds(pid):
    """That it has used so far, its threads' together."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as text:
        fields = text.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_seconds(pid):
    """That its threads have run, or have waited for a CPU: who spins does one of the two all the time, however
    many others want the CPUs."""
    busy = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as stat:
                busy += sum(map(int, stat.read().split()[:2]))
        except OSError:  # it has ended
            continue
    return busy / 1e9


def is_idle(pid, seconds=0.2):
    """It does next to nothing for so long."""
    before = busy_seconds(pid)
    time.sleep(seconds)
    return busy_seconds(pid) - before < 0.4 * seconds


def descriptors_limit(pid, soft):
    """Sets its soft limit; returns what it was. As its own user, who may do that without privileges."""
    with open(f"/proc/{pid}/limits", encoding="ascii") as text:
        (before,) = [line.split()[3] for line in text if line.startswith("Max open files")]
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as text:
        ids = {line.split()[0]: int(line.split()[1]) for line in text if line[:4] in ("Uid:", "Gid:")}
    subprocess.run(
        ["prlimit", f"--pid={pid}", f"--nofile={soft}:"], user=ids["Uid:"], group=ids["Gid:"],
        extra_groups=[], check=True,
    )
    return int(before)


MAPPING_MOST = 64 << 20  # a sanitizer's own are longer by far, and hold no data


def memory(pid):
    """What it may write of its own memory, mapping by mapping."""
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as text:
        lines = [line.split() for line in text]
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for span, mode, _, _, inode, *_ in lines:
            start, end = (int(word, 16) for word in span.split("-"))
            if mode[:2] == "rw" and inode == "0" and end - start <= MAPPING_MOST:
                try:
                    file.seek(start)
                    yield file.read(end - start)
                except OSError:  # unmapped meanwhile
                    continue


def descriptors(pid):
    """What they are open on, as /proc names it."""
    root = f"/proc/{pid}/fd"
    links = []
    for name in os.listdir(root):
        try:
            links.append(os.readlink(os.path.join(root, name)))
        except OSError:  # closed meanwhile
            continue
    return links


def all_processes():
    """Every process by pid."""
    found = (look(pid) for pid in os.listdir("/proc") if pid.isdigit())
    return {process.pid: process for process in found if process}


def arguments(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as text:
            return [word.decode(errors="replace") for word in text.read().split(b"\0")]
    except OSError:
        return []


def cwd(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def with_descendants(roots, processes):
    """The given pids and everything below them, by pid."""
    found = set(roots)
    grown = True
    while grown:
        more = {p.pid for p in processes.values() if p.parent in found} - found
        found |= more
        grown = bool(more)
    return {pid: processes[pid] for pid in found if pid in processes}
