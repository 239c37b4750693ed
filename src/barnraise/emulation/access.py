"""The controller's own line, one way: the messages of all nodes pass it, one after the other."""

from __future__ import annotations


class Access:
    """A line of `rate` bytes a second.

    Small messages do not count.
    """

    __slots__ = ("_free", "rate")

    def __init__(self, rate: float) -> None:
        self.rate, self._free = rate, 0.0

    def take(self, now: float, num_bytes: int, *, late: bool = False) -> tuple[float, float]:
        """Return when `num_bytes` bytes that are there `now` begin and end to pass.

        `late`: they have arrived until now, over a line of the sender's, and passed meanwhile as far as this one was
        free.

        >>> access = Access(rate=10.0)
        >>> access.take(0.0, 20), access.take(1.0, 20), access.take(9.0, 20, late=True)
        ((0.0, 2.0), (2.0, 4.0), (7.0, 9.0))
        """
        seconds = num_bytes / self.rate
        start = now - seconds if late else now
        if start < self._free:
            start = self._free
        self._free = start + seconds
        return start, self._free
