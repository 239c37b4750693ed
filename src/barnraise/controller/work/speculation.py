"""Speculative copies of late work: another node gets the same rows, and the first result wins.

Rows are alike: in asynchronous mode fresh ones are worth as much as a copy of late ones, which no version waits for. A
copy gains something where exactly that work is awaited: for a measurement, and in a synchronous round whose other nodes
are idle meanwhile, if it arrives before the round would end anyway. The choice of node follows from observations. A
copy is an assignment of its own whose `redo` names open work; the state keeps both as a cohort.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from barnraise.controller.fleet.membership import Membership
from barnraise.controller.fleet.memory_limits import MemoryLimits
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.fleet.uploads import Uploads
from barnraise.controller.state.actions import Send
from barnraise.controller.state.fold import MOST_OPEN
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.state import NodeState, Work
from barnraise.controller.versions.arrivals import LEAST_SECONDS, Arrivals
from barnraise.controller.versions.evaluation import Evaluation
from barnraise.ledger.decisions import Assigned, Decision, Judged, Noted
from barnraise.ledger.notes import COPY_CAME_FIRST, Copied
from barnraise.wire.messages import Ack

MOST_COPIES = 0.05
"""Share of all assignments that may be copies; one is always possible."""

COPIED_AT = 0.5
"""Share of the margin of a late result at which it is copied: a round that still waits for it can use the copy."""


class Speculation(Part):
    """Keeps which open work is late, and when to look again."""

    def __init__(
        self,
        context: Context,
        records: NodeRecords,
        uploads: Uploads,
        membership: Membership,
        arrivals: Arrivals,
        evaluation: Evaluation,
        memory_limits: MemoryLimits,
    ) -> None:
        super().__init__(context)
        self.uploads, self.membership, self.arrivals, self.evaluation = uploads, membership, arrivals, evaluation
        self.records, self.memory_limits = records, memory_limits
        self.asynchronous = context.settings.asynchronous
        self._late: list[int] = []
        self._look_at = 0.0

    # Late work

    def late(self) -> list[Work]:
        """Return open work that is awaited, is later than expected, and has no copy."""
        if not self._waited_for:
            return []
        works = self.state.works
        if self.now >= self._look_at:
            due = [(self._due(work), work) for work in works.values() if self._may_be_copied(work)]
            self._late = [work.assignment for time, work in due if time <= self.now]
            self._look_at = min((time for time, _ in due if time > self.now), default=math.inf)
        open_yet = [works[number] for number in self._late if number in works]
        return [work for work in open_yet if self._may_be_copied(work)]

    @property
    def _waited_for(self) -> bool:
        """Return whether particular work is awaited."""
        return self.evaluation.open or not (self.asynchronous or self.state.closing is not None)

    def _may_be_copied(self, work: Work) -> bool:
        state = self.state
        if state.copies_of(work) is not None or work.assignment in state.redo:  # later work is named after it
            return False
        if work.task.trains:
            return not self.asynchronous and work.base == state.newest.version
        return work.task.measures and self.evaluation.waits(work)

    def _due(self, work: Work) -> float:
        time, margin = self.arrivals.expected(work)
        return time + COPIED_AT * margin

    # Choice of a node

    def best(self, work: Work, nodes: Iterable[NodeState]) -> NodeState | None:
        """Return the node that would finish it first, if soon enough to gain anything, and copies are few."""
        if self.state.totals.copies > MOST_COPIES * self.state.totals.assigned:
            return None
        able = [node for node in nodes if self._able(node, work)]
        if not able:
            return None
        time, _, node = min((self._arrival(node, work), node.id, node) for node in able)
        return node if not work.task.trains or time < self._end() else None

    def _able(self, node: NodeState, work: Work) -> bool:
        return (
            node.id != work.node
            and self.memory_limits.of(node) >= self.context.settings.tasks.memory_for(work.rows)
            and node.speed.rate > 0.0
            and len(node.open) < MOST_OPEN
            and self.membership.can(node.id, work.kind)
            and (not work.task.measures or self.evaluation.is_another(node, work))
            and self.membership.has_time(node, work.tokens * work.task.toll)
        )

    def _arrival(self, node: NodeState, work: Work) -> float:
        ahead = [self.arrivals.expected(self.state.works[number]).time for number in node.open]
        return max([self.now, *ahead]) + self.arrivals.takes(node, work).time

    def _end(self) -> float:
        """Return when the round ends if all expected results come except late ones."""
        end = -math.inf
        for work in self.state.works.values():
            if work.task.trains and work.base == self.state.newest.version:
                expected = self.arrivals.expected(work)
                end = max(end, expected.time if self.now < expected.time else expected.late)
        return end

    def copied(self, work: Work, node: NodeState) -> Noted:
        """Return the note that the node gets a copy."""
        late = max(0.0, self.now - self.arrivals.expected(work).time)
        return Noted(self.now, Copied(work.assignment, node.id, late), work.node)

    # Results

    def won(self, work: Work) -> Steps:
        """Handle an accepted result of `work`: its copy is released, but for one that is being inspected.

        That one is discarded then.
        """
        cohort = self.state.copies_of(work)
        for number in list(cohort.others(work.assignment)) if cohort is not None else ():
            if number not in self.uploads.inspecting:
                node = self.state.works[number].node
                self.records[node].session.beaten_in = work.base
                yield from self.membership.release(node, number, COPY_CAME_FIRST)
                yield Send(node, Ack(number, False, COPY_CAME_FIRST))

    def rests(self, node: str) -> bool:
        """Return whether the node came second in the open round.

        A whole task more of it would delay that, unless the aggregation rule needs it.
        """
        state = self.state
        enough = len(state.buffer.slots) >= self.context.settings.versions.least(state.num_live)
        return enough and self.records[node].session.beaten_in == state.newest.version

    def _assigned(self, d: Assigned) -> None:
        if self._waited_for:  # new work is not late before
            self._look_at = min(self._look_at, self.now + LEAST_SECONDS)

    def _judged(self, d: Judged) -> None:
        if self._look_at == math.inf:  # the expected times of work are known better now
            self._look_at = self.now

    def deadline(self) -> float:
        return self._look_at if self._waited_for else math.inf

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Assigned: self._assigned, Judged: self._judged}
