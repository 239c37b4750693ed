"""Several listeners that act as one: the same controller, reached over ZMQ and over HTTP."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from barnraise.transport import create
from barnraise.transport.base import BATCH_MESSAGES, Delivery, Listener, Peer, parse
from barnraise.transport.identity import Keys
from barnraise.wire.frames import Buffer


def listener_for(uri: str) -> Listener:
    """Create the listener for one address, or for several separated by spaces.

    Bind it to the same `uri`.
    """
    listeners = [create(parse(one).scheme).listener() for one in uri.split()]
    return Several(listeners) if len(listeners) > 1 else listeners[0]


class Several(Listener):
    """Listeners side by side; a peer's route begins with the number of its listener."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        super().__init__()
        self._listeners = list(listeners)
        for listener in self._listeners:
            listener.revoked, listener.dropped = self.revoked, self.dropped
        self._reading: dict[asyncio.Task[list[Delivery]], int] = {}
        self._read: deque[Delivery] = deque()
        self._closed = False

    async def bind(self, uri: str, keys: Keys) -> str:
        """Listen at all addresses in `uri`, separated by spaces, or at none of them."""
        for listener in self._listeners:
            listener.members, listener.budget = self.members, self.budget
        try:
            bound = [await listener.bind(one, keys) for listener, one in zip(self._listeners, uri.split(), strict=True)]
        except BaseException:
            await self.close()
            raise
        return " ".join(bound)

    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[Delivery]:
        """Return messages of the first listener that has some; the others are read ahead by one batch at the most."""
        batch: list[Delivery] = []
        while not batch and not self._closed:
            await self._read_some(limit)
            while self._read and len(batch) < limit:
                received = self._read.popleft()
                if received.peer.key not in self.revoked:
                    batch.append(received)
        return [] if self._closed else batch

    async def _read_some(self, limit: int) -> None:
        """Wait until messages are read."""
        while not self._read and not self._closed:
            for index in set(range(len(self._listeners))) - set(self._reading.values()):
                task = asyncio.ensure_future(self._listeners[index].receive_many(limit))
                self._reading[task] = index
            done, _ = await asyncio.wait(self._reading, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                index = self._reading.pop(task)
                self._read += [
                    Delivery(Peer(bytes([index]) + peer.route, peer.key), frames) for peer, frames in task.result()
                ]

    def send(self, peer: Peer, frames: Sequence[Buffer]) -> bool:
        return self._listeners[peer.route[0]].send(Peer(peer.route[1:], peer.key), frames)

    def address(self, peer: Peer) -> str:
        return self._listeners[peer.route[0]].address(Peer(peer.route[1:], peer.key))

    def revoke(self, key: str) -> None:
        for listener in self._listeners:
            listener.revoke(key)

    async def close(self, linger: float = 0.0) -> None:
        self._closed = True
        await asyncio.gather(*(listener.close(linger) for listener in self._listeners))
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
