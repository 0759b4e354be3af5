"""A person's talk with an agent: a sandbox and a lease from the gateway, then straight to the door."""

import asyncio
import json
import random
import ssl
from datetime import datetime, timezone

import websockets

from gateway import Refused

AGAIN = (4503, 1006, 1013)  # a door that is not live yet, or a connection that broke
AGAIN_S = 0.3
WAITING_MAX = 1_000_000  # characters that the agent has not been given yet


def seconds_until(text):
    return (datetime.fromisoformat(text.replace("Z", "+00:00")) - datetime.now(timezone.utc)).total_seconds()


class Talk:
    def __init__(self, gateway, user_id, chat_id, on_text, on_end):
        self.gateway, self.user_id, self.chat_id = gateway, user_id, chat_id
        self.on_text, self.on_end = on_text, on_end
        self.said, self.unsent = asyncio.Queue(), None
        self.said_size = 0
        self.grant, self.lease_id, self.why = None, None, None
        self.task = asyncio.create_task(self._run())

    def say(self, text):
        if self.said_size and self.said_size + len(text) > WAITING_MAX:
            self.on_text("(not passed on: the agent does not listen)")
            return
        self.said.put_nowait(text)
        self.said_size += len(text)

    def end(self, why):
        """The next thing the person says begins a new one."""
        self.why = self.why or why
        self.task.cancel()

    async def _run(self):
        renewing = None
        try:
            await self.gateway.call("chat.create", {"user_id": self.user_id, "chat_id": self.chat_id})
            opened = await self.gateway.call("sandbox.open", {"chat_id": self.chat_id, "lease": {}})
            self._take(opened["grant"])
            renewing = asyncio.create_task(self._renew())
            await self._talk()
        except (Refused, OSError, websockets.WebSocketException, asyncio.TimeoutError) as fault:
            self.why = self.why or str(fault)
        except asyncio.CancelledError:
            self.why = self.why or "the gateway went away"
        finally:
            if renewing:
                renewing.cancel()
            self.on_end(self, self.why)

    def _take(self, grant):
        self.grant, self.lease_id = grant, grant["lease"]["lease_id"]

    async def _renew(self):
        """The connection stays: only its end moves. The new token is for the next connection."""
        while True:
            await asyncio.sleep(max(0, seconds_until(self.grant["renew_after"])))
            try:
                self._take(await self.gateway.call("lease.renew", {"lease_id": self.lease_id}))
            except Refused as fault:  # its time is over, or it was revoked
                self.end(str(fault))
            except (OSError, websockets.WebSocketException, asyncio.TimeoutError, asyncio.CancelledError):
                if self.task.done() or asyncio.current_task().cancelled():
                    raise
                await asyncio.sleep(1)

    async def _talk(self):
        while True:
            endpoint = self.grant["endpoint"]
            context = ssl.create_default_context(cadata=endpoint["ca_pem"]) if endpoint["ca_pem"] else None
            async with websockets.connect(
                endpoint["url"],
                subprotocols=[endpoint["protocol"]],
                extra_headers={"Authorization": f"Bearer {self.grant['token']}"},
                ssl=context,
            ) as door:
                code = await self._at(door)
            if code not in AGAIN:
                self.why = self.why or f"the door has closed with {code}"
                return
            await asyncio.sleep(AGAIN_S * (0.5 + random.random()))

    async def _at(self, door):
        """Until it closes: the code."""
        speaking = None
        try:
            # The door speaks once; everything behind that is the agent's.
            if json.loads(await door.recv())["type"] == "ready":
                speaking = asyncio.create_task(self._speak(door))
                async for text in door:
                    self.on_text(text)
        except websockets.ConnectionClosed:
            pass
        finally:
            if speaking:
                speaking.cancel()
        return door.close_code

    async def _speak(self, door):
        while True:
            if self.unsent is None:
                self.unsent = await self.said.get()
            await door.send(self.unsent)
            self.said_size -= len(self.unsent)
            self.unsent = None  # only now: what a door that breaks did not take is for the next
