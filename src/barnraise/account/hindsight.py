"""How well tasks were foreseen: the seconds that the ledger expects for them, beside those that they took.

A task's time begins when its node could begin (it had the task, and its last result had come), and ends with its
result. The first ten tasks of a node do not count: from them the controller learns its speed.
"""

from __future__ import annotations

from heapq import heappush, heappushpop

import msgspec

from barnraise.core.types import kind_of
from barnraise.ledger.decisions import Assigned, Decision, Judged, Noted, Terms
from barnraise.ledger.notes import Released
from barnraise.matching.predictor import Times

LEARNING = 10
"""Tasks of a node before those that count."""


class RunningMedian(msgspec.Struct):
    """The median of numbers that come one by one: a heap of the lower half, negated, and one of the upper half.

    >>> middle = RunningMedian()
    >>> for number in (3.0, 1.0, 2.0, 4.0):
    ...     middle.add(number)
    >>> middle.value, len(middle)
    (2.5, 4)
    """

    lower: list[float] = msgspec.field(default_factory=list)
    upper: list[float] = msgspec.field(default_factory=list)

    def add(self, number: float) -> None:
        """Take a further number."""
        if len(self.lower) > len(self.upper):
            heappush(self.upper, -heappushpop(self.lower, -number))
        else:
            heappush(self.lower, -heappushpop(self.upper, number))

    @property
    def value(self) -> float | None:
        """Return the median, None without numbers; the mean of the two in the middle where their number is even."""
        if not self.lower:
            return None
        if len(self.lower) > len(self.upper):
            return -self.lower[0]
        return (self.upper[0] - self.lower[0]) / 2

    def __len__(self) -> int:
        return len(self.lower) + len(self.upper)

    @property
    def numbers(self) -> list[float]:
        """List all numbers, in no order."""
        return [-number for number in self.lower] + self.upper


class Hindsight(msgspec.Struct):
    """Compares expected with measured times; it takes assignments and verdicts in their order.

    `errors` are shares of the time that tasks took; `told` of them came with a standard deviation, and `near` were
    within it; `early` are errors of the first tasks of a node.
    """

    errors: RunningMedian = msgspec.field(default_factory=RunningMedian)
    early: list[float] = msgspec.field(default_factory=list)
    told: int = 0
    near: int = 0
    open: dict[int, Assigned] = msgspec.field(default_factory=dict)
    ahead: dict[str, dict[int, None]] = msgspec.field(default_factory=dict)  # by node
    free: dict[str, float] = msgspec.field(default_factory=dict)
    tasks: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def error(self) -> float | None:
        """Return the median absolute error as a share of the time taken; None where no node had more than ten tasks."""
        return self.errors.value

    @property
    def within(self) -> float | None:
        """Return the share of tasks within the standard deviation that was told, None where none was told.

        It is 68% where the deviations are right.
        """
        return self.near / self.told if self.told else None

    def add(self, decision: Decision) -> None:
        """Take the next decision of a run; most kinds change nothing."""
        if type(decision) is Assigned:
            self.open[decision.assignment] = decision
            self.ahead.setdefault(decision.node, {})[decision.assignment] = None
        elif type(decision) is Noted and type(decision.note) is Released:
            self.open.pop(decision.note.assignment, None)
            self.ahead.get(decision.node, {}).pop(decision.note.assignment, None)
        elif type(decision) is Judged:
            self._judged(decision)

    def _judged(self, d: Judged) -> None:
        given = self.open.pop(d.assignment, None)
        if given is None:
            return
        ahead = self.ahead.setdefault(d.node, {})
        ahead.pop(d.assignment, None)
        kind = kind_of(given.kind)
        if not kind.contributes and ahead and min(ahead) < d.assignment:
            return  # it has overtaken a payload: its beginning is not known
        free = self.free.get(d.node, 0.0)
        expected = _expected(given.terms)
        self.free[d.node] = d.time - expected.send
        if d.verdict != "accepted" or not (kind.contributes or kind.measures):
            return
        took = d.time - max(given.time, free)
        if expected.compute > 0.0 and took > 0.0 and d.claim.steps == given.local_steps:
            number = self.tasks[d.node] = self.tasks.get(d.node, 0) + 1
            error = abs(expected.end(given.time, free) - d.time)
            if number <= LEARNING:
                self.early.append(error / took)
                return
            self.errors.add(error / took)
            if (deviation := expected.deviation(given.time, free)) > 0.0:
                self.told += 1
                self.near += error / deviation <= 1.0


def _expected(terms: Terms) -> Times:
    return Times(terms.compute, terms.fetch, terms.send, terms.compute_spread, terms.link_spread)
