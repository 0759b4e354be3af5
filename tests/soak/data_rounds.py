"""data_rounds.py [--rounds N] [--seed S]

Kills the gateway at random moments while clients make and delete chats, say things and put files; what
was acknowledged must be there and whole after each start, what was not is wholly there or not at all.
"""

import argparse
import hashlib
import http.client
import os
import random
import sys
import threading
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

from gateway import Gateway  # pylint: disable=wrong-import-position

WORKERS = 6
USERS = 3
LIFE_S = (0.05, 0.4)  # of a gateway under load
SIZES = (0, 1, 700, 5000, 70_000, 400_000)
LOST = (OSError, http.client.HTTPException)


class Chat:
    """What one chat must hold. Of one worker, so that there is no question who was first."""

    def __init__(self, user, chat):
        self.user, self.id = user, chat
        self.made = False  # acknowledged
        self.gone = None  # None: not asked for, False: not acknowledged, True: acknowledged
        self.said = {}  # by client_message_id: (content, seq or None)
        self.files = {}  # by name: digests that it may have; None among them: it may be missing


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Worker(threading.Thread):
    def __init__(self, gateway, chats, seed, stop):
        super().__init__(daemon=True)
        self.gateway, self.chats, self.stop = gateway, chats, stop
        self.rng = random.Random(seed)
        self.faults = []

    def run(self):
        while not self.stop.is_set():
            try:
                self.rng.choice((self.make, self.say, self.say, self.say, self.put, self.put,
                                 self.remove_file, self.remove))()
            except LOST:
                return

    def call(self, method, path, body, good):
        """The body of a good answer; None: refused, as it may be."""
        status, _, answer = self.gateway.rest(method, path, body)
        if status in good:
            return answer if answer else {}
        if status not in (404, 409, 503):
            self.faults.append(f"{method} {path}: {status} {answer}")
        return None

    def living(self):
        return [c for c in self.chats if c.made and c.gone is None]

    def make(self):
        if len(self.living()) > 6:
            return
        chat = Chat(str(uuid.UUID(int=self.rng.randrange(USERS) + (4 << 76) + (8 << 60))),
                    str(uuid.UUID(int=self.rng.getrandbits(128), version=4)))
        self.chats.append(chat)
        body = {"user_id": chat.user, "chat_id": chat.id, "title": chat.id}
        chat.made = self.call("POST", "/chats", body, (200, 201)) is not None

    def say(self):
        for chat in self.living()[-3:]:
            key = f"{self.rng.getrandbits(64):x}"
            content = key + "y" * self.rng.choice(SIZES)
            chat.said[key] = (content, None)
            body = {"role": "user", "content": content, "client_message_id": key}
            message = self.call("POST", f"/chats/{chat.id}/history", body, (201,))
            if message:
                chat.said[key] = (content, message["seq"])

    def put(self):
        for chat in self.living()[-2:]:
            name = f"f{self.rng.randrange(4)}"
            data = self.rng.randbytes(self.rng.choice(SIZES))
            before = chat.files.get(name, {None})
            chat.files[name] = before | {digest(data)}
            answer = self.call("PUT", f"/chats/{chat.id}/files/{name}", data, (200, 201))
            if answer:
                chat.files[name] = {digest(data)}

    def remove_file(self):
        for chat in self.living()[-1:]:
            for name in list(chat.files)[:1]:
                chat.files[name] = chat.files[name] | {None}
                if self.call("DELETE", f"/chats/{chat.id}/files/{name}", None, (204,)) is not None:
                    chat.files[name] = {None}

    def remove(self):
        living = self.living()
        if len(living) > 3 and self.rng.random() < 0.3:
            chat = living[0]
            chat.gone = False
            if self.call("DELETE", f"/chats/{chat.id}", None, (204,)) is not None:
                chat.gone = True


class Checks:
    def __init__(self, gateway):
        self.gateway = gateway
        self.faults = []
        self.root = os.path.join(gateway.dir, "data", "workspaces")

    def fault(self, chat, text):
        self.faults.append(f"chat {chat.id}: {text}")

    def dir(self, chat):
        return os.path.join(self.root, chat.user, "chats", chat.id)

    def chat(self, chat):
        status, _, _ = self.gateway.rest("GET", f"/chats/{chat.id}")
        if status not in (200, 404):
            self.fault(chat, f"status {status}")
        there = status == 200
        if chat.made and chat.gone is None and not there:
            self.fault(chat, "an acknowledged chat is lost")
        if chat.gone and there:
            self.fault(chat, "a deleted chat is back")
        if there:
            chat.made, chat.gone = True, None
            self.history(chat)
            self.files(chat)
        else:
            chat.gone = True
            if os.path.exists(os.path.join(self.dir(chat), "files")) and chat.made:
                self.fault(chat, "a directory without a chat")

    def messages(self, chat):
        items, after = [], 0
        while True:
            page = self.gateway.expect(
                200, "GET", f"/chats/{chat.id}/history?limit=200&after={after}"
            )
            items += page["items"]
            if not page["next_cursor"]:
                return items
            after = items[-1]["seq"]

    def history(self, chat):
        items = self.messages(chat)
        if [m["seq"] for m in items] != list(range(1, len(items) + 1)):
            self.fault(chat, "the numbers have holes")
        by_content = {m["content"]: m for m in items}
        if len(by_content) != len(items):
            self.fault(chat, "a message is there twice")
        known = {content: seq for content, seq in chat.said.values()}
        for content, seq in known.items():
            if seq and by_content.get(content, {}).get("seq") != seq:
                self.fault(chat, f"acknowledged message {seq} is lost")
        for content, message in by_content.items():
            if content not in known:
                self.fault(chat, f"message {message['seq']} was never said like this")
        with open(os.path.join(self.dir(chat), "history.md"), encoding="utf-8") as text:
            entries = [line for line in text if line.startswith("## ")]
        if len(entries) != len(items):
            self.fault(chat, f"history.md has {len(entries)} of {len(items)} messages")
        self.say_again(chat, by_content)

    def say_again(self, chat, by_content):
        """Who has got no answer asks again: then it is there, once."""
        for key, (content, seq) in list(chat.said.items()):
            if seq:
                continue
            body = {"role": "user", "content": content, "client_message_id": key}
            message = self.gateway.expect(201, "POST", f"/chats/{chat.id}/history", body)
            before = by_content.get(content)
            if before and before["seq"] != message["seq"]:
                self.fault(chat, f"message {before['seq']} came in again as {message['seq']}")
            chat.said[key] = (content, message["seq"])

    def files(self, chat):
        names = set(os.listdir(os.path.join(self.dir(chat), "files")))
        if names - set(chat.files):
            self.fault(chat, f"left over: {names - set(chat.files)}")
        for name, allowed in chat.files.items():
            status, _, data = self.gateway.rest("GET", f"/chats/{chat.id}/files/{name}")
            found = digest(data) if status == 200 else None
            if found not in allowed:
                self.fault(chat, f"file {name} is {'lost' if found is None else 'another'}")
            chat.files[name] = {found}

    def usage(self, user):
        status, _, workspace = self.gateway.rest("GET", f"/users/{user}/workspace")
        if status == 404:
            return
        total = 0
        for path, _, names in os.walk(os.path.join(self.root, user)):
            total += sum(os.path.getsize(os.path.join(path, name)) for name in names)
        if workspace["used_bytes"] != total:
            self.faults.append(f"user {user}: {workspace['used_bytes']} of {total} bytes counted")

    def trail(self):
        found = self.gateway.expect(200, "GET", "/audit/verify")
        if not found["ok"]:
            self.faults.append(f"the audit trail is broken at {found['first_broken']}")


def one_round(gateway, chats, rng, faults):
    stop = threading.Event()
    workers = [Worker(gateway, own, rng.getrandbits(64), stop) for own in chats]
    for worker in workers:
        worker.start()
    time.sleep(rng.uniform(*LIFE_S))
    gateway.kill9()
    stop.set()
    for worker in workers:
        worker.join(60)
        faults += worker.faults
    gateway.start()


def run(seed, rounds, say=print):
    say(f"data rounds: seed {seed}, {rounds} rounds")
    rng = random.Random(seed)
    gateway = Gateway({"retention": {"interval_seconds": 3600}})
    chats = [[] for _ in range(WORKERS)]
    faults = []
    try:
        for number in range(rounds):
            one_round(gateway, chats, rng, faults)
            checks = Checks(gateway)
            for chat in [chat for own in chats for chat in own]:
                checks.chat(chat)
            for user in {chat.user for own in chats for chat in own}:
                checks.usage(user)
            checks.trail()
            faults += checks.faults
            for own in chats:
                own[:] = [chat for chat in own if not chat.gone]
            say(f"round {number + 1}: {sum(len(own) for own in chats)} chats, "
                f"{sum(len(c.said) for own in chats for c in own)} messages")
            if faults:
                break
        for fault in faults:
            say(f"FAULT {fault}")
        if faults:
            os.environ["LEASEHOLD_KEEP"] = "1"
            say(f"replay: --seed {seed} --rounds {rounds}; {gateway.dir}")
            say(gateway.log_tail(40))
    finally:
        gateway.cleanup()
    return faults


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if args.seed is None else args.seed
    faults = run(seed, args.rounds)
    print(f"data rounds: {'no fault' if not faults else str(len(faults)) + ' faults'}, seed {seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
