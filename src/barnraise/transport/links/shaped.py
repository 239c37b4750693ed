"""A worker's connection over an emulated slow link: it delays a real connection's messages in both directions.

The link is that of `transport.link`. It models a reliable stream, so nothing is dropped here that the connection would
deliver: loss costs retransmission timeouts and rate, a brown-out is a pause. Messages under way are lost where the
connection's own would be, at `redial` and `close`.

Order is the connection's own: bulk messages in order, single frames in order; a single frame may overtake bulk, and
bulk never overtakes a single frame that was sent before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from collections.abc import Sequence

from barnraise.transport.base import BATCH_BYTES, BATCH_MESSAGES, Connection
from barnraise.transport.identity import Keys
from barnraise.transport.links.link import Link, LinkState
from barnraise.transport.waking import Signal
from barnraise.wire.frames import Buffer, num_bytes

MOST_SINGLES = 1024
"""Single frames on their way up; `send` waits beyond."""

READ_AHEAD = BATCH_BYTES
"""Bytes on their way down; more is not read from the connection."""

Message = list[Buffer]


class ShapedConnection(Connection):
    """A connection `inner` behind `link`; `seed` decides jitter, loss and brown-outs."""

    def __init__(self, inner: Connection, link: Link, seed: object = 0) -> None:
        super().__init__()
        self.inner = inner
        up, down = link.states(random.Random(f"link {seed}"))
        self._up, self._down = _Line(up), _Line(down)
        self._turn = asyncio.Lock()  # serialises bulk messages
        self._bulk: asyncio.Queue[Message] = asyncio.Queue(1)
        self._tasks: list[asyncio.Task[None]] = []
        self._on_hand = 0  # messages that have passed the link, and are not with `inner` yet
        self._closed = False

    async def open(self, uri: str, server_key: str, keys: Keys) -> None:
        await self.inner.open(uri, server_key, keys)
        for line in (self._up, self._down):
            line.begin()
        work = (self._forward(), self._forward_bulk(), self._read())
        self._tasks = [asyncio.ensure_future(each) for each in work]

    async def ready(self, timeout: float) -> None:
        await self.inner.ready(timeout)
        self._observe()

    def _observe(self) -> None:
        self.num_connects, self.connected = self.inner.num_connects, self.inner.connected

    async def _diagnosis(self) -> str:
        return await self.inner._diagnosis()

    async def send(self, frames: Sequence[Buffer]) -> bool:
        message: Message = [bytes(frame) for frame in frames]  # the caller may change them afterwards
        if len(message) == 1:
            while len(self._up.waiting) >= MOST_SINGLES and not self._closed:
                await self._up.changed.wait()
            self._up.add(message)
            return not self._closed
        async with self._turn:
            wait = self._up.seconds_until_free()
            self._up.add(message)
            await asyncio.sleep(wait)  # until its own bytes begin to leave: one message waits, and no time is lost
            while self._bulk.full() and not self._closed:
                await self._up.changed.wait()
        return not self._closed

    async def _forward(self) -> None:
        """Forward messages that have passed the link; bulk through `_bulk`, so that it delays no other."""
        while True:
            batch = await self._up.arrived(BATCH_MESSAGES)
            self._on_hand += len(batch)
            for message in batch:
                if len(message) == 1:
                    await self._hand_over(message)
                else:
                    await self._bulk.put(message)

    async def _forward_bulk(self) -> None:
        while True:
            await self._hand_over(await self._bulk.get())

    async def _hand_over(self, message: Message) -> None:
        await self.inner.send(message)
        self._on_hand -= 1
        self._up.changed.wake()

    async def _read(self) -> None:
        try:
            while batch := await self.inner.receive_many():
                for message in batch:
                    self._down.add(message)
                while self._down.num_bytes > READ_AHEAD:
                    await self._down.changed.wait()
        finally:
            self._down.finish()

    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[Message]:
        batch = await self._down.arrived(limit)
        self._observe()
        return batch

    def redial(self) -> None:
        if self._closed:
            return
        for line in (self._up, self._down):
            line.clear()
        while not self._bulk.empty():
            self._bulk.get_nowait()
            self._on_hand -= 1
        self.inner.redial()

    async def close(self, linger: float = 0.0) -> None:
        if linger and not self._closed and self.inner.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(linger):
                    while self._up.waiting or self._on_hand:
                        await self._up.changed.wait()
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for line in (self._up, self._down):
            line.finish()
        await self.inner.close(linger)


class _Line:
    """One direction: messages in the order of their arrival at its other end."""

    def __init__(self, state: LinkState) -> None:
        self.state = state
        self.waiting: list[tuple[float, int, Message]] = []  # a heap
        self.num_bytes = 0
        self.changed = Signal()
        self._count = 0
        self._finished = False
        self._began = 0.0

    def begin(self) -> None:
        """Start the link's clock: brown-outs come at the same times after it in every run."""
        self._began = asyncio.get_running_loop().time()

    def _now(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    def seconds_until_free(self) -> float:
        """Return how long the next bulk message has to wait."""
        return max(0.0, self.state.free - self._now())

    def add(self, message: Message) -> None:
        """Send a message into the link now."""
        size = sum(map(num_bytes, message))
        for arrival in self.state.send(self._now(), size, small=len(message) == 1):
            self._count += 1
            heapq.heappush(self.waiting, (arrival, self._count, message))
            self.num_bytes += size
        self.changed.wake()

    async def arrived(self, limit: int) -> list[Message]:
        """Wait until messages have arrived and return at most `limit`; empty once nothing more will come."""
        await asyncio.sleep(0)  # yields to other tasks even if there is always something
        while not self._finished:
            found: list[Message] = []
            while self.waiting and self.waiting[0][0] <= self._now() and len(found) < limit:
                _, _, message = heapq.heappop(self.waiting)
                self.num_bytes -= sum(map(num_bytes, message))
                found.append(message)
            if found:
                self.changed.wake()
                return found
            due = self._began + self.waiting[0][0] if self.waiting else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self.changed.wait()
        return []

    def clear(self) -> None:
        """Drop all messages under way, as the connection is lost."""
        self.waiting.clear()
        self.num_bytes = 0
        self.state.reset(self._now())
        self.changed.wake()

    def finish(self) -> None:
        self._finished = True
        self.changed.wake()
