"""What goes to one person: in order, and each again until the messenger has taken it."""

import asyncio
import http.client
import random
import urllib.error

PAUSE_MAX_S = 10


class Outbox:
    def __init__(self, post):
        """`post(text)` gives one to the messenger; it may block, and raises when that was not taken."""
        self.post = post
        self.texts = asyncio.Queue()
        self.task = asyncio.create_task(self._run())

    def add(self, text):
        self.texts.put_nowait(text)

    async def _run(self):
        while True:
            text, pause_s = await self.texts.get(), 0.1
            while not await self._taken(text):
                await asyncio.sleep(pause_s * (0.5 + random.random()))
                pause_s = min(PAUSE_MAX_S, pause_s * 2)

    async def _taken(self, text):
        """Also True when it never will be: the next one must not wait for ever."""
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.post, text)
            return True
        except urllib.error.HTTPError as refusal:
            print(f"messenger: {refusal}")
            return refusal.code < 500 and refusal.code not in (408, 429)
        except (OSError, http.client.HTTPException) as fault:
            print(f"messenger: {fault}")
            return False
