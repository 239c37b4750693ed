"""The interface of transports: a listener that many connections reach over one address, for both sides' shells.

A transport carries messages (lists of frames) whole and in order, and gives the key of each message's sender. It loses
messages when a connection breaks, a peer does not read or a process dies: the protocol above repeats important ones.
Everything here runs on one asyncio event loop and none of it is safe to call from another thread.
"""

from __future__ import annotations

import asyncio
import errno
from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from barnraise.core.errors import AddressError
from barnraise.transport.budget import Budget
from barnraise.transport.identity import Keys
from barnraise.transport.waking import Signal
from barnraise.wire.frames import Buffer

if TYPE_CHECKING:
    from zmq import ZMQError

BATCH_MESSAGES = 256
BATCH_BYTES = 8 << 20


class Peer(NamedTuple):
    """One connection of a listener: its route, and the proven public key (Z85) at its other end."""

    route: bytes
    key: str


class Delivery(NamedTuple):
    """A received message: `frames` are untrusted bytes, `peer.key` is proven by the transport."""

    peer: Peer
    frames: list[Buffer]


class Address(NamedTuple):
    """A parsed transport URI, `scheme://host:port`; inproc addresses have port 0."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}" if self.scheme != "inproc" else f"{self.scheme}://{host}"


class Listener(ABC):
    """The controller's side of a transport.

    Only messages whose key is proven and not in `revoked` are ever returned. Before `bind`, its owner may set
    `members`, the known keys: other peers are strangers then, which get little room and are disconnected first (None:
    no peer is a stranger). Waiting messages are charged to `budget`, which the owner may charge too for messages that
    it keeps: while it is spent, no more are returned.
    """

    def __init__(self) -> None:
        self.revoked: set[str] = set()
        self.dropped: dict[str, int] = {}
        self.members: Container[str] | None = None
        self.budget = Budget()

    @abstractmethod
    async def bind(self, uri: str, keys: Keys) -> str:
        """Start to listen, and return the URI with the port that was taken.

        AddressError when that is not possible.
        """

    @abstractmethod
    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[Delivery]:
        """Wait for messages and return those available, at most `limit` or about BATCH_BYTES; empty once closed.

        Nothing is read ahead, so a caller that is busy elsewhere slows the senders down instead of filling memory.
        """

    async def receive(self) -> Delivery | None:
        """Wait for the next message; None once closed."""
        batch = await self.receive_many(1)
        return batch[0] if batch else None

    @abstractmethod
    def send(self, peer: Peer, frames: Sequence[Buffer]) -> bool:
        """Hand a message over for `peer`, at once; False when it was dropped.

        A peer that does not keep up delays no other peer: once its queue is full, messages with a raw frame are dropped
        (it asks again), and single frames wait in a bounded line of their own. A disconnected or revoked peer gets
        nothing.
        """

    def address(self, peer: Peer) -> str:
        """Return the IP address that a peer calls from; empty where that is not known, or it is disconnected."""
        return ""

    def is_member(self, key: str) -> bool:
        """Return whether `key` belongs to a member."""
        return self.members is None or key in self.members

    def revoke(self, key: str) -> None:
        """Return and send no message of `key` from now on, on any connection."""
        self.revoked.add(key)

    def shut_out(self, key: str, seconds: float) -> None:
        """Exclude `key` for `seconds`, as `revoke` does permanently."""
        if key not in self.revoked:
            self.revoke(key)
            asyncio.get_running_loop().call_later(seconds, self.revoked.discard, key)

    def _drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    @abstractmethod
    async def close(self, linger: float = 0.0) -> None:
        """Stop listening; messages already handed over have `linger` seconds to leave."""


class Connection(ABC):
    """A worker's side of a transport.

    It dials, and dials again whenever the connection is lost, until it is closed.
    """

    def __init__(self) -> None:
        self.num_connects = 0
        self.connected = False
        self.refused = False  # no process listens there at present, as far as is known
        self._changed = Signal()

    @abstractmethod
    async def open(self, uri: str, server_key: str, keys: Keys) -> None:
        """Begin to dial the listener that holds `server_key`, without waiting for an answer (`ready` waits)."""

    async def ready(self, timeout: float) -> None:
        """Wait until the connection is established and both keys are proven; AddressError gives the cause."""
        try:
            async with asyncio.timeout(timeout):
                while not self.connected:
                    await self._changed.wait()
        except TimeoutError:
            raise AddressError(f"no connection after {timeout:g} s: {await self._diagnosis()}") from None

    @abstractmethod
    async def _diagnosis(self) -> str:
        """Return why the connection fails, and the remedy."""

    @abstractmethod
    async def send(self, frames: Sequence[Buffer]) -> bool:
        """Hand a message over, waiting while the queue is full; False once closed.

        The queue is short, and single frames overtake messages with a raw frame that wait for room: a heartbeat is
        never behind more than a few of them.
        """

    @abstractmethod
    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[list[Buffer]]:
        """Wait for messages and return those available, at most `limit` or about BATCH_BYTES; empty once closed."""

    async def receive(self) -> list[Buffer] | None:
        """Wait for the next message; None once closed."""
        batch = await self.receive_many(1)
        return batch[0] if batch else None

    @abstractmethod
    def redial(self) -> None:
        """Drop the connection and dial again: for a caller that knows before TCP does that the other end is lost."""

    @abstractmethod
    async def close(self, linger: float = 0.0) -> None:
        """Hang up; messages already handed over have `linger` seconds to leave."""


class Transport(ABC):
    """A member of the family: makes the two ends."""

    @abstractmethod
    def listener(self) -> Listener:
        """Create a new listener, not bound yet."""

    @abstractmethod
    def connection(self) -> Connection:
        """Create a new connection, not opened yet."""


def parse(uri: str) -> Address:
    """Return the parts of a transport URI; AddressError when it is malformed.

    >>> parse("zmq://[::1]:7000").host
    '::1'
    """
    try:
        split = urlsplit(uri)
        scheme, host, port = split.scheme, split.hostname or "", split.port
    except ValueError as error:
        raise AddressError(f"address {uri!r} cannot be read ({error}); write it as scheme://host:port") from None
    if not scheme or not host or (port is None and scheme != "inproc"):
        raise AddressError(f"address {uri!r} lacks a scheme, host or port; write it as scheme://host:port")
    return Address(scheme, host, port or 0)


def bind_error(address: Address, error: OSError | ZMQError, key: str) -> str:
    """Return why `address` cannot be bound, with a remedy; `key` is the run file's key of its port."""
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {address.port} on {address.host} is taken: end the process that holds it "
            f"(ss -ltnp 'sport = :{address.port}' shows it), or set {key} to another one (0 takes a free one)"
        )
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
        return (
            f"{address.host} is not an address of this machine: set controller.host to one that `ip addr` shows, "
            "127.0.0.1 for this machine alone, or 0.0.0.0 for all of its networks"
        )
    if error.errno == errno.EACCES:
        return f"port {address.port} needs privileges: set {key} to 1024 or more, or to 0 for a free one"
    return f"cannot listen on {address.host}, port {address.port}: {error.strerror}"
