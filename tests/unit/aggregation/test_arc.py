"""Rules that shorten long updates in front of others: the formula, what no liar does, the same bits, under attack."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from barnraise import aggregation
from barnraise.aggregation.median import Median

from ..controller.tensors.test_parameter_server_chunks import advance, make, state
from .test_aggregation import MEAN, Array, krum, logistic_loss, nnm, noise, scale, sign_flip, trimmed_mean, updates

CLIPPING: list[tuple[str, dict[str, Any]]] = [("clip_median", {}), ("arc", {"f": 2})]
EVERY = pytest.mark.parametrize(("name", "options"), CLIPPING, ids=str)
clippings = st.sampled_from(CLIPPING)


def bound(name: str, x: Array) -> float:
    """The longest that an update may be, by the paper's definition."""
    lengths, n = np.linalg.norm(x, axis=1), len(x)
    if name == "arc":
        return float(np.sort(lengths)[::-1][math.floor(Fraction(2 * 2 * (n - 2), n))])
    return float(np.median(lengths))


def clipped(name: str, x: Array) -> Array:
    most = bound(name, x)
    return np.stack([row * min(1.0, most / max(float(np.linalg.norm(row)), 1e-300)) for row in x])


def uneven(n: int, size: int, seed: int = 0) -> Tensor:
    """Updates of different lengths."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return updates(n, size, seed) * torch.linspace(0.1, 3.0, n)[order, None]


BEHIND: list[tuple[list[str], dict[str, Any], Callable[[Array], Array]]] = [
    (["mean"], {}, lambda x: np.asarray(x.mean(0))),
    (["trimmed_mean"], {"f": 2}, lambda x: trimmed_mean(x, 2)),
    (["krum"], {"f": 2}, lambda x: krum(x, 2)),
    (["nnm", "trimmed_mean"], {"f": 2}, lambda x: trimmed_mean(nnm(x, 2), 2)),
]


@EVERY
@pytest.mark.parametrize(("behind", "further", "reference"), BEHIND, ids=[str(each[0]) for each in BEHIND])
@pytest.mark.parametrize("n", [11, 16])
@pytest.mark.parametrize("size", [1, 50, 40_000])
def test_matches_the_reference(
    name: str,
    options: dict[str, Any],
    behind: list[str],
    further: dict[str, Any],
    reference: Callable[[Array], Array],
    n: int,
    size: int,
) -> None:
    x = uneven(n, size, seed=n)
    expected = torch.from_numpy(reference(clipped(name, x.double().numpy())))
    rule = aggregation.create([name, *behind], **{**options, **further})
    torch.testing.assert_close(rule(x.double()), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(rule(x), expected.float(), rtol=1e-4, atol=1e-5)


rows = st.integers(0, 2**32 - 1).map(lambda seed: uneven(11, 20, seed).double())


@given(clippings, rows)
def test_updates_within_the_bound_stay_as_they_are(clipping: tuple[str, dict[str, Any]], x: Tensor) -> None:
    name, options = clipping
    weights = aggregation.CATALOG.create(name, **options).mix((x @ x.T).numpy(), None)
    assert np.array_equal(weights, np.diag(np.diagonal(weights)))
    within = np.linalg.norm(x.numpy(), axis=1) < bound(name, x.numpy()) * (1 - 1e-9)
    assert bool((np.diagonal(weights)[within] == 1).all())
    assert 0 < np.count_nonzero(within) < len(x)
    lengths = np.diagonal(weights)[~within] * np.linalg.norm(x.numpy()[~within], axis=1)
    np.testing.assert_allclose(lengths, bound(name, x.numpy()), rtol=1e-9)


@given(clippings, rows, st.integers(0, 2), st.sampled_from([1e3, -1e8, 1e150, 1e200, np.nan, np.inf, -np.inf]))
def test_no_clipped_row_is_longer_than_an_honest_one(
    clipping: tuple[str, dict[str, Any]], x: Tensor, liars: int, lie: float
) -> None:
    name, options = clipping
    honest = x[liars:]
    x[:liars] = lie
    mean = aggregation.create([name, "mean"], **options)(x)
    assert float(mean.norm()) <= float(honest.norm(dim=1).max()) * (1 + 1e-9)


@given(clippings, rows, st.permutations(range(11)), st.sampled_from([0.25, 2.0, 1024.0]))
def test_neither_order_nor_unit_matters(
    clipping: tuple[str, dict[str, Any]], x: Tensor, order: list[int], unit: float
) -> None:
    name, options = clipping
    rule = aggregation.create([name, "nnm", "trimmed_mean"], **{**options, "f": 2})
    torch.testing.assert_close(rule(x[order]), rule(x), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(rule(x * unit), rule(x) * unit, rtol=1e-9, atol=1e-12)


@EVERY
@pytest.mark.parametrize("behind", [["trimmed_mean"], ["nnm", "trimmed_mean"], ["krum"], ["bulyan"]], ids=str)
@pytest.mark.parametrize("bad", [1e8, -1e30, 3e38, float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["rows", "one element"])
def test_bad_rows_do_not_reach_the_result(
    name: str, options: dict[str, Any], behind: list[str], bad: float, where: str
) -> None:
    x = updates(12, 40_000)
    x[3:5, slice(None) if where == "rows" else slice(39_999, None)] = bad
    before, honest = x.clone(), x[[0, 1, 2, *range(5, 12)]]
    result = aggregation.create([name, *behind], **{**options, "f": 2})(x)
    assert bool(result.isfinite().all())
    assert float(result.norm()) <= float(honest.norm(dim=1).max())
    assert np.array_equal(x.numpy(), before.numpy(), equal_nan=True)


def test_a_rule_that_chooses_an_update_of_no_length_gives_zero() -> None:
    """Next to nothing is read then, and nothing that was there before either."""
    x = torch.tensor([[5.0, 0.0], [-5.0, 0.0], [0.0, 5.0], [0.0, -5.0], [float("nan"), 1.0]])
    assert aggregation.create(["clip_median", "krum"], f=1)(x).tolist() == [0.0, 0.0]


@EVERY
@pytest.mark.parametrize("downlink", ["int4", "topk"])
def test_the_same_bits_with_any_number_of_threads(name: str, options: dict[str, Any], downlink: str) -> None:
    rule, given = [name, "nnm", "trimmed_mean"], {**options, "f": 1}
    expected = make(downlink, "nesterov", rule, **given)
    made = [each.digest for each in advance(expected, 4)]
    for threads in (2, 3):
        server = make(downlink, "nesterov", rule, threads=threads, **given)
        assert [each.digest for each in advance(server, 4)] == made
        assert state(server) == state(expected)


@EVERY
@pytest.mark.parametrize("behind", [["mean"], ["trimmed_mean"], ["nnm", "trimmed_mean"]], ids=str)
@pytest.mark.parametrize("attack", [sign_flip, scale, noise])
def test_learns_under_attack(
    name: str, options: dict[str, Any], behind: list[str], attack: Callable[[Tensor], Tensor]
) -> None:
    further = {} if behind == ["mean"] else {"f": 2}
    honest, attacked = logistic_loss(MEAN, None), logistic_loss(MEAN, attack)
    defended = logistic_loss(aggregation.create([name, *behind], **{**options, **further}), attack)
    assert attacked > honest + 0.15
    assert defended < honest + 0.1


@pytest.mark.parametrize(
    "weights",
    [
        [[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]],
        [[1.0, 0, 0], [0, -2.0, 0], [0, 0, 0.5]],
        [[0, 0, 3.0], [0, 0, 0], [0, -1.0, 0], [0, 0, 1.0]],
        [[0, 1.0, 0], [0, 0, 1.0]],
        [[0, 1.0, 0], [0, 0.5, 0.5]],
    ],
)
def test_rows_that_are_only_scaled_are_what_the_weights_say(weights: list[list[float]]) -> None:
    class Weighing(Median):
        def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
            return np.array(weights)

    x = updates(3, 70_000)
    expected = np.median(np.array(weights) @ x.double().numpy(), axis=0)
    torch.testing.assert_close(Weighing()(x), torch.from_numpy(expected).float())
