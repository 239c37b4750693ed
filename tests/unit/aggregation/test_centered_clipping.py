"""Centered clipping: against the paper's formula, its limits, the same bits always, under attack, after a crash."""

from __future__ import annotations

from collections.abc import Callable
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
from .test_aggregation import MEAN, logistic_loss, noise, scale, sign_flip, updates

NAME = "centered_clipping"


def reference(x: Any, v: Any, tau: float | None, iterations: int) -> Any:
    """Compute algorithm 2, in float64."""
    for _ in range(iterations):
        distances = np.linalg.norm(x - v, axis=1)
        limit = np.median(distances) if tau is None else tau
        factors = np.minimum(1.0, limit / np.maximum(distances, 1e-300))
        v = v + (factors[:, None] * (x - v)).mean(axis=0)
    return v


def history(rule: Rule, n: int, size: int, dtype: Any = np.float32) -> Context:
    return Context.first(rule.keeps, n, size, np.dtype(dtype))


@pytest.mark.parametrize("tau", [None, 0.5, 5.0, 1e9])
@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("size", [1, 50, 40_000])
def test_matches_the_reference_version_after_version(tau: float | None, iterations: int, size: int) -> None:
    rule, v, single = aggregation.create(NAME, tau=tau, iterations=iterations), np.zeros(size), np.zeros(size)
    double, context = history(rule, 7, size, np.float64), history(rule, 7, size)
    for version in range(4):
        x = updates(7, size, seed=version) + 0.3
        v = reference(x.double().numpy(), v, tau, iterations)
        torch.testing.assert_close(rule(x.double(), context=double), torch.from_numpy(v), rtol=1e-9, atol=1e-9)
        single = reference(x.double().numpy(), single, tau, iterations).astype(np.float32)
        torch.testing.assert_close(rule(x, context=context), torch.from_numpy(single), rtol=1e-4, atol=1e-5)
        single = context.kept["previous"].astype(np.float64)


def test_a_tau_beyond_all_is_the_mean_and_one_row_that_is_near_stays() -> None:
    x = updates(5, 100)
    torch.testing.assert_close(aggregation.create(NAME, tau=1e6)(x), x.mean(0))
    torch.testing.assert_close(aggregation.create(NAME)(x[:1]), x[0])


rows = st.integers(0, 2**32 - 1).map(lambda seed: updates(9, 20, seed).double())


@given(rows, rows, st.floats(1e-3, 1e3), st.integers(1, 4), st.integers(0, 4), st.floats(1.0, 1e30))
def test_liars_move_it_by_their_share_of_tau(
    x: Tensor, last: Tensor, tau: float, iterations: int, liars: int, lie: float
) -> None:
    rule = aggregation.create(NAME, tau=tau, iterations=iterations)
    lying = x.clone()
    lying[:liars] *= lie
    results = []
    for sent in (x, lying):
        context = history(rule, 9, 20, np.float64)
        context.kept["previous"][:] = last[0].numpy()
        result = rule(sent, context=context)
        assert float((result - last[0]).norm()) <= iterations * tau * (1 + 1e-9)
        results.append(result)
    if iterations == 1:
        assert float((results[0] - results[1]).norm()) <= 2 * tau * liars / 9 * (1 + 1e-9) + 1e-12


@given(rows, st.permutations(range(9)), st.sampled_from([0.25, 2.0, 1024.0]))
def test_neither_order_nor_unit_matters(x: Tensor, order: list[int], unit: float) -> None:
    rule = aggregation.create(NAME, iterations=2)
    torch.testing.assert_close(rule(x[order]), rule(x), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(rule(x * unit), rule(x) * unit, rtol=1e-9, atol=1e-12)


@given(rows, st.floats(0.0, 1e6), st.floats(1.0, 1e6))
def test_no_value_is_larger_than_its_bound(x: Tensor, before: float, lie: float) -> None:
    sent = x.numpy().copy()
    sent[0] *= lie
    rule = aggregation.create(NAME, tau=1.0, iterations=2)
    context, out = history(rule, 9, 20, np.float64), np.empty(20)
    context.kept["previous"][:] = before

    def read(row: int, start: int, piece: Any) -> None:
        piece[:] = sent[row, start : start + piece.size]

    combination = Combination(rule, read, 9, 20, None, dtype=sent.dtype, context=context)
    bound, kept = combination.bounds(np.append(np.abs(sent).max(axis=1), before))
    combination.into(0, out)
    assert float(np.abs(out).max()) <= bound * (1 + 1e-9)
    assert float(np.abs(context.kept["previous"]).max()) <= kept * (1 + 1e-9)


@pytest.mark.parametrize("bad", [1e8, -1e30, 3e38, float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["rows", "one element"])
def test_bad_rows_do_not_reach_the_result(bad: float, where: str) -> None:
    x = updates(12, 40_000)
    x[3:5, slice(None) if where == "rows" else slice(39_999, None)] = bad
    before, honest = x.clone(), x[[0, 1, 2, *range(5, 12)]]
    result = aggregation.create(NAME, iterations=3)(x)
    assert bool(result.isfinite().all())
    assert float(result.norm()) <= float(honest.norm(dim=1).max())
    assert np.array_equal(x.numpy(), before.numpy(), equal_nan=True)


def test_a_common_part_a_thousand_times_the_differences_costs_no_digits() -> None:
    common, x = 1000 * updates(1, 20_000, seed=1), updates(9, 20_000)
    rule = aggregation.create(NAME, tau=20.0)
    x = (x + common) - common  # the part of the differences that float32 can hold
    near, shifted = history(rule, 9, 20_000), history(rule, 9, 20_000)
    shifted.kept["previous"][:] = common[0].numpy()
    expected = rule(x.double(), context=near)
    found = rule(x + common, context=shifted).double() - common[0].double()
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize("downlink", ["int4", "topk"])
def test_the_same_bits_with_any_number_of_threads(downlink: str) -> None:
    options = {"tau": 0.5, "iterations": 2}
    expected = make(downlink, "nesterov", NAME, **options)
    made = [each.digest for each in advance(expected, 4)]
    assert "rule.vector.previous" in state(expected)
    for threads in (2, 3):
        server = make(downlink, "nesterov", NAME, threads=threads, **options)
        assert [each.digest for each in advance(server, 4)] == made
        assert state(server) == state(expected)


class Remembering:
    """The rule over all of a training, with what it keeps."""

    def __init__(self, **options: Any) -> None:
        self.rule, self.context = aggregation.create(NAME, **options), None

    def __call__(self, x: Tensor) -> Tensor:
        if self.context is None:
            self.context = history(self.rule, *x.shape)
        return self.rule(x, context=self.context)


@pytest.mark.parametrize("options", [{}, {"tau": 0.2}, {"iterations": 3}], ids=str)
@pytest.mark.parametrize("attack", [None, sign_flip, scale, noise])
def test_learns_under_attack(options: dict[str, Any], attack: Callable[[Tensor], Tensor] | None) -> None:
    honest = logistic_loss(MEAN, None)
    assert logistic_loss(Remembering(**options), attack) < honest + 0.1


def test_invalid_options_are_refused() -> None:
    for bad in ({"tau": 0.0}, {"tau": -1.0}, {"iterations": 0}, {"f": 1}):
        with pytest.raises(OptionError):
            aggregation.create(NAME, **bad)


class Clipped(Run):
    buffer_size = 2

    def make_rule(self) -> Rule:
        return aggregation.create(NAME, iterations=2)


def test_a_resume_continues_from_the_previous_aggregate(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    whole = Clipped(tmp_path / "whole")
    expected = whole.to_the_end()
    broken = Clipped(tmp_path / "broken")
    checkpoint = broken.get_ahead()
    broken.kill()
    broken = Clipped(tmp_path / "broken", broken.workers)
    assert broken.made[0].version == checkpoint + 1
    previous = broken.server.state()["rule.vector.previous"]
    assert bool(previous.any())
    assert broken.to_the_end() == expected
    assert torch.equal(broken.server.state()["rule.vector.previous"], whole.server.state()["rule.vector.previous"])
    broken.kill()
    whole.kill()
