"""Who gets no tasks for a while, though it is there: a node that is lost, or sent away, and comes back again and
again, and one that was sentenced (`sanctions`).

Work that goes to the first is done twice, and others wait for it meanwhile. It rests, longer each time, where they can
do without it, and is forgotten slowly: a machine that was started a few times in a row is as good as any other. The
second stays away whoever else is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from barnraise.controller.state.part import Context, Part, Steps
from barnraise.ledger.decisions import Change, Decision, Judged, NodeChanged, Noted
from barnraise.ledger.notes import HeldOff, Sentence

FREE = 3.0
"""Returns that cost nothing."""

FIRST_REST, LONGEST_REST = 10.0, 600.0
"""Seconds that a node rests after the first return beyond these, twice as long after the next, and so on."""

HALF_LIFE = 600.0
"""Seconds in which a return counts half."""

LOSSES = frozenset({Change.SILENT, Change.BROKE, Change.KILLED})
"""Ways of going that nobody announced. A worker that says that it leaves hands in what it has, unless it breaks down:
one that leaves work behind, and has handed in nothing since it came, is lost too."""


class Backoff(Part):
    """Keeps how often each node was lost and came back, until when it rests, and until when it stays away."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.returns: dict[str, tuple[float, float]] = {}  # how many, the longer ago the less, and as of when
        self.resting: dict[str, float] = {}  # until when
        self.away = {
            node.id: node.tally.standing.until for node in self.state.nodes.values() if node.tally.standing.until
        }
        self._sessions: dict[str, int] = {}  # of those that are here
        self.lost: set[str] = set()  # who went without a word, or broke down, and is not back
        self._sent_away: set[str] = set()  # and is not back
        self._useful: set[str] = set()  # who has handed in something since it came
        self._counted: tuple[tuple[float, int, int], int] = ((-math.inf, 0, 0), 0)

    def _changed(self, d: NodeChanged) -> None:
        if d.change == Change.JOINED:
            back = d.node in self.lost or d.node in self._sent_away
            if back or self._sessions.get(d.node, d.session) != d.session:
                self._came_back(d.node)
            self.lost.discard(d.node)
            self._sent_away.discard(d.node)
            self._sessions[d.node] = d.session
        elif d.change.gone:
            self._sessions.pop(d.node, None)
            useless = d.node not in self._useful and self.state.nodes[d.node].open
            if d.change in LOSSES or (d.change == Change.LEFT and useless):
                self.lost.add(d.node)
            if d.change == Change.DISMISSED:
                self._sent_away.add(d.node)
            self._useful.discard(d.node)

    def _judged(self, d: Judged) -> None:
        self._useful.add(d.node)

    def _came_back(self, node: str) -> None:
        count, since = self.returns.get(node, (0.0, self.now))
        count = count * 0.5 ** ((self.now - since) / HALF_LIFE) + 1.0
        self.returns[node] = count, self.now
        if count > FREE:
            rest = min(FIRST_REST * 2.0 ** min(count - FREE - 1.0, 30.0), LONGEST_REST)
            self.resting[node] = max(self.resting.get(node, 0.0), self.now + rest)

    def pardon(self, node: str) -> None:
        """That it was silent is not its fault."""
        self.lost.discard(node)

    def told(self, node: str) -> Steps:
        """The node has joined: note it if it is to rest."""
        if node in self.resting and self.held(node):
            count = round(self.returns[node][0])
            reason = f"it was lost, or sent away, and came back {count} times lately"
            yield Noted(self.now, HeldOff(self.resting[node] - self.now, reason), node)

    def held(self, node: str) -> bool:
        """Whether the node gets no tasks now, and nobody is to count on it."""
        if self.away.get(node, 0.0) > self.now:
            return True
        until = self.resting.get(node)
        if until is None:
            return False
        if until <= self.now:
            del self.resting[node]
            return False
        return self._num_resting > 0

    def held_until(self, node: str) -> float:
        """Until when, of one that is held."""
        return max(self.away.get(node, 0.0), self.resting.get(node, 0.0))

    def resting_at(self, now: float) -> list[str]:
        """All such nodes, at a time that may be later than that of the event in hand."""
        resting = [node for node, until in self.resting.items() if until > now] if self._num_resting else []
        return resting + [node for node, until in self.away.items() if until > now and node not in resting]

    @property
    def num_held(self) -> int:
        """How many of the living get no tasks now."""
        nodes, resting = self.state.nodes, self._num_resting
        if not self.away:
            return resting
        away = [node for node, until in self.away.items() if until > self.now and nodes[node].live]
        return resting + sum(not resting or self.resting.get(node, 0.0) <= self.now for node in away)

    @property
    def _num_resting(self) -> int:
        """How many of the living rest now: none, where the others are too few to do without them."""
        if not self.resting:
            return 0
        nodes, num_live = self.state.nodes, self.state.num_live
        what = self.now, num_live, len(self.resting)
        if what != self._counted[0]:
            count = sum(until > self.now and nodes[node].live for node, until in self.resting.items())
            least = self.context.settings.versions.least(num_live)
            self._counted = what, count if num_live - count >= least else 0
        return self._counted[1]

    def _noted(self, d: Noted) -> None:
        if isinstance(d.note, Sentence):
            self.away[d.node] = math.inf if d.note.until is None else d.note.until

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {NodeChanged: self._changed, Judged: self._judged, Noted: self._noted}
