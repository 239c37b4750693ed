"""Attackers as a share of the updates: what it comes to, and that a rule then is the one with that whole number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from barnraise import aggregation
from barnraise.aggregation.base import Combination
from barnraise.aggregation.fallback import without
from barnraise.aggregation.gram import Array

torch.set_num_threads(1)
NEEDED: dict[Any, Any] = {
    "trimmed_mean": lambda f: 2 * f + 1,
    "krum": lambda f: 2 * f + 3,
    "multi_krum": lambda f: 2 * f + 3,
    "bulyan": lambda f: 4 * f + 3,
    "dnc": lambda f: 2 * f + 1,
    ("arc", "median"): lambda f: 2 * f + 1,
    ("arc", "nnm", "krum"): lambda f: 2 * f + 3,
    ("nnm", "median"): lambda f: 2 * f + 1,
    ("nnm", "trimmed_mean"): lambda f: 2 * f + 1,
    ("nnm", "krum"): lambda f: 2 * f + 3,
    ("nnm", "bulyan"): lambda f: 4 * f + 3,
}
"""The fewest updates of each rule by its paper."""

EVERY = pytest.mark.parametrize("name", NEEDED, ids=str)
SHARES = ("1/10", "1/5", "1/4", "3/10", "29/100", "2/5", "49/100")


def updates(n: int, size: int = 300) -> Tensor:
    return torch.randn(n, size, generator=torch.Generator().manual_seed(n))


def most(name: Any, share: Fraction, n: int) -> int:
    """Compute the definition, in exact arithmetic."""
    return max(f for f in range(n) if f <= share * n and NEEDED[name](f) <= n)


@EVERY
@pytest.mark.parametrize("share", SHARES)
def test_a_rule_by_share_is_the_one_with_the_whole_number(name: Any, share: str) -> None:
    exact, rule = Fraction(share), aggregation.create(name, f=float(Fraction(share)))
    fewest = next(n for n in range(3, 100) if exact * n >= 1 and NEEDED[name](1) <= n)
    assert rule.minimum == aggregation.minimum(name, {"f": float(exact)}) == fewest
    for n in (*range(fewest, fewest + 12), 40):
        f = most(name, exact, n)
        assert aggregation.withstood(name, {"f": float(exact)}, n) == f
        x = updates(n)
        assert torch.equal(rule(x), aggregation.create(name, f=f)(x))
        assert torch.equal(rule(x), rule(x))
    assert aggregation.withstood(name, {"f": float(exact)}, fewest - 1) is None


def test_f_follows_the_number_of_nodes() -> None:
    found = [aggregation.withstood("trimmed_mean", {"f": 0.2}, n) for n in (20, 19, 10, 9, 5, 4)]
    assert found == [4, 3, 2, 1, 1, None]


@EVERY
@given(share=st.floats(1e-6, 0.5, exclude_max=True), n=st.integers(1, 2000), whole=st.integers(1, 600))
def test_never_more_than_the_rule_withstands(name: Any, share: float, n: int, whole: int) -> None:
    f, fewest = aggregation.withstood(name, {"f": share}, n), aggregation.minimum(name, {"f": share})
    assert (f is None) == (n < fewest)
    if f is not None:
        assert f >= 1
        assert f <= share * n + 1e-6
        aggregation.require(name, {"f": f}, n)
        assert f + 1 > share * n - 1e-6 or NEEDED[name](f + 1) > n, "nor fewer than it could"
    enough = n >= NEEDED[name](whole)
    assert aggregation.withstood(name, {"f": whole}, n) == (whole if enough else None)


@EVERY
def test_liars_up_to_the_share_do_not_get_through(name: Any) -> None:
    """Three of fifteen nodes send arbitrary updates."""
    honest = 0.1 * updates(12) + 1.0
    for lie in (1e8, -1e30, float("nan"), float("inf")):
        x = torch.cat([honest, torch.full((3, honest.shape[1]), lie)])
        result = aggregation.create(name, f=0.2)(x)
        assert float((result - 1.0).abs().max()) < 0.6


@EVERY
def test_bits_do_not_depend_on_the_spans(name: Any) -> None:
    x = updates(15, 1000).numpy()

    def read(row: int, start: int, out: Array) -> None:
        out[:] = x[row, start : start + out.size]

    rule, pieces = aggregation.create(name, f=0.2), torch.empty(1000)
    combination = Combination(rule, read, 15, 1000, None)
    for start in (700, 0, 350):
        combination.into(start, pieces[start : min(start + 350, 1000)].numpy())
    assert torch.equal(pieces, rule(torch.from_numpy(x)))


def test_a_ratio_that_is_trimmed_is_told_as_f_too() -> None:
    found = [aggregation.withstood("trimmed_mean", {"trim_ratio": 0.25}, n) for n in (3, 4, 8, 11)]
    assert found == [None, 1, 2, 2]
    assert aggregation.withstood(["nnm", "trimmed_mean"], {"trim_ratio": 0.25}, 12) == 1, "nnm has its own f"
    for rule in ("mean", "median", "centered_clipping", "geometric_median"):
        assert aggregation.withstood(rule, {}, 12) is None


@pytest.mark.parametrize("options", [{"f": 5e-324}, {"trim_ratio": 5e-324}])
def test_nearly_no_share_needs_more_than_there_are(options: dict[str, float]) -> None:
    assert aggregation.minimum("trimmed_mean", options) > 10**12
    assert aggregation.withstood("trimmed_mean", options, 10**6) is None


def test_a_rule_without_known_attackers_withstands_as_many_fewer() -> None:
    names, rows = ["clip_median", "nnm", "trimmed_mean"], torch.randn(6, 9)
    rule = without(aggregation.create(names, f=3), 1)
    assert torch.equal(rule(rows), aggregation.create(names, f=2)(rows))
    assert without(aggregation.create("multi_krum", f=2), 5).minimum == aggregation.create("multi_krum", f=0).minimum
    least = without(aggregation.create("trimmed_mean", f=2), 5)
    assert least.minimum == aggregation.create("trimmed_mean", f=1).minimum, "f is at least 1 there"
    unchanged = aggregation.create("krum", f=1)
    assert without(unchanged, 0) is unchanged


def test_a_rule_by_share_without_known_attackers_withstands_the_share_of_the_rest() -> None:
    rows = torch.randn(9, 5)
    by_share = aggregation.create("trimmed_mean", f=0.34)
    assert torch.equal(without(by_share, 1)(rows), by_share(rows))


def test_a_rule_with_a_fallback_keeps_it_without_known_attackers() -> None:
    rule = without(aggregation.create(["nnm", "trimmed_mean"], f=2, fallback="median"), 1)
    two, four = torch.randn(2, 5), torch.randn(4, 5)
    assert torch.equal(rule(two), aggregation.create("median")(two))
    assert torch.equal(rule(four), aggregation.create(["nnm", "trimmed_mean"], f=1)(four))
