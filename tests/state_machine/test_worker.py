"""The worker under random event sequences: what must always hold is checked after every event (`bench.Bench`)."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from barnraise.wire.messages import Who

from .bench import Bench
from .engine import overlap

EXPLORE = os.environ.get("HYPOTHESIS_PROFILE") == "explore"


class Chance:
    """Things that happen to a worker, drawn from a seeded generator."""

    def __init__(self, bench: Bench, rng: random.Random) -> None:
        self.bench, self.rng = bench, rng

    def step(self) -> None:
        if self.bench.quit is None:
            happenings, weights = zip(*_HAPPENINGS, strict=True)
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
        self.bench.hear(Who())

    def assign(self) -> None:
        self.bench.assign(
            behind=self.rng.choice([0, 0, 1, 3]), whole=self.rng.random() < 0.3, shard=self.rng.randrange(2)
        )

    def newer(self) -> None:
        self.bench.newer(self.rng.choice([1, 1, 2]))

    def ack(self) -> None:
        if self.bench.payloads:
            self.bench.ack(self.rng.choice(list(self.bench.payloads)), self.rng.random() < 0.8)

    def go(self) -> None:
        if self.bench.payloads:
            self.bench.go(self.rng.choice([*self.bench.payloads, 10**6]), self.rng.choice([0, 100, 419, 420]))

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

    def task_failed(self) -> None:
        self.bench.fail_task()

    def time(self) -> None:
        self.bench.tick(self.rng.choice([0.01, 0.5, 1.0, 3.0, 6.0, 20.0]))

    def leave(self) -> None:
        self.bench.leave()

    def stop(self) -> None:
        self.bench.stop()


_HAPPENINGS: list[tuple[Callable[[Chance], None], float]] = [
    (Chance.next_step, 60),
    (Chance.welcome, 4),
    (Chance.old_welcome, 2),
    (Chance.who, 2),
    (Chance.assign, 8),
    (Chance.newer, 6),
    (Chance.ack, 5),
    (Chance.go, 5),
    (Chance.stray_ack, 1),
    (Chance.pulse, 2),
    (Chance.fetched, 8),
    (Chance.fetch_failed, 2),
    (Chance.prepared, 2),
    (Chance.updated, 5),
    (Chance.nearly, 8),
    (Chance.task_done, 5),
    (Chance.task_failed, 0.5),
    (Chance.time, 8),
    (Chance.leave, 0.2),
    (Chance.stop, 0.1),
]


@pytest.mark.parametrize("overlapping", [True, False])
def test_short_histories_from_seeds(overlapping: bool) -> None:
    started = 0
    for seed in range(5000 if EXPLORE else 300):
        chance = Chance(Bench(overlap(overlapping)), random.Random(f"{overlapping} {seed}"))
        if seed % 3:
            chance.bench.set_up()
        for _ in range(chance.rng.choice([20, 100, 300])):
            chance.step()
        started += len(chance.bench.done) + len(chance.bench.payloads)
        chance.bench.conclude()
    assert started > 5 * seed, "these histories are too dull"


class Histories(RuleBasedStateMachine):
    """The same happenings in an order that hypothesis chooses, and shortens when something is wrong."""

    @initialize(overlapping=st.booleans())
    def start(self, overlapping: bool) -> None:
        self.bench = Bench(overlap(overlapping))

    @rule(
        happening=st.sampled_from([happening for happening, _ in _HAPPENINGS]),
        rng=st.randoms(use_true_random=False),
    )
    def happens(self, happening: Callable[[Chance], None], rng: random.Random) -> None:
        if self.bench.quit is None:
            happening(Chance(self.bench, rng))

    @rule()
    def goes_well(self) -> None:
        if self.bench.quit is None:
            self.bench.conclude(tasks=1)

    def teardown(self) -> None:
        self.bench.conclude()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=2000 if EXPLORE else 60, stateful_step_count=40)
