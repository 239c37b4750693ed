"""The pictures of a run for all pages that are open: made once for all of them, at a bounded cost."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool

from barnraise.account.moment import RunMoment
from barnraise.account.page.patches import patch
from barnraise.account.page.pictures import VIEWS, Picture
from barnraise.account.page.veil import Hiding, Veil
from barnraise.core.errors import BarnraiseError
from barnraise.core.text import printable
from barnraise.dashboard.source import RunSource

FASTEST, SHARE, RATE = 0.5, 0.02, 4500.0
"""Seconds between two pictures at least, the share of a core that making them may take, and bytes a second of a view:
a page follows two."""

KEPT, KEPT_BYTES = 60, 1_000_000
"""Patches that are kept of a view, and their bytes: a page that lost its connection for longer begins again."""

ALIVE, PATIENCE, RETRY = 15.0, 10.0, 3.0
"""Seconds between two signs of life on a stream; after which a view that no page follows is not made any more; and
before a run that could not be read is read again."""

T = TypeVar("T")


class UnreadableError(BarnraiseError):
    """The run cannot be read now."""


class Channel:
    """One view for one kind of reader: its newest picture, and the patches that led there.

    Its numbers begin with the time, so that a page that comes back does not take them for those of an earlier channel.
    """

    def __init__(self, view: str, veiled: bool) -> None:
        self.view, self.veiled = view, veiled
        self.number, self.picture = time.time_ns() // 1_000_000, Picture()
        self.recent: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self.users, self.asked = 0, 0.0
        self._whole = 0, b""

    def publish(self, picture: Picture, changes: bytes) -> None:
        """Take the next picture, and the patch that leads to it."""
        self.picture = picture
        self.number += 1
        self.recent.append((self.number, changes))
        while len(self.recent) > 1 and sum(len(content) for _, content in self.recent) > KEPT_BYTES:
            self.recent.popleft()

    def leads_from(self, number: int) -> bool:
        """Return whether the patches that are kept lead from a picture of that number to the newest."""
        return number == self.number or (bool(self.recent) and self.recent[0][0] - 1 <= number < self.number)

    def body(self) -> bytes:
        """Return the whole picture, compressed."""
        if self._whole[0] != self.number:
            content = msgspec.json.encode({"id": self.number, "data": self.picture})
            self._whole = self.number, gzip.compress(content, 5)
        return self._whole[1]


class Looked(NamedTuple):
    """The result of a look at the run: new pictures with their patches, and the seconds of a core that it took."""

    changed: list[tuple[Channel, Picture, bytes]]
    cost: float


class Feed:
    """Looks at a run while pages are open, and hands them what has changed."""

    def __init__(self, source: RunSource, outlook: Callable[[RunMoment], RunMoment]) -> None:
        """`outlook` adds to a moment what only pages show; it is called by one thread at a time."""
        self._source, self._outlook = source, outlook
        self._channels: dict[tuple[str, bool], Channel] = {}
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._moment: tuple[float, RunMoment] | None = None
        self._cost = 0.0
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = False
        self.trouble = ""

    async def ask(self, about: Callable[[RunMoment], T], oldest: float = 1.0) -> T:
        """Return what a function finds in the run as it was at most `oldest` seconds ago; longer where looks cost much.

        Raises UnreadableError.
        """

        def found() -> T:
            known = self._moment
            if known is None or time.monotonic() - known[0] > max(oldest, self._cost / SHARE):
                began = time.thread_time()
                moment = self._look()
                self._cost = time.thread_time() - began
            else:
                moment = known[1]
            with self._source.reading:
                return about(moment)

        async with self._lock:
            return await run_in_threadpool(found)

    async def whole(self, view: str, veiled: bool) -> bytes:
        """Return a view as a whole, compressed JSON: its number and its values. Raises UnreadableError."""
        channel = self._channel(view, veiled)
        async with self._lock:
            if not channel.picture or self._task is None or self._task.done():
                looked = await run_in_threadpool(self._made, [channel])
                self._publish(looked)
            self._start()
            return await run_in_threadpool(channel.body)

    async def follow(self, view: str, veiled: bool, after: int) -> AsyncIterator[bytes]:
        """Yield patches from number `after` on as server-sent events, `again` where they are not kept any more.

        `trouble` says that the run cannot be read now, `alive` that nothing has changed.
        """
        channel = self._channel(view, veiled)
        channel.users += 1
        self._start()
        told = ""
        try:
            while not self._over:
                changed = self._changed
                if self.trouble != told:
                    told = self.trouble
                    yield _event("trouble", msgspec.json.encode(told))
                if not channel.leads_from(after):
                    after = channel.number
                    yield _event("again", b"{}", after)
                for number, content in list(channel.recent):
                    if number > after:
                        yield _event("patch", content, number)
                        after = number
                try:
                    await asyncio.wait_for(changed.wait(), ALIVE)
                except TimeoutError:
                    yield _event("alive", b"{}")
        finally:
            channel.users -= 1
            channel.asked = time.monotonic()

    def stop(self) -> None:
        """End all streams, from any thread."""
        self._over = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _look(self) -> RunMoment:
        """Look at the run, in a thread that does not hold `reading`: the controller may wait for that."""
        try:
            found = self._source.look()
        except BarnraiseError as error:
            raise UnreadableError(str(error)) from error
        self._moment = time.monotonic(), found
        return found

    def _channel(self, view: str, veiled: bool) -> Channel:
        self._loop = asyncio.get_running_loop()
        channel = self._channels.setdefault((view, veiled), Channel(view, veiled))
        channel.asked = time.monotonic()
        return channel

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._produce())

    async def _produce(self) -> None:
        """Look again and again while a page follows."""
        while not self._over and (wanted := self._wanted()):
            pause = RETRY
            try:
                async with self._lock:
                    looked = await run_in_threadpool(self._made, [one for one in wanted if one.picture])
                    self._publish(looked)
            except Exception as error:  # each page tells it, and the next look may succeed
                self._tell(printable(str(error) if isinstance(error, BarnraiseError) else repr(error), 300))
            else:
                self._tell("")
                sent = max((len(content) for _, _, content in looked.changed), default=0)
                pause = max(FASTEST, looked.cost / SHARE, sent / RATE)
            await asyncio.sleep(pause)

    def _wanted(self) -> list[Channel]:
        """Return the channels that are followed; others begin again when they are asked for."""
        old = time.monotonic() - PATIENCE
        self._channels = {key: one for key, one in self._channels.items() if one.users or one.asked > old}
        return list(self._channels.values())

    def _made(self, wanted: list[Channel]) -> Looked:
        began = time.thread_time()
        moment = self._look()
        with self._source.reading:
            shown = self._outlook(moment)
            changed = [made for channel in wanted if (made := _made(channel, shown)) is not None]
        self._cost = time.thread_time() - began
        return Looked(changed, self._cost)

    def _publish(self, looked: Looked) -> None:
        for channel, picture, content in looked.changed:
            channel.publish(picture, content)
        if looked.changed:
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
    return channel, picture, msgspec.json.encode(changes)


def _event(kind: str, content: bytes, number: int | None = None) -> bytes:
    numbered = b"" if number is None else b"id: %d\n" % number
    return b"event: %s\n%sdata: %s\n\n" % (kind.encode(), numbered, content)
