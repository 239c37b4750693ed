"""Training tasks: each takes the next rows of a lane (`shard_cursors`), unless work was lost.

The scheduler decides who gets which task; here the common fields are added: base version, updates, rate, seed, and the
staleness bound that is fixed at assignment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from barnraise.controller.fleet.cost_model import CostModel
from barnraise.controller.fleet.pacing import Pacing
from barnraise.controller.fleet.probation import Probation
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.sites.site_lanes import SiteLanes
from barnraise.controller.sites.sites import Sites
from barnraise.controller.state.part import Context, Steps
from barnraise.controller.state.state import NodeState, Work
from barnraise.controller.versions.endorsing import Trustees
from barnraise.controller.versions.privacy_budget import PrivacyBudgetPart
from barnraise.controller.versions.publishing import Publishing
from barnraise.controller.versions.task_kind import TaskKind
from barnraise.controller.work.admission import refuse_transcript, refuse_update
from barnraise.controller.work.shard_cursors import ShardCursors, in_lanes
from barnraise.core.types import (
    MOST_ROW_RANGES,
    Batches,
    Contribution,
    Masked,
    News,
    ParameterRange,
    Result,
    RowRange,
    Task,
    Train,
)
from barnraise.ledger.decisions import Assigned, Decision, Terms, VersionClosed
from barnraise.matching.base import LARGEST_AMOUNT, TaskView

IN_FLIGHT = 4.0
"""Factor of the versions in flight by which a contribution may be behind: as a fleet starts, or a line fills, more is
on its way when it arrives than when its task was assigned."""

TOO_LATE = "the run's token budget was met before"


class Training(TaskKind):
    """A training task: steps on rows."""

    task: type[Task] = Train

    def __init__(
        self,
        context: Context,
        cost_model: CostModel,
        speeds: Speeds,
        pacing: Pacing,
        publishing: Publishing,
        probation: Probation,
        privacy: PrivacyBudgetPart,
        trustees: Trustees,
        sites: Sites,
    ) -> None:
        self.masks = context.settings.payloads.protection.masks
        if self.masks is not None:
            self.task = Masked
        super().__init__(context, cost_model)
        self.probation, self.privacy, self.trustees = probation, privacy, trustees
        self.settings, self.tasks, self.payloads = context.settings, context.settings.tasks, context.settings.payloads
        self.speeds, self.pacing, self.publishing = speeds, pacing, publishing
        rows, self.sites = self.tasks.rows, sites
        task_rows = self.tasks.local_steps * self.tasks.batch_size
        self.lanes: ShardCursors | SiteLanes
        if sites.in_use:
            self.lanes, self._large = SiteLanes(sites, self.state, self.tasks.context), True
        else:
            self.lanes = ShardCursors(rows, self.state.totals.handed)
            self._large = in_lanes(rows.sizes, task_rows, ordered=rows.ordered)
        self._travel = 0.0  # a usual task's, as far as the newest version moved along it: rates times steps
        self._lanes: list[int] = []
        self._views: dict[tuple[int, int], TaskView] = {}  # views of these lanes, by shard and epoch
        self._offer: list[TaskView] = []

    @property
    def open(self) -> bool:
        state = self.state
        if (
            state.progress.paused
            or state.progress.stopping
            or state.progress.flushing is not None
            or state.progress.final
            or self.trustees.lacks
        ):
            return False
        return state.closing is None or self.settings.asynchronous

    def offers(self) -> Sequence[TaskView]:
        """Return the next rows of each lane, the oldest first."""
        if not self.open:
            return ()
        lanes = self.lanes.open(self.state.num_live if self._large else 1)
        if lanes is not self._lanes:
            self._lanes = lanes
            keys = [(shard, self.lanes.epoch(shard)) for shard in lanes]
            if keys != list(self._views):
                self._views = {key: self._views.get(key) or self._view(key[0]) for key in keys}
                self._offer = list(self._views.values())
        return self._offer

    def _view(self, shard: int) -> TaskView:
        """Return tasks on the next rows of a lane, up to its end."""
        tasks, payloads, lanes = self.tasks, self.payloads, self.lanes
        left, here = lanes.size(shard) - self.state.totals.handed.get(shard, 0) % lanes.size(shard), self.sites.in_use
        return TaskView(
            -shard,
            tasks.local_steps * tasks.batch_size * lanes.length(shard),
            self.name,
            payloads.snapshot,
            payloads.most,
            shards={} if here else {shard: tasks.shard_bytes(shard)},
            memory_bytes=tasks.memory_for([RowRange(shard, 0, 1)]),
            accelerator_bytes=tasks.accelerator_for([RowRange(shard, 0, 1)]),
            times=LARGEST_AMOUNT if here else -(-left // (tasks.local_steps * tasks.batch_size)),
            only=lanes.only(shard),
        )

    def suits(self, node: NodeState, have: int) -> bool:
        return self.sites.may_train(node.id)

    def only(self, lost: Work) -> frozenset[str]:
        return frozenset({lost.node}) if self.sites.in_use else frozenset()

    def give(self, node: NodeState, have: int, work: Work | TaskView) -> Steps:
        state, tasks = self.state, self.tasks
        lost = work if isinstance(work, Work) else None
        cursor = state.totals.rows
        yield from self.pacing.tuned(node)
        steps = max(self.probation.most(node, self.pacing.local_steps(node)), node.tuning.least_steps)
        steps = self.pacing.in_time(node, steps)
        number = state.totals.assigned + 1
        root, skip = number, 0
        if isinstance(work, Work):
            root, skip = work.root, work.done
            open_yet = work.assignment in state.works  # this is a copy of it
            steps = work.local_steps if open_yet else _steps_of(work.local_steps, steps)
            rows, tokens = work.rows, work.credit(steps)
        else:
            rows, steps = self._rows(-work.id, steps)
            cursor += (num_rows := sum(some.stop - some.start for some in rows))
            tokens = num_rows * self.lanes.length(rows[0].shard)
        if not self.privacy.allows(node.id, rows, steps):
            yield from self.privacy.stop()
            return
        schedule = tasks.rate_multiplier(state.totals.tokens, self.settings.tokens)
        factor = self.pacing.rate_factor(node, steps, tokens / self.lanes.length(rows[0].shard))
        terms = Terms(
            max_staleness=self._bound(node) if self.settings.asynchronous else 0,
            learning_rate=tasks.learning_rate * schedule * factor,
            parameters=self._fragment(node),
            rung=node.tuning.rung,
            pace=self._pace,
        )
        decision = Assigned(
            time=self.now,
            assignment=number,
            node=node.id,
            kind=self.name,
            base=state.newest.version,
            tokens=tokens,
            local_steps=steps,
            rows=rows,
            cursor=cursor,
            terms=terms,
            redo=lost.assignment if lost is not None else 0,
        )
        news = self.publishing.news(node, have)
        task = task_of(decision, Batches(rows, tasks.batch_size, tasks.seed + root, skip), news)
        yield from self.assigned(decision, self._masked(task, node))

    def _masked(self, task: Train, node: NodeState) -> Train:
        """Return the task with its committee and its weight, where updates are masked."""
        if self.masks is None:
            return task
        alike = bool(self.settings.worker.uplink.normalize_steps)
        weight = node.tally.reputation.weight() * (1.0 if alike else min(1.0, task.tokens / self.masks.most_tokens))
        fields = msgspec.structs.asdict(task)
        return Masked(**fields, committee=self.trustees.seats, weight=weight)

    def _bound(self, node: NodeState) -> int:
        """Return how stale the node's contribution may be: by its speed, and by the versions in flight.

        Never less than several times the versions that are made of work in flight, within the bound of a node of median
        speed. A link or a controller that delays all makes fast nodes no fresher.
        """
        bound = self.settings.versions.staleness.bound
        in_flight = math.ceil(IN_FLIGHT * len(self.state.works) / max(1, self.state.buffer.size))
        return max(bound(self.speeds.relative(node)), min(bound(1.0), in_flight))

    def _rows(self, shard: int, steps: int) -> tuple[tuple[RowRange, ...], int]:
        """Return the rows of a task of `steps` steps from a lane on, all of one length, and its steps.

        Fewer, in whole batches if possible, where the lane ends before, or the data has so few rows that a task would
        pass over them too often.
        """
        batch_size = self.tasks.batch_size
        wanted = steps * batch_size
        rows = self.lanes.take(shard, wanted, MOST_ROW_RANGES)
        found = sum(some.stop - some.start for some in rows)
        if found < wanted:
            found -= found % batch_size if found > batch_size else 0
            rows, steps = self.lanes.take(shard, found, MOST_ROW_RANGES), -(-found // batch_size)
        return rows, steps

    def _fragment(self, node: NodeState) -> ParameterRange:
        """Return the parameters of the node's next contribution.

        Its own rotation over the ranges in asynchronous mode, the round's for all else.
        """
        turn = node.tally.turns if self.settings.asynchronous else self.state.newest.version
        ranges = self.payloads.partitions[node.tuning.partition]
        return ranges[turn % len(ranges)]

    def _assigned(self, d: Assigned) -> None:
        if d.kind == self.name:
            self.lanes.went_on(rows.shard for rows in d.rows)

    @property
    def _pace(self) -> float | None:
        if not self.settings.worker.stateless:
            return None
        return 1.0 / self._travel if self._travel > 0.0 else 0.0

    def _closed(self, d: VersionClosed) -> None:
        self._travel = self.speeds.travel * d.rate * self.settings.versions.outer_rate

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Assigned: self._assigned, VersionClosed: self._closed}

    def too_late(self, work: Work) -> str:
        return TOO_LATE if self.state.progress.final or self.state.progress.flushing is not None else ""

    def refuse(self, result: Result, work: Work, version: int) -> str:
        assert isinstance(result, Contribution)
        reason = refuse_transcript(result, work, self.state.newest.version)
        return reason or refuse_update(result, work, work.terms.rung, self.payloads)

    def weight(self, result: Result, work: Work, tokens: int, trust: float, staleness: int) -> float:
        return tokens * trust * self.settings.versions.staleness.weight(staleness)


def task_of(given: Assigned, batches: Batches, news: News = News()) -> Train:  # noqa: B008 (frozen)
    """Return the task of an assignment; `news` has the updates to its base."""
    terms = given.terms
    return Train(
        id=given.assignment,
        base=given.base,
        news=news,
        batches=batches,
        tokens=given.tokens,
        local_steps=given.local_steps,
        learning_rate=terms.learning_rate,
        rung=terms.rung,
        parameters=terms.parameters,
        max_staleness=terms.max_staleness,
        pace=terms.pace,
        cohort=given.cohort or msgspec.UNSET,
    )


def _steps_of(lost: int, most: int) -> int:
    """Return how many of `lost` lost steps a node with at most `most` steps takes.

    >>> _steps_of(100, 1000), _steps_of(100, 10), _steps_of(11, 10)
    (100, 10, 6)
    """
    return -(-lost // -(-lost // most))
