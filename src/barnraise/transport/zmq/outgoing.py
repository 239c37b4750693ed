"""The ROUTER's messages for its peers: with libzmq and not yet on the network, or waiting for room there.

Every byte of it is on the account of the peer's key. Large messages are handed over without a copy, and libzmq says
when it has finished with their memory: that is when they are on their way.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence

import zmq

from barnraise.transport.base import Peer
from barnraise.transport.budget import Budget
from barnraise.transport.zmq.loop_socket import LoopSocket
from barnraise.wire.frames import Buffer, num_bytes

LATE_BYTES = 2 << 20
"""Bytes of single-frame messages that wait for one peer when its queue in libzmq is full."""

LATE_MESSAGES = 1024
"""The same in messages."""

RETRY_SECONDS = 0.02
"""Seconds between two attempts at the queues of slow peers; libzmq does not say when there is room."""

COUNTED_BYTES = 1 << 16
"""Messages from this size on are counted until they are on the network (pyzmq copies smaller ones)."""

STALLED_SECONDS = 150.0
"""Seconds after which a peer that does not read its waiting messages is disconnected: 1.4 MB at 0.1 Mbit/s take 120."""


class _Line:
    """The waiting messages of one peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.late: deque[bytes] = deque()
        self.late_bytes = 0
        self.handed: deque[tuple[zmq.MessageTracker, int]] = deque()
        self.since = 0.0  # when the first of `handed` became the first


class OutgoingLines:
    """All queues of a listener.

    `may_hear` says whether a peer is still at its route, `hang_up` ends the connection there.
    """

    def __init__(
        self, socket: LoopSocket, budget: Budget, may_hear: Callable[[Peer], bool], hang_up: Callable[[bytes], None]
    ) -> None:
        self._socket, self._budget, self._may_hear, self._hang_up = socket, budget, may_hear, hang_up
        self._lines: dict[bytes, _Line] = {}
        self._late: dict[bytes, _Line] = {}  # those of the above that have something late
        self._retry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def send(self, peer: Peer, frames: Sequence[Buffer]) -> bool:
        """Hand a message over, or keep a single frame for later; False when it is dropped.

        LookupError: there is no peer.
        """
        if peer.route not in self._late and self._hand_over(peer, frames):
            return True
        return len(frames) == 1 and self._put_off(peer, bytes(frames[0]))

    def _hand_over(self, peer: Peer, frames: Sequence[Buffer]) -> bool:
        size = sum(map(num_bytes, frames))
        try:
            if size < COUNTED_BYTES:
                return self._socket.try_send([peer.route, *frames])
            line = self._lines.get(peer.route)
            if line is not None:
                self._settle(line)
            if not self._budget.take(peer.key, size, answer=True):
                return False
            tracker = None
            try:
                tracker = self._socket.try_send_counted([peer.route, *map(bytes, frames)])
            finally:
                if tracker is None:
                    self._budget.give(peer.key, size, answer=True)
        except zmq.ZMQError as error:
            if error.errno == errno.EHOSTUNREACH:
                raise LookupError(peer.route) from None
            raise
        if tracker is not None:
            line = self._lines.setdefault(peer.route, line or _Line(peer))
            line.since = line.since if line.handed else self._loop.time()
            line.handed.append((tracker, size))
        return tracker is not None

    def _put_off(self, peer: Peer, frame: bytes) -> bool:
        line = self._lines.get(peer.route) or _Line(peer)
        if line.late_bytes + len(frame) > LATE_BYTES or len(line.late) >= LATE_MESSAGES:
            return False
        if not self._budget.take(peer.key, len(frame), answer=True):
            return False
        line.late.append(frame)
        line.late_bytes += len(frame)
        self._lines[peer.route] = self._late[peer.route] = line
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._send_late)
        return True

    def _send_late(self) -> None:
        self._retry = None
        try:
            for line in list(self._late.values()):
                self._send_late_of(line)
        finally:
            if self._late:
                self._retry = self._loop.call_later(RETRY_SECONDS, self._send_late)

    def _send_late_of(self, line: _Line) -> None:
        while line.late:
            frame = line.late[0]
            if not self._may_hear(line.peer):
                self.forget(line.peer.route)
                return
            try:
                if not self._socket.try_send([line.peer.route, frame]):
                    return
            except zmq.ZMQError as error:
                self.forget(line.peer.route)
                if error.errno != errno.EHOSTUNREACH:
                    raise
                return
            line.late.popleft()
            line.late_bytes -= len(frame)
            self._budget.give(line.peer.key, len(frame), answer=True)
        del self._late[line.peer.route]

    def _settle(self, line: _Line) -> None:
        """Release the memory that libzmq has finished with."""
        while line.handed and line.handed[0][0].done:
            self._budget.give(line.peer.key, line.handed.popleft()[1], answer=True)
            line.since = self._loop.time()

    def sweep(self) -> None:
        """Settle with all peers, and disconnect those that take nothing."""
        now = self._loop.time()
        for route, line in list(self._lines.items()):
            self._settle(line)
            if not line.handed and not line.late:
                del self._lines[route]
            elif line.handed and now - line.since > STALLED_SECONDS:
                self._hang_up(route)

    def forget(self, route: bytes) -> None:
        """Forget a route whose connection has ended; libzmq has dropped its messages."""
        self._late.pop(route, None)
        line = self._lines.pop(route, None)
        if line is not None:
            waiting = line.late_bytes + sum(size for _, size in line.handed)
            self._budget.give(line.peer.key, waiting, answer=True)

    def close(self) -> None:
        """Forget all peers and their messages."""
        if self._retry is not None:
            self._retry.cancel()
        for route in list(self._lines):
            self.forget(route)
