"""The controller under random event sequences: what must always hold is checked after every event (`engine.Engine`)."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from ..campaigns import sizes
from .chances import MODES, NODES, OWNERS, RunChance
from .engine import Engine, answer_to, engine_settings

EXPLORE = os.environ.get("HYPOTHESIS_PROFILE") == "explore"


@pytest.mark.parametrize("seeds", sizes(5, 2000 if EXPLORE else 60))
@pytest.mark.parametrize("mode", MODES)
def test_short_histories_from_seeds(mode: str, seeds: int) -> None:
    for seed in range(seeds):
        engine = Engine(engine_settings(**MODES[mode]), OWNERS[seed % len(OWNERS)])
        chance = RunChance(engine, random.Random(f"{mode} {seed}"))
        for _ in range(chance.rng.choice([20, 60, 150])):
            chance.step()
        chance.conclude()


class Histories(RuleBasedStateMachine):
    """The same happenings in an order that hypothesis chooses, and shortens when something is wrong."""

    @initialize(mode=st.sampled_from(sorted(MODES)), owners=st.sampled_from(OWNERS))
    def start(self, mode: str, owners: dict[str, str]) -> None:
        self.engine = Engine(engine_settings(**MODES[mode]), owners)

    @rule(
        happening=st.sampled_from([happening for happening, _ in RunChance.happenings]),
        node=st.sampled_from(NODES),
        rng=st.randoms(use_true_random=False),
    )
    def happens(self, happening: Callable[[RunChance, str], None], node: str, rng: random.Random) -> None:
        happening(RunChance(self.engine, rng), node)

    @rule(node=st.sampled_from(NODES))
    def one_round(self, node: str) -> None:
        """One contribution all the way, so that short histories get somewhere."""
        self.engine.hello(node)
        self.engine.next(node)
        for task in list(self.engine.held[node].values()):
            self.engine.offer(node, answer_to(task))
        while self.engine.jobs and self.engine.finished is None:
            self.engine.answer(self.engine.jobs[0])

    def teardown(self) -> None:
        RunChance(self.engine, random.Random(0)).conclude()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=2000 if EXPLORE else 30, stateful_step_count=30)
