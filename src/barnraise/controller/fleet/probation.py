"""Who was not seen to be sound yet takes no more of the budget than can be looked at meanwhile.

How fast a node is shows in what it hands in, and whoever takes one step and claims all is the fastest of them. So
where anybody looks at the work (audits that judge, or scores) a node that nothing speaks for yet gets no task before a
machine PACE times as fast as the median node would have done what it has just handed in (as that one says, while
nothing was seen of it: who is done at once is the first to be seen), and no larger one than such a machine does in the
time of a task: so it is known soon, however fast it is. Who comes back has not begun anew.
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
"""By how many times it may be faster than the median node."""

LONGEST = 60.0
"""Seconds that a node waits at most: rates that were seen while a clock jumped say anything."""


class Probation(Part):
    """Notes when each node's newest contribution came, and until when such a machine would have worked on those that
    came by then. Keeps, where there are scores, how often an honest node's comparisons are expected to pass by now."""

    def __init__(self, context: Context, records: NodeRecords, pacing: Pacing) -> None:
        super().__init__(context)
        self.records = records
        self.pacing, self.speeds = pacing, pacing.speeds
        self.scored = bool(context.settings.scores.share)
        self.audited = bool(context.settings.audits.share and context.settings.worker.stateless)
        self.expected = suspicion.OTHER

    def unknown(self, node: NodeState) -> bool:
        """Whether somebody looks, and nothing was found that speaks for the node."""
        standing = node.tally.standing
        return not standing.scores.sound(self.expected) if self.scored else self.audited and not standing.sound

    def most(self, node: NodeState, steps: int) -> int:
        """Of so many steps those that its next task may have."""
        if not self.unknown(node):
            return steps
        return min(steps, math.ceil(PACE * self.pacing.usual_steps()))

    def hold(self, node: NodeState, now: float) -> TaskHold | None:
        pace = self.records[node.id].pace
        if not pace.came <= now < pace.worked_until or not self.unknown(node):  # came > now: the clock went back
            return None
        return TaskHold(pace.worked_until, "on probation, until its work so far was looked at")

    def _judged(self, d: Judged) -> None:
        """What was given ahead comes at once with what it was given ahead of: each counts."""
        if not (d.brings and d.tokens):
            return
        self.speeds.refresh()
        pace = PACE * self.speeds.middle
        seen = self.records[d.node].pace
        begun = max(seen.worked_until, d.time)
        worked = begun + d.tokens / pace if pace > 0.0 else begun
        seen.came, seen.worked_until = d.time, min(worked, d.time + LONGEST)

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Judged: self._judged}
