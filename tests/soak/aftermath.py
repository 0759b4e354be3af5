"""What must hold after the kill rounds: nothing acknowledged is lost, nothing dead is left."""

import glob
import os
import sqlite3
import time

import audit
import processes
from load import Connection
from ws import WsClosed, WsError

SETTLE_S = 10
WORKERS_MAX = 16
ENDED = ("stopped", "failed")
ENDING = ("revoking", "expiring", "unconfirmed", "closed")

class Aftermath:
    def __init__(self, gateway, ledger, killed):
        self.gateway, self.ledger, self.killed = gateway, ledger, killed
        self.found = []

    def faults(self):
        self.revocations_hold()
        self.running_sessions_answer()
        self.acknowledged_exists()
        self.end_everything()
        self.nothing_is_left()
        self.audit_chain_holds()
        self.nothing_died_by_itself()
        return self.found

    def fault(self, text):
        self.found.append(text)

    def rows(self, sql, *args):
        path = os.path.join(self.gateway.dir, "data", "leasehold.db")
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            db.row_factory = sqlite3.Row
            return db.execute(sql, args).fetchall()
        finally:
            db.close()

    def get(self, path):
        """The body, or None and a fault."""
        status, _, body = self.gateway.rest("GET", path)
        if status != 200:
            self.fault(f"lost: GET {path}: {status}")
            return None
        return body

    # -- nothing is lost -------------------------------------------------------------------------

    def revocations_hold(self):
        for lease_id in self.ledger.revoked:
            lease = self.get(f"/leases/{lease_id}")
            if lease and lease["state"] not in ENDING:
                self.fault(f"revoked lease {lease_id} is {lease['state']}")
        for connection in self.ledger.clients():
            if connection.lease_id in self.ledger.revoked and not connection.is_cut():
                self.fault(f"revoked lease {connection.lease_id} still has its connection")

    def running_sessions_answer(self):
        for row in self.rows("SELECT session_id FROM sandboxes WHERE status = 'running'"):
            session = row["session_id"]
            status, _, grant = self.gateway.rest("POST", "/leases", {"session_id": session})
            if status != 201:
                self.fault(f"session {session} is running, but a grant says {status} {grant}")
                continue
            self.session_answers(session, grant)

    def session_answers(self, session, grant):
        try:
            client = self.gateway.connect(grant)
        except (OSError, WsError, WsClosed) as error:
            self.fault(f"session {session} is running, but its door says {error}")
            return
        connection = Connection(client, grant["lease"]["lease_id"], session)
        if not connection.echo("after the rounds"):
            self.fault(f"session {session} is running, but its agent does not answer")
        connection.close()

    def acknowledged_exists(self):
        for chat_id in self.ledger.chats:
            self.get(f"/chats/{chat_id}")
        [made] = self.rows("SELECT count(*) AS n FROM chats")
        if made["n"] != len(self.ledger.chats):
            self.fault(f"{made['n']} chats were made by {len(self.ledger.chats)} calls")
        for lease_id, session_id in self.ledger.leases.items():
            lease = self.get(f"/leases/{lease_id}")
            if lease and lease["session_id"] != session_id:
                self.fault(f"lease {lease_id} is of {lease['session_id']}, not {session_id}")
        for session_id in self.ledger.sessions:
            sandbox = self.get(f"/sandboxes/{session_id}")
            if sandbox and session_id in self.ledger.stopped and sandbox["status"] not in ENDED:
                self.fault(f"stopped session {session_id} is {sandbox['status']}")
        kept = {row["key_id"] for row in self.rows("SELECT key_id FROM api_keys")}
        for key_id in self.ledger.keys - kept:
            self.fault(f"lost: key {key_id}")

    # -- nothing is left -------------------------------------------------------------------------

    def unfinished(self):
        return self.rows(
            "SELECT session_id, status, reason FROM sandboxes WHERE status NOT IN (?, ?)", *ENDED
        )

    def end_everything(self):
        for row in self.unfinished():
            if row["status"] != "running":
                self.fault(f"session {row['session_id']} is {row['status']} ({row['reason']})")
            path = f"/sandboxes/{row['session_id']}/stop"
            status, _, body = self.gateway.rest("POST", path, {"grace_s": 2})
            if status != 200:
                self.fault(f"POST {path}: {status} {body}")

    def settled(self, what, look):
        """Waits until nothing is to be seen; a fault says what is."""
        deadline = time.monotonic() + SETTLE_S
        left = look()
        while left and time.monotonic() < deadline:
            time.sleep(0.1)
            left = look()
        if left:
            self.fault(f"left over: {what}: {left}")

    def nothing_is_left(self):
        self.settled("sessions", lambda: [tuple(r) for r in self.unfinished()])
        self.settled("open leases", self.open_leases)
        self.settled("processes", self.gateway.sandboxes_left)
        self.settled("children of the gateway", self.children)
        self.settled("run directory", self.run_entries)
        self.settled("mounts", self.mounts)
        self.settled("control groups", self.control_groups)
        self.settled("descriptors of the gateway", self.pidfds)

    def open_leases(self):
        sql = "SELECT lease_id, state FROM leases WHERE state <> 'closed'"
        return [tuple(row) for row in self.rows(sql)]

    def children(self):
        """Zombies as well: a daemon that does not reap fills the process table."""
        found = []
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path, encoding="utf-8", errors="replace") as stat:
                    text = stat.read()
            except OSError:
                continue
            name, fields = text.rsplit(")", 1)
            if int(fields.split()[1]) == self.gateway.process.pid:
                found.append(f"{name})")
        return found

    def run_entries(self):
        """control.sock, ready and the lock are the gateway's own; the rest is a session's."""
        return [n for n in os.listdir(self.gateway.run_dir) if len(n) == 36 or n.startswith(".")]

    def mounts(self):
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            return [line for line in mounts if self.gateway.dir in line]

    def control_groups(self):
        sessions = {r["session_id"] for r in self.rows("SELECT session_id FROM sandboxes")}
        found = glob.glob("/sys/fs/cgroup/**/leasehold-*", recursive=True)
        return [path for path in found if path.rsplit("leasehold-", 1)[1] in sessions]

    def pidfds(self):
        """Those by which it watched doors and supervisors."""
        links = processes.descriptors(self.gateway.process.pid)
        return [link for link in links if "pidfd" in link or link == "inotify"]

    def nothing_died_by_itself(self):
        """No more sessions failed than parts of sandboxes were killed."""
        parts = sum(self.killed.values()) - self.killed["gateway"]
        sql = "SELECT reason, count(*) AS n FROM sandboxes WHERE status = 'failed' GROUP BY reason"
        failed = {row["reason"]: row["n"] for row in self.rows(sql)}
        starts = failed.pop("start_failed", 0)  # a killed gateway may leave one a worker
        if sum(failed.values()) > parts:
            self.fault(f"{parts} parts were killed, but sessions failed by {failed}")
        if starts > parts + WORKERS_MAX * self.killed["gateway"]:
            self.fault(f"{starts} starts failed with {dict(self.killed)} killed")
        for text in ("Sanitizer", "runtime error:", "Assertion"):
            if text in self.gateway.log_text():
                self.fault(f"the gateway's log speaks of {text}")

    # -- the trail -------------------------------------------------------------------------------

    def audit_chain_holds(self):
        try:
            trail = audit.entries(os.path.join(self.gateway.dir, "data", "leasehold.db"))
        except audit.BrokenTrail as broken:
            self.fault(f"audit chain breaks at {broken}")
            return
        seen = {(entry["action"], entry["object"]) for entry in trail}
        told = [("lease.issue", f"lease:{lease_id}") for lease_id in self.ledger.leases]
        told += [("lease.revoke", f"lease:{lease_id}") for lease_id in self.ledger.revoked]
        for action, what in told:
            if (action, what) not in seen:
                self.fault(f"no audit entry tells of the {action} of {what}")
