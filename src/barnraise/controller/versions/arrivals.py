"""When results are expected: as long after the one before as its node's newest ones took, by what was seen alone.

Of the seconds a step of a node's newest contributions the median is what is expected of the next, and their median
absolute deviation (MAD) says how much later it may be. The last one counts too: a machine that has become slow is given
its time at once, and one that hung for once is forgotten with the next. What a node says of itself moves nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
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
"""Of what was expected, by which it always may be later: few times say little of how they vary."""

LEAST_SECONDS = 1.0
"""By which nobody is late."""


class Expected(NamedTuple):
    """When a result should be here, and how many seconds later than that it is late."""

    time: float
    margin: float

    @property
    def late(self) -> float:
        return self.time + self.margin


class Arrivals(Part):
    """Keeps from when on we could hear at all: a result that came while nobody listened is not late."""

    def __init__(self, context: Context, uploads: Uploads, speeds: Speeds) -> None:
        super().__init__(context)
        self.uploads, self.speeds = uploads, speeds
        self._listening = -math.inf

    def expected(self, work: Work) -> Expected:
        """Of open work: its node does what it has in order. Infinite while nothing says how long that takes, and of
        what is here or waits for its turn to come."""
        node, number = self.state.nodes[work.node], work.assignment
        if self.here(work):
            return Expected(math.inf, 0.0)
        time, more = max(node.speed.verdict_time, self._listening), 0.0
        for opened in node.open:
            ahead = self.state.works[opened]
            seconds, more = self.takes(node, ahead)
            time = max(time, ahead.time) + seconds
            if opened == number:
                break
        if number in self.uploads.heard:  # it is on its way: as long as bytes come
            time = max(time, self.uploads.heard[number])
        return Expected(time, more)

    def here(self, work: Work) -> bool:
        """Whether what came of it is here, or waits for its turn to come."""
        number = work.assignment
        return number in self.uploads.inspecting or number in self.uploads.offered.get(work.node, ())

    def takes(self, node: NodeState, work: Work) -> Expected:
        """Seconds that the node takes for such work, and how many more it may."""
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
        return Expected(seconds, margin(seconds, DEVIATIONS * median(abs(time - usual) for time in times)))

    def excuse(self, seconds: float) -> None:
        self._listening = self.now

    def _noted(self, d: Noted) -> None:
        if type(d.note) is Resumed:
            self._listening = d.time

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Noted: self._noted}


def margin(seconds: float, deviations: float) -> float:
    """How much later than expected what takes so many seconds may be, where its deviations say so much.

    >>> margin(1.0, 0.1), margin(10.0, 0.1), margin(10.0, 8.0)
    (1.0, 5.0, 8.0)
    """
    return max(LEAST_SECONDS, LEAST_SHARE * seconds, deviations)
