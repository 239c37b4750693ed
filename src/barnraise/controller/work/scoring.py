"""Scores: for a share of the contributions the controller measures their effect on the loss of their own rows.

And on others of the same shards. That needs no repeatable tasks. The choice is secret before they arrive: a keyed hash
of the assignment's number chooses, and gives the seed by which rows are drawn. One is scored at a time, at the version
that is the newest as it is accepted; those that come meanwhile are not. The result goes onto the ledger, and changes
the node's suspicion (`trust.suspicion`); a node whose contributions do no more for its own rows, too often for chance,
is discredited.

No node takes much of the budget faster than it can be checked: a node whose contribution was to be scored gets no task
while another one is scored, for a while, and unknown nodes are limited to the pace of probation (`probation`).
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.probation import LONGEST, Probation
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.fleet.speeds import LEAST_PATIENCE
from barnraise.controller.state.effects import Gains, Score, Scored
from barnraise.controller.state.events import Changed, Event
from barnraise.controller.state.part import Context, Part, Steps, TaskHold
from barnraise.controller.state.state import NodeState, Work
from barnraise.controller.work.sanctions import Sanctions
from barnraise.core.types import Batches, Contribution
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted
from barnraise.trust import suspicion

DISCREDITED = "its updates lower the loss on its own rows no more than on other rows, too often for chance"
"""Reason of a node's dismissal."""


class Scoring(Part):
    """Keeps the contribution that is being scored, and the nodes whose contributions were to be scored since."""

    def __init__(self, context: Context, records: NodeRecords, sanctions: Sanctions, probation: Probation) -> None:
        super().__init__(context)
        self.settings, self.records, self.sanctions = context.settings.scores, records, sanctions
        self.probation, self.speeds = probation, probation.speeds
        self.busy, self._node = 0, ""
        probation.expected = self._shown()  # as of the last score: many nodes ask between two
        self._unseen: set[str] = set()

    def begin(self, work: Work, offer: Contribution) -> Steps:
        """Score an accepted contribution, if it is one of the share."""
        if not (work.task.trains and work.task.shows_rows and self.settings.share) or self.state.progress.final:
            return
        share = self.state.nodes[work.node].tally.reputation.chance_of_score(self.settings.share)
        drawn = hmac.digest(self.settings.key, f"score {work.assignment}".encode(), hashlib.sha256)
        if int.from_bytes(drawn[:8]) >= share * 2**64:
            return
        self._unseen.add(work.node)
        if self.busy:
            return
        tasks = self.context.settings.tasks
        batches = Batches(work.rows, tasks.batch_size, tasks.seed + work.root, work.done)
        steps = offer.steps if offer.transcript is None else offer.transcript.batches
        self.busy, self._node = work.assignment, work.node
        yield Score(self.context.epoch, work.node, offer, batches, steps, int.from_bytes(drawn[8:14]))

    def _scored(self, event: Scored) -> Steps:
        if event.epoch != self.context.epoch or event.assignment != self.busy:
            return
        node, self.busy = self._node, 0
        self._unseen.clear()
        if event.gains is not None:
            yield from self._found(node, event, event.gains)
        yield Changed()

    def _found(self, node: str, event: Scored, gains: Gains) -> Steps:
        own, others, more = (gain if math.isfinite(gain) else None for gain in gains)
        passed = more is not None and more > suspicion.ENOUGH
        before = self.state.nodes[node].tally.reputation.scores.suspicion
        self.probation.expected = self._shown()
        left = suspicion.after(before, passed, self.probation.expected)
        yield Noted(
            self.now,
            notes.Scored(
                event.assignment, event.version, own=own, others=others, more=more, passed=passed, suspicion=left
            ),
            node,
        )
        if left >= suspicion.LIMIT:
            note = notes.Discredited(event.assignment, left, self.sanctions.until(node))
            yield from self.sanctions.pass_on(node, note, DISCREDITED)

    def hold(self, node: NodeState, now: float) -> TaskHold | None:
        if node.id not in self._unseen:
            return None
        came = self.records[node.id].pace.came
        until = came + min(max(LEAST_PATIENCE, self.speeds.usual_period), LONGEST)
        if not came <= now < until:  # came > now: the clock went back
            return None
        return TaskHold(until, "its newest contribution waits for its score")

    def _shown(self) -> float:
        """Return how often an honest node's comparisons pass, by all present nodes that train."""
        there = (node for node in self.state.nodes.values() if node.live and node.tally.turns)
        found = ((node.owner, node.tally.reputation.scores) for node in there)
        return suspicion.expected(
            (owner, scores.passing if scores.known else suspicion.OTHER) for owner, scores in found
        )

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {Scored: self._scored}
