"""Expected arrivals of results: as long after the one before as the node's newest ones took, by observation alone.

The median of the seconds a step of a node's newest contributions is expected of the next, and their median absolute
deviation (MAD) bounds its lateness. The last one counts too: a machine that has become slow gets its time at once, and
a single hang is forgotten with the next. A node's claims have no effect here.

A buffer that lacks k nodes waits for the k that are expected first, a synchronous round for all that work for it. Once
they are later than the median of their nodes' times by a number of median absolute deviations they are not
expected any more: a node that hangs while its heartbeats continue holds a version for a part of its task's time, not
for a lease.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from barnraise.controller.fleet.speeds import LEAST_PATIENCE, OVERDUE, Speeds
from barnraise.controller.fleet.uploads import Uploads
from barnraise.controller.state.part import Context, Part
from barnraise.controller.state.state import NodeState, Work
from barnraise.ledger.decisions import Decision, Noted
from barnraise.ledger.notes import Resumed

DEVIATIONS = 6.0
"""MADs by which a result may be later than expected: four standard deviations where times are normal."""

LEAST_SHARE = 0.5
"""Share of the expected time by which a result may always be later: few times say little of how they vary."""

LEAST_SECONDS = 1.0
"""Seconds by which a result is never late."""


class Expected(NamedTuple):
    """The expected time of a result, and how many seconds later it counts as late."""

    time: float
    margin: float

    @property
    def late(self) -> float:
        return self.time + self.margin


class Arrivals(Part):
    """Records since when messages were received at all: a result that came in an interruption is not late."""

    def __init__(self, context: Context, uploads: Uploads, speeds: Speeds) -> None:
        super().__init__(context)
        self.uploads, self.speeds = uploads, speeds
        self._listening = -math.inf

    def expected(self, work: Work) -> Expected:
        """Return when open work is expected, as its node works in order.

        Infinite while its time is unknown, and for results that are here or wait for their upload.
        """
        if self.here(work):
            return Expected(math.inf, 0.0)
        node, works, number = self.state.nodes[work.node], self.state.works, work.assignment
        time, more = max(node.speed.verdict_time, self._listening), 0.0
        for opened in node.open:
            ahead = works[opened]
            seconds, more = self.takes(node, ahead)
            time = (time if time > ahead.time else ahead.time) + seconds
            if opened == number:
                break
        heard = self.uploads.heard.get(number)
        if heard is not None and heard > time:  # it is on its way: as long as bytes come
            time = heard
        return Expected(time, more)

    def here(self, work: Work) -> bool:
        """Return whether its result is here, or waits for its upload."""
        uploads, number = self.uploads, work.assignment
        if number in uploads.inspecting:
            return True
        offered = uploads.offered.get(work.node)
        return offered is not None and number in offered

    def takes(self, node: NodeState, work: Work) -> Expected:
        """Return the seconds that the node takes for such work, and how many more it may."""
        speed = node.speed
        if speed.rate <= 0.0:
            usual = self.speeds.turnaround
            patience = max(LEAST_PATIENCE, OVERDUE * usual) if usual else math.inf
            return Expected(usual, patience - usual)
        if not work.task.trains:
            seconds = work.tokens * work.task.toll / speed.rate
            return Expected(seconds, margin(seconds, seconds))
        if not speed.step_seconds:
            return Expected(speed.turnaround, margin(speed.turnaround, DEVIATIONS * speed.spread))
        times = [work.local_steps * seconds for seconds in speed.step_seconds]
        usual = median(times)
        seconds = max(usual, times[-1])
        return Expected(seconds, margin(seconds, DEVIATIONS * median([abs(time - usual) for time in times])))

    def excuse(self, seconds: float) -> None:
        self._listening = self.now

    def _noted(self, d: Noted) -> None:
        if type(d.note) is Resumed:
            self._listening = d.time

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Noted: self._noted}


def median(values: Sequence[float]) -> float:
    """Return the median of at least one value, in a tenth of the time that `statistics.median` takes for few.

    >>> median([3.0, 1.0, 9.0]), median([4.0, 1.0])
    (3.0, 2.5)
    """
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def margin(seconds: float, deviations: float) -> float:
    """Return how much later than expected a result may be that takes `seconds`, with these deviations.

    >>> margin(1.0, 0.1), margin(10.0, 0.1), margin(10.0, 8.0)
    (1.0, 5.0, 8.0)
    """
    return max(LEAST_SECONDS, LEAST_SHARE * seconds, deviations)


class BufferDeadline(Part):
    """Keeps until when the open buffer waits, and its last awaited result; computed again when that has come."""

    def __init__(self, context: Context, arrivals: Arrivals) -> None:
        super().__init__(context)
        self.arrivals, self.asynchronous = arrivals, context.settings.asynchronous
        self._of: tuple[int, float] = (-1, math.inf)  # the buffer: the newest version, and its first contribution
        self._until, self._last = math.inf, 0  # the assignment that is expected last
        self._here = False  # whether its result was here, or waited for its upload

    @property
    def until(self) -> float:
        """Return from when on all awaited results are late, or are to be checked again.

        Infinite when the buffer is empty, or one of the awaited nodes does not work yet.
        """
        state, now, since = self.state, self.context.now, self.state.buffer.time
        if not self.asynchronous:
            since = state.round.complete_at if state.round is not None else math.inf
        if since == math.inf:
            return math.inf
        if now < since + LEAST_SECONDS:
            return since + LEAST_SECONDS  # most are closed by then
        of = state.newest.version, since
        if of != self._of or self._until <= now or not self._awaited(self._last) or self._here != self._is_here():
            self._of = of
            self._until, self._last = self._find()
            self._here = self._is_here()
        return self._until

    @property
    def over(self) -> bool:
        """Return whether the open buffer's wait is over."""
        return self.until <= self.now

    def _find(self) -> tuple[float, int]:
        state = self.state
        if not self.asynchronous:
            here = [work for work in state.works.values() if work.task.trains and work.base == state.newest.version]
            return max(((self.arrivals.expected(work).late, work.assignment) for work in here), default=(math.inf, 0))
        first: dict[str, Work] = {}
        for work in state.works.values():
            if work.node not in state.buffer.slots and work.node not in first and work.task.trains:
                first[work.node] = work
        lacks = state.buffer.size - len(state.buffer.slots)
        if not 0 < lacks <= len(first):
            return math.inf, 0
        expected = sorted((self.arrivals.expected(work).late, work.assignment) for work in first.values())
        now = self.now
        in_time = [each for each in expected if each[0] > now]
        return in_time[min(lacks, len(in_time)) - 1] if in_time else expected[-1]

    def _is_here(self) -> bool:
        work = self.state.works.get(self._last)
        return work is not None and self.arrivals.here(work)

    def _awaited(self, number: int) -> bool:
        work = self.state.works.get(number)
        return work is not None and not (self.asynchronous and work.node in self.state.buffer.slots)
