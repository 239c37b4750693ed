"""Repeated log messages about an ongoing condition, at growing intervals."""

from __future__ import annotations

import math

FIRST, LONGEST = 5.0, 300.0
"""Seconds from the first message to the second; each further interval is twice as long, up to the longest."""


class Spaced:
    """Decides when to report a repeated event, and whether to report its end.

    >>> spaced = Spaced()
    >>> [second for second in range(60) if spaced.again(second)]
    [0, 5, 15, 35]
    >>> spaced.over(60.0), spaced.over(61.0)
    (60.0, None)
    """

    def __init__(self) -> None:
        self._next, self._interval, self._last = -math.inf, FIRST, -math.inf
        self._since: float | None = None  # start of the condition, if it was reported

    def again(self, now: float) -> bool:
        """Record that the event happens at `now`, and return whether to report it."""
        if now - self._last > 2 * LONGEST:  # long ago
            self._interval = FIRST
        self._last = now
        if now < self._next:
            return False
        self._next, self._interval = now + self._interval, min(LONGEST, 2 * self._interval)
        self._since = now if self._since is None else self._since
        return True

    def over(self, now: float) -> float | None:
        """Return how many seconds the condition lasted until `now`; None when it was never reported."""
        since, self._since = self._since, None
        return None if since is None else now - since
