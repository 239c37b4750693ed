"""The controller under random event sequences: what must always hold is checked after every event (`engine.Engine`)."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from barnraise.controller import actions as act
from barnraise.controller import events as ev
from barnraise.core.types import Blob, NodeProfile, ParameterRange
from barnraise.staleness import create as staleness

from .engine import Engine, contribution, digest, engine_settings

NODES = ["a", "b", "c", "d"]
EXPLORE = os.environ.get("HYPOTHESIS_PROFILE") == "explore"

MODES: dict[str, dict[str, Any]] = {
    "asynchronous": {"staleness": staleness("adaptive", max_staleness=4, min_staleness=2)},
    "fixed-bound": {"staleness": staleness("fixed", max_staleness=1), "buffer_size": 2},
    "robust": {"minimum_nodes": 3, "buffer_size": 4, "participation": False},
    "synchronous": {"asynchronous": False},
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
        happenings, weights = zip(*_HAPPENINGS, strict=True)
        self.rng.choices(happenings, weights)[0](self, self.rng.choice(NODES))

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

    def work(self, node: str) -> None:
        tasks = self.engine.held.get(node)
        if tasks:
            self.engine.offer(node, contribution(self.rng.choice(list(tasks.values()))))
        elif node in self.engine.state.nodes:
            self.engine.next(node)

    def lie(self, node: str) -> None:
        tasks = [task for held in self.engine.held.values() for task in held.values()]
        if tasks and node in self.engine.state.nodes:
            changes = self.rng.choice([*BAD_OFFERS, {}])
            self.engine.offer(node, contribution(self.rng.choice(tasks), **changes))

    def answer(self, node: str) -> None:
        if self.engine.jobs and self.engine.finished is None:
            self.engine.answer(self.rng.choice(self.engine.jobs), good=self.rng.random() < 0.9)

    def fall_silent(self, node: str) -> None:
        self.engine.tick(self.rng.choice([0.01, 0.5, 2.0, 4.99, 5.0, 9.0, 30.0]))

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


_HAPPENINGS = [
    (Chance.join, 6),
    (Chance.come_back, 6),
    (Chance.ask, 12),
    (Chance.work, 40),
    (Chance.lie, 5),
    (Chance.answer, 40),
    (Chance.fall_silent, 5),
    (Chance.tick_early, 1),
    (Chance.heartbeat, 4),
    (Chance.leave, 2),
    (Chance.die, 2),
    (Chance.crash, 3),
    (Chance.straggle, 2),
    (Chance.stop, 0.2),
]


@pytest.mark.parametrize("mode", MODES)
def test_thousands_of_short_histories(mode: str) -> None:
    for seed in range(2000 if EXPLORE else 120):
        chance = Chance(Engine(engine_settings(**MODES[mode])), random.Random(f"{mode} {seed}"))
        for _ in range(chance.rng.choice([20, 60, 150])):
            chance.step()
            if chance.engine.finished is not None:
                chance.engine.crash()
        if not chance.engine.state.finished:
            chance.engine.finish()
