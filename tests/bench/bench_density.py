"""Idle sandboxes on one machine: memory of each.

    bench_density.py [SANDBOXES]

Pss counts shared pages by share. `machine_bytes` is what MemAvailable lost for each: with it come the
kernel's own costs (namespaces, mounts, control groups, sockets), and whatever else ran meanwhile.
"""

import collections
import sys
import time
import uuid

import lean
from gateway import Gateway

CONFIG = {"logging": {"level": "error"}, "sandbox": {"ttl_seconds": 3600}}


def rollup(pid):
    """{"Pss": bytes, "Private": bytes} of a process."""
    found = collections.Counter()
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as text:
        for line in text:
            words = line.split()
            if words[0] == "Pss:":
                found["Pss"] += 1024 * int(words[1])
            elif words[0].startswith("Private_"):
                found["Private"] += 1024 * int(words[1])
    return found


def available_bytes():
    with open("/proc/meminfo", encoding="ascii") as text:
        return next(1024 * int(line.split()[1]) for line in text if line.startswith("MemAvailable"))


def fill(gateway, sandboxes):
    http = lean.Http(gateway.url, gateway.admin_key)
    for number in range(sandboxes):
        chat = http.call(http.prepare("POST", "/chats", {"user_id": str(uuid.uuid4())}))
        http.call(http.prepare("POST", "/sandboxes", {"chat_id": chat["chat_id"]}))
        if number % 100 == 99:
            lean.note(f"{number + 1} sandboxes")
    http.close()


def by_program(processes):
    """(count, Pss, Private) of each program, in bytes."""
    found = collections.defaultdict(lambda: [0, 0, 0])
    for process in processes:
        try:
            memory = rollup(process.pid)
        except OSError:
            continue
        entry = found[process.name]
        entry[0] += 1
        entry[1] += memory["Pss"]
        entry[2] += memory["Private"]
    return found


def main():
    sandboxes = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    gateway = Gateway(CONFIG)
    try:
        before, gateway_before = available_bytes(), rollup(gateway.process.pid)["Private"]
        at = time.monotonic()
        fill(gateway, sandboxes)
        seconds = time.monotonic() - at
        time.sleep(2)
        lost = before - available_bytes()
        gateway_grown = rollup(gateway.process.pid)["Private"] - gateway_before
        programs = by_program(gateway.sandboxes_left())
    finally:
        gateway.cleanup()
    pss = sum(entry[1] for entry in programs.values())
    lean.emit(
        "density",
        round(pss / sandboxes),
        "bytes of Pss an idle sandbox with its door",
        sandboxes,
        machine_bytes=round(lost / sandboxes),
        gateway_bytes=round(gateway_grown / sandboxes),
        filled_in_s=round(seconds, 1),
        programs={
            name: {"n": n, "pss": round(p / n), "private": round(private / n)}
            for name, (n, p, private) in sorted(programs.items())
        },
    )


if __name__ == "__main__":
    main()
