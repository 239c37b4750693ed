"""Probation: a node that is not known to be sound takes no more of the budget than can be checked meanwhile.

How fast a node is shows in its results, and a node that takes one step and claims all is the fastest of them. So where
work is checked (audits that judge, or scores) an unknown node gets no task before a machine PACE times as fast as the
median node would have done its last result (by its own claim, before others were observed: a node that is done at once
is the first to be observed), and no larger one than such a machine does in the time of a task: so it is known soon,
however fast it is. A node that returns is still known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.pacing import Pacing
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.part import Context, Part, TaskHold
from barnraise.controller.state.state import NodeState
from barnraise.ledger.decisions import Decision, Judged
from barnraise.trust import suspicion

PACE = 1.1
"""Factor by which it may be faster than the median node."""

LONGEST = 60.0
"""Seconds that a node waits at most: rates that were observed while a clock jumped are arbitrary."""


class Probation(Part):
    """Keeps the time of each node's newest contribution, and until when a machine of limited pace would work on it.

    Where there are scores, it also keeps the present pass rate of an honest node's comparisons.
    """

    def __init__(self, context: Context, records: NodeRecords, pacing: Pacing) -> None:
        super().__init__(context)
        self.records = records
        self.pacing, self.speeds = pacing, pacing.speeds
        self.scored = bool(context.settings.scores.share)
        self.audited = bool(context.settings.audits.share and context.settings.worker.stateless)
        self.checked = self.scored or self.audited
        self.expected = suspicion.OTHER

    def unknown(self, node: NodeState) -> bool:
        """Return whether work is checked, and no check speaks for the node yet."""
        reputation = node.tally.reputation
        return not reputation.scores.sound(self.expected) if self.scored else self.audited and not reputation.sound

    def most(self, node: NodeState, steps: int) -> int:
        """Return how many of `steps` steps its next task may have."""
        if not self.unknown(node):
            return steps
        return min(steps, math.ceil(PACE * self.pacing.usual_steps()))

    def hold(self, node: NodeState, now: float) -> TaskHold | None:
        if not self.checked:
            return None
        pace = self.records[node.id].pace
        if not pace.came <= now < pace.worked_until or not self.unknown(node):  # came > now: the clock went back
            return None
        return TaskHold(pace.worked_until, "on probation until the controller has checked its work so far")

    def _judged(self, d: Judged) -> None:
        """Record a result; results of tasks given ahead come at once, and each counts."""
        if not (d.contributes and d.tokens):
            return
        self.speeds.refresh()
        if not self.checked:
            return
        pace = PACE * self.speeds.middle
        seen = self.records[d.node].pace
        begun = max(seen.worked_until, d.time)
        worked = begun + d.tokens / pace if pace > 0.0 else begun
        seen.came, seen.worked_until = d.time, min(worked, d.time + LONGEST)

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Judged: self._judged}
