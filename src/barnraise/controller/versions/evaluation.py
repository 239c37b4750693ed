"""Measurement of the held-out loss: when a version is measured, and by which nodes.

The controller does it, or workers do: several share one version, each with some of the held-out rows (a piece), and
each piece is measured by nodes of two owners, as long as two owners have nodes that can. Where they find different
losses the version is disputed, and the controller measures. A node that is at a newer version undoes deltas. A version
whose deltas are not kept is given up for the newest; the controller measures pieces that no node measures in time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from barnraise.controller.fleet.cost_model import CostModel
from barnraise.controller.fleet.membership import Membership
from barnraise.controller.fleet.pacing import Pacing
from barnraise.controller.fleet.speeds import OVERDUE, Speeds
from barnraise.controller.state import effects
from barnraise.controller.state.cohorts import Cohort
from barnraise.controller.state.effects import Evaluated
from barnraise.controller.state.events import Event
from barnraise.controller.state.part import Context, Steps
from barnraise.controller.state.state import KeptFinding, NodeState, Work
from barnraise.controller.versions.findings import Pieces, agree, dispute, enough, mean
from barnraise.controller.versions.publishing import Publishing
from barnraise.controller.versions.task_kind import ANY_STALENESS, TaskKind
from barnraise.core.types import FORWARD, Evaluate, Finding, ParameterRange, Result, RowRange
from barnraise.ledger import notes
from barnraise.ledger.decisions import Assigned, Noted, Terms
from barnraise.matching.base import TaskView
from barnraise.trust.reputation import TRUSTED

BATCH_ROWS = 16
"""Held-out rows in a batch; all tasks but the last take whole batches."""

PATIENCE = 60.0
"""Seconds without a result of workers after which the controller takes a measurement over."""

TIMES = 3
"""Versions that workers begin with for one loss. Then the controller measures."""

LONGEST = 600.0
"""Seconds for which a live node may hold a task before it counts as lost, or longer where it is slow."""

_FIRST = -(1 << 40)
"""Ids of views from here down: no other kind has that many."""


class Evaluation(TaskKind):
    """Keeps the one version that is being measured by workers, and rows on offer to a second owner."""

    task = Evaluate

    def __init__(
        self,
        context: Context,
        cost_model: CostModel,
        membership: Membership,
        speeds: Speeds,
        pacing: Pacing,
        publishing: Publishing,
    ) -> None:
        super().__init__(context, cost_model)
        self.settings, self.plan = context.settings, context.settings.evaluations
        self.membership, self.speeds = membership, speeds
        self.pacing, self.publishing = pacing, publishing
        self.here = False  # whether the controller does it
        evaluated = self.state.record.evaluations[-1][0] if self.state.record.evaluations else -1
        begun = (cohort.base for cohort in self._cohorts() if cohort.base > evaluated)
        self.version = max(begun, default=-1)  # the measured one; -1: the newest when a worker begins
        self.tokens = self.state.totals.version_tokens  # tokens in it
        self.busy = self.version >= 0
        self.until = math.inf  # when the controller takes over
        self.begun = 0  # versions that workers began with since the last loss
        self.wanted: RowRange | None = None  # rows that are on offer to other owners than those who have them
        self.whose: frozenset[str] = frozenset()  # these owners
        self.doubted = False  # whether a worker's claimed loss is not believed

    @property
    def due(self) -> bool:
        """Return whether the run has advanced so far since the last time that the newest version is to be measured."""
        share = len(self.state.record.evaluations) / self.plan.times
        return not self.busy and self.state.totals.version_tokens >= self.settings.tokens * share

    @property
    def done(self) -> bool:
        """Return whether the newest version is measured."""
        evaluations = self.state.record.evaluations
        return bool(evaluations) and evaluations[-1][0] == self.state.newest.version

    @property
    def needs_nodes(self) -> bool:
        """Return whether nodes are to stay though the run is over, to measure its last version."""
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
        yield effects.Evaluate(self.context.epoch, self.state.newest.version)

    def _begin(self) -> None:
        self.version, self.tokens = self.state.newest.version, self.state.totals.version_tokens
        self.begun += 1
        self.doubted = False

    def _evaluated(self, event: Evaluated) -> Steps:
        if event.epoch == self.context.epoch:
            yield from self._note(event.version, event.loss, self.state.totals.version_tokens)

    def _note(self, version: int, loss: float, tokens: int, owners: int = 0) -> Steps:
        self.busy, self.here, self.version, self.until, self.begun = False, False, -1, math.inf, 0
        told = loss if math.isfinite(loss) else None  # JSON has no NaN
        yield Noted(self.now, notes.Evaluated(version, told, tokens, owners))

    # Workers' measurements

    @property
    def open(self) -> bool:
        return self.plan.by_workers and self.busy and not self.here

    @property
    def _shared(self) -> bool:
        return self.open and self.version >= 0

    def _cohorts(self) -> Iterator[Cohort]:
        """Yield the cohorts of all measurements: each is for one piece of a version's rows."""
        return (cohort for cohort in self.state.cohorts.values() if cohort.completion == Evaluate.gathers)

    def _given(self) -> int:
        """Return the number of assigned rows of the version, from the first."""
        return max((cohort.rows[0].stop for cohort in self._cohorts() if cohort.base == self.version), default=0)

    def fresh(self, nodes: Sequence[NodeState]) -> Sequence[TaskView]:
        """Return unassigned rows, then rows for a second owner, one piece at a time, as not all nodes may take each."""
        self.wanted = None
        left = self.plan.rows - self._given() if self.open else 0
        if left > 0:
            swift = self._swiftest()
            count = enough(left, (self._most(node, swift) for node in nodes))
            return self._views(count, left * self.plan.row_tokens, self.least_trust())
        lost = any(work.task is Evaluate and self.waits(work) for work in self.state.redo.values())
        if not self._shared or lost or not self._reachable:
            return ()
        for rows, cohort in self._pieces().items():
            owners = self._owners(cohort)
            if len(owners) < 2 and any(node.owner not in owners and self._is_able(node) for node in nodes):
                self.wanted, self.whose = rows, owners
                return self._views(1, (rows.stop - rows.start) * self.plan.row_tokens, self._trust_beside(owners))
        return ()

    def _views(self, count: int, tokens: int, trust: float) -> Sequence[TaskView]:
        down, work = self.settings.payloads.snapshot, tokens / FORWARD
        return [
            TaskView(_FIRST - number, work, self.name, down, priority=2, min_trust=trust) for number in range(count)
        ]

    def _pieces(self) -> Mapping[RowRange, Cohort]:
        """Return the pieces of the version on which a node works, or that have a finding, by their rows."""
        there = (cohort for cohort in self._cohorts() if cohort.base == self.version)
        return {cohort.rows[0]: cohort for cohort in there if next(cohort.others(0), None) is not None}

    def _owners(self, cohort: Cohort, besides: int = 0) -> frozenset[str]:
        """Return the owners of the nodes that measure a piece, or have measured it, `besides` an assignment."""
        members, nodes = cohort.members, self.state.nodes
        return frozenset(nodes[members[number].node].owner for number in cohort.others(besides))

    def is_another(self, node: NodeState, work: Work) -> bool:
        """Return whether the node is of another owner than those who have the same rows besides `work`."""
        cohort = self._pieces().get(work.rows[0])
        return cohort is None or node.owner not in self._owners(cohort, work.assignment)

    def _strangers(self, owners: frozenset[str]) -> Iterator[NodeState]:
        """Yield nodes of other owners that could measure."""
        for node in self.state.nodes.values():
            if (
                node.live
                and node.owner not in owners
                and self.membership.can(node.id, self.name)
                and self._is_able(node)
            ):
                yield node

    def _trust_beside(self, owners: frozenset[str]) -> float:
        """Return the least trust of a node of another owner: as `least_trust`, among these alone."""
        trusted = any(not node.tally.reputation.on_probation for node in self._strangers(owners))
        return TRUSTED if trusted else 0.0

    def waits(self, lost: Work) -> bool:
        """Return whether lost rows wait: those of another node, or lost two times, go to a second owner."""
        if not self._shared or lost.base != self.version:
            return False
        redo = self.state.redo
        if lost.assignment not in redo:
            return True
        alike = (work for work in redo.values() if work.task is Evaluate and work.base == lost.base)
        first = next(work for work in alike if work.rows == lost.rows)
        return first.assignment == lost.assignment and lost.rows[0] not in self._pieces()

    def suits(self, node: NodeState, have: int) -> bool:
        offered = self.wanted is None or node.owner not in self.whose
        return offered and self._reachable and self._is_able(node)

    def least_trust(self) -> float:
        trusted = (node for node in self.state.nodes.values() if node.live and not node.tally.reputation.on_probation)
        able = any(self.membership.can(node.id, self.name) and self._is_able(node) for node in trusted)
        return TRUSTED if able else 0.0

    @property
    def _reachable(self) -> bool:
        """Return whether nodes can get to the version that is measured."""
        return self.version < 0 or self.publishing.way_back(self.version) is not None

    def _is_able(self, node: NodeState) -> bool:
        """Return whether it neither keeps others waiting, nor gives back trusted work."""
        return OVERDUE * self._quick(node) >= BATCH_ROWS and not self.membership.is_unwilling(node.id)

    def _quick(self, node: NodeState) -> float:
        """Return the rows that a node measures in the time of the median training task, or at least a batch."""
        speeds, batch = self.speeds, BATCH_ROWS * self.plan.row_tokens / FORWARD
        rate = speeds.estimate(node)
        if not rate or not speeds.turnaround or not speeds.median:
            return math.inf
        return BATCH_ROWS * max(speeds.turnaround * rate / batch, rate / speeds.median)

    def give(self, node: NodeState, have: int, work: Work | TaskView) -> Steps:
        if self.version < 0:
            self._begin()
        rows = work.rows[0] if isinstance(work, Work) else self.wanted or self._rows(node)
        self.wanted = None
        back = self.publishing.way_back(self.version)
        assert back is not None, "it is given while there is a way"
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
        task = Evaluate(
            id=number,
            base=self.state.newest.version,
            news=self.publishing.news(node, have),
            held_out=rows,
            batch_size=BATCH_ROWS,
            tokens=tokens,
            back=back,
        )
        self.until = self.now + PATIENCE
        yield from self.assigned(decision, task)

    def _rows(self, node: NodeState) -> RowRange:
        """Return as many of the remaining rows as the node takes."""
        given = self._given()
        return RowRange(self.plan.file, given, min(self.plan.rows, given + self._most(node, self._swiftest())))

    def _most(self, node: NodeState, swift: Mapping[str, float]) -> int:
        """Return rows, in whole batches, that take the node about as long as a training task.

        The median node's or its own task: no measurement should be awaited for longer than others' work. And no more
        than a node of another owner, of those that are `swift`, measures in the time after which a task is overdue.
        """
        own = FORWARD * self.pacing.in_time(node, self.pacing.local_steps(node)) * self.settings.tasks.batch_size
        second = max((rows for owner, rows in swift.items() if owner != node.owner), default=math.inf)
        most = int(min(own, self._quick(node), OVERDUE * second))
        return max(BATCH_ROWS, most - most % BATCH_ROWS)

    def _swiftest(self) -> Mapping[str, float]:
        """Return the two owners whose nodes measure the most rows in the time of a task, and how many."""
        found: defaultdict[str, float] = defaultdict(float)
        for node in self._strangers(frozenset()):
            found[node.owner] = max(found[node.owner], self._quick(node))
        return dict(sorted(found.items(), key=lambda item: item[1])[-2:])

    def too_late(self, work: Work) -> str:
        wanted = self._shared and work.base == self.version
        return "" if wanted else "the controller no longer waits for this measurement"

    def refuse(self, result: Result, work: Work, version: int) -> str:
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

    def weight(self, result: Result, work: Work, tokens: int, trust: float, staleness: int) -> float:
        assert isinstance(result, Finding)
        return float(result.weight)

    def look(self) -> Steps:
        """Finish the version's measurement once all rows are measured, by two owners where two are there.

        Where these find different losses the controller measures. Nodes that cannot return are not waited for.
        """
        if self.open and (self._doubtful or (self.state.progress.final and not self.state.num_live)):
            yield from self._measure_here()
        if not self.open:
            return
        self.until = min(self.until, self.now + PATIENCE)
        found = self._found()
        if (two := next((each for each in found.values() if not agree(each)), None)) is not None:
            yield Noted(self.now, dispute(two))
            yield from self._measure_here()
        elif sum(rows.stop - rows.start for rows in found) >= self.plan.rows:
            nodes = self.state.nodes
            owners = [frozenset(nodes[finding.work.node].owner for finding in each) for each in found.values()]
            if not any(
                len(whose) < 2 and self._may_another(rows, whose) for rows, whose in zip(found, owners, strict=True)
            ):
                yield from self._note(self.version, mean(found.values()), self.tokens, min(map(len, owners)))
                return
        if self._shared:
            self._see_whether_to_begin_anew()

    @property
    def _doubtful(self) -> bool:
        """Return whether the workers' measurements of the version are not believed."""
        return self.doubted or 0 <= self.version <= self.state.record.disputed

    def _found(self) -> Pieces:
        """Return the findings of the version that workers share."""
        found: defaultdict[RowRange, list[KeptFinding]] = defaultdict(list)
        for finding in self.state.record.findings.values():
            if finding.work.base == self.version:
                found[finding.work.rows[0]].append(finding)
        return found

    def _may_another(self, rows: RowRange, owners: frozenset[str]) -> bool:
        """Return whether another owner's node measures the rows, or can, or may after a restart."""
        if next(self._strangers(owners), None) is not None:
            return True
        if any(self.state.nodes[node].owner not in owners for node in self.membership.awaited):
            return True
        return any(
            work.task is Evaluate
            and work.base == self.version
            and work.rows[0] == rows
            and self.state.nodes[work.node].owner not in owners
            for work in self.state.works.values()
        )

    def _see_whether_to_begin_anew(self) -> None:
        """Restart with the newest version, when no node measures this one, and none can get to it any more."""
        if self.begun >= TIMES or self._reachable:
            return
        if not any(work.task is Evaluate and work.base == self.version for work in self.state.works.values()):
            self.version = -1

    def deadline(self) -> float:
        return self.until

    def expire(self) -> Steps:
        """Take over measurements that no node makes."""
        if self.now < self.until or not self.open:
            return
        if any(map(self._waited_for, self.state.works.values())) or not self._needed:
            self.until = self.now + PATIENCE
        else:
            yield from self._measure_here()

    def _waited_for(self, work: Work) -> bool:
        """Return whether the work belongs to the measurement, and its node may be about to submit it."""
        node = self.state.nodes[work.node]
        longest = max(LONGEST, OVERDUE * node.speed.turnaround)
        return work.task is Evaluate and work.base == self.version and node.live and self.now < work.time + longest

    @property
    def _needed(self) -> bool:
        """Return whether a loss is awaited: without nodes nothing changes that could be measured."""
        return self.state.progress.final or self.state.num_live > 0

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {Evaluated: self._evaluated}
