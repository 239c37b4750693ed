"""Messages that wait for one peer of the controller to fetch them: a line with an end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from barnraise.transport.base import Signal
from barnraise.wire.frames import Buffer, num_bytes

RAW_MESSAGES = 32
"""Messages with a raw frame that wait; more are dropped, and asked for again."""

SINGLE_MESSAGES, SINGLE_BYTES = 1024, 2 << 20
"""The same for single frames."""


class Mailbox:
    """What is to be sent to one peer, in order. `filled` wakes who waits for something."""

    def __init__(self) -> None:
        self.filled = Signal()
        self._messages: deque[list[Buffer]] = deque()
        self._num_raw = self._num_single = self._single_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, frames: Sequence[Buffer]) -> bool:
        """Take a copy of a message; False when there is no room for it."""
        if len(frames) == 1:
            size = num_bytes(frames[0])
            if self._num_single >= SINGLE_MESSAGES or self._single_bytes + size > SINGLE_BYTES:
                return False
            self._num_single += 1
            self._single_bytes += size
        elif self._num_raw >= RAW_MESSAGES:
            return False
        else:
            self._num_raw += 1
        self._messages.append([bytes(frame) for frame in frames])
        self.filled.wake()
        return True

    def first(self) -> list[Buffer]:
        """The message whose turn it is."""
        return self._messages[0]

    def take(self) -> list[Buffer]:
        """The message whose turn it is, taken out."""
        frames = self._messages.popleft()
        if len(frames) == 1:
            self._num_single -= 1
            self._single_bytes -= num_bytes(frames[0])
        else:
            self._num_raw -= 1
        return frames
