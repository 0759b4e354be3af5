"""A hundred thousand leases that end in the same second.

    bench_expiry.py [LEASES]

How long until all are closed, counted from that second; the longest turn of the loop, as the loop
measures it (the bucket of leasehold_loop_turn_duration_seconds it falls into), and the most CPU time that
one had, for a turn also lasts while the loop waits for a CPU (leasehold_loop_long_turn_cpu_seconds); and
how long other leases take to be revoked meanwhile: from the commit to the door's confirmation, and as the
client sees it.
"""

import os
import sys
import time

import lease_rows
import lean
from gateway import Gateway
from metrics import Metrics

SESSIONS = 20
OTHERS = 3000  # leases to be revoked meanwhile
SETTLE_S = 12  # from the start of the gateway to that second
GOALS = {"turn_ms": 5, "closed_within_s": 2, "revoked_p99_ms": 5}
CONFIG = {
    "logging": {"level": "error"},
    "lease": {"ttl_seconds": 900, "per_session": 1000000, "per_user": 1000000},
    "security": {"rate_limit": {"requests_per_second": 1000000, "burst": 1000000}},
}
TURN = "leasehold_loop_turn_duration_seconds_bucket"
TURN_CPU = "leasehold_loop_long_turn_cpu_seconds_bucket"


def turns(gateway):
    """Turns so far, by the upper end of their bucket in seconds."""
    found = Metrics.of(gateway).samples
    return {
        name: {float(key[1]): value for key, value in found.items() if key[0] == name}
        for name in (TURN, TURN_CPU)
    }


def longest_ms(before, after):
    grew = {bound: after[bound] - before[bound] for bound in sorted(after)}
    total = grew[max(grew)]
    return next(bound for bound, n in grew.items() if n == total) * 1000


def above_5_ms(before, after):
    return after[max(after)] - after[0.005] - before[max(before)] + before[0.005]


def cpu_s(gateway):
    """CPU seconds so far: of the writer, of the loop, of all threads."""
    found = {"store": 0.0, "loop": 0.0, "all": 0.0}
    tasks = f"/proc/{gateway.process.pid}/task"
    for task in os.listdir(tasks):
        with open(f"{tasks}/{task}/stat", encoding="ascii") as stat:
            head, rest = stat.read().rsplit(")", 1)
        name = head.split("(", 1)[1]
        spent = sum(int(ticks) for ticks in rest.split()[11:13]) / os.sysconf("SC_CLK_TCK")
        found["all"] += spent
        if name == "store":
            found["store"] += spent
        elif int(task) == gateway.process.pid:
            found["loop"] += spent
    return found


def open_leases(gateway):
    m = Metrics.of(gateway)
    return sum(value for key, value in m.samples.items() if key[0] == "leasehold_leases")


def revoke_until_closed(gateway, http, others, left_over, ends_at):
    """(seconds until the planted ones are closed, latencies in ms as told, as seen)."""
    told, seen = [], []
    closed_at = None
    while closed_at is None:
        lease_id = others.pop()
        request = http.prepare("DELETE", f"/leases/{lease_id}?wait_ms=5000")
        begun = time.perf_counter()
        answer = http.call(request)
        seen.append((time.perf_counter() - begun) * 1000)
        told += [door["latency_us"] / 1000 for door in answer["doors"]]
        if len(seen) % 10 == 0 and time.time() > ends_at:
            if open_leases(gateway) <= left_over - len(seen) + 10:
                closed_at = time.time()
        if time.time() > ends_at + 60 or not others:
            raise SystemExit(f"bench: {open_leases(gateway)} leases are still open")
    return closed_at - ends_at, told, seen


def main():
    leases = int(sys.argv[1]) if len(sys.argv) > 1 else 100000
    gateway = Gateway(CONFIG)
    try:
        models = lease_rows.open_models(gateway, SESSIONS)
        http = lean.Http(gateway.url, gateway.admin_key)
        session = gateway.expect(200, "GET", f"/leases/{models[0]}")["session_id"]
        grant = http.prepare("POST", "/leases", {"session_id": session})
        others = [http.call(grant)["lease"]["lease_id"] for _ in range(OTHERS)]
        gateway.stop()
        begun = time.time()
        lease_rows.plant(gateway, models, leases, "pending", int(begun + 900) * 1000)
        ends_at = int(time.time()) + SETTLE_S
        lease_rows.move_end(gateway, int(begun + 900) * 1000, ends_at * 1000)
        gateway.start()
        http = lean.Http(gateway.url, gateway.admin_key)
        if time.time() > ends_at - 1:
            raise SystemExit("bench: the gateway was not ready in time")
        while time.time() < ends_at - 0.3:
            time.sleep(0.01)
        lean.note(f"{open_leases(gateway):.0f} leases, {leases} of them end in a moment")
        before, cpu_before = turns(gateway), cpu_s(gateway)
        left_over = OTHERS + len(models)
        took_s, told, seen = revoke_until_closed(gateway, http, others, left_over, ends_at)
        after, cpu_after = turns(gateway), cpu_s(gateway)
    finally:
        gateway.cleanup()
    lean.emit(
        "expiry",
        round(took_s, 3),
        f"s until {leases} leases that ended in the same second are closed",
        1,
        goals=GOALS,
        longest_turn_at_most_ms=longest_ms(before[TURN], after[TURN]),
        turns_above_5_ms=above_5_ms(before[TURN], after[TURN]),
        most_cpu_of_a_turn_at_most_ms=longest_ms(before[TURN_CPU], after[TURN_CPU]),
        turns_of_5_ms_of_cpu=above_5_ms(before[TURN_CPU], after[TURN_CPU]),
        revoked_told_ms={"p50": lean.quantile(told, 0.5), "p99": lean.quantile(told, 0.99)},
        revoked_seen_ms={
            "p50": round(lean.quantile(seen, 0.5), 3),
            "p99": round(lean.quantile(seen, 0.99), 3),
        },
        revoked_meanwhile=len(seen),
        sessions=SESSIONS,
        cpu_us_per_lease={
            name: round((cpu_after[name] - cpu_before[name]) / leases * 1e6, 1) for name in cpu_after
        },
    )


if __name__ == "__main__":
    main()
