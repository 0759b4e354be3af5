#!/usr/bin/python3
"""A chat bot: what people write to it in a messenger goes to an agent of their own, and back.

    LEASEHOLD_URL=… LEASEHOLD_KEY=… MESSENGER_URL=… bot.py STATE_FILE
"""

import asyncio
import http.client
import json
import os
import sys
import urllib.parse
import urllib.request
import uuid

import websockets

from gateway import Gateway, Refused
from outbox import Outbox
from talk import Talk

NAMESPACE = uuid.UUID("5d0c1f6e-8a51-4f0e-9c43-6d1d1a3f6b10")


class State:
    """What survives us: how far we have come, in the log of events and in the messenger."""

    def __init__(self, path):
        self.path, self.since, self.said = path, None, 0
        if os.path.exists(path):
            with open(path, encoding="ascii") as text:
                self.since, self.said = json.load(text)

    def save(self):
        with open(self.path + ".new", "w", encoding="ascii") as out:
            json.dump([self.since, self.said], out)
        os.replace(self.path + ".new", self.path)


class Bot:
    def __init__(self, url, key, messenger, state):
        self.url, self.key, self.messenger, self.state = url, key, messenger, state
        self.gateway = Gateway(url, key, state.since, self.on_event)
        self.talks, self.outboxes = {}, {}  # by person

    async def run(self):
        listening = asyncio.create_task(self.listen())
        await self.gateway.run()
        listening.cancel()
        print("the key does not hold")

    def on_event(self, event):
        """The door closes what it is told to close; the event says why, also when the door is out of
        reach."""
        if event["event"] in ("lease.revoked", "lease.expired"):
            for talk in list(self.talks.values()):
                if talk.lease_id == event["data"]["lease_id"]:
                    talk.end(event["data"]["reason"])
        if "seq" in event:
            self.state.since = event["seq"]
            self.state.save()

    # -- people --------------------------------------------------------------------------------------

    @staticmethod
    def ids(person):
        """The same person always has the same user and chat, without a table."""
        return [str(uuid.uuid5(NAMESPACE, f"{kind}:{person}")) for kind in ("user", "chat")]

    def talk_of(self, person):
        if person not in self.talks:
            self.talks[person] = Talk(
                self.gateway,
                *self.ids(person),
                lambda text: self.send(person, text),
                lambda talk, why: self.ended(person, talk, why),
            )
        return self.talks[person]

    def ended(self, person, talk, why):
        if self.talks.get(person) is talk:
            del self.talks[person]
        self.send(person, f"(the session has ended: {why})")

    def heard(self, person, text):
        if text.startswith("/save ") and len(text.split(" ", 2)) == 3:
            asyncio.create_task(self.save_file(person, *text.split(" ", 2)[1:]))
        else:
            self.talk_of(person).say(text)

    async def save_file(self, person, name, text):
        """"/save NAME TEXT": a file in the chat, where the agent finds it, too. Bodies go over REST."""
        user, chat = self.ids(person)
        request = urllib.request.Request(
            f"{self.url}/api/v1/chats/{chat}/files/{urllib.parse.quote(name, safe='')}",
            text.encode(),
            {"Authorization": f"Bearer {self.key}", "Content-Type": "text/plain"},
            method="PUT",
        )

        def put():
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)

        try:
            await self.gateway.call("chat.create", {"user_id": user, "chat_id": chat})
            file = await asyncio.get_running_loop().run_in_executor(None, put)
            self.send(person, f"(saved {file['name']}, {file['size_bytes']} bytes)")
        except asyncio.CancelledError:
            self.send(person, "(not saved: the gateway went away)")
        except (Refused, OSError, websockets.WebSocketException, asyncio.TimeoutError) as fault:
            self.send(person, f"({fault})")

    # -- the messenger ---------------------------------------------------------------------------------

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(self.messenger + path, data, timeout=60) as answer:
            return answer.read()

    def send(self, person, text):
        if person not in self.outboxes:
            self.outboxes[person] = Outbox(
                lambda text: self.ask("/send", {"person": person, "text": text}),
                lambda: self.outboxes.pop(person),
            )
        self.outboxes[person].add(text)

    async def listen(self):
        loop = asyncio.get_running_loop()
        while True:
            await self.gateway.up.wait()
            try:
                path = f"/updates?after={self.state.said}"
                for update in json.loads(await loop.run_in_executor(None, self.ask, path)):
                    self.heard(update["person"], update["text"])
                    self.state.said = update["n"]
                    self.state.save()
            except (OSError, http.client.HTTPException, ValueError) as fault:
                print(f"messenger: {fault}")
                await asyncio.sleep(1)


def main():
    try:
        url, key = os.environ["LEASEHOLD_URL"], os.environ["LEASEHOLD_KEY"]
        messenger = os.environ["MESSENGER_URL"]
        state = State(sys.argv[1])
    except (KeyError, IndexError):
        sys.exit(__doc__)
    asyncio.run(Bot(url, key, messenger, state).run())


if __name__ == "__main__":
    main()
