"""Held-out loss: when a version is to be measured, and by whom.

The controller does it, or workers do: several share one version, each with some of the held-out rows. A version that
no worker can reach any more is given up for the newest; what nobody measures in time the controller does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from barnraise.controller import actions
from barnraise.controller.events import Evaluated, Event
from barnraise.controller.kinds import ANY_STALENESS, TaskKind
from barnraise.controller.membership import Membership
from barnraise.controller.pacing import Pacing
from barnraise.controller.part import Context, Steps
from barnraise.controller.publishing import Publishing
from barnraise.controller.speeds import OVERDUE
from barnraise.controller.state import KeptFinding, NodeState, Work
from barnraise.core.types import FORWARD, AnyResult, Evaluate, Finding, News, ParameterRange, RowRange, Update
from barnraise.ledger import notes
from barnraise.ledger.decisions import Assigned, Noted, Terms
from barnraise.matching.base import TaskView
from barnraise.trust.standing import TRUSTED

BATCH_ROWS = 16
"""Held-out rows in a batch; all tasks but the last take whole batches."""

PATIENCE = 60.0
"""Seconds for which nothing may come of a measurement by workers before the controller takes it over."""

TIMES = 3
"""Versions that workers begin with for one loss. Then the controller measures."""

LONGEST = 600.0
"""Seconds for which a node that lives may hold a task before that counts as nothing, or longer where it is slow."""

_FIRST = -(1 << 40)
"""Ids of views from here down: no other kind has so many."""


class Measuring(TaskKind):
    """Keeps whether a version is being measured, one at a time, and which one workers share."""

    task = Evaluate
    result = Finding

    def __init__(self, context: Context, membership: Membership, pacing: Pacing, publishing: Publishing) -> None:
        super().__init__(context)
        self.settings, self.plan = context.settings, context.settings.evaluations
        self.membership, self.pacing, self.publishing = membership, pacing, publishing
        self.here = False  # the controller does it
        evaluated = self.state.record.evaluations[-1][0] if self.state.record.evaluations else -1
        begun = (work.base for work in self._works() if work.base > evaluated)
        self.version = max(begun, default=-1)  # that is measured; -1: whichever is the newest as somebody begins
        self.tokens = self.state.totals.version_tokens  # in it
        self.busy = self.version >= 0
        self.until = math.inf  # when the controller takes over
        self.begun = 0  # versions that workers began with since the last loss
        self.beyond: set[str] = set()  # nodes that asked, and cannot reach the version any more
        self.doubted = False  # a worker told a loss that is not believed

    @property
    def due(self) -> bool:
        """Whether the run has come so far since the last time that the newest version is to be measured."""
        share = len(self.state.record.evaluations) / self.plan.times
        return not self.busy and self.state.totals.version_tokens >= self.settings.tokens * share

    @property
    def done(self) -> bool:
        """Whether the newest version is measured."""
        evaluations = self.state.record.evaluations
        return bool(evaluations) and evaluations[-1][0] == self.state.newest.version

    @property
    def needs_nodes(self) -> bool:
        """Whether nodes are to stay though the run is over, to measure its last version."""
        if self.state.closing is not None:
            return self.plan.by_workers
        last = self.here and self.version == self.state.newest.version
        return self.plan.by_workers and not last and not self.done

    def measure(self) -> Steps:
        """Have the newest version measured."""
        self.busy, self.version = True, -1
        if not self.plan.by_workers:
            yield from self._measure_here()

    def _measure_here(self) -> Steps:
        self.here, self.until = True, math.inf
        self._begin()
        yield actions.Evaluate(self.context.epoch, self.state.newest.version)

    def _begin(self) -> None:
        self.version, self.tokens = self.state.newest.version, self.state.totals.version_tokens
        self.begun += 1
        self.doubted = False
        self.beyond.clear()

    def _evaluated(self, event: Evaluated) -> Steps:
        if event.epoch == self.context.epoch:
            yield from self._note(event.version, event.loss, self.state.totals.version_tokens)

    def _note(self, version: int, loss: float, tokens: int) -> Steps:
        self.busy, self.here, self.version, self.until, self.begun = False, False, -1, math.inf, 0
        told = loss if math.isfinite(loss) else None  # JSON knows no NaN
        yield Noted(self.now, notes.Evaluated(version, told, tokens))

    # By workers

    @property
    def open(self) -> bool:
        return self.plan.by_workers and self.busy and not self.here

    @property
    def _shared(self) -> bool:
        return self.open and self.version >= 0

    def _works(self) -> list[Work]:
        """All of it that was given out, and not measured by the controller."""
        state = self.state
        found = [finding.work for finding in state.record.findings.values()]
        return [work for work in [*state.works.values(), *state.redo.values(), *found] if work.task is Evaluate]

    def _given(self) -> int:
        """Rows of the version that are given out, from the first."""
        return max((work.rows[0].stop for work in self._works() if work.base == self.version), default=0)

    def fresh(self, nodes: Sequence[NodeState]) -> Sequence[TaskView]:
        left = self.plan.rows - self._given() if self.open else 0
        if left <= 0:
            return ()
        tokens = left * self.plan.row_tokens
        down = self.settings.payloads.snapshot
        count = _enough(left, map(self._most, nodes))
        work, trust = tokens / FORWARD, self.least_trust()
        return [
            TaskView(_FIRST - number, work, self.name, down, priority=2, min_trust=trust) for number in range(count)
        ]

    def waits(self, lost: Work) -> bool:
        return self._shared and lost.base == self.version

    def suits(self, node: NodeState, have: int) -> bool:
        return self._reaches(node, have) and self._is_able(node)

    def least_trust(self) -> float:
        trusted = (
            node
            for node in self.state.nodes.values()
            if node.live and not node.tally.standing.on_probation and node.id not in self.beyond
        )
        able = any(self.membership.can(node.id, self.name) and self._is_able(node) for node in trusted)
        return TRUSTED if able else 0.0

    def asks(self, node: NodeState, have: int) -> None:
        if self._shared and not self._reaches(node, have):
            self.beyond.add(node.id)
            self._see_whether_to_begin_anew()

    def _reaches(self, node: NodeState, have: int) -> bool:
        return self.version in (-1, self.state.newest.version) or self._way(node, have) is not None

    def _is_able(self, node: NodeState) -> bool:
        """Whether it does not keep others waiting, nor gives back what is to be believed of it."""
        return OVERDUE * self._quick(node) >= BATCH_ROWS and not self.membership.is_unwilling(node.id)

    def _quick(self, node: NodeState) -> float:
        """The rows that a node measures while the median one does a training task, or a batch if that takes longer."""
        speeds, batch = self.pacing.speeds, BATCH_ROWS * self.plan.row_tokens / FORWARD
        rate = speeds.estimate(node)
        if not rate or not speeds.turnaround or not speeds.median:
            return math.inf
        return BATCH_ROWS * max(speeds.turnaround * rate / batch, rate / speeds.median)

    def _way(self, node: NodeState, have: int) -> tuple[Update, ...] | None:
        """From version `have` to the one that is measured; None when there is none. Who has a task of it is there,
        though it was told of later versions: it takes them in once it is done."""
        works = (self.state.works[number] for number in node.open)
        there = any(work.task is Evaluate and work.base == self.version for work in works)
        return self.publishing.chain(self.version if there else have, self.version)

    def give(self, node: NodeState, have: int, work: Work | TaskView) -> Steps:
        if self.version < 0:
            self._begin()
        rows = work.rows[0] if isinstance(work, Work) else self._rows(node)
        way = self._way(node, have)
        updates = self.publishing.updates_from(have) if way is None else way
        number, count = self.state.totals.assigned + 1, rows.stop - rows.start
        tokens = count * self.plan.row_tokens
        decision = Assigned(
            time=self.now,
            assignment=number,
            node=node.id,
            kind=self.name,
            base=self.version,
            tokens=tokens,
            local_steps=-(-count // BATCH_ROWS),
            rows=(rows,),
            cursor=self.state.totals.rows,
            terms=Terms(max_staleness=ANY_STALENESS, learning_rate=0.0, parameters=ParameterRange(0, 0)),
            redo=work.assignment if isinstance(work, Work) else 0,
        )
        news = News(updates, node.updates.merged, self.pacing.share(node))
        task = Evaluate(
            id=number, base=self.version, news=news, held_out=rows, batch_size=BATCH_ROWS, tokens=tokens
        )  # fmt: skip
        self.until = self.now + PATIENCE
        yield from self.assigned(decision, task)

    def _rows(self, node: NodeState) -> RowRange:
        """As many of the rows that are left as the node takes."""
        given = self._given()
        return RowRange(self.plan.file, given, min(self.plan.rows, given + self._most(node)))

    def _most(self, node: NodeState) -> int:
        """Rows, in whole batches, that take the node about as long as a training task does, the median one or its own:
        nobody's measurement is to be waited for longer than others' work."""
        own = FORWARD * self.pacing.in_time(node, self.pacing.local_steps(node)) * self.settings.tasks.batch_size
        most = int(min(own, self._quick(node)))
        return max(BATCH_ROWS, most - most % BATCH_ROWS)

    def too_late(self, work: Work) -> str:
        return "" if self._shared and work.base == self.version else "nobody waits for this measurement any more"

    def refuse(self, result: AnyResult, work: Work, version: int) -> str:
        assert isinstance(result, Finding)
        if result.steps != work.local_steps:
            return f"measures {result.steps} batches, but {work.local_steps} were assigned"
        if result.weight > work.tokens:
            return f"claims {result.weight} predictions, but its rows have {work.tokens} tokens"
        if result.loss < 0.0:
            return f"loss is {result.loss}, but must not be below 0"
        if result.loss <= self.plan.most_loss and math.isfinite(result.loss):
            return ""
        self.doubted = True
        return (
            f"loss is {result.loss:g}, but at most {self.plan.most_loss:g} is believed: the controller measures itself"
        )

    def weight(self, result: AnyResult, work: Work, tokens: int, staleness: int) -> float:
        assert isinstance(result, Finding)
        return float(result.weight)

    def look(self) -> Steps:
        """Once all rows are measured the version is. Nobody is waited for who cannot come any more."""
        if self.open and (self.doubted or (self.state.progress.final and not self.state.num_live)):
            yield from self._measure_here()
        if not self.open:
            return
        self.until = min(self.until, self.now + PATIENCE)
        found = [finding for finding in self.state.record.findings.values() if finding.work.base == self.version]
        if sum(finding.work.rows[0].stop - finding.work.rows[0].start for finding in found) >= self.plan.rows:
            yield from self._note(self.version, _mean(found), self.tokens)
        elif self._shared:
            self._see_whether_to_begin_anew()

    def _see_whether_to_begin_anew(self) -> None:
        """With the newest version, when nobody measures this one, and nobody who could measure at all can reach it."""
        if self.begun >= TIMES or 2 * len(self.beyond) < self.state.num_live:
            return
        able = [
            node.id
            for node in self.state.nodes.values()
            if node.live and self.membership.can(node.id, self.name) and self._is_able(node)
        ]
        given = any(work.task is Evaluate and work.base == self.version for work in self.state.works.values())
        if able and self.beyond.issuperset(able) and not given:
            self.version = -1

    def forget(self, node: str) -> None:
        self.beyond.discard(node)

    def deadline(self) -> float:
        return self.until

    def expire(self) -> Steps:
        """Take over what nobody does."""
        if self.now < self.until or not self.open:
            return
        if any(map(self._waited_for, self.state.works.values())) or not self._needed:
            self.until = self.now + PATIENCE
        else:
            yield from self._measure_here()

    def _waited_for(self, work: Work) -> bool:
        """Whether it is of the measurement, and somebody may be about to hand it in."""
        node = self.state.nodes[work.node]
        longest = max(LONGEST, OVERDUE * node.speed.turnaround)
        return work.task is Evaluate and work.base == self.version and node.live and self.now < work.time + longest

    @property
    def _needed(self) -> bool:
        """Whether there is a loss to wait for: while nobody takes part nothing changes that could be measured."""
        return self.state.progress.final or self.state.num_live > 0

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {Evaluated: self._evaluated}


def _enough(left: int, sizes: Iterable[int]) -> int:
    """How many nodes that take so many rows each (`sizes`) it takes at most, so that each of them gets something.

    >>> _enough(100, [10, 60, 30, 20]), _enough(100, [10]), _enough(100, [10, 120])
    (3, 1, 1)
    """
    count = 0
    for size in sorted(sizes, reverse=True):
        if left <= 0:
            break
        left, count = left - size, count + 1
    return count


def _mean(found: Sequence[KeptFinding]) -> float:
    """Over all that was predicted, each finding as its own weight says."""
    weight = sum(finding.weight for finding in found)
    return sum(finding.loss * finding.weight for finding in found if finding.weight) / weight if weight else math.nan
