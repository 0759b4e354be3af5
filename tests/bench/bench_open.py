"""From nothing to the agent's first answer: POST /sandboxes with a lease, connect, one echo.

    bench_open.py [RUNS]

One caller, one sandbox after the other, each for a chat of its own. Milliseconds.
"""

import statistics
import sys
import time
import uuid

import lean
from gateway import Gateway

GOAL_MS = 25
WARM_UP = 5


def run(gateway, runs):
    http = lean.Http(gateway.url, gateway.admin_key)
    samples = {"total": [], "open": [], "connect": [], "echo": []}
    for number in range(runs + WARM_UP):
        chat = http.call(http.prepare("POST", "/chats", {"user_id": str(uuid.uuid4())}))
        request = http.prepare("POST", "/sandboxes", {"chat_id": chat["chat_id"], "lease": {}})
        at = time.perf_counter()
        answer = http.call(request)
        opened = time.perf_counter()
        door = lean.Door(answer["grant"])
        connected = time.perf_counter()
        door.echo(b"hello")
        done = time.perf_counter()
        door.close()
        http.call(http.prepare("DELETE", f"/sandboxes/{answer['sandbox']['session_id']}"))
        if number >= WARM_UP:
            samples["total"].append((done - at) * 1000)
            samples["open"].append((opened - at) * 1000)
            samples["connect"].append((connected - opened) * 1000)
            samples["echo"].append((done - connected) * 1000)
    http.close()
    return samples


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    gateway = Gateway({"logging": {"level": "error"}})
    try:
        samples = run(gateway, runs)
    finally:
        gateway.cleanup()
    medians = {name: round(statistics.median(values), 2) for name, values in samples.items()}
    lean.emit(
        "open",
        medians["total"],
        "ms to the first answer, median",
        runs,
        goal=GOAL_MS,
        p95=round(lean.quantile(samples["total"], 0.95), 2),
        parts=medians,
    )


if __name__ == "__main__":
    main()
