"""The controller's end of ZMQ: one ROUTER, bound to one TCP port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import zmq

from barnraise.core.errors import AddressError
from barnraise.transport.base import BATCH_BYTES, BATCH_MESSAGES, Address, Delivery, Listener, Peer, bind_error, parse
from barnraise.transport.identity import Keys
from barnraise.transport.names import numeric
from barnraise.transport.zmq.answering import ReplySockets
from barnraise.transport.zmq.connections import ZmqConnections
from barnraise.transport.zmq.loop_socket import LoopSocket, contents
from barnraise.transport.zmq.options import Context, endpoint, new_context, new_router, terminate
from barnraise.transport.zmq.outgoing import OutgoingLines
from barnraise.transport.zmq.zap import DOMAIN, ZapHandler
from barnraise.wire.frames import Buffer, num_bytes


class ZmqListener(Listener):
    """A ROUTER socket with a ZAP handler of its own."""

    def __init__(self, io_threads: int) -> None:
        super().__init__()
        self._io_threads = io_threads
        self._context: Context | None = None
        self._socket: LoopSocket | None = None
        self._zap_handler: ZapHandler | None = None
        self._door: ZmqConnections | None = None

    async def bind(self, uri: str, keys: Keys) -> str:
        address = parse(uri)
        host = await numeric(address)
        self._context = new_context(self._io_threads)
        self._zap_handler = ZapHandler(self._context, self.revoked)
        router = new_router(self._context, keys, DOMAIN, ipv6=":" in host)
        self._socket = LoopSocket(router)
        self._answers = ReplySockets(self._reply, self.budget)
        self._outgoing = OutgoingLines(self._socket, self.budget, self._may_hear, self._hang_up)
        self._door = ZmqConnections(self._context, router, self.is_member, self._gone, self._outgoing.sweep)
        try:
            self._socket.socket.bind(endpoint(host, address.port))
        except zmq.ZMQError as error:
            await self.close()
            raise AddressError(bind_error(address, error, "controller.port")) from None
        bound = self._socket.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        return str(Address("zmq", address.host, int(bound.rpartition(":")[2])))

    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[Delivery]:
        await asyncio.sleep(0)  # yields to other tasks even if there is always something to read
        while self._socket is not None and not self._socket.closed:
            if self.budget.spent:
                await self.budget.freed()
                continue
            batch, drained = self._read(self._socket, limit)
            if batch:
                return batch
            await (self._socket.wait_readable() if drained else asyncio.sleep(0))
        return []

    def _read(self, socket: LoopSocket, limit: int) -> tuple[list[Delivery], bool]:
        """Return the available messages, and whether that was all."""
        batch: list[Delivery] = []
        size = 0
        for _ in range(limit):
            frames = socket.try_receive(max_frames=5)  # route, a REQ's delimiter, header, raw, and one too many
            if frames is None:
                return batch, True
            received = self._admit(frames) if frames else None
            if received is not None:
                batch.append(received)
                size += sum(map(num_bytes, received.frames))
            if size >= BATCH_BYTES:
                break
        return batch, False

    def _admit(self, frames: list[zmq.Frame]) -> Delivery | None:
        route, *body = frames
        peer = Peer(route.bytes, _proven_key(body[0]) if body else "")
        if not peer.key or not _is_given(peer.route):
            self._drop("no proven key, or a routing id of the client's choice")
            if self._door is not None and self._door.message(peer.route, peer.key, route):
                self._hang_up(peer.route)
        elif peer.key in self.revoked:
            self._drop("revoked key")
            self._hang_up(peer.route)
        else:
            assert self._door is not None
            there = self._door.message(peer.route, peer.key, route)
            if not len(body[0]) and len(body) > 1 and _property(body[0], "Socket-Type") == "REQ":
                body = body[1:]
                if there:
                    self._answers.question(peer, body)
                body = body if len(body[-1]) else body[:-1]
            return Delivery(peer, contents(body[:3])) if body else None
        return None

    def send(self, peer: Peer, frames: Sequence[Buffer]) -> bool:
        if self._socket is None or self._socket.closed or not self._may_hear(peer):
            return False
        if peer in self._answers:
            sent = self._answers.put(peer, frames)
        else:
            try:
                sent = self._outgoing.send(peer, frames)
            except LookupError:
                return False
        if not sent:
            self._drop("queue of a slow peer is full")
        return sent

    def address(self, peer: Peer) -> str:
        return self._door.address(peer.route) if self._door is not None and self._may_hear(peer) else ""

    def _reply(self, peer: Peer, frames: Sequence[Buffer]) -> None:
        """Answer a REQ; an answer that cannot be delivered at once is lost, as with any connection that breaks."""
        if self._socket is not None and not self._socket.closed and self._may_hear(peer):
            with contextlib.suppress(zmq.ZMQError):
                self._socket.try_send([peer.route, b"", *frames])

    def _may_hear(self, peer: Peer) -> bool:
        return peer.key not in self.revoked and self._door is not None and self._door.is_of(peer.route, peer.key)

    def _hang_up(self, route: bytes) -> None:
        if self._door is not None:
            self._door.send_away(route)

    def _gone(self, route: bytes) -> None:
        self._answers.forget(route)
        self._outgoing.forget(route)

    async def close(self, linger: float = 0.0) -> None:
        if self._door is not None:
            self._door.close()
            self._answers.close()
            self._outgoing.close()
            self._door = None
        if self._socket is not None:
            self._socket.close(linger)
        self.budget.wake()
        if self._zap_handler is not None:
            self._zap_handler.close()
        if self._context is not None:
            await terminate(self._context)


def _proven_key(frame: zmq.Frame) -> str:
    """Return the public key that the sender proved in its handshake, as the ZAP handler passed it on."""
    return _property(frame, "User-Id")


def _property(frame: zmq.Frame, name: str) -> str:
    """Return libzmq's property of the connection that a frame came by; empty when there is none."""
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return ""


def _is_given(route: bytes) -> bool:
    """Return whether libzmq may have chosen this routing id: 5 bytes, the first 0.

    A client can choose such an id, too.
    """
    return len(route) == 5 and route[0] == 0
