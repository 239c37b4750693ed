"""Audits: a share of the contributions is repeated by another node, and the results are compared.

The choice is secret before they arrive: a keyed hash of the assignment's number chooses (and gives the seed of the
sketch that stands for the update). The contribution is accepted all the same; then the work goes to another node, which
such a hash draws, as the first one to ask may be an accomplice. It begins at the version at which that work began, and
gets there by undoing deltas. The comparison is noted on the ledger. Stateless work is judged by it: where they disagree
others repeat the work, too, from perturbed parameters, until two agree, and nodes that these contradict are convicted,
an auditor as well (`trust.repeats`; `sanctions` has the consequences). Stateful work has no verdicts. Nodes of one
owner count as one: nodes of others are asked as long as there are any.

A case lapses once its version is too far back, after several nodes that did not repeat it, or came to different
results, when too many newer ones wait, and when the run or the controller ends before a node repeated it: each is noted
on the ledger with the reason. Open cases are not on the ledger: those of a killed controller are lost, and their tasks
are taken back. A node that gives several audits in a row back gets no more, and no measurements, which are trusted.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from barnraise.controller.fleet.backoff import Backoff
from barnraise.controller.fleet.cost_model import CostModel
from barnraise.controller.fleet.membership import Membership
from barnraise.controller.fleet.memory_limits import MemoryLimits
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.state.cohorts import IN, OUT, Cohort
from barnraise.controller.state.events import Event, InterruptRequested
from barnraise.controller.state.part import Context, Steps
from barnraise.controller.state.state import NodeState, Work
from barnraise.controller.versions.publishing import Publishing
from barnraise.controller.versions.task_kind import ANY_STALENESS, TaskKind
from barnraise.controller.work.sanctions import Sanctions
from barnraise.controller.work.training import TOO_LATE, task_of
from barnraise.core.sketches import compare, is_finite
from barnraise.core.types import (
    SKETCH_BYTES,
    Audit,
    Batches,
    Contribution,
    Result,
    Sketched,
    Transcript,
    Update,
)
from barnraise.ledger import notes
from barnraise.ledger.decisions import Assigned, Decision, Judged, Noted
from barnraise.matching.base import TaskView
from barnraise.trust.repeats import MOST_ANSWERS, Judgement, judge
from barnraise.trust.reputation import TRUSTED

TRIES = 3
"""Nodes that are asked for the same audit, one after the other, besides contradicted ones."""

MOST_CASES = 64
"""Cases that wait for an audit; beyond that the oldest lapse."""

DRAWN = 2.0
"""Nodes that may take a case at first, in the mean; doubled for each one passed over, and each half of a task time."""

LEAST_WINDOW, LONGEST_WINDOW = 1.0, 60.0
"""Seconds that are between."""

VECTORS = 4
"""Vectors of the parameters' size that a node needs besides training's: the version before, and own moments."""

CONVICTED = "other nodes repeated its task and agree with each other on another result"
"""Reason of a node's dismissal."""

_FIRST = -(1 << 41)
"""Ids of views from here down: no other kind has that many."""


class Answer(NamedTuple):
    """A node's answer: the sketch, and its assignment."""

    node: str
    assignment: int
    sketch: bytes


@dataclass
class Case:
    """An audit of a contribution: its task, and the sketch of its update.

    It takes `memory` bytes, and waits `since` then; the `cohort` has the assignments for it, and `answers` contradict
    it. Nodes that were `passed` over were not drawn yet.
    """

    work: Work
    sketch: bytes
    seed: int
    memory: int
    since: float
    cohort: Cohort
    transcript: Transcript | None = None
    passed: set[str] = field(default_factory=set)
    answers: list[Answer] = field(default_factory=list)


class Auditing(TaskKind):
    """Keeps the open cases, by the assignments of their contributions, the oldest first."""

    task = Audit
    yields = True

    def __init__(
        self,
        context: Context,
        records: NodeRecords,
        cost_model: CostModel,
        speeds: Speeds,
        backoff: Backoff,
        membership: Membership,
        publishing: Publishing,
        memory_limits: MemoryLimits,
        sanctions: Sanctions,
    ) -> None:
        super().__init__(context, cost_model)
        self.settings, self.sanctions = context.settings.audits, sanctions
        self.records, self.speeds, self.backoff = records, speeds, backoff
        self.membership, self.publishing, self.memory_limits = membership, publishing, memory_limits
        self.cases: dict[int, Case] = {}
        self.lapsed: list[tuple[str, notes.Unaudited]] = []  # lapsed cases with their nodes, to be noted
        self._next: Case | None = None  # the one that is on offer to nodes that ask now
        self._trust: dict[int, float] = {}  # least trust for a case, among the present nodes
        self._strangers: dict[int, bool] = {}  # whether another owner's node could answer it

    # Choice of contributions

    def seed(self, work: Work) -> int:
        """Return the seed of a contribution's sketch, independent of claims; 0 for one that is not audited."""
        if not (work.task.trains and work.task.shows_rows and self.settings.share):
            return 0
        share, drawn = self.settings.share, self._drawn(str(work.assignment))
        if work.terms.pace is not None:  # its verdicts are known
            share = self.state.nodes[work.node].tally.reputation.chance(share)
        return 1 + int.from_bytes(drawn[8:14]) if int.from_bytes(drawn[:8]) < share * 2**64 else 0

    def _drawn(self, of: str) -> bytes:
        return hmac.digest(self.settings.key, of.encode(), hashlib.sha256)

    def begin(self, work: Work, offer: Contribution, sketch: bytes) -> Steps:
        """Open a case for an accepted contribution, which another node shall repeat."""
        steps = offer.steps if offer.transcript is None else offer.transcript.batches
        done = msgspec.structs.replace(work, local_steps=steps, tokens=work.credit(steps))
        seed, settings = 1 + int.from_bytes(self._drawn(str(work.assignment))[8:14]), self.context.settings
        memory = settings.tasks.memory_for(work.rows) + VECTORS * settings.payloads.snapshot
        cohort = Cohort(work.assignment, self.name, work.base, Audit.gathers, work.rows)
        self.cases[work.assignment] = Case(done, sketch, seed, memory, self.now, cohort, transcript=offer.transcript)
        while len(self.cases) > MOST_CASES:
            self._lapse(f"more than {MOST_CASES} newer ones waited", next(iter(self.cases)))
        yield from self.look()

    def _lapse(self, reason: str, *numbers: int) -> None:
        for number in numbers:
            self.lapsed.append((self.cases.pop(number).work.node, notes.Unaudited(number, reason)))

    def look(self) -> Steps:
        if self._over:
            self._lapse("the run came to its end before that", *self.cases)
        yield from self.looked_for()

    def looked_for(self) -> Steps:
        told, self.lapsed = self.lapsed, []
        for node, note in told:
            yield Noted(self.now, note, node)

    def _interrupted(self, event: InterruptRequested) -> Steps:
        self._lapse("the controller was stopped before that", *self.cases)
        yield from self.look()

    @property
    def _over(self) -> bool:
        """Return whether no answers are accepted any more."""
        return self.state.progress.final or self.state.progress.flushing is not None

    def resume(self) -> Steps:
        """Take back the audits for a controller that has died."""
        for work in [work for work in self.state.works.values() if work.task is Audit]:
            yield from self.membership.release(work.node, work.assignment, "the controller was restarted")

    # Assignment

    @property
    def open(self) -> bool:
        progress = self.state.progress
        return bool(self.cases) and not self._over and not progress.stopping and not progress.paused

    def fresh(self, nodes: Sequence[NodeState]) -> Sequence[TaskView]:
        """Return the oldest case that any of the nodes can take; one at a time, as not all may take each."""
        self._next = None
        self._trust.clear()
        self._strangers.clear()
        if not self.open:
            return ()
        for number, case in list(self.cases.items()):
            if case.cohort.open:
                continue
            able = [node for node in nodes if self._may(node, case)]
            if not any(self._is_drawn(node, case) for node in able):
                case.passed.update(node.id for node in able)
                continue
            if len(case.cohort.nodes) >= TRIES + len(case.answers):
                self._lapse(f"{len(case.cohort.nodes)} nodes were asked", number)
            elif (back := self._back(case)) is None:
                self._lapse("its version is too far back by now", number)
            else:
                self._next = case
                return (self._view(case, back),)
        return ()

    def _view(self, case: Case, back: tuple[Update, ...]) -> TaskView:
        settings, work = self.context.settings, case.work
        fetched = sum(update.blob.num_bytes for update in back)
        shards = {rows.shard for rows in work.rows}
        return TaskView(
            _FIRST - work.assignment,
            work.tokens,
            self.name,
            settings.payloads.snapshot + fetched,
            SKETCH_BYTES,
            shards={shard: settings.tasks.shard_bytes(shard) for shard in sorted(shards)},
            priority=1,
            memory_bytes=case.memory,
            min_trust=self._trust_for(case),
        )

    def _back(self, case: Case) -> tuple[Update, ...] | None:
        """Return the deltas from the newest version back to the case's; None when they are not kept, or too far."""
        told = case.transcript
        oldest = case.work.base if told is None else max(0, told.start - told.moved)
        return self.publishing.way_back(oldest)

    def _may(self, node: NodeState, case: Case) -> bool:
        return self._answers(node, case) and node.tally.reputation.weight() >= self._trust_for(case)

    def _is_drawn(self, node: NodeState, case: Case) -> bool:
        """Tell whether a node may repeat a case by now. Nodes that were never found sound wait twice as long."""
        window = min(max(self.speeds.usual_period / 2, LEAST_WINDOW), LONGEST_WINDOW)
        windows = min(max(self.now - case.since, 0.0) / window, 64.0)
        doubled = min(len(case.passed), 64) + int(windows)
        chance = DRAWN * 2.0**doubled / max(1, self.state.num_live - 1)
        if chance < 1.0 and not node.tally.reputation.sound:
            chance /= 2.0
        return int.from_bytes(self._drawn(f"{case.work.assignment} {node.id}")[:8]) < chance * 2**64

    def _trust_for(self, case: Case) -> float:
        """Return the trust for a case, as `least_trust`: its result counts where it agrees with another one."""
        number = case.work.assignment
        if number not in self._trust:
            able = (node for node in self._there() if self._answers(node, case))
            self._trust[number] = TRUSTED if any(not node.tally.reputation.on_probation for node in able) else 0.0
        return self._trust[number]

    def _answers(self, node: NodeState, case: Case) -> bool:
        return self._can(node, case) and self._adds(node, case)

    def _can(self, node: NodeState, case: Case) -> bool:
        if node.id == case.work.node or node.id in case.cohort.nodes or self.memory_limits.of(node) < case.memory:
            return False
        if self.membership.is_unwilling(node.id):
            return False
        return self.membership.has_time(node, case.work.tokens)

    def _adds(self, node: NodeState, case: Case) -> bool:
        """Return whether its answer would be of another owner than the present ones.

        Where no other owner's node could answer, a neighbour may (`trust.repeats` says when it counts).
        """
        nodes, owner = self.state.nodes, node.owner
        answered = {nodes[answer.node].owner for answer in case.answers}
        heard = answered | {nodes[case.work.node].owner}
        if owner not in heard:
            return True
        if owner in answered and len(heard) > 1:
            return False
        number = case.work.assignment
        if number not in self._strangers:
            there = (other for other in self._there() if other.owner not in heard)
            self._strangers[number] = any(self._can(other, case) for other in there)
        return not self._strangers[number]

    def _there(self) -> Iterator[NodeState]:
        """Yield the nodes that could repeat work now, or after their present task."""
        for node in self.records.present:
            if self.membership.can(node, self.name) and not self.backoff.held(node):
                yield self.state.nodes[node]

    def suits(self, node: NodeState, have: int) -> bool:
        case = self._next
        return case is not None and self._may(node, case) and self._is_drawn(node, case)

    def give(self, node: NodeState, have: int, work: Work | TaskView) -> Steps:
        assert self._next is not None, "it is given while it is on offer"
        case, number, settings = self._next, self.state.totals.assigned + 1, self.context.settings
        done, self._next = case.work, None
        case.cohort.join(number, node.id)
        decision = Assigned(
            time=self.now,
            assignment=number,
            node=node.id,
            kind=self.name,
            base=self.state.newest.version,
            tokens=done.tokens,
            local_steps=done.local_steps,
            rows=done.rows,
            cursor=self.state.totals.rows,
            terms=msgspec.structs.replace(done.terms, max_staleness=ANY_STALENESS),
        )
        batches = Batches(done.rows, settings.tasks.batch_size, settings.tasks.seed + done.root, done.done)
        task = Audit(
            id=number,
            base=decision.base,
            news=self.publishing.news(node, have),
            train=task_of(done, batches),
            transcript=case.transcript,
            back=self._back(case) or (),
            seed=case.seed,
            perturbation=self.settings.perturbation if case.answers else 0.0,
        )
        yield from self.assigned(decision, task)

    # Results

    def _case(self, work: Work) -> Case | None:
        return next((case for case in self.cases.values() if work.assignment in case.cohort.members), None)

    def too_late(self, work: Work) -> str:
        if self._over:
            return TOO_LATE
        return "" if self._case(work) is not None else "the controller no longer waits for this comparison"

    def refuse(self, result: Result, work: Work, version: int) -> str:
        assert isinstance(result, Sketched)
        if result.steps != work.local_steps:
            return f"took {result.steps} steps, but {work.local_steps} are to be repeated"
        finite = is_finite(result.sketch) and math.isfinite(result.loss)
        return "" if finite else "its sketch or its loss is not finite"

    def taken(self, result: Result, work: Work) -> Steps:
        assert isinstance(result, Sketched)
        case = self._case(work)
        assert case is not None, "no other node's result is accepted"
        self.records[work.node].conduct.declined = 0
        audited, node = case.work.assignment, case.work.node
        case.answers.append(Answer(work.node, work.assignment, result.sketch))
        judged = Judgement()
        if case.transcript is not None:
            owners = [self.state.nodes[one].owner for one in (node, *(answer.node for answer in case.answers))]
            sketches = [answer.sketch for answer in case.answers]
            judged = judge(case.sketch, sketches, self.settings.tolerance, owners)
        if case.transcript is None or judged.sound is not None:
            del self.cases[audited]
        elif len(case.answers) >= MOST_ANSWERS:
            self._lapse(f"{MOST_ANSWERS} nodes came to different results", audited)
        compared = compare(case.sketch, result.sketch)
        yield Noted(self.now, notes.Audited(audited, work.assignment, work.node, *compared, judged.sound), node)
        wrong = [case.answers[place] for place in judged.wrong]
        right = tuple(answer.assignment for answer in case.answers if answer not in wrong)
        if judged.sound is False:
            yield from self._convict(node, audited, right)
        for answer in wrong:
            yield from self._convict(answer.node, answer.assignment, right)
        yield from self.looked_for()

    def _ended(self, number: int, stage: str) -> bool:
        """Record that an assignment is open no more; return whether it belongs to a case."""
        found = [case.cohort for case in self.cases.values() if number in case.cohort.members]
        for cohort in found:
            cohort.settle(number, stage, self.now, self.state.num_live)
        return bool(found)

    def _judged(self, d: Judged) -> None:
        if d.claim.result == "sketch":
            self._ended(d.assignment, IN if d.verdict == "accepted" else OUT)

    def _noted(self, d: Noted) -> None:
        """Record audits that are taken back, and count those that their node gave back."""
        if type(d.note) is not notes.Released or not self._ended(d.note.assignment, OUT):
            return
        if d.note.reason.startswith(notes.DECLINED) and not d.note.reason.startswith(notes.RAISED):
            self.records[d.node].conduct.declined += 1

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {InterruptRequested: self._interrupted}

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Noted: self._noted, Judged: self._judged}

    def _convict(self, node: str, assignment: int, against: tuple[int, ...]) -> Steps:
        note = notes.Convicted(assignment, against, self.sanctions.until(node))
        yield from self.sanctions.pass_on(node, note, CONVICTED)
