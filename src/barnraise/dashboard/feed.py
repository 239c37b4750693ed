"""The pictures of a run for all pages that are open: made once for all of them, at a bounded cost."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import msgspec
from starlette.concurrency import run_in_threadpool

from barnraise.account.moment import RunMoment
from barnraise.account.page.patches import patch
from barnraise.account.page.pictures import VIEWS, Picture
from barnraise.account.page.veil import Hiding, Veil
from barnraise.core.errors import BarnraiseError
from barnraise.core.text import printable

FASTEST, SHARE, RATE = 0.5, 0.01, 4500.0
"""Seconds between two pictures at least, the share of a core that making them may take, and bytes a second of a view:
a page follows two."""

KEPT = 60
"""Patches that are kept of a view: a page that lost its connection for longer begins again."""

ALIVE, PATIENCE, RETRY = 15.0, 10.0, 3.0
"""Seconds between two signs of life on a stream; after which a view that no page follows is not made any more; and
before a run that could not be read is read again."""


class UnreadableError(BarnraiseError):
    """The run cannot be read now."""


class Channel:
    """One view for one kind of reader: its newest picture, and the patches that led there."""

    def __init__(self, view: str, veiled: bool) -> None:
        self.view, self.veiled = view, veiled
        self.number, self.picture = 0, Picture()
        self.recent: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self.users, self.asked = 0, 0.0

    def body(self) -> bytes:
        """Return the whole picture, compressed."""
        return gzip.compress(msgspec.json.encode({"id": self.number, "data": self.picture}), 5)


class Looked(NamedTuple):
    """The result of a look at the run: new pictures with their patches, and the seconds of a core that it took."""

    moment: RunMoment
    changed: list[tuple[Channel, Picture, bytes]]
    cost: float


class Feed:
    """Looks at a run while pages are open, and hands them what has changed."""

    def __init__(self, look: Callable[[], RunMoment], outlook: Callable[[RunMoment], RunMoment]) -> None:
        """`look` returns the run as it is, `outlook` adds to that what only pages show."""
        self._source, self._outlook = look, outlook
        self._channels: dict[tuple[str, bool], Channel] = {}
        self._task: asyncio.Task[None] | None = None
        self._changed: asyncio.Event = asyncio.Event()
        self._moment: tuple[float, RunMoment] | None = None
        self._lock = asyncio.Lock()
        self.trouble = ""

    async def moment(self, oldest: float = 1.0) -> RunMoment:
        """Return the run as it was at most `oldest` seconds ago. Raises UnreadableError."""
        async with self._lock:
            if self._moment is None or time.monotonic() - self._moment[0] > oldest:
                self._moment = time.monotonic(), await run_in_threadpool(self._look)
            return self._moment[1]

    def _look(self) -> RunMoment:
        try:
            return self._source()
        except BarnraiseError as error:
            raise UnreadableError(str(error)) from error

    async def whole(self, view: str, veiled: bool) -> bytes:
        """Return a view as a whole, compressed JSON: its number and its values. Raises UnreadableError."""
        channel = self._channel(view, veiled)
        if self._task is None or not channel.number:
            moment = await self.moment(FASTEST)
            self._publish(
                [made] if (made := await run_in_threadpool(lambda: _made(channel, self._outlook(moment)))) else []
            )
        self._start()
        return await run_in_threadpool(channel.body)

    async def follow(self, view: str, veiled: bool, after: int) -> AsyncIterator[bytes]:
        """Yield patches from number `after` on as server-sent events, `again` where they are not kept any more.

        `trouble` says that the run cannot be read now.
        """
        channel = self._channel(view, veiled)
        channel.users += 1
        self._start()
        told = ""
        try:
            while True:
                changed = self._changed
                if self.trouble != told:
                    told = self.trouble
                    yield _event("trouble", 0, msgspec.json.encode(told))
                if after > channel.number or (channel.recent and channel.recent[0][0] > after + 1):
                    yield _event("again", channel.number, b"{}")
                    after = channel.number
                for number, content in list(channel.recent):
                    if number > after:
                        yield _event("patch", number, content)
                        after = number
                try:
                    await asyncio.wait_for(changed.wait(), ALIVE)
                except TimeoutError:
                    yield b": alive\n\n"
        finally:
            channel.users -= 1
            channel.asked = time.monotonic()

    def _channel(self, view: str, veiled: bool) -> Channel:
        channel = self._channels.setdefault((view, veiled), Channel(view, veiled))
        channel.asked = time.monotonic()
        return channel

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._produce())

    async def _produce(self) -> None:
        """Look again and again while a page follows."""
        while wanted := self._wanted():
            pause, sent = RETRY, 0
            try:
                async with self._lock:
                    looked = await run_in_threadpool(self._made, wanted)
                    self._moment = time.monotonic(), looked.moment
            except Exception as error:  # each page tells it, and the next look may succeed
                self._tell(printable(str(error) if isinstance(error, BarnraiseError) else repr(error), 300))
            else:
                self._tell("")
                sent = max((len(content) for _, _, content in looked.changed), default=0)
                self._publish(looked.changed)
                pause = max(FASTEST, looked.cost / SHARE, sent / RATE)
            await asyncio.sleep(pause)
        self._task = None

    def _wanted(self) -> list[Channel]:
        """Return the channels that are followed; others begin again when they are asked for."""
        old = time.monotonic() - PATIENCE
        self._channels = {key: one for key, one in self._channels.items() if one.users or one.asked > old}
        return list(self._channels.values())

    def _made(self, wanted: list[Channel]) -> Looked:
        began = time.thread_time()
        moment = self._look()
        shown = self._outlook(moment)
        changed = [made for channel in wanted if (made := _made(channel, shown)) is not None]
        return Looked(moment, changed, time.thread_time() - began)

    def _publish(self, changed: list[tuple[Channel, Picture, bytes]]) -> None:
        for channel, picture, content in changed:
            channel.number += 1
            channel.picture = picture
            channel.recent.append((channel.number, content))
        if changed:
            self._wake()

    def _tell(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self._wake()

    def _wake(self) -> None:
        before, self._changed = self._changed, asyncio.Event()
        before.set()


def veil_of(moment: RunMoment, veiled: bool) -> Veil:
    """Return the veil for a reader who sees no names, or all."""
    return Hiding(node.node for node in moment.account.nodes) if veiled else Veil()


def _made(channel: Channel, moment: RunMoment) -> tuple[Channel, Picture, bytes] | None:
    """Return a channel's next picture, and the patch to it; None where nothing has changed."""
    picture = VIEWS[channel.view](moment, veil_of(moment, channel.veiled))
    changes = patch(channel.picture, picture)
    if changes is None:
        return None
    return channel, picture, msgspec.json.encode({"clock": round(moment.clock, 1), **changes})


def _event(kind: str, number: int, content: bytes) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (kind.encode(), number, content)
