"""The deadline of an open buffer: until each missing result is late, by the usual times of its own node.

A buffer that lacks k nodes waits for the k that are expected first, a synchronous round for all that work for it. Once
they are later than the median of their nodes' times by a number of median absolute deviations (`arrivals`) they are not
expected any more: a node that hangs while its heartbeats continue holds a version for a part of its task's time, not
for a lease.
"""

from __future__ import annotations

import math

from barnraise.controller.state.part import Context, Part
from barnraise.controller.state.state import Work
from barnraise.controller.versions.arrivals import LEAST_SECONDS, Arrivals


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
