"""Random events with hostile values for both machines: the controller among nodes that lie, the worker under a
controller that does. The harness of `tests/state_machine` checks each action, and what must hold after each event.

Messages hold any value here that a decoder lets through; reports of shells may hold any value at all.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from barnraise.controller.state import effects
from barnraise.controller.state import events as ev
from barnraise.core.errors import RunFailedError, WireError
from barnraise.core.types import Blob, Flush, Train
from barnraise.ledger.decisions import Change
from barnraise.wire.frames import decode_from_controller, encode
from barnraise.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    Assign,
    Chunk,
    Hello,
    Message,
    Newer,
    Offer,
    Pulse,
    RequestTask,
    Stop,
    Subscribe,
    Welcome,
)
from barnraise.worker.leaving import PATIENCE
from barnraise.worker.terms import require_intervals

from ..state_machine.bench import Bench
from ..state_machine.chances import MODES, NODES, RunChance, WorkerChance
from ..state_machine.engine import MANIFEST, Engine, digest, engine_settings, overlap
from .values import FLOATS, FROM_CONTROLLER, FROM_WORKER, INTEGERS, TEXTS, Hostile, plain

NORMS = tuple(value for value in FLOATS if not value < 0.0)
COUNTS = tuple(value for value in INTEGERS if 0 <= value <= 2**53)
SECONDS = (0.0, 5e-324, 1e-9, 1e-3, 0.5, 7.0, 100.0, 1e6)
STRANGENESS = (0.0, 0.05, 0.2, 0.6)


class HostileRun(RunChance):
    """A run among nodes that say whatever the decoder lets through. In the end it must still come to its end."""

    def __init__(self, engine: Engine, rng: random.Random) -> None:
        super().__init__(engine, rng)
        self.hostile = Hostile(rng)
        self.hostile.remember("protocol", PROTOCOL_VERSION)
        self.hostile.remember("payload", *({"digest": digest(1), "num_bytes": size} for size in (1, 420, 500)))

    def lie(self, node: str) -> None:
        """At times as the other tests do; else any message, with what is known of the run's tasks in it."""
        if self.rng.random() < 0.3:
            super().lie(node)
            return
        tasks = [task for held in self.engine.held.values() for task in held.values()]
        if tasks:
            task = self.rng.choice(tasks)
            self.hostile.remember("assignment", task.id)
            self.hostile.remember("base", task.base)
            if isinstance(task, Train):
                self.hostile.remember("parameters", plain(task.parameters))
            self.hostile.remember("steps", task.steps)
            self.hostile.remember("pending", [other.id for other in tasks[:20]])
            self.hostile.remember("working", [task.id])
        kind = self.rng.choice(FROM_WORKER)
        self.say(node, self.hostile.message(kind, self.rng.choice(STRANGENESS)))

    def say(self, node: str, message: Message) -> None:
        """The node says so; what the harness has to keep of that is kept."""
        engine = self.engine
        known = node in engine.state.nodes
        if isinstance(message, Hello) and message.protocol == PROTOCOL_VERSION:
            engine.hello(node, **{name: getattr(message, name) for name in Hello.__struct_fields__})
        elif isinstance(message, RequestTask) and known:
            engine.next(node, message.have, message.link)
        elif isinstance(message, Subscribe) and known:
            engine.watch(node, message.have)
        elif isinstance(message, Offer) and known:
            engine.offer(node, message.result)
        else:
            engine.handle(ev.Received(node, message))

    def answer(self, node: str) -> None:
        """Payloads have any norm, evaluations any loss."""
        engine, rng = self.engine, self.rng
        job = rng.choice(engine.jobs) if engine.jobs and engine.finished is None else None
        if isinstance(job, effects.Inspect) and rng.random() < 0.3:
            engine.jobs.remove(job)
            engine.handle(
                effects.Inspected(job.epoch, job.result.assignment, rng.choice(NORMS), rng.choice(("", "bad")))
            )
        elif isinstance(job, effects.Evaluate) and rng.random() < 0.5:
            engine.jobs.remove(job)
            engine.handle(effects.Evaluated(job.epoch, engine.state.newest.version, rng.choice(FLOATS)))
        elif isinstance(job, effects.Score) and rng.random() < 0.5:
            engine.jobs.remove(job)
            gains = effects.Gains(rng.choice(FLOATS), rng.choice(FLOATS), rng.choice(FLOATS))
            engine.handle(effects.Scored(job.epoch, job.contribution.assignment, engine.state.newest.version, gains))
        elif job is not None:
            engine.answer(job, good=rng.random() < 0.9)

    def shell(self, node: str) -> None:
        """Let the shell send a report that it may send at any time."""
        rng, number = self.rng, self.rng.choice(COUNTS)
        event = rng.choice(
            [
                ev.Admitted(rng.choice([node, "e"]), rng.choice([f"key of {rng.choice(NODES)}", "another"]), "invite"),
                ev.Lost(
                    rng.choice([node, "nobody"]),
                    rng.choice(TEXTS),
                    rng.choice([Change.LEFT, Change.ENDED, Change.KILLED]),
                ),
                ev.Rekeyed(rng.choice([node, "nobody"]), rng.choice([f"key of {node}", f"new key {number}"]), ""),
                ev.Heard(rng.choice([node, "nobody"])),
                ev.Stalled(rng.choice(SECONDS[:-1])),
                ev.Dropped(rng.choice([node, ""]), rng.choice(TEXTS), number),
                ev.Traffic(number, number),
                ev.Tick(),
            ]
        )
        self.engine.handle(event)

    def arrive(self, node: str) -> None:
        number = self.rng.choice(COUNTS)
        if (node, number) not in self.engine.wanted:
            self.engine.handle(ev.Arrived(node, number, self.rng.choice(COUNTS)))

    def fall_silent(self, node: str) -> None:
        self.engine.tick(self.rng.choice(SECONDS))

    happenings = [(call, weight) for call, weight in RunChance.happenings if call.__name__ not in {
        "lie", "answer", "arrive", "fall_silent"
    }] + [(lie, 60), (answer, 60), (arrive, 2), (fall_silent, 4), (shell, 5)]  # fmt: skip


class HostileController(WorkerChance):
    """A worker under a controller that says whatever the decoder lets through. It must always be able to leave."""

    def __init__(self, bench: Bench, rng: random.Random) -> None:
        super().__init__(bench, rng)
        self.hostile = Hostile(rng)
        self.hostile.remember("manifest", plain(MANIFEST))
        self.hostile.remember("settings", *(plain(overlap(wanted)) for wanted in (True, False)))
        self.hostile.remember("rows", [[0, 0, 8]], [[1, 0, 8], [0, 3, 5]])
        self.hostile.remember("blob", plain(Blob(digest(1), 90)), plain(Blob(digest(2), 90)))
        self.hostile.remember("local_steps", 4)

    def step(self) -> None:
        self.bench.newest = 0  # the versions that the honest answers name follow on what the replica has by now
        super().step()

    def say(self) -> None:
        """Any message that the shell would pass on."""
        bench, worker, rng = self.bench, self.bench.worker, self.rng
        held = [*bench.payloads, *worker.tasks.held]
        self.hostile.remember("greeting", worker.contact.greeting)
        self.hostile.remember("forget", rng.sample(held, rng.randrange(len(held) + 1)))
        have = min(2**53 - 1, max(0, worker.incoming.have))
        self.hostile.remember("base", have)
        self.hostile.remember("version", have + rng.choice((0, 1)))
        for name in ("assignment", "id"):
            self.hostile.remember(name, rng.choice([*held, *bench.done, bench.last_task + 1]))
        kind = rng.choice([kind for kind in FROM_CONTROLLER if kind not in (Chunk, Stop)])
        message = passed_on(self.hostile.message(kind, rng.choice(STRANGENESS)))
        if message is not None:
            self.hear(message)

    def hear(self, message: Message) -> None:
        """The worker hears it; what the harness has to keep of that is kept."""
        bench, worker = self.bench, self.bench.worker
        if isinstance(message, Welcome):
            if message.greeting == worker.contact.greeting and not worker.contact.greeted:
                bench.asked = bench.watched = None
                bench.settings, bench.told = message.settings, -1
        elif isinstance(message, Ack):
            (bench.acked.add if message.accepted else bench.acked.discard)(message.assignment)
        elif isinstance(message, Assign):
            bench.last_task = min(max(bench.last_task, message.task.id), 2**40)
        elif isinstance(message, Newer):
            bench.watched = None
        bench.hear(message)
        if isinstance(message, Ack) and message.assignment not in bench.payloads:
            bench.acked.discard(message.assignment)

    def task_done(self) -> None:
        """As the executor ends a task: a flush takes no step, and one of another kind that takes none has failed."""
        task = self.bench.training
        if task is not None and isinstance(task, Flush):
            self.bench.finish_task(0)
        elif task is not None and not task.steps:
            self.bench.fail_task()
        elif task is not None:
            short = self.bench.cut or self.rng.random() < 0.05
            self.bench.finish_task(self.rng.randrange(1 + min(4, task.steps)) if short else task.steps)

    def next_step(self) -> None:
        """As `due` has it, but for a task that the controller made up."""
        steps = [step for step in self.bench.due() if step != self.bench.finish_task]
        if steps and (self.bench.training is None or self.rng.random() < 0.5):
            self.rng.choice(steps)()
        else:
            self.task_done()

    def conclude(self) -> None:
        """The worker is asked to leave, and the controller no longer answers."""
        bench = self.bench
        if bench.quit is None:
            bench.leave()
        for _ in range(int(PATIENCE) + 30):
            if bench.quit is not None:
                return
            self.task_done()
            bench.tick(1.0)
        raise AssertionError("the worker cannot leave")

    happenings = [(call, weight) for call, weight in WorkerChance.happenings if call.__name__ not in {
        "next_step", "task_done"
    }] + [(next_step, 60), (task_done, 6), (say, 50)]  # fmt: skip


def passed_on(message: Message) -> Message | None:
    """Return the message that the worker's shell passes to its machine, or None where it passes none."""
    try:
        message, _ = decode_from_controller(encode(message))
        if isinstance(message, Welcome | Pulse):
            require_intervals(message.heartbeat, message.lease)
    except (WireError, RunFailedError):
        return None
    return message


class Failed(Exception):
    """A failure: the finding, and the way to reproduce it."""


class Done(NamedTuple):
    """The counts of a campaign."""

    events: int
    histories: int


def hostile_run(rng: random.Random) -> HostileRun:
    return HostileRun(Engine(engine_settings(**MODES[rng.choice(sorted(MODES))])), rng)


def hostile_controller(rng: random.Random) -> HostileController:
    chance = HostileController(Bench(overlap(rng.random() < 0.5), sound=False), rng)
    if rng.random() < 0.7:
        chance.bench.set_up()
    return chance


MACHINES: dict[str, Callable[[random.Random], HostileRun | HostileController]] = {
    "controller": hostile_run,
    "worker": hostile_controller,
}
LENGTHS = (20, 60, 150, 400)


def history(machine: str, seed: str) -> int:
    """One history; how many events that were. Raises Failed with what is wrong, and after which event."""
    rng = random.Random(seed)
    chance = MACHINES[machine](rng)
    tried = chance.engine if isinstance(chance, HostileRun) else chance.bench
    try:
        for _ in range(rng.choice(LENGTHS)):
            chance.step()
        chance.conclude()
    except Exception as error:
        again = f"python -m tests.intrude --replay {machine} '{seed}'"
        raise Failed(f"{machine}, seed '{seed}', event {tried.num_events}: {error!r}; again: {again}") from error
    return tried.num_events


def campaign(machine: str, events: int, seed: str) -> Done:
    """Histories until `events` events have happened."""
    count, number = 0, 0
    while count < events:
        count += history(machine, f"{seed} {number}")
        number += 1
    return Done(count, number)
