"""Things that happen to a run (`engine.Engine`) and to a worker (`bench.Bench`), drawn from a seeded generator.

The tests of both machines draw from these; the campaign of `tests/intrude` adds hostile ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state import events as ev
from barnraise.controller.state.settings import (
    AuditSettings,
    EvaluationSettings,
    GateSettings,
    RowNeeds,
    ScoreSettings,
    SiteSettings,
)
from barnraise.controller.versions.ending import Ending
from barnraise.core.types import (
    KINDS,
    SKETCH_BYTES,
    AnyResult,
    AnyTask,
    Audit,
    Blob,
    Evaluate,
    NodeProfile,
    ParameterRange,
    Task,
    Train,
    Transcript,
)
from barnraise.data.ranges import RowIndex
from barnraise.ledger.decisions import Change
from barnraise.staleness import create as staleness
from barnraise.wire.messages import Decline, Identify, Offer

from ..tasks import train
from .bench import Bench
from .engine import OTHER_SKETCH, OWN_FORM, Engine, answer_to, contribution, digest, finding, own_rows, sketched, told

NODES = ["a", "b", "c", "d"]

WHOLE = (ParameterRange(0, 100),)
HALVES = (ParameterRange(0, 40), ParameterRange(40, 100))
QUARTERS = (ParameterRange(0, 20), ParameterRange(20, 40), ParameterRange(40, 70), ParameterRange(70, 100))

FLUSH: dict[str, Any] = {"flush": True, "last": 500}

MEASURED: dict[str, Any] = {"evaluations": EvaluationSettings(times=4, rows=40, row_tokens=3, file=2, by_workers=True)}

AUDITED: dict[str, Any] = {"audits": AuditSettings(0.5, b"secret", 0.02)}

SCORED: dict[str, Any] = {"scores": ScoreSettings(0.5, b"secret")}

GATED: dict[str, Any] = {"gate": GateSettings(8, b"secret")}

OWNERS: list[dict[str, str]] = [
    {},
    {"a": "x", "b": "x"},
    {"a": "x", "b": "x", "c": "y", "d": "y"},
    {"a": "x", "b": "x", "c": "x"},
    dict.fromkeys(NODES, "x"),
]
"""The owners of the nodes that share an owner."""

STATELESS: dict[str, Any] = {"worker": told(stateless=True)}

SITES: dict[str, Any] = {"rows": RowIndex([]), "needs": RowNeeds(2, {}, sites=SiteSettings(OWN_FORM))}

SOME_SITES: dict[str, Any] = SITES | {"needs": RowNeeds(2, {}, sites=SiteSettings(OWN_FORM, 0.5))}

MODES: dict[str, dict[str, Any]] = {
    "asynchronous": {"staleness": staleness("adaptive", max_staleness=4, min_staleness=2)},
    "fixed-bound": {"staleness": staleness("fixed", max_staleness=1), "buffer_size": 2},
    "robust": {"minimum_nodes": 3, "buffer_size": 4, "participation": False},
    "yielding": {"wanted_nodes": lambda living: 4 if living >= 4 else 0, "yields": True},
    "synchronous-yielding": {
        "asynchronous": False,
        "wanted_nodes": lambda living: 3 if living >= 3 else 0,
        "yields": True,
    },
    "matched": {"pace": "matched", "max_local_steps": 7},
    "literal": {"pace": "literal", "max_local_steps": 7},
    "flush": FLUSH,
    "fragments": {"partitions": (HALVES,), "buffer_size": 3} | FLUSH,
    "tuned": {"tune": True, "rungs": (420, 500), "max_local_steps": 9},
    "tuned_fragments": {"tune": True, "partitions": (WHOLE, HALVES, QUARTERS), "buffer_size": 3} | FLUSH,
    "synchronous-flush": {"asynchronous": False, "minimum_nodes": 2} | FLUSH,
    "little-memory": {"memory": 900} | FLUSH,
    "synchronous": {"asynchronous": False},
    "synchronous-matched": {"asynchronous": False, "pace": "matched", "max_local_steps": 7},
    "measured": MEASURED,
    "measured-flush": MEASURED | FLUSH,
    "synchronous-measured": {"asynchronous": False} | MEASURED,
    "audited": AUDITED | {"staleness": staleness("adaptive", max_staleness=4, min_staleness=2)},
    "audited-measured-flush": AUDITED | MEASURED | FLUSH,
    "synchronous-audited": {"asynchronous": False} | AUDITED,
    "audited-stateless": STATELESS | AUDITED | {"staleness": staleness("adaptive", max_staleness=4, min_staleness=2)},
    "synchronous-stateless": {"asynchronous": False, "worker": told(stateless=True, overlap=False)},
    "scored": SCORED | {"staleness": staleness("adaptive", max_staleness=4, min_staleness=2)},
    "scored-audited-stateless": STATELESS | AUDITED | SCORED | {"staleness": staleness("fixed", max_staleness=4)},
    "synchronous-scored-flush": {"asynchronous": False, "minimum_nodes": 2} | SCORED | FLUSH,
    "gated": GATED | {"buffer_size": 4, "staleness": staleness("adaptive", max_staleness=4, min_staleness=2)},
    "gated-fragments": GATED | {"partitions": (HALVES,), "buffer_size": 3} | FLUSH,
    "synchronous-gated": {"asynchronous": False, "minimum_nodes": 2} | GATED,
    "synchronous-robust": {"asynchronous": False, "minimum_nodes": 3},
    "sites": SITES | {"staleness": staleness("adaptive", max_staleness=4, min_staleness=2)},
    "synchronous-sites": {"asynchronous": False} | SITES,
    "some-sites-flush": SOME_SITES | {"buffer_size": 2} | FLUSH,
    "synchronous-some-sites": {"asynchronous": False, "minimum_nodes": 2} | SOME_SITES,
    "synchronous-patient": {"asynchronous": False, "sync_window": 40.0, "sync_longest_wait": 90.0, "tokens": 600},
}

BAD_OFFERS: list[dict[str, Any]] = [
    {"base": 99},
    {"parameters": ParameterRange(0, 50)},
    {"steps": 99},
    {"payload": Blob(digest(1), 10**6)},
    {"assignment": 10**6},
    {"codec": 9},
    {"transcript": Transcript(10**6, 1)},
    {"transcript": Transcript(0, 99)},
]

BAD_FINDINGS: list[dict[str, Any]] = [
    {"base": 99},
    {"steps": 99},
    {"steps": 0},
    {"assignment": 10**6},
    {"weight": 10**6},
    {"weight": 0},
    {"loss": -1.0},
    {"loss": math.nan},
]


BAD_SKETCHES: list[dict[str, Any]] = [
    {"base": 99},
    {"steps": 99},
    {"steps": 0},
    {"assignment": 10**6},
    {"sketch": b"\xff" * SKETCH_BYTES},
]


def wrong_kind(task: AnyTask) -> AnyResult:
    """An answer to a task of another kind."""
    if isinstance(task, Evaluate):
        return contribution(train(task.id, base=task.base))
    return sketched(task) if isinstance(task, Train) and task.id % 2 else finding(task)


BAD: dict[type[Task], list[dict[str, Any]]] = {Evaluate: BAD_FINDINGS, Audit: BAD_SKETCHES}


class RunChance:
    """Things that happen to a run, drawn from a seeded generator."""

    def __init__(self, engine: Engine, rng: random.Random) -> None:
        self.engine, self.rng = engine, rng

    def step(self) -> None:
        self.go_on("")
        if self.engine.finished is None:
            happenings, weights = zip(*self.happenings, strict=True)
            self.rng.choices(happenings, weights)[0](self, self.rng.choice(NODES))

    def conclude(self) -> None:
        """From here on all goes well, after a restart when the run had given up."""
        if self.engine.finished is not None or self.engine.machine.parts[Ending].interrupted is not None:
            self.engine.crash()
        if not self.engine.state.progress.finished:
            if self.engine.state.progress.host_paused and self.rng.random() < 0.5:
                self.stop("")  # else it is continued
            self.engine.finish()

    def join(self, node: str) -> None:
        kinds = tuple(KINDS)[: None if self.rng.random() < 0.8 else 2]  # some know no other
        lent = self.rng.choice([0.0, 0.0, 0.0, 1e-3, 5.0, 1e9])
        restart = self.rng.random() < 0.4
        self.engine.hello(node, restart=restart, kinds=kinds, lent=lent, **self._own(node))

    def _own(self, node: str) -> dict[str, Any]:
        """Return what a node with rows of its own says of them: sometimes others, or of another form, or nothing."""
        if self.engine.settings.tasks.needs.sites is None or self.rng.random() < 0.6:
            return {}
        others: list[dict[str, Any]] = [{"digest": digest(77), "rows": 9}, {"form": digest(5)}, {"rows": 2**40}]
        return {"own": self.rng.choice([None, *(own_rows(node, **other) for other in others)])}

    def come_back(self, node: str) -> None:
        """With some of what it held, and perhaps claims to what it never had."""
        held = list(self.engine.held.get(node, {}))
        keep = [i for i in held if self.rng.random() < 0.7]
        keep += [self.rng.randrange(1, 30)] * (self.rng.random() < 0.2)
        cut = self.rng.randrange(len(keep) + 1)
        if node in self.engine.sessions:
            profile = NodeProfile(self.rng.choice([10.0, 1000.0]))
            self.engine.hello(node, pending=tuple(keep[:cut]), working=tuple(keep[cut:]), profile=profile)

    def ask(self, node: str) -> None:
        version = self.engine.state.newest.version
        self.engine.next(node, self.rng.choice([-1, 0, version, max(0, version - 1), version + 1]))

    def watch(self, node: str) -> None:
        if node in self.engine.machine.parts[NodeRecords].present:
            self.engine.watch(node, max(0, self.engine.state.newest.version - self.rng.choice([0, 0, 0, 1])))

    def work(self, node: str) -> None:
        """Do the next step of a well-behaved worker."""
        tasks = self.engine.held.get(node)
        if node not in self.engine.machine.parts[NodeRecords].present:
            self.engine.hello(node)
        elif tasks and self.rng.random() < 0.7:
            task = self.rng.choice(list(tasks.values()))
            steps = self.rng.randrange(task.steps + 1) if self.rng.random() < 0.1 else task.steps
            another = isinstance(task, Audit) and self.rng.random() < 0.3  # differs from the upload, rightly or not
            changes: dict[str, Any] = {"sketch": OTHER_SKETCH} if another else {}
            self.engine.offer(node, answer_to(task, steps=steps, **changes))  # one that was cut short has done less
        elif tasks and self.rng.random() < 0.5:
            self.engine.handle(ev.Received(node, Offer(answer_to(self.rng.choice(list(tasks.values()))))))
        else:
            self.engine.next(node)

    def lie(self, node: str) -> None:
        tasks = [task for held in self.engine.held.values() for task in held.values()]
        if tasks and node in self.engine.state.nodes:
            task = self.rng.choice(tasks)
            if self.rng.random() < 0.1:
                self.engine.offer(node, wrong_kind(task))
            else:
                bad = BAD.get(type(task), BAD_OFFERS)
                self.engine.offer(node, answer_to(task, **self.rng.choice([*bad, {}])))

    def upload(self, node: str) -> None:
        """Bytes of something that was asked for; perhaps all that lacks."""
        if self.engine.wanted:
            self.engine.upload(*self.rng.choice(sorted(self.engine.wanted)), self.rng.choice([0.0, 0.5, 1.0]))

    def arrive(self, node: str) -> None:
        """Let the bytes of a payload arrive that the controller did not ask for."""
        number = self.rng.randrange(30)
        if (node, number) not in self.engine.wanted:
            self.engine.handle(ev.Arrived(node, number, self.rng.choice([0, 1, 10**6])))

    def decline(self, node: str) -> None:
        """Decline a task of its own, a task of another node or a task that does not exist."""
        if node in self.engine.state.nodes:
            number = self.rng.choice([*self.engine.held.get(node, {}), self.rng.randrange(30)])
            self.engine.held.get(node, {}).pop(number, None)
            self.engine.handle(ev.Received(node, Decline(number, "it is too much")))

    def answer(self, node: str) -> None:
        if self.engine.jobs and self.engine.finished is None:
            self.engine.answer(self.rng.choice(self.engine.jobs), good=self.rng.random() < 0.9)

    def fall_silent(self, node: str) -> None:
        self.engine.tick(self.rng.choice([0.01, 0.1, 0.5, 2.0, 3.0, 5.0, 9.0, 31.0]))

    def dawdle(self, node: str) -> None:
        """Let all open work take long, while heartbeats continue."""
        for _ in range(self.rng.choice([2, 4, 8])):
            for other in list(self.engine.machine.parts[NodeRecords].present):
                self.engine.heartbeat(other)
            self.engine.tick(1.0)

    def tick_early(self, node: str) -> None:
        self.engine.handle(ev.Tick())

    def heartbeat(self, node: str) -> None:
        self.engine.heartbeat(node)

    def leave(self, node: str) -> None:
        self.engine.leave(node)

    def die(self, node: str) -> None:
        how = Change.KILLED if self.rng.random() < 0.7 else Change.LEFT
        self.engine.handle(ev.Lost(node, "killed", how))

    def crash(self, node: str) -> None:
        self.engine.crash()

    def straggle(self, node: str) -> None:
        self.engine.deliver_late()

    def stop(self, node: str) -> None:
        self.engine.handle(ev.StopRequested("asked to stop"))

    def interrupt(self, node: str) -> None:
        self.engine.handle(ev.InterruptRequested("interrupted", failed=self.rng.random() < 0.3))

    def go_on(self, node: str) -> None:
        """Somebody resumes what was interrupted."""
        if self.engine.finished is not None and not self.engine.state.progress.finished:
            self.engine.crash()

    def pause(self, node: str) -> None:
        self.engine.handle(ev.PauseRequested(self.rng.choice(["", "maintenance"])))

    def carry_on(self, node: str) -> None:
        self.engine.handle(ev.ContinueRequested())

    def revoke(self, node: str) -> None:
        self.engine.handle(ev.RevokeRequested(node, "it lies"))

    happenings: list[tuple[Callable[[Any, str], None], float]] = [
        (join, 2),
        (come_back, 5),
        (ask, 5),
        (watch, 10),
        (work, 60),
        (lie, 5),
        (upload, 10),
        (arrive, 1),
        (decline, 1),
        (answer, 60),
        (fall_silent, 5),
        (dawdle, 2),
        (tick_early, 1),
        (heartbeat, 5),
        (leave, 1),
        (die, 2),
        (crash, 2),
        (straggle, 2),
        (stop, 0.2),
        (interrupt, 0.5),
        (revoke, 0.3),
        (pause, 1),
        (carry_on, 4),
    ]


class WorkerChance:
    """Things that happen to a worker, drawn from a seeded generator."""

    def __init__(self, bench: Bench, rng: random.Random) -> None:
        self.bench, self.rng = bench, rng

    def step(self) -> None:
        if self.bench.quit is None:
            happenings, weights = zip(*self.happenings, strict=True)
            self.rng.choices(happenings, weights)[0](self)

    def next_step(self) -> None:
        steps = self.bench.due()
        if steps:
            self.rng.choice(steps)()

    def welcome(self) -> None:
        """Perhaps some of what it held is gone."""
        assert self.bench.hello is not None
        held = (*self.bench.hello.pending, *self.bench.hello.working)
        forget = tuple(i for i in held if self.rng.random() < 0.2)
        self.bench.welcome(forget)

    def old_welcome(self) -> None:
        assert self.bench.hello is not None
        if self.bench.hello.greeting > 1:
            self.bench.welcome(greeting=self.rng.randrange(1, self.bench.hello.greeting))

    def who(self) -> None:
        self.bench.hear(Identify())

    def succeed(self) -> None:
        """The controller was replaced, by one that lacks what was newest."""
        self.bench.hear(Identify())
        if self.bench.quit is None:
            self.bench.succeed(self.rng.choice([0, 1, 3]))

    def assign(self) -> None:
        self.bench.assign(
            behind=self.rng.choice([0, 0, 1, 3]),
            whole=self.rng.random() < 0.3,
            shard=self.rng.randrange(2),
            kind=self.rng.choice(["train", "train", "evaluate", "audit"]),
            older=self.rng.choice([0, 0, 1, 2]),
        )

    def newer(self) -> None:
        self.bench.newer(self.rng.choice([1, 1, 2]))

    def ack(self) -> None:
        if self.bench.payloads:
            self.bench.ack(self.rng.choice(list(self.bench.payloads)), self.rng.random() < 0.8)

    def go(self) -> None:
        if self.bench.payloads:
            self.bench.go(self.rng.choice([*self.bench.payloads, 10**6]), self.rng.choice([0, 100, 419, 420]))

    def beaten(self) -> None:
        """Somebody else was faster with what it works on."""
        if self.bench.worker.tasks.held:
            self.bench.ack(self.rng.choice(self.bench.worker.tasks.held), False)

    def stray_ack(self) -> None:
        self.bench.ack(10**6, True)

    def pulse(self) -> None:
        self.bench.pulse(self.rng.choice([0.1, 1.0, 10.0]))

    def fetched(self) -> None:
        if self.bench.fetching:
            self.bench.fetched(self.rng.choice(sorted(self.bench.fetching)))

    def fetch_failed(self) -> None:
        if self.bench.fetching:
            self.bench.fetch_failed(self.rng.choice(sorted(self.bench.fetching)))

    def prepared(self) -> None:
        self.bench.finish_preparing()

    def updated(self) -> None:
        self.bench.finish_update(good=self.rng.random() < 0.85)

    def nearly(self) -> None:
        self.bench.nearly()

    def task_done(self) -> None:
        if self.bench.training is not None:
            short = self.bench.cut or self.rng.random() < 0.05
            self.bench.finish_task(self.rng.randrange(4) if short else 4)

    def steps_taken(self) -> None:
        self.bench.take_steps()

    def encoded(self) -> None:
        self.bench.finish_encoding()

    def task_failed(self) -> None:
        self.bench.fail_task()

    def time(self) -> None:
        self.bench.tick(self.rng.choice([0.01, 0.5, 1.0, 3.0, 6.0, 20.0]))

    def leave(self) -> None:
        self.bench.leave()

    def stop(self) -> None:
        self.bench.stop()

    happenings: list[tuple[Callable[[Any], None], float]] = [
        (next_step, 60),
        (welcome, 4),
        (old_welcome, 2),
        (who, 2),
        (succeed, 2),
        (assign, 8),
        (newer, 6),
        (ack, 5),
        (go, 5),
        (beaten, 1),
        (stray_ack, 1),
        (pulse, 2),
        (fetched, 8),
        (fetch_failed, 2),
        (prepared, 2),
        (updated, 5),
        (nearly, 8),
        (task_done, 5),
        (steps_taken, 8),
        (encoded, 4),
        (task_failed, 0.5),
        (time, 8),
        (leave, 0.2),
        (stop, 0.1),
    ]
