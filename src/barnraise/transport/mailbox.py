"""A bounded queue of messages that one peer of the controller fetches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from barnraise.transport.budget import Budget
from barnraise.transport.waking import Signal
from barnraise.wire.frames import Buffer, num_bytes

RAW_MESSAGES = 32
"""Messages with a raw frame that wait; more are dropped, and requested again."""

SINGLE_MESSAGES, SINGLE_BYTES = 1024, 2 << 20
"""The same for single frames."""


class Mailbox:
    """The messages for one peer, in order, on its account of `budget`.

    `filled` wakes a waiting reader.
    """

    def __init__(self, budget: Budget, owner: str) -> None:
        self._budget, self._owner = budget, owner
        self.filled = Signal()
        self._messages: deque[list[Buffer]] = deque()
        self._num_raw = self._num_single = self._single_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, frames: Sequence[Buffer]) -> bool:
        """Store a copy of a message; False when there is no room for it."""
        single, size = len(frames) == 1, _size(frames)
        if single:
            full = self._num_single >= SINGLE_MESSAGES or self._single_bytes + size > SINGLE_BYTES
        else:
            full = self._num_raw >= RAW_MESSAGES
        if full or not self._budget.take(self._owner, size, answer=True):
            return False
        self._num_single += single
        self._single_bytes += size if single else 0
        self._num_raw += not single
        self._messages.append([bytes(frame) for frame in frames])
        self.filled.wake()
        return True

    def first(self) -> list[Buffer]:
        """Return the next message."""
        return self._messages[0]

    def take(self) -> list[Buffer]:
        """Remove and return the next message."""
        frames = self._messages.popleft()
        single, size = len(frames) == 1, _size(frames)
        self._num_single -= single
        self._single_bytes -= size if single else 0
        self._num_raw -= not single
        self._budget.give(self._owner, size, answer=True)
        return frames

    def clear(self) -> None:
        """Drop all messages, as their peer will not fetch them."""
        while self._messages:
            self.take()


def _size(frames: Sequence[Buffer]) -> int:
    return sum(map(num_bytes, frames))
