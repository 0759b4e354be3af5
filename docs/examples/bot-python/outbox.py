"""What goes to one person: in order, and each again until the messenger has taken it. While it takes
nothing, so much waits and no more; the person is told how many got lost."""

import asyncio
import collections
import http.client
import random
import urllib.error

PAUSE_MAX_S = 10
WAITING_MAX = 1_000_000  # characters


class Outbox:
    def __init__(self, post, on_empty=lambda: None, most=WAITING_MAX):
        """`post(text)` gives one to the messenger; it may block, and raises when that was not taken.
        `on_empty()`: nothing waits any more, the next text may have an outbox of its own."""
        self.post, self.on_empty, self.most = post, on_empty, most
        self.waiting, self.size, self.lost = collections.deque(), 0, 0
        self.task = None

    def add(self, text):
        if self.waiting and self.size + len(text) > self.most:
            self.lost += 1
            return
        self.waiting.append(text)
        self.size += len(text)
        if len(self.waiting) == 1:
            self.task = asyncio.create_task(self._run())

    async def _run(self):
        while self.waiting:
            await self._deliver(self.waiting[0])
            self.size -= len(self.waiting.popleft())
            if self.lost and not self.waiting:
                told, self.lost = f"({self.lost} messages got lost: too much waited)", 0
                self.waiting.append(told)
                self.size += len(told)
        self.on_empty()

    async def _deliver(self, text):
        pause_s = 0.1
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
