"""Measure the seconds in which a run made progress, and the time to progress again after a fault."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from barnraise.ledger.decisions import Decision, Judged, VersionMade

SECOND = 1.0
"""Length of the intervals that are counted."""

Seen = tuple[float, Decision]
"""A decision of the controller, and the time at which it was seen on the ledger, in seconds."""


@dataclass(frozen=True)
class Availability:
    """The seconds of a run from `begin` on. In each of `accepting` a contribution to the training was accepted, in each
    of `moving` a version was made; `longest_wait` is the longest time between two accepted contributions."""

    begin: float
    seconds: int
    accepting: frozenset[int]
    moving: frozenset[int]
    longest_wait: float

    @property
    def available(self) -> frozenset[int]:
        """The seconds in which both happened."""
        return self.accepting & self.moving

    def share(self, seconds: frozenset[int]) -> float:
        """Which part of all seconds these are; not a number when the run lasted less than one second."""
        return len(seconds) / self.seconds if self.seconds else math.nan

    @property
    def lost(self) -> list[float]:
        """When each second began in which the run was not available."""
        return [self.begin + number * SECOND for number in range(self.seconds) if number not in self.available]


def is_contribution(decision: Decision) -> bool:
    """Whether the decision is that a contribution to the training was accepted."""
    return isinstance(decision, Judged) and decision.brings and decision.tokens > 0


def availability(seen: Sequence[Seen], until: float) -> Availability:
    """The availability of a run from its first accepted contribution to the time `until`.

    Only accepted contributions and versions count. Other decisions (a lost lease, an assignment, a note) do not: the
    controller takes them also while it accepts no work. Without any accepted contribution no second is counted.
    """
    times = [at for at, decision in seen if is_contribution(decision)]
    if not times:
        return Availability(until, 0, frozenset(), frozenset(), 0.0)
    begin = times[0]
    seconds = max(0, int((until - begin) / SECOND))
    versions = [at for at, decision in seen if isinstance(decision, VersionMade) and at >= begin]
    waits = [after - before for before, after in pairwise([*times, until])]
    return Availability(begin, seconds, _within(times, begin, seconds), _within(versions, begin, seconds), max(waits))


def _within(times: Iterable[float], begin: float, seconds: int) -> frozenset[int]:
    numbers = (int((at - begin) / SECOND) for at in times)
    return frozenset(number for number in numbers if number < seconds)


def until_accepted(seen: Sequence[Seen], at: float) -> float:
    """Seconds from `at` to the next accepted contribution; infinite when there is none."""
    return min((when for when, decision in seen if when > at and is_contribution(decision)), default=math.inf) - at


def until_step(seen: Sequence[Seen], at: float) -> float:
    """Seconds from `at` to the next version, which is a step of the whole fleet; infinite when there is none."""
    made = (when for when, decision in seen if when > at and isinstance(decision, VersionMade))
    return min(made, default=math.inf) - at
