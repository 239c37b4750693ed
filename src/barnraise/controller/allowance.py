"""How often somebody may do what costs others: a bucket a node that fills with time."""

from __future__ import annotations


class Allowance:
    """`burst` times at once, and `rate` times a second in the long run.

    >>> allowance = Allowance(burst=2.0, rate=0.5)
    >>> [allowance.take("ann", now) for now in (0.0, 0.0, 0.0, 2.0, 2.0)]
    [True, True, False, True, False]
    """

    def __init__(self, burst: float, rate: float) -> None:
        self.burst, self.rate = burst, rate
        self._spent: dict[str, tuple[float, float]] = {}  # as of when

    def take(self, node: str, now: float) -> bool:
        """Once more: False when it is too often, which costs nothing."""
        if not self.has(node, now):
            return False
        self._spent[node] = self._left_of(node, now) + 1.0, now
        return True

    def has(self, node: str, now: float) -> bool:
        """Whether `take` would say yes."""
        return self._left_of(node, now) <= self.burst - 1.0

    def when(self, node: str) -> float:
        """The time from which on it would."""
        spent, since = self._spent.get(node, (0.0, 0.0))
        return since + max(0.0, spent - (self.burst - 1.0)) / self.rate

    def _left_of(self, node: str, now: float) -> float:
        """What of the bucket is empty."""
        spent, since = self._spent.get(node, (0.0, now))
        return max(0.0, spent - self.rate * (now - since))
