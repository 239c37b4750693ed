"""Received messages that are unread, in one queue for each peer, read in rotation."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from barnraise.transport.base import BATCH_BYTES, Delivery, Peer
from barnraise.transport.budget import Budget
from barnraise.wire.frames import Buffer, num_bytes

MESSAGES, BYTES = 1024, BATCH_BYTES
"""Limits of waiting messages in all; a quarter of it from one peer. Senders wait beyond."""


class Inbox:
    """The messages of each peer in order, on the account of its key, returned in rotation over peers."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._lines: dict[Peer, deque[tuple[list[Buffer], int]]] = {}  # the next peer in the rotation comes first
        self._held: dict[Peer, int] = {}
        self.num_messages = self.num_bytes = 0

    def has_room(self, peer: Peer) -> bool:
        """Return whether a batch of `peer` may be stored now."""
        line = self._lines.get(peer, ())
        crowded = self.num_messages >= MESSAGES or self.num_bytes >= BYTES
        return not crowded and len(line) < MESSAGES // 4 and self._held.get(peer, 0) < BYTES // 4

    def put(self, peer: Peer, messages: Sequence[list[Buffer]]) -> None:
        """Store messages from `peer`."""
        line = self._lines.setdefault(peer, deque())
        sizes = [sum(map(num_bytes, frames)) for frames in messages]
        line.extend(zip(messages, sizes, strict=True))
        self._count(peer, len(sizes), sum(sizes))

    def take(self, limit: int) -> list[Delivery]:
        """Return the next messages, at most `limit` or about BATCH_BYTES."""
        batch: list[Delivery] = []
        size = 0
        while self._lines and len(batch) < limit and size < BATCH_BYTES:
            peer = next(iter(self._lines))
            line = self._lines.pop(peer)
            frames, length = line.popleft()
            if line:
                self._lines[peer] = line
            self._count(peer, -1, -length)
            batch.append(Delivery(peer, frames))
            size += length
        return batch

    def _count(self, peer: Peer, messages: int, size: int) -> None:
        self.num_messages += messages
        self.num_bytes += size
        self._held[peer] = self._held.get(peer, 0) + size
        if peer not in self._lines:
            del self._held[peer]
        if size >= 0:
            self._budget.charge(peer.key, size)
        else:
            self._budget.give(peer.key, -size)
