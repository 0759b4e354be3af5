"""Files and histories beside their peers, on the same disk, at the same durability.

    bench_file.py [RUNS]

file_get_1g     MB/s of one download of 1 GB; peer: nginx (sendfile) on the same file
file_get_small  requests/s of 10,000 files of 4 KiB, each once, over 16 connections; peer: nginx
file_put_1g     MB/s of one upload of 1 GB, with SHA-256 and fsync; peer: nginx DAV, then fsync
history_append  messages/s of 64 clients in one chat, each durable; peer: one commit after another into
                the same SQLite file
history_page    pages/s of 100 messages, one after the other, out of the middle of a chat of 1,000,000; peer:
                the same page of a chat of 1,000 (1.0: it costs what stands on it)

Both sides take turns, RUNS times (5); the medians are compared. One line each, also kept in
build/bench/NAME.json.
"""

import contextlib
import http.client
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

import lean
from gateway import BIN, Gateway

GB = 1_000_000_000
SMALL, SMALL_SIZE, SMALL_CONNECTIONS = 10_000, 4096, 16
CLIENTS, MESSAGES = 64, 4000
LONG, SHORT, PAGE, PAGES = 1_000_000, 1000, 100, 500
BLOCK = 1024 * 1024

NGINX = """
daemon off; master_process off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/error.log;
user {user};
events {{ worker_connections 512; }}
http {{
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;
    client_body_temp_path {dir}/temp; client_max_body_size 0;
    server {{
        listen 127.0.0.1:{port};
        location /get/ {{ alias {files}/; }}
        location /put/ {{ alias {dir}/put/; dav_methods PUT; }}
    }}
}}
"""


def free_port():
    with contextlib.closing(__import__("socket").create_server(("127.0.0.1", 0))) as sock:
        return sock.getsockname()[1]


class Nginx:
    """One worker, as ours is one loop."""

    def __init__(self, directory, files):
        self.dir = directory
        self.port = free_port()
        os.makedirs(os.path.join(directory, "put"))
        config = os.path.join(directory, "nginx.conf")
        user = "root" if os.geteuid() == 0 else "nobody"
        with open(config, "w", encoding="ascii") as out:
            out.write(NGINX.format(dir=directory, port=self.port, files=files, user=user))
        self.process = subprocess.Popen(["nginx", "-c", config, "-p", directory])
        self.wait()

    def wait(self):
        for _ in range(100):
            try:
                http.client.HTTPConnection("127.0.0.1", self.port, timeout=5).connect()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("bench: nginx does not start")

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Bench:
    def __init__(self, runs):
        self.runs = runs
        self.gateway = Gateway({"logging": {"level": "error"}, "storage": {"quota_bytes": 50 * GB}})
        self.port = urllib.parse.urlsplit(self.gateway.url).port
        self.auth = {"Authorization": f"Bearer {self.gateway.admin_key}"}
        self.work = tempfile.mkdtemp(prefix="lh-bench-", dir=self.gateway.dir)
        self.nginx = None

    def close(self):
        if self.nginx:
            self.nginx.stop()
        self.gateway.cleanup()

    # -- parts -------------------------------------------------------------------------------------

    def files_of(self, chat):
        return os.path.join(self.gateway.dir, "data/workspaces", chat["user_id"], "chats",
                            chat["chat_id"], "files")

    def big(self):
        path = os.path.join(self.work, "big")
        with open(path, "wb") as out:
            for _ in range(GB // 1_000_000):
                out.write(os.urandom(1_000_000))
        return path

    def get(self, port, path, headers):
        """Seconds."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        block = bytearray(BLOCK)
        at = time.perf_counter()
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        size = 0
        while n := response.readinto(block):
            size += n
        done = time.perf_counter() - at
        connection.close()
        if response.status != 200 or size != GB:
            raise SystemExit(f"bench: {path}: {response.status}, {size} bytes")
        return done

    def put(self, port, path, headers, source):
        """Seconds; the file is read by the kernel (sendfile) and costs us little."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        with open(source, "rb") as file:
            at = time.perf_counter()
            connection.putrequest("PUT", path)
            for name, value in {**headers, "Content-Length": str(GB)}.items():
                connection.putheader(name, value)
            connection.endheaders()
            connection.sock.sendfile(file)
            response = connection.getresponse()
            response.read()
            done = time.perf_counter() - at
        connection.close()
        if response.status not in (200, 201, 204):
            raise SystemExit(f"bench: {path}: {response.status}")
        return done

    def forget(self, path):
        self.gateway.connection(fresh=True)  # an idle one has been closed meanwhile
        self.gateway.expect(200, "DELETE", path)

    def load(self, port, paths, connections, header="", post=None):
        """Requests a second."""
        listing = os.path.join(self.work, "paths")
        with open(listing, "w", encoding="ascii") as out:
            out.write("\n".join(paths) + "\n")
        command = [os.path.join(BIN, "http_load"), "127.0.0.1", str(port), listing, str(connections)]
        command += [header] + (["POST", post] if post else [])
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"bench: {done.stderr}")
        answer = json.loads(done.stdout)
        return answer["requests"] / answer["seconds"]

    def compare(self, name, ours, peer, unit, peer_name):
        """Takes turns; the functions answer a rate."""
        mine, theirs = [], []
        for _ in range(self.runs):
            mine.append(ours())
            theirs.append(peer())
        emit(name, round(statistics.median(mine), 1), unit, self.runs,
             round(statistics.median(theirs), 1), peer_name)

    # -- benches -----------------------------------------------------------------------------------

    def get_and_put(self):
        chat = self.gateway.new_chat()
        files, source = self.files_of(chat), self.big()
        base = f"/api/v1/chats/{chat['chat_id']}/files"
        self.nginx = Nginx(os.path.join(self.work, "nginx"), files)
        put = os.path.join(self.work, "nginx/put/big")

        def put_ours():
            self.forget(f"/chats/{chat['chat_id']}/files")
            return GB / 1e6 / self.put(self.port, f"{base}/big", self.auth, source)

        def put_nginx():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(put)
            at = time.perf_counter()
            self.put(self.nginx.port, "/put/big", {}, source)
            for path, flags in ((put, os.O_RDONLY), (os.path.dirname(put), os.O_DIRECTORY)):
                fd = os.open(path, flags)
                os.fsync(fd)
                os.close(fd)
            return GB / 1e6 / (time.perf_counter() - at)

        self.compare("file_put_1g", put_ours, put_nginx, "MB/s, 1 GB with fsync", "nginx DAV + fsync")
        os.unlink(put)
        self.compare(
            "file_get_1g",
            lambda: GB / 1e6 / self.get(self.port, f"{base}/big", self.auth),
            lambda: GB / 1e6 / self.get(self.nginx.port, "/get/big", {}),
            "MB/s, 1 GB from the page cache", "nginx",
        )
        self.forget(f"/chats/{chat['chat_id']}/files")
        os.unlink(source)
        self.small(chat, files, base)

    def small(self, chat, files, base):
        owner = os.stat(files)
        for n in range(SMALL):
            with open(os.path.join(files, f"s{n}"), "wb") as out:
                out.write(n.to_bytes(8, "big") * (SMALL_SIZE // 8))
                os.fchown(out.fileno(), owner.st_uid, owner.st_gid)  # as an agent makes them
        listed = 0
        self.gateway.connection(fresh=True)
        while listed < SMALL:  # each list takes in a part of what is new
            self.gateway.expect(200, "GET", f"/chats/{chat['chat_id']}/files?limit=1")
            listed += 2000
        names = [f"s{n}" for n in range(SMALL)]
        auth = f"Authorization: {self.auth['Authorization']}"
        self.compare(
            "file_get_small",
            lambda: self.load(self.port, [f"{base}/{n}" for n in names], SMALL_CONNECTIONS, auth),
            lambda: self.load(self.nginx.port, [f"/get/{n}" for n in names], SMALL_CONNECTIONS),
            "files/s, 10,000 of 4 KiB, 16 connections", "nginx",
        )

    def history(self):
        self.gateway.connection(fresh=True)
        chat = self.gateway.new_chat()
        path = f"/api/v1/chats/{chat['chat_id']}/history"
        auth = f"Authorization: {self.auth['Authorization']}"
        message = json.dumps({"role": "user", "content": "x" * 200})
        database = os.path.join(os.path.dirname(self.files_of(chat)), "history.db")

        def ours():
            return self.load(self.port, [path] * MESSAGES, CLIENTS, auth, message)

        self.compare("history_append", ours, lambda: one_by_one(database, self.work),
                     "messages/s, 64 clients in one chat", "one commit a message, same SQLite file")


    def long_history(self, messages):
        """A chat with so many, written past the gateway: it holds no history open."""
        self.gateway.connection(fresh=True)
        chat = self.gateway.new_chat()
        db = sqlite3.connect(os.path.join(os.path.dirname(self.files_of(chat)), "history.db"))
        said = ((n, f"{n:08x}-0000-4000-8000-{n:012x}", 1_800_000_000_000 + n, "x" * 200)
                for n in range(1, messages + 1))
        db.executemany("INSERT INTO messages (seq, message_id, at, role, author, content)"
                       " VALUES (?, ?, ?, 'user', 'me', ?)", said)
        size = os.path.getsize(os.path.join(os.path.dirname(self.files_of(chat)), "history.md"))
        db.execute("UPDATE projection SET md_seq = ?, md_bytes = ?", (messages, size))
        db.commit()
        db.close()
        return f"/api/v1/chats/{chat['chat_id']}/history?limit={PAGE}&after={messages // 2}"

    def history_page(self):
        long, short = self.long_history(LONG), self.long_history(SHORT)
        auth = f"Authorization: {self.auth['Authorization']}"
        self.compare(
            "history_page",
            lambda: self.load(self.port, [long] * PAGES, 1, auth),
            lambda: self.load(self.port, [short] * PAGES, 1, auth),
            "pages/s of 100 messages out of 1,000,000, one connection", "a chat of 1,000 messages",
        )


def one_by_one(database, work, seconds=3):
    """The same rows into a copy of the file, each with a commit of its own, synchronous=FULL."""
    copy = os.path.join(work, "history-copy.db")
    shutil.copy(database, copy)
    db = sqlite3.connect(copy, isolation_level=None)
    db.execute("PRAGMA synchronous=FULL")
    columns = [row[1] for row in db.execute("PRAGMA table_info(messages)")]
    row = dict(zip(columns, db.execute("SELECT * FROM messages ORDER BY seq DESC LIMIT 1").fetchone()))
    insert = f"INSERT INTO messages ({','.join(columns)}) VALUES ({','.join('?' * len(columns))})"
    n, at = 0, time.perf_counter()
    while time.perf_counter() - at < seconds:
        row["seq"] += 1
        row["message_id"] = f"{row['seq']:036}"
        db.execute("BEGIN IMMEDIATE")
        db.execute(insert, [row[c] for c in columns])
        db.execute("COMMIT")
        n += 1
    rate = n / (time.perf_counter() - at)
    db.close()
    os.unlink(copy)
    return rate


def emit(name, ours, unit, runs, peer, peer_name):
    lean.emit(name, ours, unit, runs, peer, peer_name)
    kept = os.path.join(lean.ROOT, "build", "bench")
    os.makedirs(kept, exist_ok=True)
    with open(os.path.join(kept, f"{name}.json"), "w", encoding="utf-8") as out:
        with contextlib.redirect_stdout(out):
            lean.emit(name, ours, unit, runs, peer, peer_name)


def main():
    bench = Bench(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    try:
        bench.get_and_put()
        bench.history()
        bench.history_page()
    finally:
        bench.close()


if __name__ == "__main__":
    main()
