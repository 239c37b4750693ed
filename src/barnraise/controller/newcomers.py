"""Who was not seen to be sound yet takes no more of the budget than can be looked at meanwhile.

How fast a node is shows in what it hands in, and whoever takes one step and claims all is the fastest of them. So
where anybody looks at the work (audits that judge, or scores) a node that nothing speaks for yet gets no task before a
machine PACE times as fast as the median node would have done what it has just handed in. Who comes back has not begun
anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnraise.controller.part import Context, Part
from barnraise.controller.speeds import Speeds
from barnraise.ledger.decisions import Decision, Judged

PACE = 2.0
"""By how many times it may be faster than the median node."""

LONGEST = 60.0
"""Seconds that a node waits at most: rates that were seen while a clock jumped say anything."""


class Newcomers(Part):
    """Keeps when each node's newest contribution came, and of how many tokens."""

    def __init__(self, context: Context, speeds: Speeds) -> None:
        super().__init__(context)
        self.speeds = speeds
        self.audited = bool(context.settings.audits.share and context.settings.worker.stateless)
        self.came: dict[str, tuple[float, int]] = {}

    def seconds(self, node: str) -> float:
        """For how long after its newest contribution it waits, if nothing speaks for it."""
        _, tokens = self.came[node]
        self.speeds.refresh()
        return min(tokens / (PACE * self.speeds.median), LONGEST) if self.speeds.median > 0.0 else 0.0

    def held_until(self, node: str) -> float:
        """Until when a node gets no task that no audit was of yet; 0 for all others."""
        if not self.audited or node not in self.came or self.state.nodes[node].tally.standing.sound:
            return 0.0
        came, _ = self.came[node]
        return came + self.seconds(node) if came <= self.now else 0.0  # else the clock went back

    def _judged(self, d: Judged) -> None:
        if d.brings and d.tokens:
            self.came[d.node] = d.time, d.tokens

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Judged: self._judged}
