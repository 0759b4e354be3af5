"""The S3 store against curl and s3cmd on the same Ceph RGW (in memory, so that the network and the
programs are what is measured): one line for each of s3_put, s3_put_multipart, s3_get, s3_small, also in
build/bench/NAME.json.

    bench_s3.py [BYTES]

s3_put            BYTES, one part after the other, against `curl -T` in one PUT
s3_put_multipart  BYTES in parts, four at a time, against the same
s3_get            BYTES, against curl from a presigned URL
s3_small          1,000 objects of 4 KiB, against `s3cmd put` of them; and the memory of four
                  uploads at the same time

Ours and the peer take turns; the medians count.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import lean
from s3_servers import Rgw

BIN = os.environ["LEASEHOLD_BIN"]
BUCKET = "bench"
RUNS = 5
SMALL, SMALL_BYTES = 1000, 4096
MEMORY_GOAL = 64 << 20


def tool(server, *command, more=(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
    args = [os.path.join(BIN, "objects_tool"), *server.args(BUCKET), *more, *command]
    return subprocess.run(
        args, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, check=True
    )


def output(server, *command, more=()):
    return tool(server, *command, more=more, stdout=subprocess.PIPE).stdout.decode().strip()


def seconds(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def take_turns(ours, peer, runs=RUNS):
    times = {"ours": [], "peer": []}
    ours(), peer()  # warm: pools, caches, connections of the server to its disk
    for _ in range(runs):
        times["ours"].append(seconds(ours))
        times["peer"].append(seconds(peer))
    return statistics.median(times["ours"]), statistics.median(times["peer"])


def report(name, ours, peer, peer_name, unit, runs, **more):
    line = {
        "name": name,
        "ours": round(ours, 2),
        "peer": round(peer, 2),
        "peer_name": peer_name,
        "ratio": round(ours / peer, 3),
        "unit": unit,
        "runs": runs,
        **more,
    }
    text = json.dumps(line)
    print(text, flush=True)
    folder = os.path.join(lean.ROOT, "build", "bench")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
        file.write(text + "\n")


class Bench:
    def __init__(self, server, directory, size):
        self.server, self.size = server, size
        self.file = os.path.join(directory, "body")
        self.directory = directory
        with open(self.file, "wb") as file:
            block = os.urandom(1 << 20)
            for _ in range(size >> 20):
                file.write(block)

    def rate(self, elapsed):
        return self.size / elapsed / 1e6

    def put(self, *more):
        with open(self.file, "rb") as body:
            tool(self.server, "put", "ours", "bench", str(self.size), more=more, stdin=body)

    def curl_put(self):
        # Signed by curl itself, without a sum of the body: as cheap as a presigned URL.
        client = self.server.client
        subprocess.run(
            [
                "curl", "-sf", "-o", os.devnull, "-T", self.file,
                "--aws-sigv4", f"aws:amz:{client.region}:s3",
                "-u", f"{client.access_key}:{client.secret}",
                "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
                f"http://127.0.0.1:{self.server.port}/{BUCKET}/peer",
            ],
            check=True,
        )  # fmt: skip

    def bench_puts(self):
        ours, peer = take_turns(lambda: self.put("parallel=1"), self.curl_put)
        peer_name = "curl, one stream"
        report("s3_put", self.rate(ours), self.rate(peer), peer_name, "MB/s", RUNS, goal=0.95)
        ours, peer = take_turns(self.put, self.curl_put)
        name = "s3_put_multipart"
        report(name, self.rate(ours), self.rate(peer), peer_name, "MB/s", RUNS, goal=1.3)

    def bench_get(self):
        url = output(self.server, "presign", "ours", "3600")

        def ours():
            with open(os.devnull, "wb") as sink:
                tool(self.server, "get", "ours", stdout=sink)

        def curl():
            subprocess.run(["curl", "-sf", "-o", os.devnull, url], check=True)

        mine, peer = take_turns(ours, curl)
        name = "curl, presigned, one stream"
        report("s3_get", self.rate(mine), self.rate(peer), name, "MB/s", RUNS, goal=0.95)

    def s3cmd(self, folder):
        client = self.server.client
        host = f"127.0.0.1:{self.server.port}"
        command = [
            "s3cmd", "--config", os.devnull, "--quiet", "--no-ssl", "--no-progress",
            f"--access_key={client.access_key}", f"--secret_key={client.secret}",
            f"--host={host}", f"--host-bucket={host}",
            "put", "--recursive", folder + "/", f"s3://{BUCKET}/s3cmd/",
        ]  # fmt: skip
        subprocess.run(command, check=True)

    def bench_small(self):
        folder = os.path.join(self.directory, "small")
        os.mkdir(folder)
        for number in range(SMALL):
            with open(os.path.join(folder, str(number)), "wb") as file:
                file.write(os.urandom(SMALL_BYTES))
        many = ("many", "many/", str(SMALL), str(SMALL_BYTES), "1")
        ours, peer = take_turns(lambda: tool(self.server, *many), lambda: self.s3cmd(folder), 3)
        args = ("many", "memory/", "4", str(self.size), "4")
        memory = json.loads(output(self.server, *args))["memory_bytes"]
        report(
            "s3_small", SMALL / ours, SMALL / peer, "s3cmd", "objects/s", 3,
            memory_of_4_uploads=memory, memory_goal=MEMORY_GOAL, uploads_bytes=self.size,
        )  # fmt: skip


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1000 << 20
    if not shutil.which("s3cmd"):
        sys.exit("missing package: apt-get install s3cmd")
    directory = tempfile.mkdtemp(prefix="leasehold-bench-")
    try:
        with Rgw(memory_bytes=size * 12) as server:
            server.client.make_bucket(BUCKET)
            bench = Bench(server, directory, size)
            bench.bench_puts()
            bench.bench_get()
            bench.bench_small()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
