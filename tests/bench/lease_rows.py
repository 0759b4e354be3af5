"""Leases put into the database of a gateway that is stopped: a hundred thousand cost seconds."""

import os
import sqlite3
import uuid

COLUMNS = (
    "lease_id, session_id, chat_id, user_id, api_key_id, scope, use_kind, max_connections, state,"
    " issued_at, expires_at, max_expires_at, revoked_at, revoked_reason, grant_seq, ep, kid, cnf_jkt,"
    " consumed_at, renewed_kid, closed"
)


def open_models(gateway, sessions):
    """A lease of each of so many new sessions."""
    chats = (gateway.new_chat()["chat_id"] for _ in range(sessions))
    return [gateway.open(chat, lease={})[1]["lease"]["lease_id"] for chat in chats]


def plant(gateway, lease_ids, n, state, expires_at_ms):
    """n leases like these (one of each session), in turns."""
    db = sqlite3.connect(os.path.join(gateway.dir, "data", "leasehold.db"))
    marks = ",".join("?" * len(lease_ids))
    models = db.execute(f"SELECT {COLUMNS} FROM leases WHERE lease_id IN ({marks})", lease_ids).fetchall()
    at = [name.strip() for name in COLUMNS.split(",")]
    state_at, closed_at, expires_at = (at.index(name) for name in ("state", "closed", "expires_at"))

    def rows():
        for number in range(n):
            row = list(models[number % len(models)])
            row[0], row[state_at], row[expires_at] = str(uuid.uuid4()), state, expires_at_ms
            row[closed_at] = int(state == "closed")
            yield row

    with db:
        db.executemany(f"INSERT INTO leases ({COLUMNS}) VALUES ({','.join('?' * len(at))})", rows())
        for owner in ("session_id", "user_id", "api_key_id"):
            db.execute(f"INSERT OR IGNORE INTO lease_blocks SELECT DISTINCT {owner}, n / 128 FROM leases")
        db.execute("INSERT OR IGNORE INTO lease_open_blocks SELECT n / 128 FROM leases WHERE closed = 0")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def move_end(gateway, from_ms, to_ms):
    """Planting takes a while: when they end is said at last."""
    db = sqlite3.connect(os.path.join(gateway.dir, "data", "leasehold.db"))
    with db:
        db.execute("UPDATE leases SET expires_at = ? WHERE expires_at = ?", (to_ms, from_ms))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
