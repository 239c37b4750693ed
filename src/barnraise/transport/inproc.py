"""A transport within one event loop, for tests and for a worker inside the controller's process.

It behaves as the others do: messages under way when an end closes are lost, a slow peer loses messages with a raw
frame, a connection finds its listener again after a restart. There is no cryptography: a connection's key is not
checked, and a wrong server key finds no listener.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from barnraise.core.errors import AddressError
from barnraise.transport.base import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    Connection,
    Delivery,
    Listener,
    Peer,
    Transport,
    parse,
)
from barnraise.transport.identity import Keys
from barnraise.transport.waking import Signal
from barnraise.wire.frames import Buffer, num_bytes

LISTENER_QUEUE = 1024
"""Messages that wait for a listener to read them; senders wait beyond."""

PEER_QUEUE = 32
"""Messages with a raw frame that wait for one connection to read them; more are dropped."""

SINGLE_QUEUE = 1024
"""The same for single frames."""

_listeners: dict[str, InprocListener] = {}
_dialling: dict[str, list[InprocConnection]] = {}


class InprocTransport(Transport):
    """Listeners and connections for `inproc://name`; names are those of the whole process."""

    def listener(self) -> Listener:
        return InprocListener()

    def connection(self) -> Connection:
        return InprocConnection()


class InprocListener(Listener):
    """A queue under a name."""

    def __init__(self) -> None:
        super().__init__()
        self.server_key = ""
        self._name = ""
        self._num_peers = 0
        self._peers: dict[Peer, InprocConnection] = {}
        self._inbox: deque[Delivery] = deque()
        self._arrived = Signal()

    async def bind(self, uri: str, keys: Keys) -> str:
        address = parse(uri)
        if address.host in _listeners:
            raise AddressError(f"{address} is taken by another listener of this process: choose another name")
        self._name, self.server_key = address.host, keys.public
        _listeners[self._name] = self
        for connection in _dialling.pop(self._name, []):
            connection.dial()
        return str(address)

    def address(self, peer: Peer) -> str:
        return "127.0.0.1" if peer in self._peers else ""  # it is this process

    def attach(self, connection: InprocConnection, key: str) -> Peer:
        """Add a new connection, and return its peer."""
        self._num_peers += 1
        peer = Peer(self._num_peers.to_bytes(5, "big"), key)
        self._peers[peer] = connection
        return peer

    def detach(self, peer: Peer) -> None:
        """Remove a connection that has ended."""
        self._peers.pop(peer, None)

    def deliver(self, peer: Peer, frames: list[Buffer]) -> bool:
        """Accept a message from a connection; False when there is no room now."""
        if len(self._inbox) >= LISTENER_QUEUE:
            return False
        self._inbox.append(Delivery(peer, frames))
        self._arrived.wake()
        return True

    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[Delivery]:
        await asyncio.sleep(0)
        while _listeners.get(self._name) is self:
            if self.budget.spent:
                await self.budget.freed()
                continue
            batch: list[Delivery] = []
            size = 0
            while self._inbox and len(batch) < limit and size < BATCH_BYTES:
                received = self._inbox.popleft()
                if received.peer.key in self.revoked:
                    self._drop("revoked key")
                    continue
                batch.append(received)
                size += sum(map(num_bytes, received.frames))
            for connection in self._peers.values():
                connection.writable.wake()
            if batch:
                return batch
            await self._arrived.wait()
        return []

    def send(self, peer: Peer, frames: Sequence[Buffer]) -> bool:
        connection = self._peers.get(peer)
        if connection is None or peer.key in self.revoked:
            return False
        if not connection.deliver(_copy(frames)):
            self._drop("queue of a slow peer is full")
            return False
        return True

    async def close(self, linger: float = 0.0) -> None:
        if _listeners.get(self._name) is self:
            del _listeners[self._name]
        for connection in list(self._peers.values()):
            connection.lose()
        self._peers.clear()
        self._arrived.wake()
        self.budget.wake()


class InprocConnection(Connection):
    """The other end of a listener's queue, and a queue of its own for the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.writable = Signal()
        self._name = ""
        self._closed = False
        self._listener: InprocListener | None = None
        self._peer = Peer(b"", "")
        self._inbox: deque[list[Buffer]] = deque()
        self._arrived = Signal()

    async def open(self, uri: str, server_key: str, keys: Keys) -> None:
        self._name, self._server_key, self._key = parse(uri).host, server_key, keys.public
        self.dial()

    def dial(self) -> None:
        """Attach to the listener of that name if it exists and has the right key, else wait for a new one."""
        listener = _listeners.get(self._name)
        if listener is None or listener.server_key != self._server_key or self._key in listener.revoked:
            _dialling.setdefault(self._name, []).append(self)
            return
        self._listener, self._peer = listener, listener.attach(self, self._key)
        self.connected = True
        self.num_connects += 1
        self._changed.wake()
        self.writable.wake()

    def lose(self) -> None:
        """Handle the loss of the listener."""
        self._listener, self.connected = None, False
        self.dial()

    def redial(self) -> None:
        if self._listener is not None:
            self._listener.detach(self._peer)
            self.lose()

    async def _diagnosis(self) -> str:
        there = "one that has another key, or refuses this one" if self._name in _listeners else "none"
        return f"of listeners called '{self._name}' there is {there}: bind it first, and open with its public key"

    async def send(self, frames: Sequence[Buffer]) -> bool:
        message = _copy(frames)
        while not self._closed:
            if self._listener is not None and self._listener.deliver(self._peer, message):
                return True
            await self.writable.wait()
        return False

    def deliver(self, frames: list[Buffer]) -> bool:
        """Accept a message from the listener; False when it was dropped."""
        single = len(frames) == 1
        waiting = sum((len(message) == 1) == single for message in self._inbox)
        if waiting >= (SINGLE_QUEUE if single else PEER_QUEUE):
            return False
        self._inbox.append(frames)
        self._arrived.wake()
        return True

    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[list[Buffer]]:
        await asyncio.sleep(0)
        while not self._closed:
            if self._inbox:
                return [self._inbox.popleft() for _ in range(min(limit, len(self._inbox)))]
            await self._arrived.wait()
        return []

    async def close(self, linger: float = 0.0) -> None:
        self._closed = True
        self.connected = False
        if self._listener is not None:
            self._listener.detach(self._peer)
            self._listener = None
        if self in _dialling.get(self._name, []):
            _dialling[self._name].remove(self)
        self._arrived.wake()
        self.writable.wake()


def _copy(frames: Sequence[Buffer]) -> list[Buffer]:
    """Return the frames as a transport delivers them: the header as bytes, the others as views of own memory."""
    return [bytes(frame) if index == 0 else memoryview(bytes(frame)) for index, frame in enumerate(frames)]
