"""A controller under test: events go in, every action is checked against an independent account of the run.

The account knows nothing of the machine's own state. It follows the journal (as the ledger would hand it back) and
what is sent, and is compared with the machine after every event.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from barnraise.controller.fleet.leases import LOOKS
from barnraise.controller.fleet.membership import Membership
from barnraise.controller.fleet.pacing import LEAST_PART
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.fleet.speeds import FEW, Speeds
from barnraise.controller.fleet.uploads import Uploads
from barnraise.controller.machine import Controller
from barnraise.controller.state import actions as act
from barnraise.controller.state import effects
from barnraise.controller.state import events as ev
from barnraise.controller.state.fold import MOST_OPEN, apply
from barnraise.controller.state.invariants import validate
from barnraise.controller.state.settings import (
    EngineSettings,
    EvaluationSettings,
    LeaseSettings,
    PayloadSettings,
    RowNeeds,
    TaskSettings,
    VersionSettings,
)
from barnraise.controller.state.state import State
from barnraise.controller.versions.ending import Ending
from barnraise.controller.versions.evaluation import TIMES, Evaluation
from barnraise.controller.versions.publishing import Publishing
from barnraise.controller.work.dispatch import Dispatch
from barnraise.controller.work.scoring import Scoring
from barnraise.controller.work.speculation import MOST_COPIES
from barnraise.core.sites import OwnRows
from barnraise.core.types import (
    KINDS,
    MOST_ROW_RANGES,
    SKETCH_SIZE,
    AnyResult,
    AnyTask,
    Audit,
    Blob,
    Contribution,
    Evaluate,
    Finding,
    Flush,
    LinkReport,
    NodeProfile,
    ParameterRange,
    RowRange,
    Sketched,
    Train,
    Transcript,
    Update,
)
from barnraise.data.ranges import RowIndex
from barnraise.ledger import notes
from barnraise.ledger.decisions import Assigned, Decision, Judged, NodeChanged, Noted, VersionClosed, VersionMade
from barnraise.ledger.notes import COPY_CAME_FIRST
from barnraise.ledger.rows import FORMATS
from barnraise.matching import create as scheduler
from barnraise.matching.shuffle import Random
from barnraise.staleness import create as staleness
from barnraise.trust.reputation import Reputation
from barnraise.trust.signatures import RunId
from barnraise.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    Assign,
    Downlink,
    Heartbeat,
    Hello,
    Inner,
    Leave,
    Message,
    Newer,
    Offer,
    RequestTask,
    Stop,
    Subscribe,
    Uplink,
    Welcome,
    WorkerSettings,
)

SHARDS = [7, 30]

WORKER_SETTINGS = WorkerSettings(
    uplink=Uplink(
        codec="none",
        options={},
        ratios=(),
        last="",
        error_feedback=True,
        decay=1.0,
        keep=0.0,
        clip=None,
        normalize_steps=0,
    ),
    downlink=Downlink(codec="none", options={}, merge_lerp=0.0, version_momentum=0.0),
    inner=Inner(batch_size=2, optimizer="sgd", options={}, gradient_clip=None, proximal=0.0, precision="float32"),
    fragments=1,
    overlap=True,
)

MANIFEST = Blob("f" * 64, 100)

_SETTINGS = EngineSettings(
    run=RunId("trial"),
    tokens=240,
    asynchronous=True,
    worker=WORKER_SETTINGS,
    manifest=MANIFEST,
    leases=LeaseSettings(heartbeat=1.0, lease=5.0, longest=20.0),
    payloads=PayloadSettings(
        exchanged=100,
        partitions=((ParameterRange(0, 100),),),
        rungs=(500,),
        last=0,
        delta=500,
        most=500,
        memory=1 << 30,
        max_norm=None,
    ),
    tasks=TaskSettings(
        rows=RowIndex(SHARDS, lengths=[3, 3]),
        context=3,
        needs=RowNeeds(2, {}),
        batch_size=2,
        local_steps=2,
        max_local_steps=100,
        pace="fixed",
        tune=False,
        learning_rate=0.1,
        rate_multiplier=lambda done, total: 1.0,
        seed=0,
        scheduler=partial(scheduler, "fifo"),
    ),
    versions=VersionSettings(
        staleness=staleness("fixed", max_staleness=5),
        participation=True,
        outer_rate=1.0,
        buffer_size=None,
        minimum_nodes=1,
        flush=False,
        sync_window=2.0,
        sync_longest_wait=8.0,
        checkpoint_seconds=3.0,
    ),
    evaluations=EvaluationSettings(times=4, rows=40, row_tokens=3, file=2, by_workers=False),
)


def on_probation(engine: Engine, node: str) -> None:
    """The node was convicted once, and is back."""
    for state in (engine.state, engine.shadow):
        state.nodes[node].tally.reputation = Reputation(convicted=1)


def engine_settings(**changes: Any) -> EngineSettings:
    """Settings for a run of 20 tasks of 12 tokens, with `changes` of any group."""
    if changes.get("asynchronous") is False:
        changes.setdefault("worker", overlap(False))
    return changed(_SETTINGS, **changes)


_GROUPS = ("leases", "payloads", "tasks", "versions", "evaluations")


def changed(settings: EngineSettings, **changes: Any) -> EngineSettings:
    """`settings` with other values for fields of its own or of its groups."""
    groups = (getattr(settings, group) for group in _GROUPS)
    for name, group in zip(_GROUPS, groups, strict=True):
        own = {field: changes.pop(field) for field in group.__dataclass_fields__ if field in changes}
        settings = replace(settings, **{name: replace(group, **own)})
    return replace(settings, **changes)


def told(base: WorkerSettings = WORKER_SETTINGS, **changes: Any) -> WorkerSettings:
    """`base` with other values; of a group, a dict of those that differ."""
    for name, change in changes.items():
        if isinstance(change, dict):
            changes[name] = msgspec.structs.replace(getattr(base, name), **change)
    return msgspec.structs.replace(base, **changes)


def overlap(wanted: bool) -> WorkerSettings:
    return told(overlap=wanted)


def digest(number: int) -> str:
    return f"{number:064x}"


def stored(decision: Decision) -> Decision:
    """Return the decision that the ledger gives back for `decision`."""
    if isinstance(decision, VersionMade):
        return decision  # half a row, of plain values
    form = FORMATS[type(decision)]
    row_id, _, *values = form.to_row(1, 1, decision)
    return form.from_row((row_id, *values))


def contribution(task: AnyTask, **changes: Any) -> Contribution:
    """An honest answer to `task`, with `changes`."""
    assert isinstance(task, Train | Flush)
    codec = task.rung if isinstance(task, Train) else 1
    told = Contribution.of(task, Blob(digest(task.id), 420), codec=codec, steps=task.steps, loss=1.5, seconds=0.5)
    if isinstance(task, Train) and task.pace is not None:
        told = msgspec.structs.replace(told, transcript=Transcript(task.base, task.steps))
    return msgspec.structs.replace(told, **changes)


OWN_FORM = "e" * 64


def own_rows(node: str, **changes: Any) -> OwnRows:
    """Return what a node says of rows of its own: few of them, as many as its name says."""
    values = {"rows": 5 + sum(map(ord, node)) % 20, "held_out": 4, "digest": digest(sum(map(ord, node)))}
    return OwnRows(**(values | {"form": OWN_FORM, "losses": "mean"} | changes))


def finding(task: AnyTask, **changes: Any) -> Finding:
    """Return the measurement for `task`, with `changes`: the same for the same rows."""
    values: dict[str, Any] = {
        "assignment": task.id,
        "base": task.version if isinstance(task, Evaluate) else task.base,
        "steps": task.steps,
        "loss": 2.0 + sum(piece.start for piece in task.rows) % 5 / 8,
        "seconds": 0.5,
        "weight": 2 * sum(piece.stop - piece.start for piece in task.rows),
    }
    return Finding(**(values | changes))


SKETCH, OTHER_SKETCH = (array("f", [value] * SKETCH_SIZE).tobytes() for value in (1.0, -1.0))


def sketched(task: AnyTask, **changes: Any) -> Sketched:
    """Return the result of a repetition of `task`, with `changes`."""
    made = Sketched(assignment=task.id, base=task.base, steps=task.steps, loss=1.5, seconds=0.5, sketch=SKETCH)
    return msgspec.structs.replace(made, **changes)


def answer_to(task: AnyTask, **changes: Any) -> AnyResult:
    """An honest answer to `task` of whatever kind, with `changes`."""
    if isinstance(task, Audit):
        return sketched(task, **changes)
    return finding(task, **changes) if isinstance(task, Evaluate) else contribution(task, **changes)


class Twins:
    """Copies of work according to the journal: the pairs of twins, and the second of each pair."""

    def __init__(self) -> None:
        self.other: dict[int, int] = {}
        self.second: set[int] = set()  # open, and not wanted any more
        self.copied: set[int] = set()

    def assigned(self, d: Assigned, original: Assigned) -> None:
        """A copy of open work is the same work for another node; it is made once, and rarely."""
        assert original.node != d.node, "a copy of its own work"
        assert d.kind == original.kind != "flush"
        assert (d.rows, d.tokens, d.local_steps) == (original.rows, original.tokens, original.local_steps)
        assert not self.copied & {d.redo, d.assignment}, "a second copy"
        self.copied |= {d.redo, d.assignment}
        self.other |= {d.redo: d.assignment, d.assignment: d.redo}
        assert len(self.copied) / 2 <= 1 + MOST_COPIES * d.assignment, "too many copies"

    def part(self, number: int) -> bool:
        """That work is open no more; whether its twin has the same to do, or has done it."""
        other = self.other.pop(number, 0)
        if number in self.second:
            self.second.remove(number)
            return True
        self.other.pop(other, None)
        return other > 0

    def accepted(self, number: int) -> None:
        """The other one comes second, if it is open yet."""
        assert number not in self.second, "the second one counts as well"
        other = self.other.pop(number, 0)
        if other:
            del self.other[other]
            self.second.add(other)

    @property
    def spare(self) -> set[int]:
        """Open work that another, open or accepted, has as well: one of each two."""
        return self.second | {number for number, other in self.other.items() if other < number}


class Measured:
    """Evaluation by workers according to the journal: pieces of held-out rows, and their results.

    `owner` gives the owner of a node.
    """

    def __init__(self, settings: EngineSettings, owner: Callable[[str], str]) -> None:
        self.settings, self.owner = settings, owner
        self.tasks: dict[int, Assigned] = {}
        self.twins = Twins()
        self.open: set[int] = set()
        self.left: set[int] = set()  # lost, and to be done again
        self.found: dict[int, Judged] = {}
        self.verdicts: dict[int, Judged] = {}
        self.num_found = 0
        self.evaluated = -1  # the newest version that has a loss
        self.begun = 0  # versions since the last loss
        self.disputed = -1  # the newest version about which owners disagreed
        self.deserted = -1  # the newest version that no node measured for a while, though it was shared
        self.here = not settings.evaluations.by_workers  # the controller measures it itself

    @property
    def shared(self) -> int:
        """The version that workers measure now; -1 for none."""
        bases = [self.tasks[i].base for i in (*self.open, *self.left, *self.found)]
        return -1 if self.here else max((base for base in bases if base > self.evaluated), default=-1)

    def assigned(self, d: Assigned, made: int) -> None:
        told, (rows,) = self.settings.evaluations, d.rows
        assert told.by_workers
        assert not self.here
        assert self.evaluated < d.base <= made
        if self.shared not in (-1, d.base):
            assert self.deserted == self.shared, "given up though there was always somebody who measured it"
            assert rows.start == 0
        if self.shared != d.base:
            self.begun += 1
            assert self.begun <= TIMES
        assert self.shared == d.base or d.base == made, "it begins with the newest"
        assert rows.shard == told.file
        assert 0 <= rows.start < rows.stop <= told.rows
        assert d.tokens == told.row_tokens * (rows.stop - rows.start)
        assert (d.terms.learning_rate, d.terms.rung) == (0.0, 0)
        if d.redo:
            lost = self.tasks[d.redo]
            assert (lost.rows, lost.base, lost.local_steps) == (d.rows, d.base, d.local_steps)
            if d.redo in self.open:
                self.twins.assigned(d, lost)
                same = (self.tasks[i] for i in (*self.open, *self.found) if i != d.redo)
                others = [other for other in same if (other.base, other.rows) == (d.base, d.rows)]
                assert self.owner(d.node) not in {self.owner(other.node) for other in others}, "its owner has it"
                self.tasks[d.assignment] = d
                self.open.add(d.assignment)
                return
            self.left.remove(d.redo)
        there = [self.tasks[i] for i in (*self.open, *self.left, *self.found) if self.tasks[i].base == d.base]
        same = [other for other in there if other.rows == d.rows]
        assert all(
            rows.stop <= other.rows[0].start or other.rows[0].stop <= rows.start for other in there if other not in same
        ), "pieces overlap"
        having = [self.tasks[i] for i in (*self.open, *self.found)]
        owners = {self.owner(other.node) for other in having if (other.base, other.rows) == (d.base, d.rows)}
        if d.redo:
            assert not owners, "somebody has it, and it is given to anybody"
        elif same:
            assert len(owners) == 1, "it is lost, or two owners have it"
            assert self.owner(d.node) not in owners, "its owner has it"
        self.tasks[d.assignment] = d
        self.open.add(d.assignment)

    def judged(self, d: Judged) -> None:
        task = self.tasks[d.assignment]
        assert d.node == task.node
        assert (d.tokens, d.staleness) == (0, 0), "nothing was trained"
        wanted = task.base == self.shared
        assert (d.verdict == "discarded") != wanted or (wanted and self.deserted == self.shared)
        if d.verdict == "accepted":
            self.twins.accepted(d.assignment)
            assert not self.twins.second, "a finding has no payload to be looked at"
        known_twice = self.twins.part(d.assignment)
        self.open.remove(d.assignment)
        self.verdicts[d.assignment] = d
        if d.verdict == "accepted":
            assert d.claim.base == task.base
            assert d.claim.steps == task.local_steps, "a part is no answer"
            assert 0 <= d.weighing.weight <= task.tokens
            assert not d.claim.loss < 0.0
            assert not d.brings, "a finding has no payload"
            self.found[d.assignment] = d
            self.num_found += 1
        elif d.verdict == "refused" and not known_twice:
            self.left.add(d.assignment)
        self._see_who_measures()

    def released(self, number: int) -> None:
        self.open.remove(number)
        if not self.twins.part(number) and self.tasks[number].base > self.evaluated:
            self.left.add(number)
        self._see_who_measures()

    def _see_who_measures(self) -> None:
        if all(self.tasks[number].base != self.shared for number in self.open):
            self.deserted = max(self.deserted, self.shared)

    def reopened(self, number: int) -> None:
        self.left.remove(number)
        self.open.add(number)

    def pieces(self, version: int) -> dict[RowRange, list[Judged]]:
        """Return the results for a version, by rows, from the first row on."""
        found = [d for d in self.found.values() if d.claim.base == version]
        rows = sorted({self.tasks[d.assignment].rows[0] for d in found}, key=lambda r: r.start)
        return {each: [d for d in found if self.tasks[d.assignment].rows[0] == each] for each in rows}

    def noted(self, version: int, loss: float | None, own: float, owners: int) -> None:
        """A version has a loss: `own` is what the controller measured, where it did so itself."""
        assert version > self.evaluated or not self.settings.evaluations.by_workers
        if not self.here:
            assert version == self.shared > self.disputed
            pieces = self.pieces(version)
            assert [r.start for r in pieces] == [0, *(r.stop for r in [*pieces][:-1])]
            assert [*pieces][-1].stop == self.settings.evaluations.rows
            assert owners == min(len({self.owner(d.node) for d in found}) for found in pieces.values())
            assert not any(map(self._differ, pieces.values()))
            weight = sum(found[0].weighing.weight for found in pieces.values())
            told = [
                (statistics.mean(d.claim.loss for d in found), found[0].weighing.weight) for found in pieces.values()
            ]
            own = sum(loss * each / weight for loss, each in told if each) if weight else math.nan
        else:
            assert not owners
        assert (loss is None and not math.isfinite(own)) or loss == pytest.approx(own)
        self.evaluated = version
        self.restarted()
        self.found = {i: d for i, d in self.found.items() if d.claim.base > version}
        self.left = {i for i in self.left if self.tasks[i].base > version}

    def _differ(self, found: list[Judged]) -> bool:
        first = found[0]
        return any(
            d.weighing.weight != first.weighing.weight
            or (d.weighing.weight and d.claim.loss != pytest.approx(first.claim.loss, rel=2e-3, abs=1e-3))
            for d in found
        )

    def noted_dispute(self, note: notes.Disputed) -> None:
        """Owners disagree about rows of the version that is shared, which is told once."""
        assert note.version == self.shared > self.disputed
        (found,) = (found for rows, found in self.pieces(note.version).items() if rows.start == note.start)
        assert self._differ(found)
        assert note.nodes == tuple(d.node for d in found)
        self.disputed = note.version

    def restarted(self) -> None:
        """Forget the controller's own measurements, and the number of versions that workers began with."""
        self.begun = 0
        self.here = not self.settings.evaluations.by_workers

    def compare(self, state: State) -> None:
        assert self.found.keys() == state.record.findings.keys()
        assert self.open == {i for i, work in state.works.items() if work.kind == "evaluate"}
        assert self.left == {i for i, work in state.redo.items() if work.kind == "evaluate"}


class Anew:
    """Repeated work according to the journal, beside the account of all work."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.tasks: dict[int, Assigned] = {}
        self.open: set[int] = set()
        self.verdicts: dict[int, Judged] = {}
        self.compared: dict[int, list[tuple[int, bool | None]]] = {}  # by whom, and whether it is what was sent
        self.over: set[int] = set()  # the settled ones among these
        self.cut_off = 0  # answers whose comparison a copy of the ledger lacks
        self.guilty: dict[int, tuple[int, ...]] = {}  # the convictions that are due, and the contradicting results

    def assigned(self, d: Assigned) -> None:
        account = self.account
        assert account.settings.audits.share
        assert not account.final
        assert not account.flushing
        assert (d.base, d.redo, d.cursor) == (len(account.made), 0, account.cursor)
        assert any(self._same(d, task) for task in account.tasks.values()), "nobody has done that"
        self.tasks[d.assignment] = d
        self.open.add(d.assignment)

    def _same(self, d: Assigned, task: Assigned) -> bool:
        """Return whether the result is that of `task`, for another node."""
        verdict = self.account.verdicts.get(task.assignment)
        if verdict is None or verdict.verdict != "accepted" or task.node == d.node:
            return False
        told = verdict.claim.transcript
        batches = told.batches if told else verdict.claim.steps
        return (task.rows, batches, task.tokens * batches // task.local_steps) == (d.rows, d.local_steps, d.tokens)

    def judged(self, d: Judged) -> None:
        task = self.tasks[d.assignment]
        assert (d.node, d.tokens, d.weighing.weight, d.staleness) == (task.node, 0, 0.0, 0), "nothing was trained"
        assert not d.brings
        over = self.account.final or self.account.flushing
        assert d.verdict != "accepted" or (d.claim.steps == task.local_steps and not over)
        self.open.remove(d.assignment)
        self.verdicts[d.assignment] = d

    def audited(self, node: str, note: notes.Audited) -> None:
        assert self.verdicts[note.assignment].verdict == "accepted"
        task, audited = self.tasks[note.assignment], self.account.tasks[note.audited]
        assert (task.node, audited.node) == (note.by, node)
        assert self._same(task, audited)
        assert note.audited not in self.over, "it is settled"
        agrees = {(1.0, 0.0): True, (-1.0, 2.0): False}.get((note.cosine, note.distance))  # else with nothing
        answers = self.compared.setdefault(note.audited, [])
        answers.append((note.assignment, agrees))
        against = tuple(number for number, same in answers if same == agrees)
        settled = self._settled(node, answers)
        if audited.terms.pace is None:
            assert note.sound is None
        else:
            assert note.sound is (agrees if settled else None)
        if note.sound is False:
            self.guilty[note.audited] = against
        if note.sound is not None:
            self.guilty |= dict.fromkeys((number for number, same in answers if same != agrees), against)
        if settled or audited.terms.pace is None:
            self.over.add(note.audited)

    def _settled(self, node: str, answers: Sequence[tuple[int, bool | None]]) -> bool:
        """Whether two owners say the same of what `node` sent, or two nodes where there is but one owner."""
        nodes = [self.tasks[number].node for number, _ in answers]
        whose = [self.account.owners[one] for one in (node, *nodes)]
        if len(set(whose)) == 1:
            whose = [node, *nodes]
        *_, (_, agrees) = answers
        if agrees is None:
            return False
        said = {owner for owner, (_, same) in zip(whose[1:], answers, strict=True) if same == agrees}
        return whose[-1] != whose[0] if agrees else len(said) > 1

    def convicted(self, node: str, note: notes.Convicted) -> None:
        assert self.guilty.pop(note.assignment) == note.against
        assert (self.tasks.get(note.assignment) or self.account.tasks[note.assignment]).node == node
        assert note.until is None or note.until > 0.0

    def compare(self, state: State) -> None:
        assert not self.guilty
        assert self.open == {i for i, work in state.works.items() if work.kind == "audit"}
        accepted = sum(d.verdict == "accepted" for d in self.verdicts.values())
        assert sum(map(len, self.compared.values())) == accepted - self.cut_off

    def end_here(self) -> None:
        """The rows end within a commit: what was to follow the last one never will."""
        self.guilty.clear()
        accepted = sum(d.verdict == "accepted" for d in self.verdicts.values())
        self.cut_off = accepted - sum(map(len, self.compared.values()))


class JournaledScores:
    """Scores according to the journal, beside the account of all work.

    It computes the suspicion of nodes by other means.
    """

    def __init__(self, account: Account) -> None:
        self.account = account
        self.scored: set[int] = set()
        self.passes: dict[str, list[bool]] = {}  # for each node, since the controller last found it guilty
        self.suspicion: dict[str, float] = {}
        self.guilty: set[str] = set()

    def noted(self, node: str, note: notes.Scored) -> None:
        verdict = self.account.verdicts[note.assignment]
        assert self.account.settings.scores.share
        assert (verdict.verdict, verdict.node) == ("accepted", node)
        assert self.account.tasks[note.assignment].kind == "train"
        assert note.assignment not in self.scored
        self.scored.add(note.assignment)
        assert note.passed == (note.more is not None and note.more > 1.0)
        usual = min(0.9, max(0.25, self._middle()))
        ratio = 0.25 / usual if note.passed else 0.75 / (1.0 - usual)
        found = max(0.0, self.suspicion.get(node, 0.0) + math.log(ratio))
        assert note.suspicion == pytest.approx(found, abs=1e-9)
        self.suspicion[node] = note.suspicion
        self.passes.setdefault(node, []).append(note.passed)
        if note.suspicion >= math.log(1e4):
            self.guilty.add(node)

    def _middle(self) -> float:
        """The median of the rates of all that train, of which an owner's n weigh sqrt(n): here each counts as often as
        that is in thousandths."""
        account = self.account
        there = {d.node for d in account.tasks.values() if d.kind == "train"} & account.live
        nodes = Counter(account.owners[node] for node in there)
        values = list[float]()
        for node in there:
            those = self.passes.get(node, [])
            rate = self._rate(those) if len(those) >= 8 else 0.25
            values += [rate] * round(1000.0 / math.sqrt(nodes[account.owners[node]]))
        return statistics.median(values) if values else 0.25

    def _rate(self, passes: list[bool]) -> float:
        rate = 0.25
        for count, passed in enumerate(passes):
            rate += (passed - rate) / min(10, count + 3)
        return rate

    def discredited(self, node: str, note: notes.Discredited) -> None:
        self.guilty.remove(node)
        assert note.assignment in self.scored
        self.forget(node)

    def end_here(self) -> None:
        """The rows end within a commit: what was to follow the last one never will."""
        self.guilty.clear()

    def forget(self, node: str) -> None:
        """It was found guilty: what was known of it is not any more."""
        self.suspicion.pop(node, None)
        self.passes.pop(node, None)


class Account:
    """The account of the run according to the journal, kept by other means than `apply`."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.by_lot = isinstance(settings.tasks.scheduler(), Random)  # which does not prefer what was lost
        self.anew, self.scoring = Anew(self), JournaledScores(self)
        self.measured = Measured(settings, lambda node: self.owners[node])
        self.last_loss = math.nan  # that the controller measured itself
        self.tasks: dict[int, Assigned] = {}
        self.twins = Twins()
        self.piece: dict[int, int] = {}  # assignment -> the one that first handed out its rows
        self.span: dict[int, tuple[int, int]] = {}  # assignment -> which of its piece's steps
        self.left: dict[int, tuple[int, int]] = {}  # the steps that were lost or left undone, and wait
        self.covered: set[tuple[int, int]] = set()  # (piece, step) that an accepted contribution holds
        self.accepted: dict[int, Judged] = {}
        self.verdicts: dict[int, Judged] = {}
        self.buffer: list[int] = []
        self.versions: dict[int, tuple[int, ...]] = {}
        self.made: list[VersionMade] = []
        self.gone: set[int] = set()  # pieces that were discarded at the end
        self.voided: set[int] = set()  # accepted, and of no use
        self.convicted: set[str] = set()
        self.left_over: set[int] = set()  # accepted, and in no version as the run ended
        self.live: set[str] = set()
        self.owners: dict[str, str] = {}  # node -> owner
        self.lent: set[str] = set()  # nodes that said for how long
        self.closed = self.final = self.flushing = self.host_paused = False
        self.lanes: dict[str, int] = {}  # nodes with rows of their own, and their lanes
        self.revoked: set[str] = set()
        self.cursor = 0
        self.rows: Counter[tuple[int, int]] = Counter()  # how often each was handed out

    @property
    def beside(self) -> dict[int, Assigned]:
        """Return the assignments of the kinds of tasks that have a book of their own, and bring no update."""
        return self.measured.tasks | self.anew.tasks

    def verdict_beside(self, assignment: int) -> Judged | None:
        """Return the verdict on one of them."""
        return self.measured.verdicts.get(assignment) or self.anew.verdicts.get(assignment)

    def add(self, d: Decision) -> None:
        """Follow one decision; any that must not be is an assertion."""
        if isinstance(d, Assigned):
            self._assigned(d)
        elif isinstance(d, Judged) and d.assignment in self.measured.tasks:
            self.measured.judged(d)
        elif isinstance(d, Judged) and d.assignment in self.anew.tasks:
            self.anew.judged(d)
        elif isinstance(d, Judged):
            self._judged(d)
        elif isinstance(d, VersionClosed):
            assert not self.closed
            assert d.version == len(self.made) + 1
            assert sorted(d.contributions) == sorted(self.buffer)
            assert d.contributions
            nodes = {self.accepted[i].node for i in self.buffer}
            assert d.num_nodes == len(nodes) >= self.settings.versions.minimum_nodes
            assert d.tokens == sum(self.accepted[i].tokens for i in self.buffer)
            assert 0 < d.rate <= 1
            if not self.settings.asynchronous and not (d.reason == "last" and self.flushing):
                assert {self.accepted[i].claim.base for i in self.buffer} == {d.version - 1}
            self.versions[d.version], self.buffer, self.closed = d.contributions, [], True
            self.final = d.reason == "last"
        elif isinstance(d, VersionMade):
            assert self.closed
            assert d.version == len(self.made) + 1
            self.made.append(d)
            self.closed = False
        elif isinstance(d, NodeChanged) and d.change == "enrolled":
            self.owners[d.node] = d.owner or d.node
        elif isinstance(d, NodeChanged):
            if d.change == "joined":
                self.live.add(d.node)
            elif d.change.gone:
                self.live.discard(d.node)
            if d.change == "revoked":
                self.revoked.add(d.node)
                self._drop_rows(d.node)
        elif isinstance(d, Noted) and d.kind == "site_declared":
            assert self.settings.tasks.needs.sites is not None
            assert d.note.lane == self.lanes.get(d.node) or d.note.lane not in self.lanes.values()
            self.lanes[d.node] = d.note.lane
            self._drop_rows(d.node)
        elif isinstance(d, Noted) and d.kind == "flushing":
            assert self.settings.versions.flush
            assert not self.flushing
            assert sum(self.accepted[i].tokens for i in self.accepted) >= self.settings.tokens
            self.flushing = True
        elif isinstance(d, Noted) and d.kind in ("host_paused", "host_continued"):
            assert self.host_paused == (d.kind == "host_continued")
            assert not self.final
            self.host_paused = not self.host_paused
        elif isinstance(d, Noted) and d.kind == "stopping":
            self.host_paused = False
        elif isinstance(d, Noted) and d.kind == "evaluated":
            self.measured.noted(d.note.version, d.note.loss, self.last_loss, d.note.owners)
        elif isinstance(d, Noted) and d.kind == "disputed":
            self.measured.noted_dispute(d.note)
        elif isinstance(d, Noted) and d.kind == "released" and d.note.assignment in self.measured.tasks:
            self.measured.released(d.note.assignment)
        elif isinstance(d, Noted) and d.kind == "released" and d.note.assignment in self.anew.tasks:
            self.anew.open.remove(d.note.assignment)
        elif isinstance(d, Noted) and d.kind == "audited":
            self.anew.audited(d.node, d.note)
        elif isinstance(d, Noted) and d.kind == "convicted":
            self.anew.convicted(d.node, d.note)
            self.scoring.forget(d.node)
            self.convicted.add(d.node)
        elif isinstance(d, Noted) and d.kind == "scored":
            self.scoring.noted(d.node, d.note)
        elif isinstance(d, Noted) and d.kind == "discredited":
            self.scoring.discredited(d.node, d.note)
            self.convicted.add(d.node)
        elif isinstance(d, Noted) and d.kind == "offended":
            refused = [one for one in self.verdicts.values() if (one.node, one.verdict) == (d.node, "refused")]
            assert len(refused) >= d.note.count == 10
            self.scoring.forget(d.node)
            self.convicted.add(d.node)
        elif isinstance(d, Noted) and d.kind == "reopened" and d.note.assignment in self.measured.tasks:
            self.measured.reopened(d.note.assignment)
        elif isinstance(d, Noted) and d.kind == "released":
            if not self.twins.part(d.note.assignment):
                self._lost(d.note.assignment)
        elif isinstance(d, Noted) and d.kind == "reopened":
            assert self.left.pop(d.note.assignment) == self.span[d.note.assignment]
        elif isinstance(d, Noted) and d.kind == "voided":
            assignment, version = d.note.assignment, d.note.version
            verdict = self.accepted.pop(assignment)
            assert verdict.node == d.node
            self._uncover(verdict)
            if assignment in self.buffer:
                assert d.node in self.convicted
                assert version == len(self.made) + 1 + self.closed
                self.buffer.remove(assignment)
            else:
                assert self.closed
                assert version == len(self.made) + 1
                self.versions[version] = tuple(i for i in self.versions[version] if i != assignment)
            self.voided.add(assignment)
            self._lost(assignment, verdict.claim.steps)
        elif isinstance(d, Noted) and d.kind == "left_over":
            assert not self.closed
            assert d.note.contributions == len(self.buffer)
            self.gone.update(self.piece[i] for i in self.buffer)
            self.left_over.update(self.buffer)
            for i in self.buffer:
                self._uncover(self.accepted.pop(i))
            self.buffer, self.final = [], True

    def _assigned(self, d: Assigned) -> None:
        assert d.assignment == len(self.tasks) + len(self.beside) + 1
        assert d.node in self.live
        if d.kind == "audit":
            self.anew.assigned(d)
            return
        if d.kind == "evaluate":
            assert d.cursor == self.cursor
            self.measured.assigned(d, len(self.made))
            return
        assert not self.final
        assert d.base == len(self.made)
        assert d.kind in ("train", "flush"), f"the account has no rules for {d.kind}: add them to Account"
        assert d.kind == ("flush" if self.flushing else "train")
        if d.kind == "flush":
            assert (d.rows, d.local_steps, d.redo, d.cursor) == ((), 0, 0, self.cursor)
            assert d.node not in {self.tasks[i].node for i in self.verdicts if self.tasks[i].kind == "flush"}
        elif d.redo and d.redo not in self.left:
            assert not self.lanes, "no other node has the rows"
            assert not self.settings.asynchronous, "rows are alike, and nobody waits for these"
            assert d.redo not in self.verdicts
            assert d.base == self.tasks[d.redo].base == len(self.made)
            self.twins.assigned(d, self.tasks[d.redo])
            self.span[d.assignment] = self.span[d.redo]
            assert d.cursor == self.cursor
        elif d.redo:
            first, last = self.left.pop(d.redo)
            self.span[d.assignment] = first, first + d.local_steps
            if first + d.local_steps < last:
                self.left[d.assignment] = first + d.local_steps, last
            piece = self.tasks[self.piece[d.redo]]
            assert (d.rows, d.cursor) == (piece.rows, self.cursor)
            assert 1 <= d.local_steps <= min(last - first, self.settings.tasks.max_local_steps)
            assert d.tokens * piece.local_steps == piece.tokens * d.local_steps
        else:
            told = self.settings.tasks
            alike = told.pace == "fixed" and not told.tune
            few = told.rows.total * MOST_ROW_RANGES // 2 < told.local_steps * told.batch_size
            assert 1 <= d.local_steps <= told.max_local_steps
            most = told.local_steps * (2 if self.settings.worker.overlap else 1)  # to let others catch up
            least = LEAST_PART * told.local_steps if d.node in self.lent else told.local_steps
            assert few or not alike or least <= d.local_steps <= most
            count = sum(r.stop - r.start for r in d.rows)
            assert count == d.local_steps * self.settings.tasks.batch_size or (few and d.local_steps == 1)
            assert d.cursor == self.cursor + count
            self.rows.update((r.shard, row) for r in d.rows for row in range(r.start, r.stop))
            fewest = min(self.rows[shard, row] for shard, size in enumerate(SHARDS) for row in range(size))
            assert told.rows.total != sum(SHARDS) or max(self.rows.values()) <= fewest + 2, "an epoch is left behind"
            self.cursor = d.cursor
        if not d.redo:
            own, lengths = self.settings.tasks.needs.sites is not None, self.settings.tasks.rows.lengths
            length = [self.settings.tasks.context if own else lengths[r.shard] for r in d.rows]
            assert d.tokens == sum(a * (r.stop - r.start) for a, r in zip(length, d.rows, strict=True))
            self.span[d.assignment] = 0, d.local_steps
        whole = ParameterRange(0, self.settings.payloads.exchanged)
        allowed = [part for ranges in self.settings.payloads.partitions for part in ranges]
        assert d.terms.parameters in ((whole,) if d.kind == "flush" else allowed)
        assert self.settings.asynchronous or self.flushing or (d.terms.max_staleness == 0 and not self.closed)
        if d.kind == "train" and self.settings.tasks.needs.sites is not None:
            assert {r.shard for r in d.rows} == {self.lanes[d.node]}, "rows that the node does not have"
        self.tasks[d.assignment] = d
        self.piece[d.assignment] = self.piece[d.redo] if d.redo else d.assignment

    def _judged(self, d: Judged) -> None:
        task = self.tasks[d.assignment]
        assert d.assignment not in self.verdicts or self.verdicts[d.assignment].verdict == "refused"
        assert d.node == task.node
        over, second = self.final or (self.flushing and task.kind == "train"), d.assignment in self.twins.second
        assert (d.verdict == "discarded") == (over or second)
        assert not second or d.reason == COPY_CAME_FIRST
        if d.verdict == "accepted":
            self.twins.accepted(d.assignment)
        elsewhere = self.twins.part(d.assignment)
        self.verdicts[d.assignment] = d
        if d.verdict == "accepted":
            assert d.assignment not in self.accepted
            assert d.claim.base == task.base
            assert task.kind == "flush" or 0 < d.claim.steps <= task.local_steps
            assert d.tokens * max(1, task.local_steps) == task.tokens * d.claim.steps, "credit is for what was done"
            self._cover(d)
            assert d.weighing.weight > 0
            assert 0 <= d.staleness == d.version - d.claim.base <= task.terms.max_staleness
            self.accepted[d.assignment] = d
            self.buffer.append(d.assignment)
        elif elsewhere:
            return
        elif d.verdict == "discarded":
            self.gone.add(self.piece[d.assignment])
        else:
            self._lost(d.assignment)

    def _cover(self, d: Judged) -> None:
        """The contribution holds some steps of its piece, and no other does; the others wait to be done."""
        (first, last), piece = self.span[d.assignment], self.piece[d.assignment]
        steps = {(piece, step) for step in range(first, first + d.claim.steps)}
        assert not steps & self.covered, "work is done twice"
        self.covered |= steps
        if first + d.claim.steps < last:
            self.left[d.assignment] = first + d.claim.steps, self.left.get(d.assignment, (last, last))[1]
            if self._stale(d.assignment):
                self._give_up(d.assignment)

    def _stale(self, assignment: int) -> bool:
        """Whether the rows are a node's own that are not there any more."""
        d = self.tasks[self.piece[assignment]]
        if d.node not in self.lanes or d.kind != "train":
            return False
        return d.node in self.revoked or d.rows[0].shard != self.lanes[d.node]

    def _drop_rows(self, node: str) -> None:
        """Lost work on rows that are not there any more is not done again."""
        for i in [i for i in self.left if self.tasks[i].node == node and self._stale(i)]:
            self._give_up(i)

    def _give_up(self, assignment: int) -> None:
        self.left.pop(assignment, None)
        self.gone.add(self.piece[assignment])

    def _uncover(self, d: Judged) -> None:
        first, piece = self.span[d.assignment][0], self.piece[d.assignment]
        self.covered -= {(piece, step) for step in range(first, first + d.claim.steps)}

    def _lost(self, assignment: int, steps: int | None = None) -> None:
        """The assignment (or its first steps, beside what was left undone of it) waits to be done again."""
        first, last = self.span[assignment]
        if self.tasks[assignment].kind == "flush":  # no other node can do it
            self.gone.add(assignment)
        elif self._stale(assignment):
            self._give_up(assignment)
        else:
            end = last if steps is None else first + steps
            self.left[assignment] = first, self.left.get(assignment, (end, end))[1]  # with what comes after it

    def compare(self, state: State) -> None:
        """The machine's state tells the same story."""
        self.measured.compare(state)
        self.anew.compare(state)
        others = self.beside
        redo = {i: work for i, work in state.redo.items() if i not in others}
        works = {i: work for i, work in state.works.items() if i not in others}
        assert self.left == {i: (work.done, work.done + work.local_steps) for i, work in redo.items()}
        flushes = {i for i, task in self.tasks.items() if task.kind == "flush"}
        assert flushes == {*(flushes & works.keys()), *(flushes & self.accepted.keys()), *(flushes & self.gone)}
        assert not self.twins.spare - works.keys(), "open no more"
        alone = [i for i in works if i not in self.twins.spare]
        waiting = [self.span[i] for i in alone] + list(self.left.values())
        names = [*alone, *self.left]
        places = self.covered | {
            (self.piece[i], n) for i, span in zip(names, waiting, strict=True) for n in range(*span)
        }
        whole = {(i, n) for i in set(self.piece.values()) - self.gone for n in range(*self.span[i])}
        assert whole <= places, "a piece of work is lost"
        assert len(self.covered) + sum(last - first for first, last in waiting) == len(places), "or in two places"
        buffer = [i for slots in state.buffer.slots.values() for slot in slots.values() for i, *_ in slot.contributions]
        assert sorted(buffer) == sorted(self.buffer)
        slots = state.closing.slots if state.closing is not None else []
        closing = [i for slot in slots for i, *_ in slot.contributions]
        assert sorted(closing) == sorted(self.versions[len(self.made) + 1] if self.closed else [])
        merged = [i for version in self.versions.values() for i in version]
        assert Counter([*merged, *self.buffer]) == Counter(list(self.accepted))
        assert state.totals.tokens == sum(d.tokens for d in self.accepted.values())
        assert state.totals.accepted == len(self.accepted)
        assert state.newest.version == len(self.made)
        assert state.totals.version_tokens == sum(
            self.accepted[i].tokens for v, c in self.versions.items() if v <= state.newest.version for i in c
        )
        assert state.num_live == len(self.live) == sum(node.live for node in state.nodes.values())
        trained = [work for work in state.works.values() if work.kind == "train"]
        current = {i.assignment for i in trained if i.base == state.newest.version and not i.terms.max_staleness}
        tasks = state.round
        opened = {i for i, member in tasks.members.items() if member.stage == "open"} if tasks is not None else set()
        assert opened == current, "the tasks of the round"
        assert state.progress.final == self.final
        assert bool(state.progress.host_paused) == self.host_paused
        for node in state.nodes.values():
            assert sorted(node.open) == sorted(i for i, work in state.works.items() if work.node == node.id)
            assert len(node.verdicts) <= MOST_OPEN
        assert self.by_lot or len(state.works) + len(state.redo) <= 6 * MOST_OPEN * len(state.nodes)


class Leases:
    """The times at which nodes were heard, the nodes that rest, and the rules for both.

    No node is gone before the lease ends, and no silent node stays beyond the longest lease. No resting node gets a
    task while the other nodes can do without it.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.leases, self.least = settings.leases, max(1, settings.versions.minimum_nodes)
        self.heard: dict[str, float] = {}
        self.resting: dict[str, float] = {}
        self.returned: set[str] = set()  # may rest: since they came back, they got neither a task nor a note

    def observe(self, event: ev.Event, now: float) -> None:
        if isinstance(event, ev.Received | ev.Heard | ev.Arrived):
            self.heard[event.node] = now
        elif isinstance(event, ev.Stalled):
            self.heard = {node: time + event.seconds for node, time in self.heard.items()}

    def journaled(self, d: Decision) -> None:
        if isinstance(d, NodeChanged) and d.change == "silent":
            assert d.time - self.heard[d.node] >= self.leases.lease - 1e-9, "gone before its lease has ended"
        elif isinstance(d, NodeChanged) and d.change == "joined":
            self.returned.add(d.node)
        elif isinstance(d, Noted) and d.kind == "held_off" and d.note.reason.startswith("it was lost"):
            self.resting[d.node] = d.time + d.note.seconds
            self.returned.discard(d.node)

    def assigned(self, node: str, now: float, live: set[str]) -> None:
        assert now - self.heard[node] < self.most(len(live)), "work for somebody who is gone"
        resting = {name for name in live if self.resting.get(name, 0.0) > now + 1e-9}
        others = live - resting - self.returned
        assert node not in resting or len(others) < self.least, "work for somebody who rests"
        self.returned.discard(node)

    def ticked(self, now: float, seen: Iterable[str]) -> None:
        seen = list(seen)
        assert all(now - self.heard[node] < self.most(len(seen)) for node in seen), "silent, and nobody notices"

    def most(self, live: int) -> float:
        _, lease = self.leases.intervals(live)
        return max(lease, self.leases.longest) + lease / LOOKS


class Engine:
    """One run: the machine, its journal, what it waits for, and what each node holds. `crash` loses all but the
    journal."""

    def __init__(self, settings: EngineSettings, owners: Mapping[str, str] | None = None) -> None:
        self.settings, self.now, self.epoch = settings, 0.0, 1
        self.owners = owners or {}  # the owners of nodes that share an owner
        self.num_events = 0
        self.journal: list[Decision] = []
        self.account, self.shadow = Account(settings), State()
        self.leases = Leases(settings)
        self.held: dict[str, dict[int, AnyTask]] = {}  # the open tasks of each node
        self.sessions: dict[str, int] = {}
        self.pretended = False  # rates that the engine did not see of any node
        self.welcomes: dict[str, Welcome] = {}
        self.jobs: list[act.Action] = []
        self.late: list[ev.Event] = []
        self.wanted: dict[tuple[str, int], Contribution] = {}  # the payloads that may come
        self.payloads: set[tuple[str, int]] = set()  # that have come
        self.spoiled: set[int] = set()
        self.asked: set[str] = set()  # nodes that wait for an answer to Next
        self.said: dict[str, int] = {}  # the version that a node said it had, asking; or watching
        self.watched: dict[str, int] = {}
        self.told: dict[str, int] = {}  # the version to which the newest Newer leads
        self.watching: set[str] = set()  # and to Watch
        self.deltas: set[str] = set()  # blobs that were published and not released
        self.finished: act.Finish | None = None
        self.machine = Controller(settings, State(), self.epoch)
        self._take(self.machine.start(digest(0), self.now))

    @property
    def state(self) -> State:
        return self.machine.state

    def handle(self, event: ev.Event) -> list[act.Action]:
        """One event, and all the checks."""
        self.num_events += 1
        self._observe(event)
        actions = self.machine.handle(event, self.now)
        self._take(actions)
        self.check()
        return actions

    def _observe(self, event: ev.Event) -> None:
        """Record the facts that later checks need about an event."""
        self.leases.observe(event, self.now)
        if isinstance(event, effects.Evaluated) and event.epoch == self.epoch:
            self.account.last_loss = event.loss
        elif isinstance(event, ev.Received) and isinstance(event.message, RequestTask):
            self.said[event.node] = event.message.have
        elif isinstance(event, ev.Received) and isinstance(event.message, Subscribe):
            self.watched[event.node] = max(event.message.have, self.told.get(event.node, -1))

    def _take(self, actions: list[act.Action]) -> None:
        for action in actions:
            if isinstance(action, act.Journal):
                self._journaled(action.decision)
            elif isinstance(action, act.Send):
                self._sent(action.node, action.message)
            elif isinstance(action, act.Receive):
                assert (action.node, action.result.assignment) not in self.payloads, "it may be replaced"
                self.wanted[action.node, action.result.assignment] = action.result
            elif isinstance(action, act.Discard):
                self.wanted.pop((action.node, action.assignment), None)
                self.payloads.discard((action.node, action.assignment))
            elif isinstance(action, act.Finish):
                assert self.finished is None
                self.finished = action
            elif isinstance(action, act.Release):
                assert set(action.digests) <= self.deltas
                self.deltas -= set(action.digests)
            else:
                assert action.epoch == self.epoch  # type: ignore[attr-defined]
                assert self.finished is None or type(action) is not effects.Checkpoint, "the process ends"
                self.jobs.append(action)
                if isinstance(action, effects.Evaluate):
                    self.account.measured.here = True
                elif isinstance(action, effects.Inspect):
                    assert (action.node, action.result.assignment) in self.payloads

    def _journaled(self, decision: Decision) -> None:
        decision = stored(decision)
        self.journal.append(decision)
        self.account.add(decision)
        self.leases.journaled(decision)
        apply(self.shadow, decision)
        if isinstance(decision, Judged) and decision.brings:
            self.payloads.remove((decision.node, decision.assignment))
            assert decision.assignment not in self.spoiled

    def _sent(self, node: str, message: Message) -> None:
        assert isinstance(message, Ack | Stop) or not self.state.nodes[node].revoked
        if isinstance(message, Assign):
            task = message.task
            if not isinstance(task, Flush):
                assert not self.account.host_paused or self.account.final, "work while the host paused the run"
                self.leases.assigned(node, self.now, self.account.live)
            account = self.account
            assert (account.beside | account.tasks)[task.id].node == node
            if isinstance(task, Audit):
                self._check_way(task.back, task.base, task.train.base)
                assert all(update.kind == "delta" for update in task.back)
            assert len(self.state.nodes[node].open) <= MOST_OPEN + isinstance(task, Flush)
            assert task.base == self.state.newest.version
            if isinstance(task, Evaluate):
                assert task.version == account.measured.tasks[task.id].base
                self._check_way(task.back, task.base, task.version)
                assert all(update.kind == "delta" for update in task.back)
            have = max(self.said.get(node, -1), self.told.get(node, -1))
            self._check_way(task.news.updates, task.base, math.inf if isinstance(task, Flush) else have)
            if task.preempts:
                self.told.pop(node, None)
            elif node in self.watching:
                self.watched[node] = task.base
            self.held[node][task.id] = task
            self.asked.discard(node)
        elif isinstance(message, Newer):
            assert node in self.watching
            assert message.news.updates
            self.watching.discard(node)
            self._check_way(message.news.updates, self.state.newest.version, self.watched[node])
            self.told[node] = self.state.newest.version
        elif isinstance(message, Ack):
            verdict = self.account.verdict_beside(message.assignment) or self.account.verdicts.get(message.assignment)
            mine = verdict is not None and verdict.node == node
            work = self.state.works.get(message.assignment)
            assert not message.accepted or (mine and verdict is not None and verdict.verdict == "accepted")
            assert message.accepted or mine or work is None or work.node != node
            self.held.get(node, {}).pop(message.assignment, None)
        elif isinstance(message, Welcome):
            self.welcomes[node] = message
            self.asked.discard(node)  # the controller forgot it with the Hello
            self.watching.discard(node)
            self.told.pop(node, None)
            for assignment in message.forget:
                self.held[node].pop(assignment, None)

    def _check_way(self, updates: tuple[Update, ...], wanted: int, have: float) -> None:
        """Updates lead in steps from version `have` to the one that is wanted, and none of a chain's was released."""
        versions = [update.version for update in updates]
        if versions:
            assert versions == list(range(versions[0], wanted + 1))
            assert updates[0].kind == "snapshot" or versions[0] == have + 1
            assert all(u.parameters_digest == self.digests[u.version] for u in updates)
            assert len(versions) == 1 or all(u.kind == "delta" for u in updates)
            assert all(u.kind == "snapshot" or u.blob.digest in self.deltas for u in updates)
        else:
            assert have in (wanted, math.inf)

    @property
    def digests(self) -> dict[int, str]:
        return {0: digest(0)} | {made.version: made.digest for made in self.account.made}

    def check(self) -> None:
        """Everything that must hold between events."""
        state, machine = self.state, self.machine
        assert self.shadow == state or repr(self.shadow) == repr(state)
        self.account.compare(state)
        if not self.pretended:
            validate(state)
        aggregates = [job for job in self.jobs if isinstance(job, effects.Gate | effects.Aggregate)]
        assert len(aggregates) == (state.closing is not None)
        assert all(job.version == state.newest.version + 1 for job in aggregates)
        for kind, flag in (
            (effects.Evaluate, machine.parts[Evaluation].here),
            (effects.Checkpoint, machine.parts[Ending].checkpointing),
            (effects.Score, bool(machine.parts[Scoring].busy)),
        ):
            assert sum(isinstance(job, kind) for job in self.jobs) == flag
        inspects = {job.result.assignment for job in self.jobs if isinstance(job, effects.Inspect)}
        uploads = machine.parts[Uploads]
        assert inspects == uploads.inspecting.keys() <= state.works.keys()
        self._check_uploads(uploads)
        idle = [work for i, work in state.works.items() if i not in inspects and not state.nodes[work.node].live]
        assert not idle or state.progress.finished, "work is open that nobody does"
        assert self.payloads == {(state.works[i].node, i) for i in inspects}
        if not state.progress.final and state.buffer.size:
            lowest = max(self.settings.versions.minimum_nodes, 1)
            assert lowest <= state.buffer.size <= max(lowest, state.num_live)
            assert bool(state.progress.paused) == (0 < state.num_live < lowest) or state.num_live == 0
        assert (
            state.progress.finished
            or machine.parts[NodeRecords].present.keys() | machine.parts[Membership].awaited.keys() == self.account.live
        )
        asking, resting = machine.parts[Dispatch].asking.keys(), machine.parts[Dispatch].resting.keys()
        assert asking | resting <= machine.parts[NodeRecords].present.keys()
        assert not asking & resting
        assert not resting or not self.settings.asynchronous
        updates, num_bytes = machine.parts[Publishing].updates, machine.parts[Publishing].update_bytes
        assert sum(update.blob.num_bytes for update in updates.values()) == num_bytes
        assert len(updates) <= 1 or num_bytes <= machine.parts[Publishing].most_bytes

    def _check_uploads(self, uploads: Uploads) -> None:
        """The machine waits for the payloads that it asked for, of open work, one a node, within its memory."""
        state = self.state
        sending = {(upload.node, number) for number, upload in uploads.uploads.items()}
        offered = {(node, number) for node, offers in uploads.offered.items() for number in offers}
        assert sending == self.wanted.keys()
        assert not offered & sending
        assert all(state.works[number].node == node for node, number in sending | offered)
        assert uploads.sending == dict(sending)
        assert uploads.heard.keys() == uploads.uploads.keys()
        assert uploads.ready.keys() == uploads.offered.keys() - uploads.sending.keys()
        held = [upload.offer for upload in uploads.uploads.values()] + [
            upload.offer for upload, _ in uploads.inspecting.values()
        ]
        assert uploads.num_bytes == sum(offer.payload.num_bytes for offer in held)

    def observed(self, **rates: float) -> None:
        """Pretend that the nodes were seen to train on `rates` tokens a second, for one task each."""
        tokens, self.pretended = self.settings.tasks.tokens, True
        for state in (self.state, self.shadow):
            for name, rate in rates.items():
                node = state.nodes[name]
                node.speed.rate, node.speed.tokens, node.speed.seconds = rate, tokens, tokens / rate
                node.speed.turnaround, node.speed.spread, node.tally.accepted = tokens / rate, 0.0, FEW
        self.machine.parts[Speeds].at = -1

    # Possible events

    def hello(self, node: str, *, restart: bool = False, **changes: Any) -> None:
        """The node (re)connects with what it holds; after a restart, or at first, that is nothing."""
        if node not in self.state.nodes:
            self.handle(ev.Admitted(node, f"key of {node}", owner=self.owners.get(node, "")))
        if restart or node not in self.sessions:
            self.sessions[node] = self.sessions.get(node, 100) + 1
            self.held[node] = {}
        held = tuple(self.held[node])
        values: dict[str, Any] = {
            "protocol": PROTOCOL_VERSION,
            "session": self.sessions[node],
            "greeting": 1,
            "profile": NodeProfile(100.0),
            "have": self.state.newest.version,
            "pending": held[: len(held) // 2],
            "working": held[len(held) // 2 :],
            "kinds": tuple(KINDS),
        }
        if self.settings.tasks.needs.sites is not None:
            values["own"] = own_rows(node)
        message = Hello(**(values | changes))
        (self.account.lent.add if message.lent else self.account.lent.discard)(node)
        kept = {*message.pending, *message.working}
        self.held[node] = {i: task for i, task in self.held[node].items() if i in kept}
        self.handle(ev.Received(node, message))

    def watch(self, node: str, have: int) -> None:
        self.watching.add(node)
        self.handle(ev.Received(node, Subscribe(have)))

    def next(self, node: str, have: int | None = None, link: LinkReport = LinkReport()) -> None:  # noqa: B008 (frozen)
        self.asked.add(node)
        self.handle(ev.Received(node, RequestTask(self.state.newest.version if have is None else have, link)))

    def heartbeat(self, node: str) -> None:
        self.handle(ev.Received(node, Heartbeat(self.now)))

    def leave(self, node: str) -> None:
        self.handle(ev.Received(node, Leave("enough")))

    def offer(self, node: str, offered: AnyResult) -> None:
        """The header, and the payload if it may come."""
        self.handle(ev.Received(node, Offer(offered)))
        self.upload(node, offered.assignment)

    def upload(self, node: str, number: int, share: float = 1.0) -> None:
        """So much of a payload arrives, if it may come."""
        wanted = self.wanted.get((node, number))
        if wanted is None:
            return
        if share == 1.0:
            self.payloads.add((node, number))
            del self.wanted[node, number]
        self.handle(ev.Arrived(node, number, int(share * wanted.payload.num_bytes)))

    def answer(self, job: act.Action, *, good: bool = True) -> None:
        """A job that the machine asked for is done, or failed."""
        self.jobs.remove(job)
        if isinstance(job, effects.Inspect) and not good:
            self.spoiled.add(job.result.assignment)
        self.handle(self.result(job, good))

    def result(self, job: act.Action, good: bool = True) -> ev.Event:
        match job:
            case effects.Inspect():
                sketch = SKETCH if job.seed else b""
                return effects.Inspected(job.epoch, job.result.assignment, 1.0 if good else math.nan, sketch=sketch)
            case effects.Gate():
                nodes = sorted({slot.node for slot in job.slots if slot.contributions})
                assert 0 <= job.most < len(nodes) / 2
                left_out = len(nodes) if job.version % 5 == 4 else job.version % (job.most + 1)
                return effects.Gated(job.epoch, job.version, tuple(nodes[:left_out]), 0.1)
            case effects.Aggregate():
                delta = Blob(digest(10**6 + job.version // 2), 90)  # every other one is like the one before
                self.deltas.add(delta.digest)
                held = [assignment for slot in job.slots for assignment, *_ in slot.contributions]
                if good or not held:
                    return effects.Aggregated(job.epoch, job.version, digest(job.version), delta)
                if job.version % 3 == 0:
                    return effects.Unmade(job.epoch, job.version, {}, {}, "its parameters would not be finite")
                void = dict.fromkeys(held[job.version % 3 - 1 :: 2], "cannot be decoded")
                return effects.Unmade(job.epoch, job.version, void, {held[-1]: "is damaged"} if job.version % 2 else {})
            case effects.Evaluate():
                return effects.Evaluated(job.epoch, self.state.newest.version, 2.0 if good else math.inf)
            case effects.Score():
                made = job.contribution.assignment
                gains = (
                    None if made % 7 == 0 else effects.Gains(0.2, 0.1, 3.0 if good else [0.5, -2.0, math.nan][made % 3])
                )
                return effects.Scored(job.epoch, made, self.state.newest.version, gains)
            case effects.Checkpoint():
                return effects.Checkpointed(job.epoch, self.state.newest.version, "" if good else "disk full")
        raise AssertionError(f"no answer to {job}: add a case")

    def tick(self, seconds: float) -> None:
        """Time passes; the shell ticks when the deadline is reached, and that moves the deadline."""
        self.now += seconds
        if self.machine.deadline <= self.now:
            self.handle(ev.Tick())
            assert self.machine.deadline > self.now
        self.leases.ticked(self.now, self.machine.parts[NodeRecords].present)

    def crash(self) -> None:
        """The process dies and another process folds the journal.

        Results of its jobs may still come, but the new process ignores them.
        """
        self.late = [self.result(job) for job in self.jobs]
        self.jobs, self.payloads, self.deltas, self.finished = [], set(), set(), None
        self.wanted = {}
        self.shadow = State()
        folded = State()
        for decision in self.journal:
            apply(folded, decision)
            apply(self.shadow, decision)
        self.epoch += 1
        self.account.measured.restarted()
        self.leases.resting.clear()
        self.machine = Controller(self.settings, folded, self.epoch)
        self._take(self.machine.resume(self.now, grace=4.0))
        self.check()

    def deliver_late(self) -> None:
        """A result of a dead epoch."""
        if self.late:
            assert self.handle(self.late.pop(0)) == []

    def finish(self, rounds: int = 200) -> None:
        """From here on everything goes well: the run must come to its end."""
        self.handle(ev.ContinueRequested())
        good = [f"good{i}" for i in range(max(2, self.settings.versions.minimum_nodes))]
        for node in list(self.state.nodes):
            self.handle(ev.Lost(node, "gone"))
        for _ in range(rounds):
            while self.finished is None and self.jobs:
                self.answer(self.jobs[0])
            if self.finished is not None:
                break
            self.tick(0.5)
            for node in good:
                if node not in self.machine.parts[NodeRecords].present:
                    self.hello(node, restart=True)
                for task in list(self.held[node].values()):
                    self.offer(node, answer_to(task))
                if node not in self.asked and not self.held[node]:
                    self.next(node)
                self.heartbeat(node)
        assert self.finished is not None, "the run does not finish"
        assert not self.finished.failed
        assert not self.finished.interrupted
        self._check_end()

    def _check_end(self) -> None:
        state = self.state
        assert state.progress.final
        assert state.progress.finished
        assert state.totals.tokens >= self.settings.tokens or state.progress.stopping or self.account.voided
        assert state.record.checkpoint == state.newest.version == state.record.evaluations[-1][0]
        assert sorted(i for version in self.account.versions.values() for i in version) == sorted(self.account.accepted)
        self.crash()
        assert self.finished == act.Finish(state.progress.finished)
