"""A connection that knows other addresses of its run: its standby's, once the controller is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

from barnraise.core.errors import AddressError
from barnraise.core.text import printable
from barnraise.transport.base import BATCH_MESSAGES, Connection, parse
from barnraise.transport.fallback import LOOK_SECONDS, connection_for
from barnraise.transport.identity import Keys
from barnraise.transport.reach import MAY_NAME, AddressReach, own_reach, within
from barnraise.wire.frames import Buffer

FIRST_PATIENCE, LONGEST_PATIENCE = 0.75, 12.0
"""Seconds for which one address is tried, or missed, before the next.

Longer after each round, and shortened randomly by up to a half, so that a fleet does not come all at once.
"""

GROWTH = 1.4
"""Growth of that patience from round to round."""

REFUSED_PATIENCE = 1.0
"""Its upper bound where no process listens: a standby takes over from one moment to the next."""

SILENCE = 12.0
"""Seconds after which a silent address is left, though the connection seems established."""

QUICK = 20.0
"""Seconds after the last message during which it retries often, as a standby takes over; later ever less often."""

LONGEST_REST = 120.0
"""Seconds between two attempts at an address that never answered, at most."""

MOST_PLACES, MOST_EVER = 2, 32
"""Addresses known at a time, as a controller has one standby; and addresses that are ever dialled."""


class RoamingConnection(Connection):
    """Stays connected while its address answers, or is the only one; else tries the others in rotation.

    All addresses hold the same key: a standby that took over a run has its controller's. A controller can send its
    workers to few addresses, and to none in a network that its own address is not in (`transport.reach`).
    """

    def __init__(self, say: Callable[[str], None] = lambda text: None, chance: random.Random | None = None) -> None:
        super().__init__()
        self._say, self._chance = say, chance or random.Random()
        self._closed = False
        self.bytes_up = self.bytes_down = 0  # bytes of the messages that were sent and received
        self._places: list[str] = []
        self._at = 0
        self._connects_before = 0
        self._heard_at = self._word_at = 0.0
        self._dialled: dict[str, str] = {}  # announced addresses -> their dialled form
        self._may: set[AddressReach] | None = None
        self._left: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self, uri: str, server_key: str, keys: Keys) -> None:
        self._places, self._server_key, self._keys = [uri], server_key, keys
        self._home, self._dialled[uri] = uri, uri
        await self._dial()
        self._word_at = self._heard_at
        self._task = asyncio.ensure_future(self._watch())

    def also(self, uris: Iterable[str]) -> None:
        """Replace the other addresses at which the run may be found.

        Invalid addresses are ignored.
        """
        here = self._places[self._at]
        known = [uri for uri in dict.fromkeys(uris) if uri != here and _is_place(uri)]
        if len(self._dialled) >= MOST_EVER:
            known = [uri for uri in known if uri in self._dialled]
        self._places, self._at = [here, *known][:MOST_PLACES], 0

    async def _dial(self) -> None:
        uri = self._dialled[self._places[self._at]]
        connection = connection_for(uri, self._say)
        await connection.open(uri, self._server_key, self._keys)
        self._current = connection
        self._heard_at = asyncio.get_running_loop().time()

    async def _watch(self) -> None:
        """Observe the connection, and try another address once it is lost for long enough."""
        loop = asyncio.get_running_loop()
        lost_at, round_patience, patience = loop.time(), FIRST_PATIENCE, FIRST_PATIENCE
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = loop.time()
            self._observe()
            if self.connected and (now - self._heard_at < SILENCE or len(self._places) == 1):
                if now - self._heard_at < LOOK_SECONDS * 2:
                    round_patience = FIRST_PATIENCE
                lost_at, patience = now, round_patience * self._chance.uniform(0.5, 1.0)
            elif len(self._places) > 1 and now - lost_at >= self._bounded(patience, now):
                at = (self._at + 1) % len(self._places)
                if not at:
                    longest = LONGEST_PATIENCE if now - self._word_at < QUICK else LONGEST_REST
                    round_patience = min(GROWTH * round_patience, longest)
                if await self._may_dial(self._places[at]):
                    self._at = at
                    await self._move()
                lost_at, patience = loop.time(), round_patience * self._chance.uniform(0.5, 1.0)

    def _bounded(self, patience: float, now: float) -> float:
        """Shorten the patience, as long rests are spent at the first address, where the run was before."""
        if self._current.refused and (self._at or now - self._word_at < QUICK):
            return min(patience, REFUSED_PATIENCE)
        return min(patience, LONGEST_PATIENCE) if self._at else patience

    async def _may_dial(self, uri: str) -> bool:
        """Return whether an announced address may be dialled; one that may not is forgotten."""
        if uri in self._dialled:
            return True
        if self._may is None:
            self._may = MAY_NAME[await own_reach(self._home)]
        numeric = await within(uri, self._may)
        if numeric:
            self._dialled[uri] = numeric
            return True
        if numeric is None:
            self._say(
                f"the run is said to continue at {printable(uri)}, which a controller at {self._home} may not name"
            )
        if numeric is None and uri in self._places:
            self._places.remove(uri)
        return False

    async def _move(self) -> None:
        self._left, self.connected = self._current, False
        self._connects_before = self.num_connects
        await self._dial()
        await self._left.close()
        self._changed.wake()

    def _observe(self) -> None:
        self.connected = self._current.connected
        self.num_connects = self._connects_before + self._current.num_connects
        self._changed.wake()

    async def ready(self, timeout: float) -> None:
        if len(self._places) == 1:
            await self._current.ready(timeout)
            self._observe()
        else:
            await super().ready(timeout)

    async def _diagnosis(self) -> str:
        return await self._current._diagnosis()

    async def send(self, frames: Sequence[Buffer]) -> bool:
        while not self._closed:
            current = self._current
            if await current.send(frames):
                self.bytes_up += _size(frames)
                return True
            if current is self._current and not self._closed:
                return False
        return False

    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[list[Buffer]]:
        while not self._closed:
            current = self._current
            if batch := await current.receive_many(limit):
                self._heard_at = self._word_at = asyncio.get_running_loop().time()
                self._observe()
                self.bytes_down += sum(map(_size, batch))
                return batch
            if current is self._current:
                break
        return []

    def redial(self) -> None:
        self._current.redial()

    async def close(self, linger: float = 0.0) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._current.close(linger)
            if self._left is not None:
                await self._left.close()
        self.connected = False
        self._changed.wake()


def _size(frames: Sequence[Buffer]) -> int:
    return sum(memoryview(frame).nbytes for frame in frames)


def _is_place(uri: str) -> bool:
    try:
        return bool(uri.split()) and all(parse(one).scheme in ("zmq", "xmlrpc") for one in uri.split())
    except AddressError:
        return False
