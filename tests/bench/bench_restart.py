"""How long a gateway with a million lease rows takes to be ready again.

    bench_restart.py [ROWS [ACTIVE]]

ACTIVE of the rows are open leases of sandboxes that go on running meanwhile. Counted from the exec to
run/ready, behind an orderly stop and behind kill -9, when SQLite checks the file first; and how long it
takes until the doors are live again with all their leases.
"""

import sys
import time

import lease_rows
import lean
from gateway import Gateway
from metrics import Metrics

GOAL_S = 3
SESSIONS = 10
DOORS_WITHIN_S = 30
CONFIG = {
    "logging": {"level": "info"},
    "lease": {"ttl_seconds": 900, "per_session": 1000000, "per_user": 1000000},
}


def start(gateway):
    begun = time.perf_counter()
    gateway.start()
    return time.perf_counter() - begun


def doors_live(gateway, doors):
    begun = time.perf_counter()
    while Metrics.of(gateway)["leasehold_doors_live"] < doors:
        if time.perf_counter() - begun > DOORS_WITHIN_S:
            raise SystemExit("bench: the doors do not come back")
        time.sleep(0.01)
    return time.perf_counter() - begun


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1000000
    active = int(sys.argv[2]) if len(sys.argv) > 2 else 100000
    gateway = Gateway(CONFIG)
    try:
        models = lease_rows.open_models(gateway, SESSIONS)
        gateway.stop()
        until = int(time.time() + 800) * 1000
        lease_rows.plant(gateway, models, rows - active, "closed", 1000)
        lease_rows.plant(gateway, models, active, "pending", until)
        lean.note(f"{rows} rows")
        orderly = start(gateway)
        settled = doors_live(gateway, SESSIONS)
        gateway.kill9()
        killed = start(gateway)
        leases = Metrics.of(gateway)["leasehold_leases", "active"]
        doors_live(gateway, SESSIONS)
        checked = [line["ms"] for line in gateway.log_lines("store_checked")]
    finally:
        gateway.cleanup()
    lean.emit(
        "restart",
        round(orderly, 3),
        f"s from the exec to ready, {rows} lease rows, {active} of them active",
        1,
        goal=GOAL_S,
        behind_kill_9=round(killed, 3),
        of_it_quick_check_ms=checked,
        doors_live_after=round(settled, 3),
        leases_seen=leases,
    )


if __name__ == "__main__":
    main()
