#!/usr/bin/python3
"""Sandboxes on Docker in number: opened, used, a gateway killed and started over them, stopped, and
nothing left over.

    docker_many.py [--count 200] [--at-once 8]
"""

import argparse
import glob
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import processes
from docker import Docker, busybox
from gateway import Gateway


def use(gateway, grant):
    client = gateway.connect(grant, timeout=60)
    try:
        client.send_text("hello")
        return client.recv(60)[1] == b"hello"
    finally:
        client.close()


def mounts(docker, gateway):
    """Those of this engine and this gateway; other tests have theirs."""
    with open("/proc/self/mounts", encoding="utf-8") as text:
        points = {line.split()[1] for line in text}
    return {p for p in points if p.startswith((docker.dir + "/", gateway.dir + "/"))}


def control_groups(containers):
    """That are still there, of containers by these ids."""
    found = glob.glob("/sys/fs/cgroup/**/docker*", recursive=True)
    found += [below for group in found for below in glob.glob(group + "/*/")]
    return [group for group in found if any(container in group for container in containers)]


def process_descriptors(gateway):
    """Those by which it watches doors and containers."""
    return [link for link in processes.descriptors(gateway.process.pid) if "pidfd" in link]


def left_over(docker, gateway, mounts_before, opened):
    """What should not be there any more, by what kind it is."""
    found = {
        "containers": [c["Names"] for c in docker.of_gateway(gateway)],
        "networks": [n["Name"] for n in docker.networks()],
        "processes": gateway.sandboxes_left(),
        "run directories": [n for n in os.listdir(gateway.run_dir) if len(n) == 36],
        "mounts": sorted(mounts(docker, gateway) - mounts_before),
        "control groups": control_groups({sandbox["container_id"] for sandbox, _ in opened}),
        "descriptors": process_descriptors(gateway),
    }
    return {kind: things for kind, things in found.items() if things}


def run(docker, gateway, count, at_once, say):
    """An empty dict: nothing is left over."""
    before = mounts(docker, gateway)
    chats = [gateway.new_chat()["chat_id"] for _ in range(count)]
    with ThreadPoolExecutor(at_once) as pool:
        at = time.monotonic()
        opened = list(pool.map(lambda chat: gateway.open(chat, lease={"ttl_s": 900}), chats))
        say(f"{count} opened in {time.monotonic() - at:.1f} s")
        used = list(pool.map(lambda pair: use(gateway, pair[1]), opened))
        assert all(used), f"{used.count(False)} did not answer"
        gateway.kill9()
        at = time.monotonic()
        gateway.start()
        say(f"a gateway that was killed is ready again after {time.monotonic() - at:.2f} s")
        again = list(pool.map(lambda chat: gateway.open(chat)[0], chats))
        same = [a["session_id"] == b["session_id"] for a, (b, _) in zip(again, opened)]
        assert all(same), f"{same.count(False)} were not adopted"
        at = time.monotonic()
        paths = [f"/sandboxes/{sandbox['session_id']}/stop" for sandbox, _ in opened]
        list(pool.map(lambda path: gateway.expect(200, "POST", path, {}), paths))
        say(f"{count} stopped in {time.monotonic() - at:.1f} s")
    return left_over(docker, gateway, before, opened)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8)
    options = parser.parse_args()
    docker = Docker()
    gateway = None
    try:
        docker.image("lh/busybox", busybox())
        settings = {"engine": "docker", "image": "lh/busybox", "ttl_seconds": 3600}
        gateway = Gateway({"sandbox": settings, "docker": {"base_url": docker.url}})
        left = run(docker, gateway, options.count, options.at_once, print)
    finally:
        if gateway:
            gateway.cleanup()
        docker.cleanup()
    if left:
        sys.exit(f"left over: {left}")
    print("nothing is left over")


if __name__ == "__main__":
    main()
