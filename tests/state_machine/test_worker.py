"""The worker under random event sequences: what must always hold is checked after every event (`bench.Bench`)."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from .bench import Bench
from .chances import WorkerChance
from .engine import overlap

EXPLORE = os.environ.get("HYPOTHESIS_PROFILE") == "explore"


@pytest.mark.parametrize("overlapping", [True, False])
def test_short_histories_from_seeds(overlapping: bool) -> None:
    started = 0
    for seed in range(5000 if EXPLORE else 300):
        chance = WorkerChance(Bench(overlap(overlapping)), random.Random(f"{overlapping} {seed}"))
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
        happening=st.sampled_from([happening for happening, _ in WorkerChance.happenings]),
        rng=st.randoms(use_true_random=False),
    )
    def happens(self, happening: Callable[[WorkerChance], None], rng: random.Random) -> None:
        if self.bench.quit is None:
            happening(WorkerChance(self.bench, rng))

    @rule()
    def goes_well(self) -> None:
        if self.bench.quit is None:
            self.bench.conclude(tasks=1)

    def teardown(self) -> None:
        self.bench.conclude()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=2000 if EXPLORE else 60, stateful_step_count=40)
