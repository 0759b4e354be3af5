"""Kill -9 of an engine's parts in the middle of what they do: starts, stops, pulls, runs of tools.

    engine_kills.py [--engine docker|local] [--rounds 20] [--seed N]

Each pair of a moment and a victim gets that many rounds. In each, one session is brought to the
moment, the victim dies after a random while and comes back, and what then stands must be right: a
session that is told to run answers, one that is not has left nothing, and one that is stopped leaves
nothing either. A containerd that dies before its shim has made anything forgets that shim, an idle
process of the engine's own: only shims with something below them are counted.

Prints what broke, one line each, and the seed.
"""

import argparse
import os
import random
import sys
import threading
import time
import uuid
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

# pylint: disable=wrong-import-position
import processes
from docker import Docker, busybox, tar_of
from gateway import Gateway
from registry import Registry
from ws import WsClosed, WsError

SHELL = ["/bin/sh", "-c", 'while read -r line; do eval "$line" 2>&1; done']
TOOL = "#!/bin/sh\nread l\nsleep 0.2\necho $l by $(id -u)\n"
# The janitor takes what nobody knows behind the time of a start and what clocks may differ by.
START_S = 15
SETTLE_S = START_S + 30
ENDED = ("stopped", "failed")
CONFIG = {
    "sandbox": {
        "cleanup_interval_seconds": 1,
        "ttl_seconds": 600,
        "start_timeout_seconds": START_S,
    },
    "lease": {"per_user": 1000},
    "profiles": [
        {"name": "default", "command": SHELL},
    ],
}

class Case:
    """What both engines have: moments and what must hold behind a kill."""

    # How long each takes about, so that a kill comes anywhere in it.
    moments = {"start": 0.6, "stop": 0.06, "tool": 0.3}

    def __init__(self, say):
        self.say = say
        self.faults = []
        self.counts = Counter()

    def make_user(self):
        self.user = str(uuid.uuid4())
        self.chat = self.gateway.new_chat(self.user)["chat_id"]
        tools = os.path.join(self.gateway.dir, "data", "workspaces", self.user, "tools")
        os.makedirs(tools, exist_ok=True)
        with open(os.path.join(tools, "says"), "w", encoding="ascii") as out:
            out.write(TOOL)
        return self.chat

    # -- moments ---------------------------------------------------------------------------------

    def open(self, profile="default"):
        body = {"chat_id": self.chat, "profile": profile}
        return self.gateway.rest("POST", "/sandboxes", body)[0]

    def act_start(self):
        return self.open()

    def act_stop(self):
        path = f"/sandboxes/{self.session}/stop"
        return self.gateway.rest("POST", path, {"grace_s": 1})[0]

    def act_tool(self):
        self.client.send_text("echo run | /opt/user-tools/says")
        return self.client.recv(5)[1]

    def act_pull(self):
        return self.open("far")

    def ready_for(self, moment):
        self.make_user()
        self.session = self.client = None
        if moment in ("stop", "tool"):
            sandbox, grant = self.gateway.open(self.chat, lease={})
            self.session = sandbox["session_id"]
            self.client = self.gateway.connect(grant)
        if moment == "pull":
            self.new_image()

    # -- a round ---------------------------------------------------------------------------------

    def round(self, moment, victim, rng):
        self.ready_for(moment)
        said = []

        def act():
            try:
                said.append(getattr(self, "act_" + moment)())
            except (OSError, WsError, WsClosed, AssertionError) as error:
                said.append(type(error).__name__)
            except Exception as error:  # of http.client, when the gateway is what dies
                said.append(type(error).__name__)

        actor = threading.Thread(target=act)
        actor.start()
        time.sleep(rng.uniform(0, self.moments[moment]))
        hit = getattr(self, "kill_" + victim)(rng)
        actor.join(90)
        if actor.is_alive():
            self.fault("the call hangs")
        if self.client:
            self.client.close()
        self.counts[str(said[0] if said else "nothing")[:24]] += 1
        self.check()
        return hit

    def fault(self, text):
        self.faults.append(text)
        self.say(f"FAULT {text}")

    def sessions(self):
        return self.gateway.expect(200, "GET", f"/sandboxes?chat_id={self.chat}")["items"]

    def settled(self, what, look, seconds=SETTLE_S):
        deadline = time.monotonic() + seconds
        left = look()
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = look()
        if left:
            self.fault(f"{what}: {left}")
        return not left

    def under_way(self):
        return [
            (s["session_id"], s["status"])
            for s in self.sessions()
            if s["status"] not in ("running", *ENDED)
        ]

    def silent(self):
        """Those that are told to run and do not answer."""
        found = []
        for session in self.sessions():
            if session["status"] == "running" and not self.answers(session["session_id"]):
                found.append(session["session_id"])
        return found

    def answers(self, session_id):
        try:
            status, _, grant = self.gateway.rest("POST", "/leases", {"session_id": session_id})
            if status != 201:
                return False
            client = self.gateway.connect(grant, timeout=5)
            try:
                client.send_text("echo there")
                return client.recv(5)[1] == b"there"
            finally:
                client.close()
        except (OSError, WsError, WsClosed):
            return False

    def check(self):
        self.gateway.connection().close()  # idle for as long as the act took: closed there, perhaps
        self.settled("not at rest", self.under_way)
        self.settled("told to run without an answer", self.silent)
        for session in self.sessions():
            if session["status"] == "running":
                self.settled("stop", lambda s=session: self.refuses_stop(s["session_id"]))
        self.settled("sessions", lambda: [s for s in self.sessions() if s["status"] not in ENDED])
        self.settled("left over", self.left_over)

    def refuses_stop(self, session_id):
        status, _, body = self.gateway.rest("POST", f"/sandboxes/{session_id}/stop", {})
        return None if status == 200 else (status, body)

    def left_over(self):
        found = {
            "processes": [f"{p.name} {p.pid}" for p in self.gateway.sandboxes_left()],
            "run directories": [n for n in os.listdir(self.gateway.run_dir) if len(n) == 36],
            "mounts": [m for m in mounts() if m.startswith(self.gateway.dir + "/")],
        }
        return {kind: things for kind, things in found.items() if things}

    def kill_gateway(self, rng):
        self.gateway.kill9()
        time.sleep(rng.choice((0, 0, 0.3)))
        self.gateway.start()
        return True

    def close(self):
        self.gateway.cleanup()


def mounts():
    with open("/proc/self/mounts", encoding="utf-8") as text:
        return [line.split()[1] for line in text]


def kill(pid):
    try:
        os.kill(pid, 9)
        return True
    except ProcessLookupError:
        return False


class OnLocal(Case):
    victims = ("gateway", "leasekeep", "leasedoor", "leaseinit")

    def __init__(self, say, rng):
        super().__init__(say)
        self.gateway = Gateway(CONFIG)

    def kill_named(self, rng, name):
        found = [p for p in self.gateway.sandboxes_left() if p.name == name]
        return bool(found) and rng.choice(found).send(9)

    def kill_leasekeep(self, rng):
        return self.kill_named(rng, "leasekeep")

    def kill_leasedoor(self, rng):
        return self.kill_named(rng, "leasedoor")

    def kill_leaseinit(self, rng):
        return self.kill_named(rng, "leaseinit")


class OnDocker(Case):
    victims = ("gateway", "dockerd", "shim", "leasedoor")
    moments = {**Case.moments, "stop": 0.3, "pull": 0.6}

    def __init__(self, say, rng):
        super().__init__(say)
        self.docker = Docker(live_restore=rng.random() < 0.5, options=["--max-download-attempts=1"])
        self.say(f"live-restore: {self.docker.live_restore}")
        self.registry = None
        try:
            self.docker.image("lh/busybox", busybox())
            self.names = {"name": "far", "image": ""}
            settings = {"engine": "docker", "image": "lh/busybox"}
            config = {**CONFIG, "docker": {"base_url": self.docker.url}}
            config["sandbox"] = {**CONFIG["sandbox"], **settings}
            self.layers = [tar_of(busybox()), tar_of({"more": os.urandom(3000000)})]
            self.registry = Registry(self.layers, {"Cmd": SHELL})
            self.image = f"{self.registry.address}/far/agent:1"
            config["profiles"] = [*CONFIG["profiles"], {"name": "far", "image": self.image}]
            self.gateway = Gateway(config)
        except BaseException:
            self.docker.cleanup()
            raise

    def new_image(self):
        self.docker.request("DELETE", f"/images/{self.image}?force=1")

    def kill_dockerd(self, rng):
        self.docker.kill()
        time.sleep(rng.choice((0, 0.2)))
        self.docker.start()
        return True

    def shims(self):
        return [
            p.pid
            for p in processes.all_processes().values()
            if p.name.startswith("containerd-shim")
            and any(self.docker.dir in word for word in processes.arguments(p.pid))
        ]

    def kill_shim(self, rng):
        found = self.shims()
        return bool(found) and kill(rng.choice(found))

    def kill_leasedoor(self, rng):
        found = [p for p in self.gateway.sandboxes_left() if p.name == "leasedoor"]
        return bool(found) and rng.choice(found).send(9)

    def left_over(self):
        found = super().left_over()
        more = {
            "containers": [c["Names"] for c in self.docker.of_gateway(self.gateway)],
            "networks": [n["Name"] for n in self.docker.networks()],
            "shims": [pid for pid in self.shims() if self.docker.children(pid)],
            "root file systems": [
                m for m in mounts() if m.startswith(self.docker.dir) and m.endswith("/merged")
            ],
        }
        return {**found, **{kind: things for kind, things in more.items() if things}}

    def close(self):
        try:
            super().close()
        finally:
            if self.registry:
                self.registry.close()
            self.docker.cleanup()


def run(engine, seed, rounds, say=print, only=None):
    """The list of faults; empty when all is well."""
    rng = random.Random(seed)
    case = (OnDocker if engine == "docker" else OnLocal)(say, rng)
    try:
        for moment in case.moments:
            for victim in case.victims:
                if only and f"{moment}/{victim}" not in only:
                    continue
                case.counts.clear()
                hits = sum(bool(case.round(moment, victim, rng)) for _ in range(rounds))
                say(f"{engine}: {victim} in a {moment}: {rounds} rounds, {hits} hit, {dict(case.counts)}")
        if case.faults:
            say(case.gateway.log_tail(40))
    finally:
        case.close()
    return case.faults


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--engine", choices=("docker", "local"), default="docker")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", action="append", help="MOMENT/VICTIM")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if args.seed is None else args.seed
    faults = run(args.engine, seed, args.rounds, only=args.only)
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"{args.engine}: {len(faults)} faults, seed {seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
