"""The geometric median: against plain Weiszfeld, how far liars get, the same bits always, under attack."""

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
from barnraise.core.errors import OptionError

from ..controller.tensors.test_parameter_server_chunks import advance, make, state
from .test_aggregation import MEAN, Array, logistic_loss, noise, scale, sign_flip, updates

NAME = "geometric_median"


def reference(x: Array, iterations: int) -> Array:
    """Compute algorithm 2 over the vectors themselves, in float64."""
    distances = np.linalg.norm(x[:, None] - x[None], axis=2)
    middle = np.median(distances, axis=1)
    beta = 1 / middle
    for _ in range(iterations):
        v = (beta[:, None] * x).sum(0) / beta.sum()
        beta = 1 / np.maximum(np.linalg.norm(x - v, axis=1), 1e-6 * middle.min())
    return np.asarray((beta[:, None] * x).sum(0) / beta.sum())


@pytest.mark.parametrize("iterations", [1, 3, 100])
@pytest.mark.parametrize("n", [3, 11, 16])
@pytest.mark.parametrize("size", [2, 50, 10_000])
def test_matches_the_reference(iterations: int, n: int, size: int) -> None:
    x = updates(n, size, seed=n) + 0.3
    x[0] *= 20
    expected = torch.from_numpy(reference(x.double().numpy(), iterations))
    rule = aggregation.create(NAME, iterations=iterations)
    torch.testing.assert_close(rule(x.double()), expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(rule(x), expected.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [3, 9, 11])
def test_the_result_for_single_numbers_is_the_median(n: int) -> None:
    x = updates(n, 1, seed=n).double()
    torch.testing.assert_close(aggregation.create(NAME)(x), x.median(0).values, rtol=0, atol=1e-4)


def test_the_update_of_a_majority_is_the_result() -> None:
    x = updates(7, 50)
    x[2:6] = x[1]
    torch.testing.assert_close(aggregation.create(NAME)(x), x[1])
    torch.testing.assert_close(aggregation.create(NAME)(x[:1]), x[0])


rows = st.integers(0, 2**32 - 1).map(lambda seed: updates(9, 20, seed).double())
lies = st.sampled_from([10.0, -1e4, 1e8, -1e30, 1e150, 1e200, np.nan, np.inf])


@given(rows)
def test_no_other_point_is_nearer_to_all(x: Tensor) -> None:
    def total(v: Tensor) -> float:
        return float((x - v).norm(dim=1).sum())

    found = aggregation.create(NAME)(x)
    least = total(found)
    for other in (*x, x.mean(0), x.median(0).values, *(found + 0.01 * x)):
        assert least <= total(other) * (1 + 1e-9)


@given(rows, st.integers(0, 4), lies, st.booleans())
def test_liars_move_it_no_farther_than_the_paper_says(x: Tensor, liars: int, lie: float, alike: bool) -> None:
    honest = x[liars:]
    x[:liars] = lie if alike else lie * x[:liars]
    middle = honest.mean(0)
    farthest = float((honest - middle).norm(dim=1).max())
    moved = float((aggregation.create(NAME)(x) - middle).norm())
    assert moved <= 2 * (9 - liars) / (9 - 2 * liars) * farthest


@given(rows, st.permutations(range(9)), st.sampled_from([0.25, 2.0, 1024.0]), st.floats(-1e3, 1e3))
def test_neither_order_nor_unit_nor_origin_matters(x: Tensor, order: list[int], unit: float, shift: float) -> None:
    rule = aggregation.create(NAME)
    torch.testing.assert_close(rule(x[order]), rule(x), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(rule(x * unit), rule(x) * unit, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(rule(x + shift), rule(x) + shift, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bad", [1e8, -1e30, 3e38, float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["rows", "one element", "mixed"])
def test_bad_rows_do_not_reach_the_result(bad: float, where: str) -> None:
    x = updates(12, 40_000)
    x[3:5, slice(39_999, None) if where == "one element" else slice(None)] = bad
    if where == "mixed":
        x[4, 0] = float("nan")
    before, honest = x.clone(), x[[0, 1, 2, *range(5, 12)]]
    result = aggregation.create(NAME)(x)
    assert float((result - honest.mean(0)).norm()) <= 0.3 * float(honest.norm(dim=1).max())
    assert np.array_equal(x.numpy(), before.numpy(), equal_nan=True)


def test_a_common_part_a_thousand_times_the_differences_costs_no_digits() -> None:
    x, common = updates(12, 20_000), 1000 * updates(1, 20_000, seed=1)
    x = ((x + common) - common) * torch.linspace(1, 8, 12).round()[:, None]
    expected = aggregation.create(NAME)(x.double()) + common[0].double()
    found = aggregation.create(NAME)(x.double() + common.double())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("downlink", ["int4", "topk"])
def test_the_same_bits_with_any_number_of_threads(downlink: str) -> None:
    expected = make(downlink, "nesterov", NAME)
    made = [each.digest for each in advance(expected, 4)]
    for threads in (2, 3):
        server = make(downlink, "nesterov", NAME, threads=threads)
        assert [each.digest for each in advance(server, 4)] == made
        assert state(server) == state(expected)


@pytest.mark.parametrize(
    ("names", "options"),
    [(NAME, {}), (NAME, {"iterations": 3}), (["nnm", NAME], {"f": 2}), (["clip_median", NAME], {})],
)
@pytest.mark.parametrize("attack", [None, sign_flip, scale, noise])
def test_learns_under_attack(names: Any, options: dict[str, Any], attack: Callable[[Tensor], Tensor] | None) -> None:
    assert logistic_loss(aggregation.create(names, **options), attack) < logistic_loss(MEAN, None) + 0.1


@pytest.mark.parametrize("options", [{"iterations": 0}, {"iterations": 10**9}, {"f": 1}])
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        aggregation.create(NAME, **options)
