"""The estimated cost of protections: it grows with what is protected, and shrinks as tasks get longer."""

from __future__ import annotations

from typing import Any

import pytest

from barnraise.config.load import load
from barnraise.plan import Purpose, resolve
from barnraise.plan.estimate import estimate
from barnraise.plan.overhead import WARNED, Overhead, overhead

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


def test_a_large_overhead_is_told_with_a_remedy() -> None:
    assert "training.local_steps" in str(Overhead(WARNED + 0.1, {"masks": 0.3}, 100))
    assert "training.local_steps" not in str(Overhead(WARNED - 0.1, {"masks": 0.1}, 100))
