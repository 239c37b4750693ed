"""DnC: against singular vectors of the updates, that far liars go, the same bits always, under attack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from barnraise import aggregation

from ..controller.tensors.test_parameter_server_chunks import advance, make, state
from .test_aggregation import MEAN, Array, logistic_loss, noise, scale, sign_flip, updates

NAME = "dnc"


def reference(x: Array, f: int) -> Array:
    """Compute algorithm 2 over all coordinates, one update at a time."""
    for _ in range(f):
        centred = x - x.mean(0)
        u = np.linalg.svd(centred, full_matrices=False)[2][0]
        x = np.delete(x, np.argmax((centred @ u) ** 2), axis=0)
    return np.asarray(x.mean(0))


@pytest.mark.parametrize("f", [0, 1, 2, 4])
@pytest.mark.parametrize("n", [9, 16])
@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_matches_the_reference(f: int, n: int, size: int) -> None:
    x = updates(n, size, seed=n)
    x[: max(f, 1)] += torch.linspace(2, 4, max(f, 1))[:, None]  # outliers, so that the direction is clear
    expected = torch.from_numpy(reference(x.double().numpy(), f))
    rule = aggregation.create(NAME, f=f)
    torch.testing.assert_close(rule(x.double()), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(rule(x), expected.float(), rtol=1e-4, atol=1e-5)


rows = st.integers(0, 2**32 - 1).map(lambda seed: updates(9, 20, seed).double())
lies = st.lists(st.sampled_from([1e4, -1e4, 1e6, -1e8, 1e30, -1e30, 1e150, 1e200, np.nan, np.inf]), max_size=4)


@given(rows, lies, st.booleans(), st.permutations(range(9)))
def test_far_liars_leave_the_mean_of_the_others(x: Tensor, lies: list[float], alike: bool, order: list[int]) -> None:
    expected = x[len(lies) :].mean(0)
    for row, lie in enumerate(lies):
        x[row] = lie if alike else lie * x[row]
    torch.testing.assert_close(aggregation.create(NAME, f=len(lies))(x[order]), expected)


@given(rows, st.integers(0, 4), st.floats(0.0, 1e3))
def test_inside_the_hull_of_each_coordinate(x: Tensor, f: int, lie: float) -> None:
    x[:2] *= lie
    result = aggregation.create(NAME, f=f)(x)
    assert bool((result <= x.amax(0) + 1e-9).all())
    assert bool((result >= x.amin(0) - 1e-9).all())


@given(rows, st.permutations(range(9)), st.sampled_from([0.25, 2.0, 1024.0]), st.floats(-1e3, 1e3))
def test_neither_order_nor_unit_nor_origin_matters(x: Tensor, order: list[int], unit: float, shift: float) -> None:
    x[:2] += 3  # outliers, so that the direction is clear
    rule = aggregation.create(NAME, f=2)
    torch.testing.assert_close(rule(x[order]), rule(x), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(rule(x * unit), rule(x) * unit, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(rule(x + shift), rule(x) + shift, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("bad", [1e8, -1e30, 3e38, float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["rows", "one element", "mixed"])
def test_bad_rows_do_not_reach_the_result(bad: float, where: str) -> None:
    x = updates(12, 40_000)
    x[3:5, slice(39_999, None) if where == "one element" else slice(None)] = bad
    if where == "mixed":
        x[4, 0] = float("nan")
    before, honest = x.clone(), x[[0, 1, 2, *range(5, 12)]]
    torch.testing.assert_close(aggregation.create(NAME, f=2)(x), honest.mean(0))
    assert np.array_equal(x.numpy(), before.numpy(), equal_nan=True)


def test_updates_that_are_all_the_same_are_the_result() -> None:
    x = updates(1, 50).repeat(7, 1)
    torch.testing.assert_close(aggregation.create(NAME, f=3)(x), x[0])
    assert not aggregation.create(NAME, f=3)(torch.zeros(7, 50)).any()


@pytest.mark.parametrize("downlink", ["int4", "topk"])
def test_the_same_bits_with_any_number_of_threads(downlink: str) -> None:
    expected = make(downlink, "nesterov", NAME, f=1)
    made = [each.digest for each in advance(expected, 4)]
    for threads in (2, 3):
        server = make(downlink, "nesterov", NAME, threads=threads, f=1)
        assert [each.digest for each in advance(server, 4)] == made
        assert state(server) == state(expected)


@pytest.mark.parametrize("names", [NAME, ["clip_median", NAME], ["nnm", NAME]], ids=str)
@pytest.mark.parametrize("attack", [None, sign_flip, scale, noise])
def test_learns_under_attack(names: Any, attack: Callable[[Tensor], Tensor] | None) -> None:
    assert logistic_loss(aggregation.create(names, f=2), attack) < logistic_loss(MEAN, None) + 0.1


def test_a_thousand_updates() -> None:
    x = updates(1000, 1100)
    x[:3] += 3
    expected = torch.from_numpy(reference(x.double().numpy(), 3))
    torch.testing.assert_close(aggregation.create(NAME, f=3)(x), expected.float(), rtol=1e-4, atol=1e-5)
