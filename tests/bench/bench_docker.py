"""What the gateway adds to Docker: open and stop beside the raw create, start and remove of the same
body, by one caller and by ten.

    bench_docker.py [RUNS]

The raw calls send what the gateway has sent for its own sandbox, to the same engine, in turns with it.
Their containers find a door that only holds the link, so that an agent runs in them as in ours: to
remove one in which nothing runs any more is less work.
One engine, started for this, with its data on the machine's disk. Ratios of medians.
"""

import json
import os
import socket
import statistics
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import lean
from docker import Docker, busybox
from gateway import Gateway

GOAL_OPEN, GOAL_TEN, GOAL_STOP = 1.10, 1.15, 1.2
WARM_UP = 3
TEN = 10


def body_of(docker, container_id):
    """The body that makes such a container again, for what can be seen of it."""
    seen = docker.inspect(container_id)
    config, host = seen["Config"], seen["HostConfig"]
    body = {k: config[k] for k in ("Image", "User", "WorkingDir", "Entrypoint", "Cmd", "StopSignal")}
    kept = ("NetworkMode", "ReadonlyRootfs", "CapDrop", "SecurityOpt", "IpcMode", "CgroupnsMode",
            "RestartPolicy", "LogConfig", "Memory", "MemorySwap", "PidsLimit", "NanoCpus", "Ulimits",
            "Mounts", "Tmpfs")  # fmt: skip
    body["HostConfig"] = {key: host[key] for key in kept}
    return body


class HeldDoor:
    """Of all raw containers: a box like that of a session, with a socket that takes the link."""

    def __init__(self, box, directory):
        self.box = directory
        os.mkdir(directory, 0o755)
        for name in os.listdir(box):
            if name != "agent.sock":
                with open(os.path.join(directory, name), "wb"):
                    pass
        self.links = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(os.path.join(directory, "agent.sock"))
        os.chmod(os.path.join(directory, "agent.sock"), 0o666)
        self.listener.listen(2 * TEN)
        threading.Thread(target=self._hold, daemon=True).start()

    def _hold(self):
        while True:
            self.links.append(self.listener.accept()[0])


class Raw:
    def __init__(self, docker, body):
        self.docker, self.body = docker, body

    def open(self):
        made = self.docker.ok("POST", f"/containers/create?name=raw-{uuid.uuid4()}", json.loads(self.body))
        self.docker.ok("POST", f"/containers/{made['Id']}/start")
        return made["Id"]

    def assert_runs(self, container_id):
        pid = self.docker.inspect(container_id)["State"]["Pid"]
        until = time.monotonic() + 10
        while not self.docker.children(pid):
            assert time.monotonic() < until, "no agent runs in a raw container"
            time.sleep(0.002)

    def stop(self, container_id):
        self.docker.remove(container_id)


class Ours:
    def __init__(self, gateway):
        self.gateway = gateway

    def open(self):
        chat = self.gateway.new_chat()["chat_id"]
        at = time.perf_counter()
        sandbox, _ = self.gateway.open(chat)
        return sandbox["session_id"], (time.perf_counter() - at) * 1000

    def stop(self, session_id):
        self.gateway.expect(200, "POST", f"/sandboxes/{session_id}/stop", {"grace_s": 0})


def timed(call, *args):
    at = time.perf_counter()
    got = call(*args)
    return got, (time.perf_counter() - at) * 1000


def one_by_one(ours, raw, runs):
    samples = {"ours_open": [], "ours_stop": [], "raw_open": [], "raw_stop": []}
    for number in range(runs + WARM_UP):
        session, opened = ours.open()
        _, stopped = timed(ours.stop, session)
        container, raw_opened = timed(raw.open)
        raw.assert_runs(container)
        _, raw_stopped = timed(raw.stop, container)
        if number >= WARM_UP:
            for name, value in zip(samples, (opened, stopped, raw_opened, raw_stopped)):
                samples[name].append(value)
    return samples


def ten_at_once(ours, raw, rounds):
    samples = {"ours_ten": [], "raw_ten": []}
    with ThreadPoolExecutor(TEN) as pool:
        for _ in range(rounds):
            at = time.perf_counter()
            sessions = list(pool.map(lambda _: ours.open()[0], range(TEN)))
            samples["ours_ten"].append((time.perf_counter() - at) * 1000)
            list(pool.map(ours.stop, sessions))
            at = time.perf_counter()
            containers = list(pool.map(lambda _: raw.open(), range(TEN)))
            samples["raw_ten"].append((time.perf_counter() - at) * 1000)
            list(pool.map(raw.stop, containers))
    return samples


def measure(docker, gateway, runs):
    ours = Ours(gateway)
    sandbox, _ = gateway.open(gateway.new_chat()["chat_id"])
    box = os.path.join(gateway.run_dir, sandbox["session_id"], "box")
    door = HeldDoor(box, os.path.join(gateway.dir, "raw-box"))
    body = json.dumps(body_of(docker, sandbox["container_id"])).replace(box, door.box)
    raw = Raw(docker, body)
    samples = one_by_one(ours, raw, runs)
    samples.update(ten_at_once(ours, raw, max(3, runs // 5)))
    return {name: statistics.median(values) for name, values in samples.items()}


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    docker = Docker()
    gateway = None
    try:
        docker.image("lh/busybox", busybox())
        settings = {"engine": "docker", "image": "lh/busybox"}
        gateway = Gateway(
            {
                "logging": {"level": "error"},
                "sandbox": settings,
                "docker": {"base_url": docker.url},
            }
        )
        got = measure(docker, gateway, runs)
    finally:
        if gateway:
            gateway.cleanup()
        docker.cleanup()
    ratios = {
        "open": round(got["ours_open"] / got["raw_open"], 3),
        "open_ten_at_once": round(got["ours_ten"] / got["raw_ten"], 3),
        "stop": round(got["ours_stop"] / got["raw_stop"], 3),
    }
    lean.emit(
        "docker",
        ratios["open"],
        "times the raw create and start, median",
        runs,
        goal=GOAL_OPEN,
        goals={"open": GOAL_OPEN, "open_ten_at_once": GOAL_TEN, "stop": GOAL_STOP},
        ratios=ratios,
        ms={name: round(value, 1) for name, value in got.items()},
    )


if __name__ == "__main__":
    main()
