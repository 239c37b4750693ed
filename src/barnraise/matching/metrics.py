"""Metrics of a matching over time: averages by time, idle time, conflicts, moves, regret."""

from __future__ import annotations

from dataclasses import dataclass

from barnraise.core.errors import InputError


@dataclass
class TimeAverage:
    """The mean over time of a value that changes in steps, such as a stability index.

    >>> index = TimeAverage()
    >>> for time, value in [(0, 1.0), (3, 0.0), (4, 1.0)]:
    ...     index.note(time, value)
    >>> index.mean(until=8)
    0.875
    """

    start: float = 0.0
    total: float = 0.0
    time: float | None = None
    value: float = 0.0

    def note(self, time: float, value: float) -> None:
        """Record that `value` holds from `time` on.

        InputError if that is before the last one.
        """
        if self.time is None:
            self.start = time
        else:
            self.total += self.value * self._since(time)
        self.time, self.value = time, value

    def mean(self, until: float) -> float:
        """Return the mean up to `until`; the value itself where no time has passed, and 0 without any."""
        if self.time is None or until <= self.start:
            return self.value
        return (self.total + self.value * self._since(until)) / (until - self.start)

    def _since(self, time: float) -> float:
        assert self.time is not None
        if not time >= self.time:
            raise InputError(f"time is {time}, but must not be before {self.time}, which is known already")
        return time - self.time


@dataclass
class MatchingTally:
    """Counts of a run, and the shares that follow."""

    events: int = 0  # joins, leaves, changes, tasks that come and go
    moves: int = 0  # tasks that got a node, another one, or lost theirs
    rematches: int = 0  # moves that took a task from one node to another
    offers: int = 0
    refused: int = 0  # offers that a node could not take, or that were stale
    busy: float = 0.0  # seconds of slots at work
    available: float = 0.0  # seconds of slots

    @property
    def moves_an_event(self) -> float:
        return self.moves / self.events if self.events else 0.0

    @property
    def conflicts(self) -> float:
        """Return the share of offers that were refused."""
        return self.refused / self.offers if self.offers else 0.0

    @property
    def idle(self) -> float:
        """Return the share of the slots' time without work."""
        return 1 - self.busy / self.available if self.available else 0.0


def regret(cost: float, bound: float) -> float:
    """Return the relative excess over the least cost: cost / bound - 1.

    `bound` is computed in `optimum.py`.
    """
    if not bound > 0:
        raise InputError(f"bound is {bound}, but must be above 0: nothing compares with a cost of nothing")
    return cost / bound - 1
