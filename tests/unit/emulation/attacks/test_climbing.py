"""The attack that climbs the loss: what it measures, and what its update does through the rule of `serve`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.batches import labelled
from tests.rows import text_rows

from barnraise import aggregation
from barnraise.aggregation.defaults import AUTOMATIC_F, DEFENDED
from barnraise.emulation.attacks.board import Array, Board, Scene
from barnraise.emulation.attacks.catalog import create
from barnraise.emulation.attacks.climbing import gated
from barnraise.emulation.attacks.executor import making, watched
from barnraise.emulation.attacks.seeing import LONGEST
from barnraise.emulation.attacks.surface import MOST_BATCHES, Surface
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.training.causal_lm import CausalLM
from barnraise.training.local import LocalTrainer, batch_loss

from ....state_machine.engine import told
from .test_attacks import FORMAT, SHAPE, VOCABULARY, hand_in, sent, task, worker

NODES, LIARS = 9, 2
LEARNT = ((np.arange(16) + np.arange(512)[:, None]) % VOCABULARY).astype(np.uint16)  # each token is one more


def shown(board: Board, node: str, attack: dict[str, Any] | None = None) -> Any:
    """An executor of `node` at version 0, on rows that can be learnt; its updates are on the board, or it attacks."""
    module = build(describe({"architecture": "gpt2", "config": SHAPE}, VOCABULARY, 16), 0)
    options = {"momentum": 0.0, "weight_decay": 0.0}
    trainer = LocalTrainer(module, optimizer="sgd", options=options, gradient_clip=None)
    rows: Any = SimpleNamespace(
        rows=lambda shard, start, stop: text_rows(LEARNT[start:stop]), meta=FORMAT, folder=Path()
    )
    executor: Any = (making(attack, node, board) if attack else watched(node, board))(trainer, rows, told(), 0.0)
    executor.replica.copy_(trainer.flat.vector)
    return executor


@cache
def honest() -> tuple[Array, ...]:
    return tuple(sent(shown(Board(), f"ann-{number}"), number).numpy() for number in range(NODES - LIARS))


def board() -> Board:
    """Return what the liars see of the honest nodes, under the rule of `serve`."""
    found = Board(aggregation.create(list(DEFENDED), f=AUTOMATIC_F))
    for number, update in enumerate(honest()):
        found.post(f"ann-{number}", 0, update)
    found.liars |= {f"eve-{number}" for number in range(LIARS)}
    return found


def lie(**options: Any) -> Array:
    found: Array = sent(shown(board(), "eve-0", {"kind": "ascent"} | options), 7).numpy()
    return found


def loss_after(update: Array) -> float:
    """Return the loss on all rows of version 0 less `update`."""
    executor = shown(Board(), "measure")
    rows = LEARNT.astype(np.int64)
    executor.trainer.flat.vector.sub_(torch.from_numpy(update.copy()))
    with torch.no_grad():
        return float(batch_loss(CausalLM(), executor.trainer.module, labelled(rows), executor.trainer.device))


def version(*lies: Array) -> Array:
    """The default rule over the honest updates and the lies."""
    rule = aggregation.create(list(DEFENDED), f=AUTOMATIC_F)
    found: Array = rule([torch.from_numpy(one) for one in (*honest(), *lies)]).numpy()
    return found


def surface(executor: Any) -> Surface:
    return Surface(
        executor.trainer, lambda: executor.replica.numpy().copy(), lambda: executor.batches(task(executor, steps=8))
    )


def test_a_surface_is_the_loss_of_the_published_parameters_less_an_update() -> None:
    executor = worker()
    update = np.random.default_rng(0).normal(0, 0.01, len(executor.replica)).astype(np.float32)
    found = surface(executor).loss(update)
    executor.trainer.flat.vector.sub_(torch.from_numpy(update))
    executor.trainer.module.eval()
    batches = list(executor.batches(task(executor, steps=8)))
    with torch.no_grad():
        each = [float(batch_loss(CausalLM(), executor.trainer.module, one, executor.trainer.device)) for one in batches]
    assert len(batches) <= MOST_BATCHES
    assert found == pytest.approx(np.mean(each), rel=1e-5)


def test_the_loss_rises_as_much_along_the_ascent_as_its_gradient_says() -> None:
    executor = shown(Board(), "ann")
    over, origin, step = surface(executor), np.zeros(len(executor.replica), np.float32), np.float32(1e-2)
    way = over.ascent(origin)
    assert np.linalg.norm(way) == pytest.approx(1.0, rel=1e-4)
    rise = (over.loss(step * way) - over.loss(-step * way)) / (2 * step)
    others = np.random.default_rng(1).normal(size=(20, len(way))).astype(np.float32)
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    slopes = [(over.loss(step * other) - over.loss(-step * other)) / (2 * step) for other in others]
    np.testing.assert_allclose(slopes, rise * (others @ way), atol=0.02 * rise)


def test_measuring_the_loss_surface_does_not_change_the_trainer() -> None:
    executor = worker()
    executor.trainer.flat.gradient.fill_(3.0)
    before = executor.trainer.flat.vector.clone()
    over = surface(executor)
    over.loss(over.ascent(np.ones(len(before), np.float32)))
    assert torch.equal(executor.trainer.flat.vector, before)
    assert bool((executor.trainer.flat.gradient == 3.0).all())
    assert executor.trainer.module.training


def test_a_lie_that_climbs_raises_the_loss_through_the_default_rule() -> None:
    """The attack raises the loss more than all others that see the same; the honest nodes alone lower it."""

    def after(section: dict[str, Any]) -> float:
        vector = torch.from_numpy(honest()[0].copy())
        create(section).update(vector, Scene("eve-0 7", 0, board()))
        return loss_after(version(*[vector.numpy()] * LIARS))

    start, alone, found = loss_after(np.zeros_like(lie())), loss_after(version()), loss_after(version(*[lie()] * LIARS))
    assert alone < start
    assert found > alone + 0.1 * (start - alone)
    known = ("ipm", "alie", "optimised_ipm", "optimised_alie", "min_max", "min_sum", "mimic")
    assert found > max(after({"kind": kind}) for kind in known)


def after_gate(lies: Array) -> float:
    """Return the loss on all rows of version 0 less the default rule's result for updates that a gate accepts."""
    over, rule = surface(shown(Board(), "measure")), aggregation.create(list(DEFENDED), f=AUTOMATIC_F)
    return gated(rule, [*honest(), *[lies] * LIARS], over)


def test_a_lie_that_knows_of_the_loss_gate_does_more_harm_through_it() -> None:
    blunt, aware = lie(), lie(gate=True)
    assert not np.array_equal(blunt, aware)
    assert after_gate(aware) >= after_gate(blunt)
    assert after_gate(blunt) < loss_after(version(*[blunt] * LIARS)), "the gate leaves the blunt lie out"


def test_a_gate_leaves_honest_updates_alone_where_they_are_alike() -> None:
    over, rule = surface(shown(Board(), "measure")), aggregation.create("mean")
    alike = [honest()[0]] * 5
    assert gated(rule, alike, over) == pytest.approx(float(over.losses(honest()[0]).mean()))


def test_a_gate_does_not_move_a_model_that_gets_worse() -> None:
    over, rule = surface(shown(Board(), "measure")), aggregation.create("mean")
    start = np.zeros_like(honest()[0])
    away = [np.float32(50.0 * np.linalg.norm(honest()[0])) * over.ascent(start)] * 3
    assert gated(rule, away, over) == pytest.approx(float(over.losses(start).mean()))


def test_a_lie_is_not_so_long_that_it_would_be_refused() -> None:
    norms = [np.linalg.norm(update) for update in honest()]
    assert np.linalg.norm(lie()) <= LONGEST * np.median(norms)


def test_a_blind_lie_climbs_at_the_length_of_the_workers_own_update() -> None:
    own, found = honest()[6], lie(blind=True)
    assert np.linalg.norm(found) <= np.linalg.norm(own) * (1 + 1e-5)
    assert loss_after(found) > loss_after(own)
    assert loss_after(version(*[found] * LIARS)) > loss_after(version(*[own] * LIARS))
    assert not create({"kind": "ascent", "blind": True}).sees
    alone = sent(shown(Board(), "eve-0", {"kind": "ascent"}), 7).numpy()  # it sees no other node
    np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize("blind", [False, True])
def test_the_same_task_leads_to_the_same_lie(blind: bool) -> None:
    np.testing.assert_array_equal(lie(blind=blind), lie(blind=blind))


def test_all_liars_send_the_lie_of_the_first_of_them() -> None:
    shared = board()
    found: Sequence[Array] = [sent(shown(shared, f"eve-{at}", {"kind": "ascent"}), 7 - at).numpy() for at in (0, 1)]
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[1], sent(shown(board(), "eve-1", {"kind": "ascent"}), 6).numpy())


def test_the_task_is_claimed_as_an_honest_worker_claims_it() -> None:
    liar, other = worker({"kind": "ascent"}), worker()
    found, expected = hand_in(liar), hand_in(other)
    assert (found.steps, found.loss, found.assignment) == (expected.steps, expected.loss, expected.assignment)
