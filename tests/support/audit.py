"""The audit trail as it stands in leasehold.db: docs/audit.md."""

import hashlib
import sqlite3
import struct

HASH = 32
FIELDS = ("n", "at", "actor", "action", "object", "outcome", "address", "request_id", "detail")


class BrokenTrail(Exception):
    """args[0]: the number of the entry that is not what should stand there."""


def _field(block, at):
    (length,) = struct.unpack_from(">I", block, at)
    return block[at + 4 : at + 4 + length].decode(), at + 4 + length


def _entries(block):
    """Of one block: the fields by name, with `whole`: the hash is the one of what stands before."""
    at = HASH
    while at < len(block):
        begin, entry = at, {}
        for name in FIELDS:
            entry[name], at = _field(block, at)
        entry["prev"] = block[begin - HASH : begin]
        entry["hash"] = block[at : at + HASH]
        entry["whole"] = hashlib.sha256(block[begin - HASH : at]).digest() == entry["hash"]
        entry["n"], entry["at"] = int(entry["n"]), int(entry["at"])
        at += HASH
        yield entry


def entries(database):
    """All of them, in order; the chain is checked on the way."""
    db = sqlite3.connect(f"file:{database}?mode=ro", uri=True, isolation_level=None)
    try:
        blocks = db.execute("SELECT entries FROM audit_blocks ORDER BY first_n").fetchall()
    finally:
        db.close()
    found, prev = [], bytes(HASH)
    for (block,) in blocks:
        for entry in _entries(block):
            if entry["n"] != len(found) + 1 or entry["prev"] != prev or not entry["whole"]:
                raise BrokenTrail(len(found) + 1)
            found.append(entry)
            prev = entry["hash"]
    return found
