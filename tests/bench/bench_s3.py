"""The S3 store against curl and s3cmd on the same Ceph RGW (in memory, so that the network and the
programs are what is measured): one line for each of s3_put, s3_put_multipart, s3_get, s3_small, also in
build/bench/NAME.json.

    bench_s3.py [BYTES]

s3_put            BYTES in one PUT, against `curl -T` in one PUT
s3_put_multipart  BYTES in parts, four at a time, against the same

Both from a file that was summed as it came, as the gateway puts a body, and like curl without its sum in
the signature (payload_signing: unsigned). The gateway itself puts what is so long in parts. Beside them, in
seconds: `one_part_at_a_time`; `signed`, as parts go over plain HTTP by default; `summed`, as a file of a
chat goes, which is read once and summed on its way.

s3_get            BYTES, against curl from a presigned URL
s3_small          1,000 objects of 4 KiB, against `s3cmd put` of them; and the memory of four
                  uploads of 5 GiB at the same time

Ours and the peer take turns; the medians count. cpu_s is the programs' own CPU time, server_cpu_s that
of RGW and its OSD meanwhile: where their sum reaches the CPUs' time, the server is what is measured.
What was replaced is collected before each run, or the store in memory is full and waits for ever.
"""

import hashlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import lean
from s3_servers import Rgw
from s3_sink import S3Sink

BIN = os.environ["LEASEHOLD_BIN"]
BUCKET = "bench"
RUNS = 3
SMALL, SMALL_BYTES = 1000, 4096
MEMORY_GOAL = 64 << 20
UPLOAD_BYTES = 5 << 30


def tool(server, *command, more=(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
    args = [os.path.join(BIN, "objects_tool"), *server.args(BUCKET), *more, *command]
    return subprocess.run(
        args, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, check=True
    )


def output(server, *command, more=()):
    return tool(server, *command, more=more, stdout=subprocess.PIPE).stdout.decode().strip()


def children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Times:
    """Of one kind of work: how long it took, and the CPU time of its program and of the server."""

    def __init__(self):
        self.runs = []

    def run(self, server, work):
        cpu, served, began = children_cpu(), server.cpu_seconds(), time.perf_counter()
        work()
        elapsed = time.perf_counter() - began
        self.runs.append((elapsed, children_cpu() - cpu, server.cpu_seconds() - served))

    def medians(self):
        return [statistics.median(column) for column in zip(*self.runs)]


def take_turns(server, *works, runs=RUNS):
    """What each of them took, [(seconds, its CPU seconds, the server's)]; the first round only warms."""
    times = [Times() for _ in works]
    for n in range(runs + 1):
        for work, taken in zip(works, times):
            server.collect_garbage()
            taken.run(server, work)
            if n == 0:
                taken.runs.clear()
    return [taken.medians() for taken in times]


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
        summed = hashlib.sha256()
        with open(self.file, "wb") as file:
            block = os.urandom(1 << 20)
            for _ in range(size >> 20):
                file.write(block)
                summed.update(block)
        self.by_place = ("by_place=1", f"sha256={summed.hexdigest()}")

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

    def tell(self, name, ours, peer, peer_name, goal, **more):
        report(
            name, self.rate(ours[0]), self.rate(peer[0]), peer_name, "MB/s", RUNS, goal=goal,
            cpu_s={"ours": round(ours[1], 3), "peer": round(peer[1], 3)},
            server_cpu_s={"ours": round(ours[2], 3), "peer": round(peer[2], 3)},
            seconds={name: round(taken[0], 3) for name, taken in more.items()},
        )  # fmt: skip

    def bench_puts(self):
        unsigned = (*self.by_place, "signing=2")
        ways = (
            (*unsigned, f"multipart_at={self.size + 1}"),
            unsigned,
            (*unsigned, "parallel=1"),
            self.by_place,
            ("signing=2",),
        )
        works = [lambda way=way: self.put(*way) for way in ways]
        one, parts, single, signed, summed, peer = take_turns(self.server, *works, self.curl_put)
        self.tell("s3_put", one, peer, "curl, one stream", 0.95, one_part_at_a_time=single)
        self.tell("s3_put_multipart", parts, peer, "curl, one stream", 1.3, signed=signed, summed=summed)

    def bench_get(self):
        url = output(self.server, "presign", "ours", "3600")

        def ours():
            with open(os.devnull, "wb") as sink:
                tool(self.server, "get", "ours", stdout=sink)

        def curl():
            subprocess.run(["curl", "-sf", "-o", os.devnull, url], check=True)

        mine, peer = take_turns(self.server, ours, curl)
        self.tell("s3_get", mine, peer, "curl, presigned, one stream", 0.95)

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
        (ours, *_), (peer, *_) = take_turns(
            self.server, lambda: tool(self.server, *many), lambda: self.s3cmd(folder)
        )
        report(
            "s3_small", SMALL / ours, SMALL / peer, "s3cmd", "objects/s", RUNS,
            memory_of_4_uploads=memory_of_uploads(), memory_goal=MEMORY_GOAL,
            uploads_bytes=UPLOAD_BYTES,
        )  # fmt: skip


def memory_of_uploads():
    """Four uploads at a time, to a store that forgets them: none here has room for so much."""
    with S3Sink() as sink:
        args = [
            os.path.join(BIN, "objects_tool"), "kind=s3", f"endpoint=http://127.0.0.1:{sink.port}",
            "region=us-east-1", "bucket=b", "access_key=K", "secret=S",
            "many", "memory/", "4", str(UPLOAD_BYTES), "4",
        ]  # fmt: skip
        told = subprocess.run(args, stdout=subprocess.PIPE, check=True).stdout
    return json.loads(told)["memory_bytes"]


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1000 << 20
    if not shutil.which("s3cmd"):
        sys.exit("missing package: apt-get install s3cmd")
    directory = tempfile.mkdtemp(prefix="leasehold-bench-")
    try:
        with Rgw(memory_bytes=size * 6) as server:
            server.client.make_bucket(BUCKET)
            bench = Bench(server, directory, size)
            bench.bench_puts()
            bench.bench_get()
            bench.bench_small()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
