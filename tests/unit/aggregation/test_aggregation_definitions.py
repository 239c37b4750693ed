"""Every rule against its published definition, on random, tied and degenerate updates; the distances behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from barnraise import aggregation
from barnraise.aggregation.base import Combination
from barnraise.aggregation.gram import gram_matrix, squared_distances

from .test_aggregation import Array, bulyan, krum, multi_krum, nnm, trimmed_mean
from .test_centered_clipping import reference as centered_clipping
from .test_geometric_median import reference as weiszfeld

CASES = 250


def norms(x: Array) -> Array:
    return np.asarray(np.linalg.norm(x, axis=1))


def shortened(x: Array, most: float) -> Array:
    return np.asarray(x * np.minimum(1.0, most / np.maximum(norms(x), 1e-300))[:, None])


def clip_median(x: Array) -> Array:
    return shortened(x, float(np.median(norms(x))))


def arc(x: Array, f: int) -> Array:
    return shortened(x, float(np.sort(norms(x))[-1 - 2 * f * (len(x) - f) // len(x)]))


def monna(x: Array, f: int) -> Array:
    return np.asarray(x[np.argsort((x * x).sum(axis=1), kind="stable")[: len(x) - f]].mean(axis=0))


def geometric_median(x: Array) -> Array:
    if not np.median(np.linalg.norm(x[:, None] - x[None], axis=2), axis=1).min():
        values, counts = np.unique(x, axis=0, return_counts=True)
        return np.asarray(values[counts.argmax()])  # the value that more than half send
    return weiszfeld(x, 100)


DEFINITIONS: list[tuple[Any, dict[str, Any], Callable[[Array], Array]]] = [
    ("mean", {}, lambda x: np.asarray(x.mean(axis=0))),
    ("median", {}, lambda x: np.asarray(np.median(x, axis=0))),
    ("trimmed_mean", {"f": 2}, lambda x: trimmed_mean(x, 2)),
    ("krum", {"f": 2}, lambda x: krum(x, 2)),
    ("multi_krum", {"f": 2}, lambda x: multi_krum(x, 2)),
    ("bulyan", {"f": 2}, lambda x: bulyan(x, 2)),
    ("centered_clipping", {"tau": 1.5, "iterations": 2}, lambda x: centered_clipping(x, 0 * x[0], 1.5, 2)),
    ("geometric_median", {"iterations": 100}, geometric_median),
    ("monna", {"f": 2}, lambda x: monna(x, 2)),
    (["nnm", "trimmed_mean"], {"f": 2}, lambda x: trimmed_mean(nnm(x, 2), 2)),
    (["clip_median", "mean"], {}, lambda x: np.asarray(clip_median(x).mean(axis=0))),
    (["clip_median", "trimmed_mean"], {"f": 2}, lambda x: trimmed_mean(clip_median(x), 2)),
    (["arc", "median"], {"f": 2}, lambda x: np.asarray(np.median(arc(x, 2), axis=0))),
]


def cases() -> Iterator[Array]:
    """Small whole numbers where there are ties, so that sums are exact and equal scores are equal to both."""
    for seed in range(CASES):
        random = np.random.default_rng(seed)
        n, size = int(random.integers(11, 17)), int(random.integers(1, 30))
        x = random.normal(size=(n, size))
        kind = seed % 5
        if kind == 1:
            x = random.integers(-2, 3, size=(n, size)).astype(float)
        elif kind == 2:
            x = random.integers(-9, 10, size=(3, size)).astype(float)[random.integers(0, 3, size=n)]
        elif kind == 3:
            x[:2] *= 10.0 ** float(random.integers(-6, 7))
        elif kind == 4:
            x = np.zeros((n, size)) if seed % 2 else np.repeat(x[:1].round(), n, axis=0)
        yield x


@pytest.mark.parametrize(("name", "options", "definition"), DEFINITIONS, ids=[str(name) for name, *_ in DEFINITIONS])
def test_is_its_published_definition(name: Any, options: dict[str, Any], definition: Callable[[Array], Array]) -> None:
    rule = aggregation.create(name, **options)
    for x in cases():
        given = torch.from_numpy(x.copy())
        found = rule(given)
        np.testing.assert_allclose(found.numpy(), definition(x), rtol=1e-4, atol=1e-9 * (1 + float(np.abs(x).max())))
        assert np.array_equal(given.numpy(), x)
        assert torch.equal(rule(given), found)


def cancelling(x: Array, random: np.random.Generator) -> None:
    x += 1000 * random.normal(size=x.shape[1])


def far(x: Array, random: np.random.Generator) -> None:
    cancelling(x, random)
    x[3] = 1e8


def far_centre(x: Array, random: np.random.Generator) -> None:
    """Liars are the middle by length, and far from all."""
    cancelling(x, random)
    x[3], x[4] = -x[0], 0


def two_far(x: Array, random: np.random.Generator) -> None:
    x[3:5] = 1e6 + 64 * random.normal(size=(2, x.shape[1]))


def far_in_one_place(x: Array, random: np.random.Generator) -> None:
    x[3, 70_000] = 1e25
    x[4, 5] = np.nan


def small(x: Array, random: np.random.Generator) -> None:
    x *= 1e-22
    x[2] = 0


def sparse(x: Array, random: np.random.Generator) -> None:
    x *= random.random(x.shape) < 0.01
    x[5:7] = 0


@pytest.mark.parametrize(
    "spoil",
    [None, cancelling, far, far_centre, two_far, far_in_one_place, small, sparse],
    ids=lambda spoil: getattr(spoil, "__name__", "none"),
)
@pytest.mark.parametrize("size", [1 << 17, 150_001])
def test_distances_are_right_whatever_the_updates(spoil: Any, size: int) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(9, size))
    x[8] = x[7] + 0.3 * x[8]
    if spoil is not None:
        spoil(x, random)
    x = x.astype(np.float32)
    x[1] = x[0]

    def read(row: int, start: int, out: Any) -> None:
        out[:] = x[row, start : start + out.size]

    gram = gram_matrix(read, *x.shape, x.dtype)
    found = squared_distances(gram)
    exact = np.array([((row.astype(np.float64) - x) ** 2).sum(axis=-1) for row in x])
    exact[np.isnan(exact)] = np.inf
    np.testing.assert_allclose(found, exact, rtol=1e-5)
    np.testing.assert_allclose(np.diagonal(gram), (x.astype(np.float64) ** 2).sum(axis=-1), rtol=1e-5)
    assert np.array_equal(found, found.T)


@pytest.mark.parametrize("spoil", [None, far], ids=["alike", "far"])
def test_inner_products_of_float32_are_mostly_taken_in_it(monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    """Inner products are computed in float32, since float64 takes three times as long."""
    random = np.random.default_rng(0)
    x = random.normal(size=(9, 1 << 18))
    if spoil is not None:
        spoil(x, random)
    taken, product = [], torch.bmm

    def seen(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        taken.append(a.dtype)
        return product(a, b)

    monkeypatch.setattr(torch, "bmm", seen)
    aggregation.create("krum", f=2)(torch.from_numpy(x.astype(np.float32)))
    assert taken
    assert taken.count(torch.float64) <= 1  # the columns behind the last whole block


@pytest.mark.parametrize("name", [["nnm", "median"], ["bucketing", "nnm", "trimmed_mean"], "bulyan"], ids=str)
def test_the_bits_of_an_element_do_not_hang_on_the_span_that_it_is_asked_for_with(name: Any) -> None:
    x = np.random.default_rng(0).normal(size=(17, 70_001)).astype(np.float32)

    def read(row: int, start: int, out: Any) -> None:
        out[:] = x[row, start : start + out.size]

    rule = aggregation.create(name, f=2)
    combination = Combination(rule, read, *x.shape, None)
    whole = rule(torch.from_numpy(x)).numpy()
    for start, stop in ((0, 1), (3, 5000), (4095, 4097), (33_333, 70_001), (69_999, 70_001)):
        out = np.empty(stop - start, np.float32)
        combination.into(start, out)
        assert np.array_equal(out, whole[start:stop])
