"""Attacks that look at others' updates: against their formulas, and against a plain search where there is a root."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.rows import text_rows

from barnraise import aggregation
from barnraise.core.types import Flush, ParameterRange
from barnraise.emulation.attacks.base import HONEST
from barnraise.emulation.attacks.board import KEPT, Board, Scene
from barnraise.emulation.attacks.catalog import create
from barnraise.emulation.attacks.executor import making, watched
from barnraise.emulation.attacks.seeing import LONGEST
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.training.local import LocalTrainer

from ....state_machine.engine import told
from .test_attacks import FORMAT, ROWS, SHAPE, VOCABULARY, hand_in, sent, task, worker

SIZE = 50
HONEST_ROWS = np.random.default_rng(3).normal(0.5, 1.0, (7, SIZE)).astype(np.float32)
MEAN, SPREAD = HONEST_ROWS.mean(axis=0), HONEST_ROWS.std(axis=0)


def board(liars: int = 2, rule: Any = None) -> Board:
    found = Board(rule)
    found.liars |= {f"eve-{number}" for number in range(liars)}
    for number, row in enumerate(HONEST_ROWS):
        found.post(f"ann-{number}", 4, row)
    return found


def lie(section: dict[str, Any], scene: Scene | None = None) -> np.ndarray[Any, Any]:
    vector = torch.full((SIZE,), 9.0)
    create(section).update(vector, scene or Scene("eve 1", 4, board()))
    return vector.numpy()


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_ipm_leads_against_the_mean_of_the_honest(epsilon: float) -> None:
    np.testing.assert_allclose(lie({"kind": "ipm", "epsilon": epsilon}), -epsilon * MEAN, rtol=1e-5)


def test_alie_stays_within_the_spread_of_the_honest() -> None:
    np.testing.assert_allclose(lie({"kind": "alie", "z": 1.5}), MEAN - 1.5 * SPREAD, rtol=1e-4, atol=1e-5)
    found = (MEAN - lie({"kind": "alie"})) / SPREAD  # n 9, f 2: Phi(z) = (7 - 3) / 7
    np.testing.assert_allclose(found, 0.18001, atol=1e-3)


@pytest.mark.parametrize("kind", ["min_max", "min_sum"])
@pytest.mark.parametrize("perturbation", ["std", "unit", "sign"])
def test_a_hiding_attacker_is_as_far_away_as_the_honest_nodes(kind: str, perturbation: str) -> None:
    distances = ((HONEST_ROWS[:, None] - HONEST_ROWS[None]) ** 2).sum(-1)
    own = ((HONEST_ROWS - lie({"kind": kind, "perturbation": perturbation})) ** 2).sum(-1)
    if kind == "min_max":
        assert own.max() == pytest.approx(distances.max(), rel=1e-4)
    else:
        assert own.sum() == pytest.approx(distances.sum(axis=1).max(), rel=1e-4)
    way = {"std": -SPREAD, "unit": -MEAN, "sign": -np.sign(MEAN)}[perturbation]
    moved = lie({"kind": kind, "perturbation": perturbation}) - MEAN
    assert float(moved @ way / np.linalg.norm(moved) / np.linalg.norm(way)) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("kind", ["optimised_alie", "optimised_ipm"])
@pytest.mark.parametrize("name", ["trimmed_mean", "krum"])
def test_an_optimised_lie_does_more_harm_to_its_rule_than_others_on_its_way(kind: str, name: str) -> None:
    rule = aggregation.create(name, f=2)

    def harm(row: np.ndarray[Any, Any]) -> float:
        found = rule([torch.from_numpy(one) for one in (*HONEST_ROWS, row, row)]).numpy()
        return float(np.linalg.norm(found - MEAN))

    chosen = lie({"kind": kind, "rule": name})
    plain = {"optimised_alie": {"kind": "alie", "z": 0.25}, "optimised_ipm": {"kind": "ipm", "epsilon": 0.25}}[kind]
    assert harm(chosen) > 1.05 * harm(lie(plain))
    of_the_run = Scene("eve 1", 4, board(rule=rule))
    np.testing.assert_array_equal(chosen, lie({"kind": kind}, of_the_run))
    assert np.linalg.norm(chosen) <= LONGEST * np.median(np.linalg.norm(HONEST_ROWS, axis=1))
    if name == "krum":  # krum does not choose an update that is far away; a mean follows all
        assert np.linalg.norm(lie({"kind": kind}) - MEAN) > 2 * np.linalg.norm(chosen - MEAN)


def test_a_mimic_always_copies_the_same_honest_node() -> None:
    shared = board()
    shared.post("odd", 4, 30 * HONEST_ROWS[0])
    for base in (4, 5):
        np.testing.assert_array_equal(lie({"kind": "mimic"}, Scene("eve 1", base, shared)), 30 * HONEST_ROWS[0])
    shared.post("odd", 9, HONEST_ROWS[3])
    np.testing.assert_array_equal(lie({"kind": "mimic"}, Scene("mal 2", 9, shared)), HONEST_ROWS[3])


def test_updates_of_the_base_version_count_where_there_are_several() -> None:
    shared = board()
    shared.post("ann-0", 5, HONEST_ROWS[0])
    np.testing.assert_allclose(lie({"kind": "ipm", "epsilon": 1}, Scene("", 5, shared)), -MEAN, rtol=1e-5)
    shared.post("ann-1", 6, HONEST_ROWS[1])
    expected = -HONEST_ROWS[:2].mean(axis=0)
    np.testing.assert_allclose(lie({"kind": "ipm", "epsilon": 1}, Scene("", 5, shared)), expected, rtol=1e-5)


def test_an_attacker_that_sees_no_updates_uses_its_own_and_the_movement_of_the_model() -> None:
    own = np.full(SIZE, 9.0, np.float32)
    np.testing.assert_allclose(lie({"kind": "ipm"}, Scene("")), -0.5 * own)
    movement = np.linspace(-1, 1, SIZE, dtype=np.float32)
    expected = -0.5 * (own + movement * np.linalg.norm(own) / np.linalg.norm(movement)) / 2
    np.testing.assert_allclose(lie({"kind": "ipm"}, Scene("", movement=movement)), expected, atol=1e-5)


def test_a_lone_workers_movement_is_that_of_the_published_parameters() -> None:
    liar, honest = worker({"kind": "ipm", "epsilon": 1}), worker()
    torch.testing.assert_close(sent(liar), -sent(honest))
    for one in (liar, honest):
        one.replica.sub_(0.25)
        one.reached = None
    own = sent(honest, 2)
    expected = -(own + torch.full_like(own, 0.25) * own.norm() / torch.full_like(own, 0.25).norm()) / 2
    torch.testing.assert_close(sent(liar, 2), expected, rtol=1e-4, atol=1e-7)


def test_liars_see_what_honest_nodes_of_their_process_do() -> None:
    shared = Board()

    def one(node: str, attack: dict[str, Any] | None = None) -> Any:
        module = build(describe({"architecture": "gpt2", "config": SHAPE}, VOCABULARY, 16), 0)
        options = {"momentum": 0.0, "weight_decay": 0.0}
        trainer = LocalTrainer(module, optimizer="sgd", options=options, gradient_clip=None)
        rows: Any = SimpleNamespace(
            rows=lambda shard, start, stop: text_rows(ROWS[start:stop]), meta=FORMAT, folder=Path()
        )
        make = making(attack, node, shared) if attack else watched(node, shared)
        executor: Any = make(trainer, rows, told(), 0.0)
        executor.replica.copy_(trainer.flat.vector)
        return executor

    seen = [sent(one("ann"), 1), sent(one("bob"), 2)]
    found = sent(one("eve", {"kind": "ipm", "epsilon": 2}), 3)
    torch.testing.assert_close(found, -(seen[0] + seen[1]), rtol=1e-4, atol=1e-8)


def test_colluders_send_what_the_first_of_them_does() -> None:
    shared = board()
    section = {"kind": "colluding", "of": {"kind": "noise", "sigma": 1}}
    first = lie(section, Scene("eve 1", 4, shared))
    np.testing.assert_array_equal(lie(section, Scene("mal 2", 4, shared)), first)
    assert not np.array_equal(lie(section["of"], Scene("mal 2", 4, shared)), first)
    assert not np.array_equal(lie(section, Scene("mal 2", 5, shared)), first)
    assert not np.array_equal(lie(section, Scene("mal 2", 4)), first)  # a board of its own


def test_the_board_forgets_old_agreements() -> None:
    shared, made = Board(), []
    for about in [*range(KEPT + 1), 1, 0]:
        shared.agree(about, lambda about=about: made.append(about))
    assert made == [*range(KEPT + 1), 0]


def test_a_reputation_is_built_before_it_is_spent() -> None:
    attack = create({"kind": "reputation", "after": 3, "of": {"kind": "zero"}})
    acts = [attack.in_task(f"eve {number}") is not HONEST for number in (1, 2, 2, 3, 4, 5)]
    assert acts == [False, False, False, False, True, True]


def test_a_hoard_comes_back_with_the_other_sign_all_at_once() -> None:
    honest, liar = worker(), worker({"kind": "hoard", "period": 3, "factor": 2})
    meant = [sent(honest, number) for number in range(1, 7)]
    came = [sent(liar, number) for number in range(1, 7)]
    for number in (0, 1, 3, 4):
        torch.testing.assert_close(came[number], meant[number])
    torch.testing.assert_close(came[2], -2 * sum(meant[:3]), rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(came[5], -2 * sum(meant[3:]), rtol=1e-4, atol=1e-7)


def test_a_hoarder_submits_its_hoard_as_the_final_residual() -> None:
    codec = {"codec": "topk", "options": {"ratio": 0.1}, "last": "none"}
    honest, liar = worker(), worker({"kind": "hoard"}, **codec)
    meant = sent(honest)
    hand_in(liar)
    whole = ParameterRange(0, len(meant))
    liar.flush(Flush(id=9, base=0, parameters=whole))
    found = liar.sent_in[-1].decode(bytes(liar.payloads[9].data), len(meant))
    torch.testing.assert_close(found, -meant, rtol=1e-4, atol=1e-7)


def test_the_task_is_as_it_was_given() -> None:
    """Looking at others leaves what is claimed alone."""
    liar, honest = worker({"kind": "alie"}), worker()
    found, expected = hand_in(liar), hand_in(honest)
    for one, other in zip(msgspec.to_builtins(found).items(), msgspec.to_builtins(expected).items(), strict=True):
        assert one == other or one[0] in ("payload", "seconds")
    assert task(liar).id == found.assignment
