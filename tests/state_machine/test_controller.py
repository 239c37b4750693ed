"""The controller under random event sequences: what must always hold is checked after every event (`engine.Engine`)."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from barnraise.controller import events as ev
from barnraise.core.types import Blob, NodeProfile, ParameterRange
from barnraise.staleness import create as staleness
from barnraise.wire.messages import Offer

from .engine import Engine, contribution, digest, engine_settings

NODES = ["a", "b", "c", "d"]
EXPLORE = os.environ.get("HYPOTHESIS_PROFILE") == "explore"

WHOLE = (ParameterRange(0, 100),)
HALVES = (ParameterRange(0, 40), ParameterRange(40, 100))
QUARTERS = (ParameterRange(0, 20), ParameterRange(20, 40), ParameterRange(40, 70), ParameterRange(70, 100))

MODES: dict[str, dict[str, Any]] = {
    "asynchronous": {"staleness": staleness("adaptive", max_staleness=4, min_staleness=2)},
    "fixed-bound": {"staleness": staleness("fixed", max_staleness=1), "buffer_size": 2},
    "robust": {"minimum_nodes": 3, "buffer_size": 4, "participation": False},
    "matched": {"pace": "matched", "max_local_steps": 7},
    "literal": {"pace": "literal", "max_local_steps": 7},
    "flush": {"flush": True},
    "fragments": {"partitions": (HALVES,), "flush": True, "buffer_size": 3},
    "tuned": {"tune": True, "rungs": (420, 500), "max_local_steps": 9},
    "tuned_fragments": {"tune": True, "partitions": (WHOLE, HALVES, QUARTERS), "flush": True, "buffer_size": 3},
    "synchronous-flush": {"asynchronous": False, "flush": True, "minimum_nodes": 2},
    "little-memory": {"upload_memory": 900, "flush": True},
    "synchronous": {"asynchronous": False},
    "synchronous-matched": {"asynchronous": False, "pace": "matched", "max_local_steps": 7},
    "synchronous-robust": {"asynchronous": False, "minimum_nodes": 3},
}

BAD_OFFERS: list[dict[str, Any]] = [
    {"base": 99},
    {"parameters": ParameterRange(0, 50)},
    {"steps": 99},
    {"payload": Blob(digest(1), 10**6)},
    {"assignment": 10**6},
]


class Chance:
    """Things that happen to a run, drawn from a seeded generator."""

    def __init__(self, engine: Engine, rng: random.Random) -> None:
        self.engine, self.rng = engine, rng

    def step(self) -> None:
        self.go_on("")
        if self.engine.finished is None:
            happenings, weights = zip(*_HAPPENINGS, strict=True)
            self.rng.choices(happenings, weights)[0](self, self.rng.choice(NODES))

    def conclude(self) -> None:
        """From here on all goes well, after a restart when the run had given up."""
        if self.engine.finished is not None or self.engine.machine.soft.interrupted is not None:
            self.engine.crash()
        if not self.engine.state.finished:
            self.engine.finish()

    def join(self, node: str) -> None:
        self.engine.hello(node, restart=self.rng.random() < 0.4)

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
        version = self.engine.state.version
        self.engine.next(node, self.rng.choice([-1, 0, version, max(0, version - 1), version + 1]))

    def watch(self, node: str) -> None:
        if node in self.engine.machine.soft.seen:
            self.engine.watch(node, max(0, self.engine.state.version - self.rng.choice([0, 0, 0, 1])))

    def work(self, node: str) -> None:
        """What a well-behaved worker does next."""
        tasks = self.engine.held.get(node)
        if node not in self.engine.machine.soft.seen:
            self.engine.hello(node)
        elif tasks and self.rng.random() < 0.7:
            task = self.rng.choice(list(tasks.values()))
            steps = self.rng.randrange(task.local_steps + 1) if self.rng.random() < 0.1 else task.local_steps
            self.engine.offer(node, contribution(task, steps=steps))  # one that was cut short has done less
        elif tasks and self.rng.random() < 0.5:
            self.engine.handle(ev.Received(node, Offer(contribution(self.rng.choice(list(tasks.values()))))))
        else:
            self.engine.next(node)

    def lie(self, node: str) -> None:
        tasks = [task for held in self.engine.held.values() for task in held.values()]
        if tasks and node in self.engine.state.nodes:
            changes = self.rng.choice([*BAD_OFFERS, {}])
            self.engine.offer(node, contribution(self.rng.choice(tasks), **changes))

    def upload(self, node: str) -> None:
        """Bytes of something that was asked for; perhaps all that lacks."""
        if self.engine.wanted:
            self.engine.upload(*self.rng.choice(sorted(self.engine.wanted)), self.rng.choice([0.0, 0.5, 1.0]))

    def arrive(self, node: str) -> None:
        """Bytes of something that nobody asked for."""
        number = self.rng.randrange(30)
        if (node, number) not in self.engine.wanted:
            self.engine.handle(ev.Arrived(node, number, self.rng.choice([0, 1, 10**6])))

    def answer(self, node: str) -> None:
        if self.engine.jobs and self.engine.finished is None:
            self.engine.answer(self.rng.choice(self.engine.jobs), good=self.rng.random() < 0.9)

    def fall_silent(self, node: str) -> None:
        self.engine.tick(self.rng.choice([0.01, 0.1, 0.5, 2.0, 3.0, 5.0, 9.0, 31.0]))

    def tick_early(self, node: str) -> None:
        self.engine.handle(ev.Tick())

    def heartbeat(self, node: str) -> None:
        self.engine.heartbeat(node)

    def leave(self, node: str) -> None:
        self.engine.leave(node)

    def die(self, node: str) -> None:
        self.engine.handle(ev.Lost(node, "killed"))

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
        if self.engine.finished is not None and not self.engine.state.finished:
            self.engine.crash()

    def revoke(self, node: str) -> None:
        self.engine.handle(ev.RevokeRequested(node, "it lies"))


_HAPPENINGS = [
    (Chance.join, 2),
    (Chance.come_back, 5),
    (Chance.ask, 5),
    (Chance.watch, 10),
    (Chance.work, 60),
    (Chance.lie, 5),
    (Chance.upload, 10),
    (Chance.arrive, 1),
    (Chance.answer, 60),
    (Chance.fall_silent, 5),
    (Chance.tick_early, 1),
    (Chance.heartbeat, 5),
    (Chance.leave, 1),
    (Chance.die, 1),
    (Chance.crash, 2),
    (Chance.straggle, 2),
    (Chance.stop, 0.2),
    (Chance.interrupt, 0.5),
    (Chance.revoke, 0.3),
]


@pytest.mark.parametrize("mode", MODES)
def test_short_histories_from_seeds(mode: str) -> None:
    for seed in range(2000 if EXPLORE else 60):
        chance = Chance(Engine(engine_settings(**MODES[mode])), random.Random(f"{mode} {seed}"))
        for _ in range(chance.rng.choice([20, 60, 150])):
            chance.step()
        chance.conclude()


class Histories(RuleBasedStateMachine):
    """The same happenings in an order that hypothesis chooses, and shortens when something is wrong."""

    @initialize(mode=st.sampled_from(sorted(MODES)))
    def start(self, mode: str) -> None:
        self.engine = Engine(engine_settings(**MODES[mode]))

    @rule(
        happening=st.sampled_from([happening for happening, _ in _HAPPENINGS]),
        node=st.sampled_from(NODES),
        rng=st.randoms(use_true_random=False),
    )
    def happens(self, happening: Callable[[Chance, str], None], node: str, rng: random.Random) -> None:
        happening(Chance(self.engine, rng), node)

    @rule(node=st.sampled_from(NODES))
    def one_round(self, node: str) -> None:
        """One contribution all the way, so that short histories get somewhere."""
        self.engine.hello(node)
        self.engine.next(node)
        for task in list(self.engine.held[node].values()):
            self.engine.offer(node, contribution(task))
        while self.engine.jobs and self.engine.finished is None:
            self.engine.answer(self.engine.jobs[0])

    def teardown(self) -> None:
        Chance(self.engine, random.Random(0)).conclude()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=2000 if EXPLORE else 30, stateful_step_count=30)
