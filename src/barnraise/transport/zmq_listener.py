"""The controller's end of ZMQ: one ROUTER, bound to one TCP port."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections import deque
from collections.abc import Sequence

import zmq

from barnraise.core.errors import AddressError
from barnraise.transport.answering import Answers
from barnraise.transport.base import BATCH_BYTES, BATCH_MESSAGES, Address, Listener, Peer, Received, bind_error, parse
from barnraise.transport.identity import Keys
from barnraise.transport.loop_socket import LoopSocket, contents
from barnraise.transport.zap import DOMAIN, Doorkeeper
from barnraise.transport.zmq_options import Context, endpoint, new_context, new_router, numeric
from barnraise.wire.frames import Buffer, num_bytes

LATE_BYTES = 2 << 20
"""Bytes of single-frame messages that wait for one peer when its queue in libzmq is full."""

LATE_MESSAGES = 1024
"""The same in messages."""

RETRY_SECONDS = 0.02
"""How often the queues of peers that are behind are tried; libzmq does not say when there is room."""


class ZmqListener(Listener):
    """A ROUTER socket with a ZAP handler of its own."""

    def __init__(self, io_threads: int) -> None:
        super().__init__()
        self._io_threads = io_threads
        self._context: Context | None = None
        self._socket: LoopSocket | None = None
        self._doorkeeper: Doorkeeper | None = None
        self._answers = Answers(self._reply)
        self._late: dict[Peer, deque[Buffer]] = {}
        self._retry: asyncio.TimerHandle | None = None

    async def bind(self, uri: str, keys: Keys) -> str:
        address = parse(uri)
        host = await numeric(address)
        self._context = new_context(self._io_threads)
        self._doorkeeper = Doorkeeper(self._context, self.revoked)
        self._socket = LoopSocket(new_router(self._context, keys, DOMAIN, ipv6=":" in host))
        try:
            self._socket.socket.bind(endpoint(host, address.port))
        except zmq.ZMQError as error:
            await self.close()
            raise AddressError(bind_error(address, error, "controller.port")) from None
        bound = self._socket.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        return str(Address("zmq", address.host, int(bound.rpartition(":")[2])))

    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[Received]:
        await asyncio.sleep(0)  # others get their turn even if there is always something to read
        while self._socket is not None and not self._socket.closed:
            batch, drained = self._read(self._socket, limit)
            if batch:
                return batch
            await (self._socket.wait_readable() if drained else asyncio.sleep(0))
        return []

    def _read(self, socket: LoopSocket, limit: int) -> tuple[list[Received], bool]:
        """What there is to read, and whether that was all."""
        batch: list[Received] = []
        size = 0
        for _ in range(limit):
            frames = socket.try_receive(max_frames=5)  # route, a REQ's delimiter, header, raw, and one too many
            if frames is None:
                return batch, True
            received = self._admit(frames)
            if received is not None:
                batch.append(received)
                size += sum(map(num_bytes, received.frames))
            if size >= BATCH_BYTES:
                break
        return batch, False

    def _admit(self, frames: list[zmq.Frame]) -> Received | None:
        route, *body = frames
        peer = Peer(route.bytes, _proven_key(body[0]) if body else "")
        if not peer.key or not _is_given(peer.route):
            self._drop("no proven key, or a routing id of the client's choice")
        elif peer.key in self.revoked:
            self._drop("revoked key")
        else:
            if not len(body[0]) and len(body) > 1 and _property(body[0], "Socket-Type") == "REQ":
                body = self._answers.question(peer, body[1:])
            return Received(peer, contents(body[:3])) if body else None
        return None

    def send(self, peer: Peer, frames: Sequence[Buffer]) -> bool:
        if self._socket is None or self._socket.closed or peer.key in self.revoked:
            return False
        if peer in self._answers:
            return self._answers.put(peer, frames)
        try:
            if peer not in self._late and self._socket.try_send([peer.route, *frames]):
                return True
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            return False
        return self._send_later(peer, frames)

    def _reply(self, peer: Peer, frames: Sequence[Buffer]) -> None:
        """Answer a REQ; what cannot be delivered at once is lost, as with any connection that breaks."""
        if self._socket is not None and not self._socket.closed and peer.key not in self.revoked:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.try_send([peer.route, b"", *frames])

    def _send_later(self, peer: Peer, frames: Sequence[Buffer]) -> bool:
        late = self._late.get(peer, deque())
        waiting = sum(map(num_bytes, late))
        if len(frames) > 1 or waiting + num_bytes(frames[0]) > LATE_BYTES or len(late) >= LATE_MESSAGES:
            self._drop("queue of a slow peer is full")
            return False
        late.append(bytes(frames[0]))
        self._late[peer] = late
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._send_late)
        return True

    def _send_late(self) -> None:
        assert self._socket is not None
        self._retry = None
        for peer, late in list(self._late.items()):
            try:
                while late and peer.key not in self.revoked and self._socket.try_send([peer.route, late[0]]):
                    late.popleft()
                blocked = bool(late) and peer.key not in self.revoked
            except zmq.ZMQError as error:
                if error.errno != errno.EHOSTUNREACH:
                    raise
                blocked = False
            if not blocked:
                del self._late[peer]
        if self._late:
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._send_late)

    async def close(self, linger: float = 0.0) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._late.clear()
        self._answers.close()
        if self._socket is not None:
            self._socket.close(linger)
        if self._doorkeeper is not None:
            self._doorkeeper.close()
        if self._context is not None:
            await asyncio.to_thread(self._context.term)


def _proven_key(frame: zmq.Frame) -> str:
    """The public key that the sender proved in its handshake, as the ZAP handler passed it on."""
    return _property(frame, "User-Id")


def _property(frame: zmq.Frame, name: str) -> str:
    """What libzmq knows of the connection that a frame came by; empty when nothing."""
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return ""


def _is_given(route: bytes) -> bool:
    """Whether libzmq made this routing id up: 5 bytes, the first 0, which no client of libzmq can choose."""
    return len(route) == 5 and route[0] == 0
