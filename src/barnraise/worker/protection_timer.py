"""The measured cost of protections for a worker: alpha, the time of its work with them over the time without."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from barnraise.core.types import LARGEST_OVERHEAD


class ProtectionTimer:
    """Adds up the seconds of training, and those of masks and noise beside it, since the process began.

    `rows` is the time of a step with clipped gradients of single rows over that of a usual step, 1 where steps are
    usual ones.
    """

    def __init__(self) -> None:
        self.rows, self._trained, self._protected = 1.0, 0.0, 0.0

    @contextmanager
    def protecting(self) -> Iterator[None]:
        """Count the time of the block as that of a protection."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._protected += time.monotonic() - began

    def trained(self, seconds: float) -> None:
        """Count the seconds of a task's steps, which may have had gradients of single rows."""
        self._trained += seconds

    @property
    def overhead(self) -> float:
        """Return alpha, 1 to LARGEST_OVERHEAD; 0 before the first task, and where nothing is protected."""
        if self._trained <= 0.0 or (self._protected <= 0.0 and self.rows == 1.0):
            return 0.0
        return min(LARGEST_OVERHEAD, max(1.0, self.rows * (1.0 + self._protected / self._trained)))
