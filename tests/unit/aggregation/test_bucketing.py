"""Bucketing: means of buckets that are drawn by lot, what a rule behind them needs, and the same lots again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from barnraise import aggregation
from barnraise.aggregation.base import Rule
from barnraise.aggregation.bucketing import Bucketing
from barnraise.aggregation.context import Context
from barnraise.core.errors import OptionError

from ..controller.tensors.test_parameter_server_chunks import advance, make, state
from ..controller.tensors.test_recovery import Run
from .test_aggregation import MEAN, logistic_loss, noise, scale, sign_flip, updates


def buckets(version: int, nodes: list[str], s: int) -> list[list[str]]:
    weights = Bucketing(s).mix_knowing(None, None, Context(nodes, [0] * len(nodes), version=version))
    assert weights is not None
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert all(len(set(row[row > 0])) == 1 for row in weights), "the mean of its rows"
    return [[nodes[place] for place in np.flatnonzero(row)] for row in weights]


NODES = [f"node-{number}" for number in range(13)]


@pytest.mark.parametrize("s", [1, 2, 3, 5, 13, 40])
def test_each_update_is_in_one_bucket_of_s(s: int) -> None:
    found = buckets(1, NODES, s)
    assert len(found) == -(-13 // s)
    assert all(len(bucket) == s for bucket in found[:-1])
    assert sorted(node for bucket in found for node in bucket) == sorted(NODES)


@given(st.permutations(NODES), st.integers(1, 10**9))
def test_the_place_in_the_buffer_has_no_part_in_it(order: list[str], version: int) -> None:
    assert [set(bucket) for bucket in buckets(version, order, 2)] == [set(b) for b in buckets(version, NODES, 2)]


def test_each_version_draws_new_buckets_with_equal_chances() -> None:
    mates = Counter(frozenset(bucket) for version in range(3900) for bucket in buckets(version, NODES[:4], 2))
    assert set(mates) == {frozenset(pair) for pair in combinations(NODES[:4], 2)}
    assert all(abs(count - 1300) < 5 * 1300**0.5 for count in mates.values())


@pytest.mark.parametrize(
    ("name", "options", "needed", "withstood"),
    [
        (["bucketing", "median"], {"s": 2}, 1, None),
        (["bucketing", "krum"], {"s": 2, "f": 2}, 13, 2),
        (["bucketing", "krum"], {"s": 3, "f": 1}, 13, 1),
        (["arc", "bucketing", "krum"], {"s": 2, "f": 1}, 9, 1),
        (["bucketing", "nnm", "trimmed_mean"], {"s": 2, "f": 2}, 9, 2),
        (["nnm", "bucketing", "bulyan"], {"s": 2, "f": 1}, 13, 1),
        (["bucketing", "krum"], {"s": 1, "f": 2}, 7, 2),
        (["bucketing", "trimmed_mean"], {"s": 2, "trim_ratio": 0.25}, 7, 1),
        (["bucketing", "krum"], {"s": 2, "f": 0.1}, 10, 1),
        (["bucketing", "krum"], {"s": 4, "f": 0.1}, 17, 1),
    ],
)
def test_the_minimum_of_the_inner_rule_is_scaled_by_the_bucket_size(
    name: Any, options: dict[str, Any], needed: int, withstood: int | None
) -> None:
    rule = aggregation.create(name, **options)
    assert rule.minimum == aggregation.minimum(name, options) == needed
    assert aggregation.withstood(name, options, needed) == withstood
    assert rule(updates(needed)).shape == (100,)
    if needed > 1:
        assert aggregation.withstood(name, options, needed - 1) is None
        with pytest.raises(OptionError, match=rf"= {needed} updates, got {needed - 1}; "):
            rule(updates(needed - 1))


def test_a_share_is_one_of_the_updates_and_not_of_the_means() -> None:
    found = [aggregation.withstood(["bucketing", "krum"], {"s": 2, "f": 0.2}, n) for n in (8, 9, 20, 21, 26, 40)]
    assert found == [None, 1, 3, 4, 5, 8]
    found = [aggregation.withstood(["bucketing", "krum"], {"s": 4, "f": 0.3}, n) for n in (24, 25, 100)]
    assert found == [1, 2, 11], "as many as the rule behind it withstands"


def test_the_message_says_behind_what() -> None:
    with pytest.raises(OptionError, match=r"'krum' with f=2 needs n >= 2f\+3 behind bucketing = 13 updates, got 12; "):
        aggregation.require(["bucketing", "krum"], {"f": 2}, 12)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bucketing", "only prepares"),
        (["bucketing", "bucketing", "mean"], "'bucketing' stands behind 'bucketing'"),
        (["krum", "bucketing", "mean"], "'krum' ends a chain"),
    ],
)
def test_invalid_options_are_refused(name: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        aggregation.create(name)
    with pytest.raises(OptionError, match="at least 1"):
        aggregation.create(["bucketing", "mean"], s=0)


@pytest.mark.parametrize("rule", ["mean", "median", "krum", "geometric_median", "centered_clipping"])
def test_is_the_rule_over_the_means(rule: str) -> None:
    x = updates(15, 5000).double()
    options = {"f": 1} if rule == "krum" else {}
    means = torch.stack([x[[int(node) for node in bucket]].mean(0) for bucket in buckets(1, [*map(str, range(15))], 3)])
    expected = aggregation.create(rule, **options)(means)
    torch.testing.assert_close(aggregation.create(["bucketing", rule], s=3, **options)(x), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("bad", [1e8, -1e30, 3e38, float("nan"), float("inf")])
@pytest.mark.parametrize("rule", ["median", "krum", "multi_krum", "trimmed_mean", "bulyan", "dnc", "geometric_median"])
def test_bad_rows_do_not_reach_the_result(rule: str, bad: float) -> None:
    x = updates(22, 3000)
    x[[3, 9]] = bad
    before = x.clone()
    options = {} if rule in ("median", "geometric_median") else {"f": 2}
    result = aggregation.create(["bucketing", rule], **options)(x)
    honest = x[[row for row in range(22) if row not in (3, 9)]]
    assert bool(result.isfinite().all())
    assert bool((result <= honest.amax(0) + 1e-6).all())
    assert np.array_equal(x.numpy(), before.numpy(), equal_nan=True)


@pytest.mark.parametrize("rule", ["trimmed_mean", "dnc"])
@pytest.mark.parametrize("attack", [None, sign_flip, scale, noise])
def test_learns_under_attack(rule: str, attack: Callable[[Tensor], Tensor] | None) -> None:
    defended = logistic_loss(aggregation.create(["bucketing", rule], s=2, f=2), attack)
    assert defended < logistic_loss(MEAN, None) + 0.1


def test_the_same_bits_with_any_number_of_threads() -> None:
    chain = ["bucketing", "centered_clipping"]
    expected = make("int4", "nesterov", chain)
    made = [each.digest for each in advance(expected, 4)]
    for threads in (2, 3):
        server = make("int4", "nesterov", chain, threads=threads)
        assert [each.digest for each in advance(server, 4)] == made
        assert state(server) == state(expected)


class Bucketed(Run):
    buffer_size = 3

    def make_rule(self) -> Rule:
        return aggregation.create(["bucketing", "median"], s=2)


def test_a_resume_draws_the_same_lots(tmp_path: Path) -> None:
    """Versions after the checkpoint are made again, and must hash to what the ledger says."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    whole = Bucketed(tmp_path / "whole")
    expected = whole.to_the_end()
    broken = Bucketed(tmp_path / "broken")
    checkpoint = broken.get_ahead()
    broken.kill()
    broken = Bucketed(tmp_path / "broken", broken.workers)
    assert broken.made[0].version == checkpoint + 1
    assert broken.to_the_end() == expected
    broken.kill()
    whole.kill()
