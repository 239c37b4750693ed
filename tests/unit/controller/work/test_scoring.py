"""Scores: whose contributions are looked at, what follows from what they do, and what is seen of them."""

from __future__ import annotations

import argparse
import doctest
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import barnraise
from barnraise import compression
from barnraise.controller.fleet.backoff import Backoff
from barnraise.controller.fleet.probation import PACE, Probation
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state import effects
from barnraise.controller.state.settings import ScoreSettings
from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.controller.tensors.scorer import Scorer
from barnraise.controller.tensors.stages.base import Step
from barnraise.core.types import Batches, Blob, Contribution, NodeProfile, ParameterRange, RowRange, Train
from barnraise.data.batches import batches
from barnraise.data.shards import Dataset
from barnraise.data.text import build as build_data
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.models.exchange.record import Exchange
from barnraise.models.flat import FlatParameters
from barnraise.training.local import LocalTrainer
from barnraise.trust import suspicion
from barnraise.trust.reputation import Reputation, Scores

from ....state_machine.engine import Engine, contribution, engine_settings

GOOD, BAD = effects.Gains(0.2, 0.1, 3.0), effects.Gains(0.1, 0.1, 0.0)

# The test


@given(st.lists(st.booleans(), max_size=60), st.floats(0.25, 0.9))
def test_suspicion_is_the_largest_log_likelihood_ratio_of_any_recent_stretch(passed: list[bool], usual: float) -> None:
    found = 0.0
    for one in passed:
        found = suspicion.after(found, one, usual)
    ratios = [math.log(0.25 / usual) if one else math.log(0.75 / (1 - usual)) for one in passed]
    longest = max((sum(ratios[start:]) for start in range(len(ratios) + 1)), default=0.0)
    assert found == pytest.approx(longest, abs=1e-9)


def test_honest_nodes_are_discredited_no_more_often_than_is_promised() -> None:
    """At a threshold that is reached often enough to be counted: P <= n * odds."""
    rng, length, runs = random.Random(0), 50, 4000
    for odds in (0.01, 0.003):
        wrong = 0
        for _ in range(runs):
            found, most = 0.0, 0.0
            for _ in range(length):
                found = suspicion.after(found, rng.random() < suspicion.MOST)
                most = max(most, found)
            wrong += most >= -math.log(odds)
        assert wrong / runs <= length * odds


def test_suspicion_of_a_node_that_does_not_train_soon_exceeds_the_limit() -> None:
    rng, taken = random.Random(1), []
    for _ in range(200):
        found, count = 0.0, 0
        while found < suspicion.LIMIT:
            found, count = suspicion.after(found, rng.random() < 0.16), count + 1
        taken.append(count)
    assert np.mean(taken) < 9
    assert max(taken) < 40


def expected(*rates: float) -> float:
    """By nodes each of which has an owner of its own."""
    return suspicion.expected((str(place), rate) for place, rate in enumerate(rates))


def test_the_expected_pass_rate_is_the_median_of_the_nodes() -> None:
    assert expected(0.9, 0.88, 0.92, 0.1, 0.1) == 0.88
    assert expected(0.7, 0.72, 0.71, 1.0, 1.0) == 0.72


def test_the_nodes_of_one_owner_do_not_outvote_others_by_their_number() -> None:
    honest, sybils = [("a", 0.6), ("b", 0.65), ("c", 0.7)], [("s", 0.9)] * 4
    assert suspicion.expected(honest + sybils) == 0.7


def test_doubts_cost_weight_and_end_with_a_conviction() -> None:
    doubted = Reputation(sound=9, scores=Scores(20, 0.5, suspicion.LIMIT * 3 / 4))
    assert doubted.weight() == pytest.approx(0.55)
    assert doubted.after_audit().scores == doubted.scores
    assert doubted.after_conviction(0.0).scores == Scores()


# The part


def scored(share: float = 1.0, **changes: Any) -> Engine:
    usual = {"tokens": 10**6, "buffer_size": 1, "scores": ScoreSettings(share, b"key")}
    return Engine(engine_settings(**usual | changes))


def held_until(engine: Engine, node: str) -> float:
    hold = engine.machine.parts[Probation].hold(engine.state.nodes[node], engine.now)
    return 0.0 if hold is None else hold.until


def train_once(engine: Engine, node: str, gains: effects.Gains | None) -> Train | None:
    """The node contributes; what is asked for is done, and scores come to `gains`. None: it gets no task."""
    if node not in engine.machine.parts[NodeRecords].present:
        engine.hello(node)
    engine.now += 0.5  # which a task takes
    engine.next(node)
    tasks = [task for task in engine.held.get(node, {}).values() if isinstance(task, Train)]
    if not tasks:
        return None
    engine.offer(node, contribution(tasks[0]))
    while jobs := [job for job in engine.jobs if isinstance(job, effects.Inspect | effects.Aggregate | effects.Score)]:
        job = jobs[0]
        if isinstance(job, effects.Score):
            engine.jobs.remove(job)
            engine.handle(effects.Scored(job.epoch, job.contribution.assignment, engine.state.newest.version, gains))
        else:
            engine.answer(job)
    return tasks[0]


def told(engine: Engine, kind: type[Any]) -> list[tuple[str, Any]]:
    return [(d.node, d.note) for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, kind)]


def looked_at() -> tuple[Engine, Train, effects.Score]:
    """A first contribution that is being scored."""
    engine = scored()
    engine.hello("a")
    engine.next("a")
    (task,) = engine.held["a"].values()
    assert isinstance(task, Train)
    engine.offer("a", contribution(task))
    engine.answer(*[job for job in engine.jobs if isinstance(job, effects.Inspect)])
    (score,) = [job for job in engine.jobs if isinstance(job, effects.Score)]
    return engine, task, score


def test_a_score_covers_the_submitted_steps() -> None:
    _, task, score = looked_at()
    assert (score.node, score.contribution.assignment, score.steps) == ("a", task.id, task.local_steps)
    assert score.batches == task.batches


def test_a_node_that_does_not_train_is_dismissed_and_gets_no_tasks() -> None:
    engine = scored()
    for _ in range(12):
        for node in ("a", "b", "c"):
            train_once(engine, node, GOOD)
    for _ in range(12):
        for node in ("a", "b", "c"):
            train_once(engine, node, BAD if node == "c" else GOOD)
    ((node, note),) = told(engine, notes.Discredited)
    assert (node, note.until) == ("c", pytest.approx(note.until))
    assert sum(name == "c" for name, _ in told(engine, notes.Scored)) <= 12 + 6
    assert train_once(engine, "c", GOOD) is None
    assert not engine.state.nodes["c"].live or engine.machine.parts[Backoff].held("c")
    engine.now = note.until + 1.0
    assert train_once(engine, "c", GOOD) is not None, "it may try again after a while"
    assert engine.state.nodes["c"].tally.reputation.weight() < 0.5


def test_no_node_is_judged_by_uninformative_comparisons() -> None:
    """A codec that drops nearly all values is such a case: half of the comparisons of every node pass."""
    engine, rng = scored(), random.Random(2)
    for _ in range(150):
        for node in ("a", "b", "c"):
            train_once(engine, node, rng.choice([GOOD, BAD, BAD, BAD]))
    assert len(told(engine, notes.Scored)) > 300
    assert not told(engine, notes.Discredited)


def test_liars_that_are_fewer_than_half_do_not_move_what_is_expected() -> None:
    engine = scored()
    for _ in range(40):
        for node in ("a", "b", "c", "d", "e"):
            train_once(engine, node, BAD if node in ("d", "e") else GOOD)
    assert {node for node, _ in told(engine, notes.Discredited)} == {"d", "e"}


def test_the_first_scored_nodes_do_not_set_the_expectation_for_others() -> None:
    """Three nodes that fit their own rows too well raise no suspicion of nodes whose comparisons pass by chance."""
    engine, rng = scored(), random.Random(4)
    sybils, honest = ["s0", "s1", "s2"], [f"h{number}" for number in range(7)]
    for _ in range(12):
        for node in sybils:
            train_once(engine, node, GOOD)
    for _ in range(40):
        for node in honest:
            train_once(engine, node, rng.choice([GOOD, BAD]))
    assert {node for node, _ in told(engine, notes.Scored)} == {*sybils, *honest}
    assert not told(engine, notes.Discredited)


def test_known_nodes_are_looked_at_now_and_then() -> None:
    engine = scored(share=0.1)
    for _ in range(120):
        train_once(engine, "a", GOOD)
    assert 8 <= len(told(engine, notes.Scored)) <= 8 + 25


def test_gains_that_are_no_numbers_do_not_pass_and_nothing_to_compare_says_nothing() -> None:
    engine = scored()
    train_once(engine, "a", None)
    assert not told(engine, notes.Scored)
    train_once(engine, "a", effects.Gains(math.nan, math.inf, math.nan))
    ((_, note),) = told(engine, notes.Scored)
    assert (note.own, note.others, note.more, note.passed) == (None, None, None, False)


def test_a_result_of_a_dead_controller_is_none() -> None:
    engine, task, score = looked_at()
    engine.handle(effects.Scored(score.epoch - 1, task.id, 0, BAD))
    assert not told(engine, notes.Scored)


# Effects of training on the scores


STEPS, SIZE = 10, 4


class Work:
    """A small model that a node trains on the rows of its task, or on other rows."""

    def __init__(self, folder: Path) -> None:
        build_data(folder / "data", [argparse.__file__, doctest.__file__], context=32)
        self.data = Dataset.open(folder / "data")
        config = describe(
            {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 1, "num_heads": 2}},
            self.data.meta.vocab_size,
            32,
        )
        torch.manual_seed(0)
        self.trainer = LocalTrainer(build(config), optimizer="adamw", options={"learning_rate": 0.0}, gradient_clip=1.0)
        self.evaluator = Evaluator(config, Exchange.of(config), self.data, 16)
        self.codec = compression.create("int8")
        self.start = self.trainer.flat.vector.clone()
        self.train(Batches((RowRange(0, 400, 4400),), SIZE, 5), 400)  # so that there is something to know already
        self.start = self.trainer.flat.vector.clone()

    def train(self, order: Batches, steps: int) -> torch.Tensor:
        """Return the change of the weights after `steps` steps, as a value to subtract."""
        self.trainer.load(self.start)
        parts = [self.data.rows(rows.shard, rows.start, rows.stop) for rows in order.rows]
        for batch, _ in zip(batches(parts, order, self.data.meta), range(steps), strict=False):
            self.trainer.step(batch, 0.003)
        return self.start - self.trainer.flat.vector

    def gains(self, update: torch.Tensor, order: Batches, seed: int) -> effects.Gains | None:
        size = len(update)
        made = Contribution.of(
            Train(id=1, base=0, batches=order, tokens=1, local_steps=STEPS, learning_rate=1.0, rung=0,
                  parameters=ParameterRange(0, size), max_staleness=1),
            Blob("a" * 64, 1), codec=0, steps=STEPS,
        )  # fmt: skip
        step = Step(self.codec.open(self.codec.encode(update), size), made.parameters)
        action = effects.Score(1, "a", made, order, STEPS, seed)
        return Scorer(self.evaluator).gains(self.start, step, None, action, self.data)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    return Work(tmp_path_factory.mktemp("work"))


def order_of(number: int) -> Batches:
    return Batches((RowRange(0, number * 40, number * 40 + 40),), SIZE, number)


def test_scores_separate_training_on_own_rows_from_training_on_other_rows(work: Work) -> None:
    own, other = [], []
    for number in range(8):
        update = work.train(order_of(number), STEPS)
        for order, found in ((order_of(number), own), (order_of((number + 3) % 8), other)):
            gains = work.gains(update, order, seed=number)
            assert gains is not None
            found.append(gains.more)
    assert np.median(own) > 2.0
    assert abs(np.median(other)) < 1.0
    assert sum(one > suspicion.ENOUGH for one in own) >= 7
    assert sum(one > suspicion.ENOUGH for one in other) <= 3


def test_the_same_seed_sees_the_same_and_parameters_stay(work: Work) -> None:
    update, before = work.train(order_of(1), STEPS), work.start.clone()
    assert work.gains(update, order_of(1), 7) == work.gains(update, order_of(1), 7)
    assert work.gains(update, order_of(1), 7) != work.gains(update, order_of(1), 8)
    assert torch.equal(work.start, before)


def test_an_update_of_nothing_does_nothing_and_a_lie_in_reverse_harms(work: Work) -> None:
    nothing = work.gains(torch.zeros_like(work.start), order_of(2), 1)
    assert nothing == effects.Gains(0.0, 0.0, 0.0)
    reverse = work.gains(-work.train(order_of(2), STEPS), order_of(2), 1)
    assert reverse is not None
    assert reverse.more < 0.0


def test_without_other_rows_there_is_nothing_to_compare(work: Work) -> None:
    rows = work.data.meta.shards[0].rows
    assert work.gains(torch.zeros_like(work.start), Batches((RowRange(0, 0, rows),), SIZE, 0), 1) is None


def test_a_huge_update_comes_to_no_number(work: Work) -> None:
    found = work.gains(torch.full_like(work.start, 1e30), order_of(2), 1)
    assert found is not None
    assert not found.more > suspicion.ENOUGH


def test_published_moments_behind_the_parameters_do_not_count(work: Work) -> None:
    update = torch.cat([work.train(order_of(3), STEPS), torch.full((64,), 5.0)])
    longer = work.gains(update, order_of(3), 3)
    alone = work.gains(update[:-64], order_of(3), 3)
    assert longer is not None
    assert alone is not None
    assert longer.more == pytest.approx(alone.more, abs=0.3)  # blocks of the codec end elsewhere


def test_a_model_has_its_flat_vector(work: Work) -> None:
    assert FlatParameters(build(work.evaluator.model)).layout.size == len(work.start)


def test_a_costed_simulation_scores_too_and_all_of_it_is_sound() -> None:
    run_file: dict[str, Any] = {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "text", "files": ["nowhere"], "context": 16},
        "training": {"tokens": 100_000, "batch_size": 4, "local_steps": 16},
    }
    changed = {**run_file, "training": {**run_file["training"], "scores": 0.5}}
    plain, scored, again = (
        barnraise.simulate(content, nodes=4, seed=1, tokens_per_second=1000.0)
        for content in (run_file, changed, changed)
    )
    assert plain.ledger_hash != scored.ledger_hash == again.ledger_hash
    assert scored.verdicts.accepted == plain.verdicts.accepted


def test_an_unscored_node_works_at_the_pace_of_others() -> None:
    """However fast it is, and though it leaves and comes back; once it is known, it works as fast as it can."""
    engine = scored()
    for _ in range(10):
        for node in ("a", "b", "c"):
            train_once(engine, node, GOOD)
    assert train_once(engine, "d", GOOD) is not None
    held = held_until(engine, "d")
    assert held > engine.now
    engine.now -= 0.5
    assert train_once(engine, "d", GOOD) is None, "no time has passed"
    engine.leave("d")
    engine.hello("d")
    assert held_until(engine, "d") == held
    for _ in range(8):
        engine.now += 100.0
        assert train_once(engine, "d", GOOD) is not None
    assert held_until(engine, "d") == 0.0


def test_an_unscored_node_gets_no_larger_tasks_than_others() -> None:
    """So that a fast node is known after as much time as any other, and not after as many of its own large tasks."""
    engine = scored(pace="matched", max_local_steps=1000)
    nodes = {"a": 60.0, "b": 60.0, "c": 60.0, "d": 6000.0}
    for node in nodes:
        engine.hello(node)
    engine.observed(**nodes)
    steps = {}
    for node in nodes:
        engine.next(node)
        (task,) = engine.held[node].values()
        steps[node] = task.local_steps
    assert steps == {"a": steps["a"], "b": steps["a"], "c": steps["a"], "d": math.ceil(PACE * steps["a"])}
    for state in (engine.state, engine.shadow):
        state.nodes["d"].tally.reputation = Reputation(scores=Scores(count=9, passing=0.9))
    assert engine.machine.parts[Probation].most(engine.state.nodes["d"], 999) == 999


def test_an_unscored_instant_node_is_paced_by_the_claimed_speeds() -> None:
    engine = scored()
    for node in ("a", "b", "c", "eve"):
        engine.hello(node, profile=NodeProfile(10.0))
    began, seconds = engine.now, engine.settings.tasks.tokens / (PACE * 10.0)
    for _ in range(40):
        train_once(engine, "eve", BAD)
        engine.now -= 0.4  # 0.4 s of the 0.5 s that pass
    tally = engine.state.nodes["eve"].tally
    assert engine.state.nodes["eve"].speed.rate > 3 * PACE * 10.0
    assert 3 <= tally.accepted <= 2 + (engine.now - began) / seconds, "one ahead, and then it waits"


def test_where_comparisons_say_little_fast_nodes_are_not_held_up_for_ever() -> None:
    engine, rng = scored(), random.Random(3)
    for _ in range(20):
        for node in ("a", "b", "c"):
            engine.now += 100.0
            train_once(engine, node, rng.choice([GOOD, BAD, BAD]))
    assert all(held_until(engine, node) <= engine.now for node in ("a", "b", "c"))
