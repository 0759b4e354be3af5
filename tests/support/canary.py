"""Secrets that must not be found where people look: every one that a test process has seen, and the
places where none of their bytes may stand.

Whatever comes from a gateway passes `note`, which keeps what is secret in it: the secret half of API keys,
signatures of lease tokens, the private halves of keys. `Gateway.cleanup` looks for all of them: in what
its processes show while they live (arguments, environment, /metrics), then in all that they have
written (logs, run directory, the whole database with its audit trail). An error's body is looked at when
it comes.

What a door is told is not seen by anybody: its secret is found by the hash that the database has of it.
"""

import contextlib
import hashlib
import os
import re
import sqlite3
import stat

API_KEY = re.compile(rb"lhk_[0-9a-f-]{36}_([A-Za-z0-9_-]{43})")
TOKEN = re.compile(rb"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.([A-Za-z0-9_-]{86})")
PEM = re.compile(rb"-----BEGIN (?:EC )?PRIVATE KEY-----([A-Za-z0-9+/=\s]+)-----END")

# So much of a secret has no other text by chance. Every piece of that length is known, and a text is looked
# at in steps: WINDOW + STEP - 1 bytes of a secret are found wherever they stand.
WINDOW, STEP = 16, 8
RUN = re.compile(rb"[A-Za-z0-9_+/-]{%d,}" % WINDOW)
HEX = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")

# Of a P-256 key in PKCS#8: behind the constant head, before the public half; a line ends within it.
PEM_PRIVATE = slice(50, 88)

FILE_MOST = 64 * 1024 * 1024


class Leak(AssertionError):
    """A secret stands where it must not."""


class Canary:
    def __init__(self):
        self._pieces = {}  # WINDOW bytes of a secret: what it is

    def note(self, data):
        """Keeps the secrets in a text of the gateway; returns it."""
        raw = data.encode() if isinstance(data, str) else data or b""
        if b"lhk_" in raw or b"eyJ" in raw:
            for secret in API_KEY.findall(raw):
                self._add(secret, "an API key")
            for signature in TOKEN.findall(raw):
                self._add(signature, "a lease token")
        return data

    def note_key_file(self, path):
        try:
            with open(path, "rb") as text:
                found = PEM.findall(text.read())
        except OSError:
            return
        for body in found:
            self._add(b"".join(body.split())[PEM_PRIVATE], "a private key")

    def _add(self, secret, what):
        for at in range(len(secret) - WINDOW + 1):
            self._pieces[secret[at : at + WINDOW]] = what

    def kinds(self):
        return set(self._pieces.values())

    def find(self, data, hashes=frozenset()):
        """What stands in there: "a lease token" …; None: nothing. `hashes`: of further secrets, hex."""
        for run in RUN.findall(data.translate(None, b"\0")):
            for at in range(0, len(run) - WINDOW + 1, STEP):
                what = self._pieces.get(run[at : at + WINDOW])
                if what:
                    return what
        for text in HEX.findall(data) if hashes else ():
            if hashlib.sha256(text).hexdigest() in hashes:
                return "a door's secret"
        return None

    def check(self, where, data, hashes=frozenset()):
        found = self.find(data, hashes)
        if found:
            raise Leak(f"{found} stands in {where}")


SEEN = Canary()


def note(data):
    return SEEN.note(data)


def check_error(method, path, body):
    SEEN.check(f"the error of {method} {path}", body)


def check_processes(pids, hashes):
    for pid in pids:
        for name in ("cmdline", "environ"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as text:
                    data = text.read()
            except OSError:  # gone, or another user's
                continue
            SEEN.check(f"the {name} of process {pid}", data.replace(b"\0", b"\n"), hashes)


def regular_files(folder):
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(parent, name)
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_size <= FILE_MOST:
                yield path


def read(path):
    try:
        with open(path, "rb") as text:
            return text.read()
    except OSError:
        return b""


def database_files(folder):
    """The files of the metadata store: under data/, not what users keep there."""
    for path in regular_files(folder):
        if re.search(r"\.db(-wal)?$", path):
            yield path


def hashes_in(databases):
    """Of the secrets that doors were told, as the database has them."""
    found = set()
    for path in databases:
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
                rows = database.execute("SELECT door_secret_hash FROM sandboxes")
                found.update(text for (text,) in rows)
        except sqlite3.Error:  # another database, or a spoiled one
            continue
    return found


def check_files(paths, hashes):
    for path in paths:
        SEEN.check(path, read(path), hashes)
