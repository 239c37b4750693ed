"""How likely a buffer holds too many liars: against every draw there is, another library, and known figures."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from barnraise import aggregation
from barnraise.aggregation import odds
from barnraise.config.policy_sections import AggregationSection, TrustSection
from barnraise.plan.choices import Aggregation, aggregation_of


def test_known_figures() -> None:
    """The figures are those of a hundred nodes, of which a fifth or a tenth lies."""
    assert odds.exceeding(100, 20, 32, 6) == pytest.approx(0.47, abs=0.005)
    assert odds.least_f(100, 20, 64, 1e-6) == 20
    assert odds.least_f(100, 10, 32, 1e-6) == 10


@given(living=st.integers(1, 9), data=st.data())
def test_it_is_the_share_of_all_draws(living: int, data: st.DataObject) -> None:
    liars, nodes = data.draw(st.integers(0, living)), data.draw(st.integers(0, living))
    f = data.draw(st.integers(0, living))
    draws = list(combinations(range(living), nodes))
    above = sum(sum(node < liars for node in draw) > f for draw in draws)
    assert odds.exceeding(living, liars, nodes, f) == float(Fraction(above, len(draws)))


@given(living=st.integers(1, 2000), data=st.data())
def test_it_is_what_scipy_finds(living: int, data: st.DataObject) -> None:
    liars, nodes = data.draw(st.integers(0, living)), data.draw(st.integers(0, living))
    f = data.draw(st.integers(0, nodes))
    assert odds.exceeding(living, liars, nodes, f) == pytest.approx(
        float(hypergeom.sf(f, living, liars, nodes)), rel=1e-6, abs=1e-12
    )


@given(living=st.integers(1, 60), data=st.data(), target=st.sampled_from([1e-2, 1e-6]))
def test_the_least_f_is_the_least(living: int, data: st.DataObject, target: float) -> None:
    liars, nodes = data.draw(st.integers(0, living)), data.draw(st.integers(0, living))
    f = odds.least_f(living, liars, nodes, target)
    assert odds.exceeding(living, liars, nodes, f) <= target
    assert f == 0 or odds.exceeding(living, liars, nodes, f - 1) > target


@given(living=st.integers(1, 60), share=st.floats(0, 0.5), target=st.sampled_from([1e-2, 1e-6]))
def test_the_least_buffer_is_the_least_or_the_best(living: int, share: float, target: float) -> None:
    def withstood(nodes: int) -> int | None:
        return aggregation.withstood(["nnm", "trimmed_mean"], {"f": 0.3}, nodes)

    liars = odds.believed(share, living)
    found = odds.least_buffer(living, liars, withstood, target)
    every = {n: odds.exceeding(living, liars, n, f) for n in range(1, living + 1) if (f := withstood(n)) is not None}
    if found is None:
        assert living < 4
        return
    assert found.f == withstood(found.nodes)
    assert found.odds == every[found.nodes]
    if found.odds <= target:
        assert all(chance > target for nodes, chance in every.items() if nodes < found.nodes)
    else:
        assert found.odds == min(every.values())


def test_believed_liars_are_never_fewer_than_the_share() -> None:
    assert [odds.believed(0.2, living) for living in (1, 5, 6, 10, 100)] == [1, 1, 2, 2, 20]
    assert odds.believed(0.29, 100) == 29
    assert math.isclose(odds.exceeding(10, odds.believed(0.0, 10), 5, 0), 0.0)


def test_numbers_that_are_none() -> None:
    with pytest.raises(ValueError, match="3 liars and 1 nodes are not of 2"):
        odds.exceeding(2, 3, 1, 0)


def rule(f: Any = "auto", **trust: Any) -> Aggregation:
    return aggregation_of(AggregationSection(rule=["nnm", "trimmed_mean"], f=f), TrustSection(**trust))


def test_automatic_k_follows_the_living_and_f_its_nodes() -> None:
    found = rule(believed_liars=0.2)
    assert [(n, found.least(n), found.withstood(found.least(n))) for n in (9, 20, 100)] == [
        (9, 7, 2),
        (20, 14, 4),
        (100, 67, 20),
    ]
    assert [found.odds(n, found.least(n)) for n in (9, 20, 100)] == [0.0, 0.0, 0.0]
    assert found.odds(100, 32) == pytest.approx(float(hypergeom.sf(9, 100, 20, 32)))
    assert rule(believed_liars=0.2, liar_odds=0.05).least(20) < 14


def test_where_no_k_reaches_the_target_it_is_the_best() -> None:
    safe = rule(believed_liars=0.4).safe(20)
    assert safe is not None
    assert safe.odds > 1e-6
    assert rule(believed_liars=0.4).least(20) == safe.nodes


def test_without_belief_automatic_f_is_a_share_alone() -> None:
    assert [rule().least(n) for n in (9, 100)] == [4, 4]
    assert [rule().withstood(n) for n in (3, 9, 20)] == [None, 2, 6]
    assert rule(f=0.2, believed_liars=0.2).least(100) == 5, "K is only chosen where f is"
