"""The estimated cost of protections: it grows with what is protected, and shrinks as tasks get longer."""

from __future__ import annotations

from typing import Any

import pytest

from barnraise.config.load import load
from barnraise.core.types import WARNED_OVERHEAD
from barnraise.plan import Purpose, resolve
from barnraise.plan.estimate import estimate
from barnraise.plan.overhead import ROWS, Overhead, overhead, overhead_doubts, overhead_problems

RUN: dict[str, Any] = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 64, "num_layers": 2, "num_heads": 2}},
    "data": {"kind": "text", "files": ["*.txt"], "context": 64},
}


def found(privacy: dict[str, Any], steps: int = 4) -> Overhead | None:
    training = {"local_steps": steps, "batch_size": 4, "compression": "none"}
    plan = resolve(load(RUN | {"training": training, "privacy": privacy}), purpose=Purpose.SERVE)
    return overhead(plan, estimate(plan))


def test_a_run_without_protections_has_no_overhead() -> None:
    assert found({}) is None


def test_masks_cost_less_of_longer_tasks_and_more_with_more_seeds() -> None:
    usual = found({"secure_aggregation": {}})
    longer = found({"secure_aggregation": {}}, steps=40)
    more = found({"secure_aggregation": {"trustees": 8, "colluding": 2}})
    assert usual is not None
    assert longer is not None
    assert more is not None
    assert 1.0 < longer.alpha < usual.alpha < more.alpha


def test_each_protection_has_its_share() -> None:
    noise = {"profile": "noise", "clip": 1.0, "noise": 0.01}
    both = found({"secure_aggregation": {}, "differential_privacy": noise})
    assert both is not None
    assert set(both.shares) == {"masks", "noise"}
    assert both.alpha == pytest.approx(1.0 + sum(both.shares.values()))
    assert "alpha about" in str(both)


def test_encryption_costs_less_of_longer_tasks() -> None:
    adapters = {"adapter": {"kind": "lora", "rank": 2, "train": "b_only"}}
    privacy = {"homomorphic_encryption": {"key": "club/" + "0a" * 16, "nodes": 1}}
    shares = []
    for steps in (4, 40):
        training = {"local_steps": steps, "batch_size": 4, "compression": "none"} | adapters
        content = RUN | {"training": training, "privacy": privacy, "evaluation": {"by": "workers"}}
        plan = resolve(load(content), purpose=Purpose.SERVE)
        cost = estimate(plan)
        assert cost.sizes.contribution_bytes > 98_304, "a block of residues of 48 bits"
        told = overhead(plan, cost)
        assert told is not None
        shares.append(told.shares["encryption"])
    assert shares[0] == pytest.approx(10 * shares[1])


def test_a_large_overhead_is_told_with_a_remedy() -> None:
    assert "training.local_steps" in str(Overhead(WARNED_OVERHEAD + 0.1, {"masks": 0.3}, 100))
    assert "training.local_steps" not in str(Overhead(WARNED_OVERHEAD - 0.1, {"masks": 0.1}, 100))


NOISE = {"profile": "noise", "clip": 1.0, "noise": 0.01}


def judged(limit: float, privacy: dict[str, Any], purpose: Purpose = Purpose.SERVE) -> tuple[list[str], list[str]]:
    """Return the problems and the warnings of a limit."""
    training = {"local_steps": 4, "batch_size": 4, "compression": "none"}
    run_file = load(RUN | {"training": training, "privacy": privacy | {"overhead_limit": limit}})
    plan = resolve(run_file, purpose=purpose, nodes=4 if purpose is Purpose.SIMULATE else None)
    cost = estimate(plan)
    problems, doubts = overhead_problems(plan, cost), overhead_doubts(plan, cost)
    return [str(problem) for problem in problems], [str(problem) for problem in doubts]


def test_a_run_is_refused_where_a_third_of_its_estimated_cost_is_above_the_limit() -> None:
    cost = found({"differential_privacy": NOISE})
    assert cost is not None
    refused, doubted = judged(1.0 + (cost.alpha - 1.0) / 12, {"differential_privacy": NOISE})
    assert not doubted
    assert len(refused) == 1
    for word in ("privacy.overhead_limit", "training.local_steps", "noise", "1,024 tokens", "raise the limit"):
        assert word in refused[0]


def test_a_run_starts_with_a_warning_where_the_estimate_alone_is_above_the_limit() -> None:
    cost = found({"differential_privacy": NOISE})
    assert cost is not None
    refused, doubted = judged(1.0 + (cost.alpha - 1.0) / 1.7, {"differential_privacy": NOISE})
    assert not refused
    assert len(doubted) == 1
    assert judged(cost.alpha * 3, {"differential_privacy": NOISE}) == ([], [])


def test_a_run_without_protections_or_workers_is_not_refused() -> None:
    assert judged(1.0, {}) == ([], [])
    assert judged(1.0, {"differential_privacy": NOISE}, Purpose.SIMULATE) == ([], [])


def test_gradients_of_rows_have_another_remedy_than_longer_tasks() -> None:
    assert "training.adapter" in Overhead(1.31, {ROWS: 0.31}, 100).remedy
    assert "training.local_steps" in Overhead(1.5, {ROWS: 0.2, "masks": 0.3}, 100).remedy
