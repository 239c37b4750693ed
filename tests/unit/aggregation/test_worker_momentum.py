"""Worker momentum and MoNNA: against their formulas, that lies do not get through, the same after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from barnraise import aggregation
from barnraise.aggregation.base import Combination, Rule
from barnraise.aggregation.context import Context
from barnraise.core.errors import OptionError

from ..controller.tensors.test_parameter_server_chunks import advance, make, state
from ..controller.tensors.test_recovery import Run
from .test_aggregation import updates


def history(rule: Rule, n: int, size: int, dtype: Any = np.float64) -> Context:
    return Context.first(rule.keeps, n, size, np.dtype(dtype))


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("behind", [["median"], ["krum"], ["nnm", "trimmed_mean"], ["bucketing", "geometric_median"]])
def test_a_rule_behind_it_sees_the_momenta(beta: float, behind: list[str]) -> None:
    options = {} if behind[-1] in ("median", "geometric_median") else {"f": 2}
    rule, plain = (
        aggregation.create(["worker_momentum", *behind], beta=beta, **options),
        aggregation.create(behind, **options),
    )
    context, momenta = history(rule, 9, 40_000), None
    for version in range(3):
        x = updates(9, 40_000, seed=version).double()
        momenta = x if momenta is None else (1 - beta) * x + beta * momenta
        torch.testing.assert_close(rule(x, context=context), plain(momenta), rtol=1e-9, atol=1e-12)
        kept = torch.from_numpy(np.stack(list(context.kept.values())))
        torch.testing.assert_close(kept, momenta, rtol=1e-12, atol=1e-12)


def test_with_centered_clipping_both_keep_their_own() -> None:
    rule = aggregation.create(["worker_momentum", "centered_clipping"], beta=0.5, tau=3.0)
    context, momenta, v = history(rule, 5, 50), np.zeros((5, 50)), np.zeros(50)
    for version in range(4):
        x = updates(5, 50, seed=version).double()
        momenta = x.numpy() if not version else 0.5 * x.numpy() + 0.5 * momenta
        away = momenta - v
        v = v + (np.minimum(1.0, 3.0 / np.linalg.norm(away, axis=1))[:, None] * away).mean(axis=0)
        torch.testing.assert_close(rule(x, context=context), torch.from_numpy(v), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 3.4e38])
def test_non_finite_values_do_not_enter_the_momentum(bad: float) -> None:
    rule = aggregation.create(["worker_momentum", "trimmed_mean"], f=1)
    context, x = history(rule, 5, 100, np.float32), updates(5, 100)
    rule(x, context=context)
    before = context.kept["momentum of 2"].copy()
    wrong = x.clone()
    wrong[2, 50:] = bad
    sent = wrong.clone()
    assert bool(rule(wrong, context=context).isfinite().all())
    assert np.array_equal(wrong.numpy(), sent.numpy(), equal_nan=True)
    if not np.isfinite(bad):
        np.testing.assert_allclose(context.kept["momentum of 2"], before, rtol=1e-6)
    for _ in range(3):
        assert bool(rule(wrong, context=context).isfinite().all())
    assert all(np.abs(vector).max() <= 1.01e30 for vector in context.kept.values())


@given(st.integers(0, 2**32 - 1), st.floats(1.0, 1e37))
def test_nothing_that_is_kept_is_larger_than_its_bound(seed: int, lie: float) -> None:
    rule, sent = aggregation.create(["worker_momentum", "median"]), updates(5, 20, seed).numpy()
    sent[0] *= np.float32(lie)
    context, out = history(rule, 5, 20, np.float32), np.empty(20, np.float32)

    def read(row: int, start: int, piece: Any) -> None:
        piece[:] = sent[row, start : start + piece.size]

    combination = Combination(rule, read, 5, 20, None, context=context)
    bound, kept = combination.bounds(np.append(np.abs(sent).max(axis=1), np.zeros(5)))
    combination.into(0, out)
    assert float(np.abs(out).max()) <= bound * (1 + 1e-6)
    assert max(float(np.abs(vector).max()) for vector in context.kept.values()) <= kept * (1 + 1e-6)


def test_it_goes_first() -> None:
    with pytest.raises(OptionError, match=r"so it goes in front: \[worker_momentum, nnm, median\]"):
        aggregation.create(["nnm", "worker_momentum", "median"])
    for bad in (-0.1, 1.0):
        with pytest.raises(OptionError):
            aggregation.create(["worker_momentum", "mean"], beta=bad)


# MoNNA.


@pytest.mark.parametrize("f", [0, 1, 4])
@pytest.mark.parametrize("size", [1, 50, 40_000])
def test_monna_matches_the_reference(f: int, size: int) -> None:
    rule, pivot = aggregation.create("monna", f=f), np.zeros(size)
    context = history(rule, 9, size)
    for version in range(3):
        x = updates(9, size, seed=version).double()
        nearest = np.argsort(((x.numpy() - pivot) ** 2).sum(axis=1), kind="stable")[: 9 - f]
        pivot = x.numpy()[nearest].mean(axis=0)
        torch.testing.assert_close(rule(x, context=context), torch.from_numpy(pivot), rtol=1e-9, atol=1e-12)


rows = st.integers(0, 2**32 - 1).map(lambda seed: updates(9, 20, seed).double())


@given(rows, rows, st.lists(st.sampled_from([0.0, 0.1, 3.0, 1e8, -1e30, np.nan, np.inf]), max_size=4))
def test_monna_stays_near_the_honest(x: Tensor, last: Tensor, lies: list[float]) -> None:
    f = len(lies)
    rule = aggregation.create("monna", f=f)
    context = history(rule, 9, 20)
    context.kept["previous"][:] = last[0].numpy()
    honest = x[f:].clone()
    for row, lie in enumerate(lies):
        x[row] = lie
    away = float((honest - last[0]).norm(dim=1).max())
    result = rule(x, context=context)
    assert float((result - honest.mean(0)).norm()) <= 2 * f / (9 - f) * away * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("rule", [["worker_momentum", "centered_clipping"], ["worker_momentum", "monna"]], ids=str)
def test_the_same_bits_with_any_number_of_threads(rule: list[str]) -> None:
    options = {"f": 0} if "monna" in rule else {}
    expected = make("int4", "nesterov", rule, **options)
    made = [each.digest for each in advance(expected, 4)]
    for threads in (2, 3):
        server = make("int4", "nesterov", rule, threads=threads, **options)
        assert [each.digest for each in advance(server, 4)] == made
        assert state(server) == state(expected)


class WithMomentum(Run):
    buffer_size = 2

    def make_rule(self) -> Rule:
        return aggregation.create(["worker_momentum", "centered_clipping"])


def test_a_resume_restores_the_momenta(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    whole = WithMomentum(tmp_path / "whole")
    expected = whole.to_the_end()
    broken = WithMomentum(tmp_path / "broken")
    broken.get_ahead()
    broken.kill()
    broken = WithMomentum(tmp_path / "broken", broken.workers)
    assert "rule.vector.momentum of a" in broken.server.state()
    assert broken.to_the_end() == expected
    broken.kill()
    whole.kill()
