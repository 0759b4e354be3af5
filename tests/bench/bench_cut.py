"""How long after a durable revocation its connections are cut.

    bench_cut.py [DOORS [CONNECTIONS_PER_DOOR]]

All connections are live at the start, each under a lease of its own. Half of the doors lose theirs
one lease after the other, the other half all at once by a revocation of the session. Figures in
milliseconds:

    confirmed   from the commit to the door's confirmation, as the gateway measures it
    seen        from sending the request (so with its fsync) to the Close at the client
"""

import select
import sys
import time
import uuid

import lean
from gateway import Gateway

GOAL_MS = 5
CONFIG = {"logging": {"level": "error"}, "lease": {"ttl_seconds": 900, "per_session": 1000}}


class Session:
    def __init__(self, http, connections):
        chat = http.call(http.prepare("POST", "/chats", {"user_id": str(uuid.uuid4())}))
        opened = http.call(http.prepare("POST", "/sandboxes", {"chat_id": chat["chat_id"]}))
        self.session_id = opened["sandbox"]["session_id"]
        grant = http.prepare("POST", "/leases", {"session_id": self.session_id})
        self.doors = {}  # lease → connection
        for _ in range(connections):
            granted = http.call(grant)
            self.doors[granted["lease"]["lease_id"]] = lean.Door(granted)


def cut(http, request, doors):
    """(confirmed_ms, seen_ms): the latter when the last of these connections has its Close."""
    poll = select.poll()
    by_fd = {door.sock.fileno(): door for door in doors}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    at = time.perf_counter()
    http.sock.sendall(request)
    while by_fd:
        for fd, _ in poll.poll(10000) or sys.exit("bench: not cut within ten seconds"):
            data = by_fd[fd].sock.recv(65536)
            if data and data[0] != 0x88:
                continue
            poll.unregister(fd)
            del by_fd[fd]
    seen_ms = (time.perf_counter() - at) * 1000
    answer = http.call(b"")  # sent already
    if answer["unconfirmed"] or answer["doors"][0]["cut"] != len(doors):
        raise SystemExit(f"bench: {answer}")
    for door in doors:
        door.close()
    return answer["doors"][0]["latency_us"] / 1000, seen_ms


def measure(gateway, sessions, http):
    one, bulk = [], []
    half = len(sessions) // 2
    for session in sessions[:half]:
        for lease_id, door in session.doors.items():
            request = http.prepare("DELETE", f"/leases/{lease_id}?wait_ms=5000")
            one.append(cut(http, request, [door]))
    for session in sessions[half:]:
        body = {"selector": {"session_id": session.session_id}, "wait_ms": 5000}
        request = http.prepare("POST", "/leases/revoke", body)
        bulk.append(cut(http, request, list(session.doors.values())))
    return one, bulk


def figures(samples):
    confirmed, seen = zip(*samples)
    return {
        "confirmed_p50": round(lean.quantile(confirmed, 0.5), 3),
        "confirmed_p99": round(lean.quantile(confirmed, 0.99), 3),
        "seen_p50": round(lean.quantile(seen, 0.5), 3),
        "seen_p99": round(lean.quantile(seen, 0.99), 3),
        "runs": len(samples),
    }


def main():
    doors = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    connections = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    gateway = Gateway(CONFIG)
    try:
        http = lean.Http(gateway.url, gateway.admin_key)
        sessions = []
        for number in range(doors):
            sessions.append(Session(http, connections))
            if number % 25 == 24:
                lean.note(f"{number + 1} doors, {(number + 1) * connections} connections")
        one, bulk = measure(gateway, sessions, http)
    finally:
        gateway.cleanup()
    single = figures(one)
    lean.emit(
        "cut",
        single["confirmed_p99"],
        "ms from the commit to the confirmed cut, p99",
        len(one),
        goal=GOAL_MS,
        doors=doors,
        connections=doors * connections,
        one_lease=single,
        whole_session=figures(bulk),
    )


if __name__ == "__main__":
    main()
