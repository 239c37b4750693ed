"""A member of a live run that means ill: with an invite, a key and the whole protocol, over either transport."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import random
from collections.abc import Awaitable, Callable

import numpy as np
import torch
from tests.intrude.kit.member import Identity, Member

from barnraise import compression
from barnraise.core import ranges
from barnraise.core.errors import WireError
from barnraise.core.types import KINDS, Blob, Contribution, LinkReport, NodeProfile, Task
from barnraise.transport import Invite
from barnraise.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    Assign,
    Fetch,
    Hello,
    Leave,
    Message,
    Offer,
    PayloadChunk,
    RequestTask,
    SendPayload,
    Subscribe,
    Welcome,
)

from .frames import Fuzzer
from .values import Hostile, plain

TURN = 0.01
"""Seconds between two handfuls of frames."""
GREET_EVERY = 250
"""Frames after which it greets again: the controller ignores most messages of unknown senders."""
LIES_A_SECOND = 20.0
"""At most: a liar waits for the answers that its next lie is about."""
LIAR_SECONDS = 0.2
"""Seconds that a liar waits for an answer before it sends its next lie."""


class Villain(Member):
    """A member with the fuzzer's frames, and lies."""

    def __init__(self, name: str, invite: Invite, rng: random.Random) -> None:
        super().__init__(name, invite, rng)
        self.hostile = Hostile(rng)
        self.fuzzer = Fuzzer(self.hostile)
        self.num_fuzzed = self.num_lies = 0
        self.old: list[Contribution] = []  # its earlier offers

    def learn(self, message: Message) -> None:
        """Values that look right in what it will say."""
        self.hostile.learn(plain(message))
        if isinstance(message, Assign):
            task = message.task
            self.hostile.remember("assignment", task.id)
            self.hostile.remember("steps", task.local_steps)
            for name in ("pending", "working"):
                self.hostile.remember(name, [task.id])
        elif isinstance(message, Welcome):
            self.hostile.remember("greeting", message.greeting + 1)

    async def join(self) -> bool:
        """Enrol, greet and be given a task: whether all of it worked."""
        return await super().join() and (task := await self.task()) is not None and self._prepared(task)

    async def takes_over(self, other: Villain) -> None:
        """Come in, as the other goes: one hostile member at a time."""
        await other.send(Leave())
        await self.join()

    def _prepared(self, task: Task) -> bool:
        size = ranges.size(task.parameters)
        nothing = update(size, 0.0)
        self.hostile.remember("payload", plain(Blob(hashlib.sha256(nothing).hexdigest(), len(nothing))))
        self.hostile.remember("offset", 0)
        self.hostile.remember("have", -1)
        return True

    # Garbage

    async def fuzz(self, seconds: float, pace: float, stranger: Callable[[], Awaitable[None]], *, dry: bool) -> int:
        """Send hostile frames, `pace` a second, for `seconds`, and a stranger with each hundredth; return their number.

        `dry`: they are made and thrown away, which is what the attack costs its own machine.
        """
        loop = asyncio.get_running_loop()
        began, count = loop.time(), 0
        while (now := loop.time()) < began + seconds:
            if count >= (now - began) * pace:
                await asyncio.sleep(TURN)
                continue
            frames = self.fuzzer.frames()
            count += 1
            if dry:
                continue
            with contextlib.suppress(WireError):  # more than this transport carries at all
                await self.connection.send(frames)
            if count % 100 == 0:
                await stranger()
            if count % GREET_EVERY == 0:
                self.greeting += 1
                await self.send(
                    Hello(PROTOCOL_VERSION, self.identity[0], self.greeting, self.identity[1], -1, kinds=tuple(KINDS))
                )
                await self.send(RequestTask(-1))
            await asyncio.sleep(0)
        self.num_fuzzed += 0 if dry else count
        return count

    # Lies

    async def lie(self, seconds: float, *, dry: bool) -> int:
        """Within the protocol: absurd claims, instant and stale returns, uploads that end nowhere, for so long."""
        loop = asyncio.get_running_loop()
        until, count = loop.time() + seconds, 0
        while loop.time() < until:
            if not dry:
                await self.rng.choice(_LIES)(self)
                count += 1
            await asyncio.sleep(1.0 / LIES_A_SECOND)
        self.num_lies += count
        return count

    async def _claim(self) -> None:
        """A machine of any speed and memory, behind any link, that restarts as it likes."""
        rate, latency = self.rng.choice((0.0, 5e-324, 1e-3, 1.0, 1e12, 1e15)), self.rng.choice((0.0, 5e-324, 1e12))
        session = self.identity[0] + self.rng.choice((0, 1))
        await self._back((session, NodeProfile(rate, 2**53, 2**53, "\x1b[2Jx", rate, rate, latency)))

    async def _back(self, identity: Identity | None = None) -> None:
        await self.greet(identity, seconds=LIAR_SECONDS)

    async def _return(self) -> None:
        """An answer at once, to a task for a link of its choice: nothing, too much, or no number at all."""
        up, down = self.rng.choice((0.0, 1e-3, 1.0, 1e15)), self.rng.choice((0.0, 5e-324, 1e15))
        task = await self.task(LinkReport(self.rng.choice((0.0, 1e12)), up, down), seconds=LIAR_SECONDS)
        if task is None:
            await self._back()
            return
        size = ranges.size(task.parameters)
        value = self.rng.choice((0.0, 0.0, 0.0, 0.0, 1e-6, 1e-6, math.nan, math.inf, 1e30, 3e38))
        data = update(size, value)
        blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
        steps = self.rng.choice((*[task.local_steps] * 6, 1, 1, 0, 2**53))
        loss, took = self.rng.choice((*[1.0] * 6, 0.0, 1e308, math.nan)), self.rng.choice((0.0, 5e-324, 1.0, 1e12))
        made = Contribution.of(task, blob, codec=task.rung, steps=steps, loss=loss, seconds=took)
        offer = self.signed(made) if self.rng.random() < 0.9 else made
        self.old = [*self.old, offer][-20:]
        match self.rng.randrange(20):
            case 0:  # in pieces, of which the last never comes
                await self.send(Offer(offer))
                await self.expect(SendPayload, Ack, seconds=LIAR_SECONDS)
                await self.send(PayloadChunk(task.id, 0), data[: size // 2])
            case 1:  # the header alone
                await self.send(Offer(offer))
            case 2:  # other bytes than were promised
                await self.send(Offer(offer), bytes(len(data)))
            case _:
                await self.send(Offer(offer), data)

    async def _repeat(self) -> None:
        """Offer again some contributions that the controller judged long ago."""
        for offer in self.rng.sample(self.old, min(3, len(self.old))):
            await self.send(Offer(offer))
            await self.send(PayloadChunk(offer.assignment, self.rng.choice((0, 2**44))), b"\x00" * 64)

    async def _take(self) -> None:
        """Bytes from everywhere, and the newest version all the time."""
        for digest in self.hostile.known.get("digest", ()):
            await self.send(
                Fetch(digest, self.rng.choice((0, 1, 2**18, 2**44, 2**53)), self.rng.choice((1, 2**18, 2**20)))
            )
        await self.send(Subscribe(-1))

    async def _leave(self) -> None:
        """It goes, and is back."""
        await self.send(Leave("\x1b]0;gone\x07" * 100))
        await self._back()


def update(size: int, value: float) -> bytes:
    """The payload of an update whose elements are all `value`, which an honest encoder would not always write."""
    nothing = compression.create("none").encode(torch.zeros(size)).to_bytes()
    return nothing[: -4 * size] + np.full(size, value, np.float32).tobytes()


_LIES: tuple[Callable[[Villain], Awaitable[None]], ...] = (
    Villain._claim, *[Villain._return] * 24, *[Villain._repeat] * 4, *[Villain._take] * 4, Villain._leave,
)  # fmt: skip
