"""Nodes that get no tasks for a while, though they are present: repeatedly lost ones, and sentenced ones.

Work of the first kind, nodes that are lost or sent away and return repeatedly, is done more than once, and others wait
for it meanwhile. Such a node rests, longer each time, where the others can do without it, and its losses are forgotten
slowly: a machine that was started a few times in a row is as good as any other. A sentenced node (`sanctions`) stays
away in any case.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.records import NodeRecords, Returns
from barnraise.controller.state.part import Context, Part, TaskHold
from barnraise.controller.state.state import NodeState
from barnraise.ledger.decisions import Change, Decision, Judged, NodeChanged, Noted
from barnraise.ledger.notes import Sentence

FREE = 3.0
"""Returns that cost nothing."""

FIRST_REST, LONGEST_REST = 10.0, 600.0
"""Seconds that a node rests after the first return beyond these, doubled after the next, and so on."""

HALF_LIFE = 600.0
"""Seconds in which a return counts half."""

SENTENCED = "the controller found its results wrong"
"""Why a node that was sentenced gets no tasks."""

LOSSES = frozenset({Change.SILENT, Change.BROKE, Change.KILLED})
"""Ways of leaving without notice. A worker that announces its departure submits its results, unless it fails: one that
leaves work behind, and has submitted nothing since it came, is lost too."""


class Backoff(Part):
    """Counts how often each node was lost and came back, and knows which of the living get no tasks for that."""

    def __init__(self, context: Context, records: NodeRecords) -> None:
        super().__init__(context)
        self.records = records
        self._resting: set[str] = set()  # living nodes that rest
        self._counted: tuple[tuple[float, int, int], int] = ((-math.inf, 0, 0), 0)
        self._sentenced = {node.id for node in self.state.nodes.values() if node.live and self._away_until(node)}

    def _changed(self, d: NodeChanged) -> None:
        if d.change == Change.JOINED:
            returns = self.records[d.node].returns
            if returns.lost or returns.dismissed or returns.session not in (0, d.session):
                self._came_back(returns)
            returns.lost = returns.dismissed = False
            returns.session = d.session
            if returns.rests_until > self.now:
                self._resting.add(d.node)
            if self._away_until(self.state.nodes[d.node]):
                self._sentenced.add(d.node)
        elif d.change.gone:
            self._resting.discard(d.node)
            self._sentenced.discard(d.node)
            returns = self.records[d.node].returns
            returns.session = 0
            useless = not returns.useful and self.state.nodes[d.node].open
            returns.lost |= d.change in LOSSES or (d.change == Change.LEFT and bool(useless))
            returns.dismissed |= d.change == Change.DISMISSED
            returns.useful = False

    def _judged(self, d: Judged) -> None:
        self.records[d.node].returns.useful = True

    def _came_back(self, returns: Returns) -> None:
        decayed = returns.count * 0.5 ** ((self.now - returns.at) / HALF_LIFE) if returns.count else 0.0
        returns.count, returns.at = decayed + 1.0, self.now
        if returns.count > FREE:
            rest = min(FIRST_REST * 2.0 ** min(returns.count - FREE - 1.0, 30.0), LONGEST_REST)
            returns.rests_until = max(returns.rests_until, self.now + rest)

    def pardon(self, node: str) -> None:
        """That the node was silent is not its fault."""
        self.records[node].returns.lost = False

    def was_lost(self, node: str) -> bool:
        """Whether the node went without a word, or broke down, and is not back."""
        return self.records[node].returns.lost

    def held(self, node: str) -> bool:
        """Return whether the node gets no tasks now, so that no other may count on it."""
        if node in self._sentenced and self._away_until(self.state.nodes[node]) > self.now:
            return True
        if node not in self._resting:
            return False
        if self.records[node].returns.rests_until <= self.now:
            self._resting.remove(node)
            return False
        return self._num_resting > 0

    def hold(self, node: NodeState, now: float) -> TaskHold | None:
        away = self._away_until(node)
        if away > now:
            return TaskHold(away, SENTENCED)
        if node.id not in self._resting or not self._num_resting:
            return None
        returns = self.records[node.id].returns
        if returns.rests_until <= now:
            return None
        reason = f"it was lost, or sent away, and came back {returns.count:.0f} times lately"
        return TaskHold(returns.rests_until, reason)

    @property
    def num_held(self) -> int:
        """Return how many of the living get no tasks now."""
        nodes, resting = self.state.nodes, self._num_resting
        if not self._sentenced:
            return resting
        away = [node for node in self._sentenced if self._away_until(nodes[node]) > self.now]
        return resting + sum(not resting or not self._rests(node) for node in away)

    @property
    def _num_resting(self) -> int:
        """Return how many of the living rest now: none, where the others are too few to do without them."""
        if not self._resting:
            return 0
        num_live = self.state.num_live
        what = self.context.now, num_live, len(self._resting)
        if what != self._counted[0]:
            count = sum(map(self._rests, self._resting))
            least = self.context.settings.versions.least(num_live)
            self._counted = what, count if num_live - count >= least else 0
        return self._counted[1]

    def _rests(self, node: str) -> bool:
        return self.records[node].returns.rests_until > self.now

    @staticmethod
    def _away_until(node: NodeState) -> float:
        """Until when a sentence keeps the node from tasks; 0 where none was passed."""
        return node.tally.reputation.until

    def _noted(self, d: Noted) -> None:
        if isinstance(d.note, Sentence) and self.state.nodes[d.node].live:
            self._sentenced.add(d.node)

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {NodeChanged: self._changed, Judged: self._judged, Noted: self._noted}
