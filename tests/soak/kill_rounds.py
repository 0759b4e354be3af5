"""Kill rounds: kill -9 of any part at random moments under a running load; nothing may be lost or left.

    kill_rounds.py [--rounds N] [--seed N] [--workers N]

The load remembers what was acknowledged to it (ledger). After the rounds, one seal time and one
clean-up round, what stands must agree with that, and once every session is stopped nothing of them
may be left. Prints what broke, one line each, the seed, and the directory, which is kept then.

The seed fixes the choices of victims and calls, not the scheduler: a replay is close, not exact.
"""

import argparse
import os
import random
import sys
import threading
import time
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "support")]

# pylint: disable=wrong-import-position
from aftermath import Aftermath
from gateway import Gateway
from load import Ledger, Worker

STALE_S, SEAL_S, CLEANUP_S = 1, 3, 1
CONFIG = {
    "lease": {
        "ttl_seconds": 120,
        "stale_after_seconds": STALE_S,
        "seal_after_seconds": SEAL_S,
        "per_user": 10000,
        "per_session": 1000,
    },
    "sandbox": {"cleanup_interval_seconds": CLEANUP_S, "ttl_seconds": 300},
    "logging": {"level": "info"},
}

# What is killed, how often. bwrap stands between leasekeep and leaseinit and may be hit as well.
VICTIMS = (
    ("gateway", 4),
    ("leasedoor", 2),
    ("leasekeep", 2),
    ("leaseinit", 2),
    ("demo-agent", 2),
    ("bwrap", 1),
)
# How long the gateway stays away: mostly shorter than stale, sometimes longer than the seal time.
AWAY_S = ((0.0, 6), (0.3, 3), (STALE_S + 0.5, 2), (SEAL_S + 1.0, 1))


def weighted(rng, table):
    return rng.choices([value for value, _ in table], [weight for _, weight in table])[0]


class KillRounds:
    def __init__(self, seed, rounds, workers, say=print):
        self.seed, self.rounds, self.say = seed, rounds, say
        self.rng = random.Random(seed)
        self.ledger = Ledger()
        self.gateway = Gateway(CONFIG)
        self.stopping = threading.Event()
        self.workers = [
            Worker(self.gateway, self.ledger, self.stopping, random.Random(f"{seed}/{n}"))
            for n in range(workers)
        ]
        self.killed = Counter()
        self.faults = []

    def run(self):
        """The list of faults; empty when all is well."""
        try:
            for worker in self.workers:
                worker.start()
            for number in range(self.rounds):
                time.sleep(self.rng.uniform(0.02, 0.8))
                self.kill(number, weighted(self.rng, VICTIMS))
        finally:
            self.stopping.set()
            for worker in self.workers:
                worker.join(120)
        self.faults += [f"worker: {w.crash}" for w in self.workers if w.crash]
        self.faults += [f"worker {w.name} hangs" for w in self.workers if w.is_alive()]
        time.sleep(SEAL_S + CLEANUP_S + 1)
        self.gateway_lives()
        after = Aftermath(self.gateway, self.ledger, self.killed)
        return self.faults + self.ledger.faults + after.faults()

    def gateway_lives(self):
        """Nothing but us may end it; where it ended by itself, it is started again to go on."""
        code = self.gateway.process.poll()
        if code is not None:
            self.faults.append(f"the gateway ended by itself with {code}")
            self.gateway.start()

    def kill(self, number, name):
        self.gateway_lives()
        if name == "gateway":
            self.killed[name] += 1
            away_s = weighted(self.rng, AWAY_S)
            self.gateway.kill9()
            time.sleep(away_s)
            self.gateway.start()
            self.note(number, f"gateway, away for {away_s} s")
            return
        # Of this gateway's own processes only, through the pidfd of exactly this one.
        candidates = [p for p in self.gateway.sandboxes_left() if p.name == name]
        if candidates:
            victim = self.rng.choice(candidates)
            hit = victim.send(9)
            self.killed[name] += hit
            self.note(number, f"{name} {victim.pid}{'' if hit else ' (gone already)'}")
        else:
            self.note(number, f"no {name} runs")

    def note(self, number, text):
        self.say(f"round {number + 1}: {text}; {self.ledger.summary()}")

    def close(self):
        for client in self.ledger.clients():
            client.close()
        self.gateway.cleanup()


def run(seed, rounds, workers=6, say=print):
    say(f"kill rounds: seed {seed}, {rounds} rounds, {workers} workers")
    rounds_run = KillRounds(seed, rounds, workers, say)
    try:
        faults = rounds_run.run()
        for fault in faults:
            say(f"FAULT {fault}")
        if faults:
            os.environ["LEASEHOLD_KEEP"] = "1"
            say(f"replay: make soak SEED={seed} ROUNDS={rounds}; {rounds_run.gateway.dir}")
            say(rounds_run.gateway.log_tail(60))
        say(f"{rounds_run.ledger.summary()}; {rounds_run.ledger.answers()}")
    finally:
        rounds_run.close()
    return faults


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--workers", type=int, default=6)
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if args.seed is None else args.seed
    faults = run(seed, args.rounds, args.workers)
    print(f"kill rounds: {'no fault' if not faults else str(len(faults)) + ' faults'}, seed {seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
