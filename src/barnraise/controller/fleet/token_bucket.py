"""How often somebody may do what costs others: a bucket a node that fills with time."""

from __future__ import annotations


class TokenBucket:
    """`burst` times at once, and `rate` times a second in the long run.

    >>> allowance = TokenBucket(burst=2.0, rate=0.5)
    >>> [allowance.take("ann", now) for now in (0.0, 0.0, 0.0, 2.0, 2.0)]
    [True, True, False, True, False]
    """

    def __init__(self, burst: float, rate: float) -> None:
        self.burst, self.rate = burst, rate
        self._full: dict[str, float] = {}  # when the bucket of a node will be full again

    def take(self, node: str, now: float) -> bool:
        """Once more: False when it is too often, which costs nothing."""
        if not self.has(node, now):
            return False
        self._full[node] = max(now, self._full.get(node, 0.0)) + 1.0 / self.rate
        return True

    def has(self, node: str, now: float) -> bool:
        """Whether `take` would say yes."""
        return now >= self.when(node)

    def when(self, node: str) -> float:
        """The time from which on it would."""
        return self._full.get(node, 0.0) - (self.burst - 1.0) / self.rate
