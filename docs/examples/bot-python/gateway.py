"""One WebSocket to the gateway: calls, events, and a new connection whenever the old one ends."""

import asyncio
import itertools
import json
import random

import websockets

CALL_S = 60


class Refused(Exception):
    """The gateway's problem."""

    def __init__(self, problem):
        super().__init__(f"{problem['code']}: {problem['detail']}")
        self.code = problem["code"]


class Gateway:
    def __init__(self, url, key, since, on_event):
        """`since`: seq of the last event handled in an earlier life; None at the very first start."""
        self.url, self.key = url.replace("http", "ws", 1) + "/api/v1/ws", key
        self.since, self.on_event = since, on_event
        self.up = asyncio.Event()
        self._calls, self._ids, self._socket = {}, itertools.count(1), None

    async def run(self):
        """Connects for ever; returns when the key does not hold."""
        pause_s = 0.1
        while True:
            try:
                async with websockets.connect(
                    self.url,
                    subprotocols=["leasehold.v1"],
                    extra_headers={"Authorization": f"Bearer {self.key}"},
                    max_size=None,
                ) as self._socket:
                    pause_s = 0.1
                    await self._serve()
            except websockets.InvalidStatusCode as fault:
                if fault.status_code == 401:
                    return
                print(f"gateway: {fault}")
            except websockets.ConnectionClosed as fault:
                if fault.code == 4401:
                    return
            except OSError as fault:
                print(f"gateway: {fault}")
            self.up.clear()
            for call in self._calls.values():
                call.cancel()
            self._calls.clear()
            await asyncio.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(10, pause_s * 2)

    async def _serve(self):
        asyncio.create_task(self._subscribe())
        async for text in self._socket:
            message = json.loads(text)
            if "event" not in message:
                call = self._calls.pop(message["id"], None)
                if call and not call.done():
                    call.set_result(message)
            elif message["event"] == "gap":
                # What happened before `oldest` is not known any more: look at what is there instead.
                self.since = message["data"]["oldest"] - 1
                self.on_event(message)
            else:
                self.on_event(message)
                self.since = message["seq"]  # only now: an event that was not handled comes again

    async def _subscribe(self):
        args = {"topics": ["all"]}
        if self.since is not None:
            args["since"] = self.since
        try:
            seq = (await self.call("subscribe", args))["seq"]
        except (Refused, asyncio.CancelledError, asyncio.TimeoutError) as fault:
            print(f"subscribe: {fault}")
            await self._socket.close()
            return
        if self.since is None:
            self.since = seq
        self.up.set()

    async def call(self, op, args):
        number = str(next(self._ids))
        answer = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        await self._socket.send(json.dumps({"id": number, "op": op, "args": args}))
        message = await asyncio.wait_for(answer, CALL_S)
        if not message["ok"]:
            raise Refused(message["error"])
        return message["result"]
