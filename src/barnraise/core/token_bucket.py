"""Token buckets that bound how often a node may do what costs others."""

from __future__ import annotations

LEAST_SWEPT = 1024
"""Buckets that are kept without looking for full ones."""


class TokenBucket:
    """Allows a node something `burst` times at once, and `rate` times a second in the long run.

    Full buckets are dropped, so memory is bounded by the nodes that took something lately.

    >>> allowance = TokenBucket(burst=2.0, rate=0.5)
    >>> [allowance.take("ann", now) for now in (0.0, 0.0, 0.0, 2.0, 2.0)]
    [True, True, False, True, False]
    """

    def __init__(self, burst: float, rate: float) -> None:
        self.burst, self.rate = burst, rate
        self._ahead = (burst - 1.0) / rate  # seconds before a bucket is full again from which on it has a token
        self._full: dict[str, float] = {}  # when the bucket of a node will be full again
        self._most = LEAST_SWEPT  # buckets before full ones are dropped

    def take(self, node: str, now: float) -> bool:
        """Take one token; False when the bucket is empty, which costs nothing."""
        if not self.has(node, now):
            return False
        self._full[node] = max(now, self._full.get(node, 0.0)) + 1.0 / self.rate
        if len(self._full) > self._most:
            self._full = {name: full for name, full in self._full.items() if full > now}
            self._most = max(LEAST_SWEPT, 2 * len(self._full))
        return True

    def has(self, node: str, now: float) -> bool:
        """Tell whether `take` would return True."""
        return now >= self._full.get(node, 0.0) - self._ahead

    def when(self, node: str) -> float:
        """Tell from which time on `take` would return True."""
        return self._full.get(node, 0.0) - self._ahead
