"""Properties of every aggregation rule: order of the updates, translation, scale, and the convex hull."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from barnraise import aggregation
from barnraise.aggregation.base import Combination, Rule
from barnraise.aggregation.gram import Array, gram_matrix, mixed_gram, squared_distances

torch.set_num_threads(1)
rules = st.sampled_from(
    [
        ("mean", {}),
        ("median", {}),
        ("trimmed_mean", {"f": 2}),
        ("trimmed_mean", {"trim_ratio": 0.3}),
        ("krum", {"f": 2}),
        ("multi_krum", {"f": 2}),
        ("bulyan", {"f": 2}),
        (["nnm", "trimmed_mean"], {"f": 2}),
        (["nnm", "krum"], {"f": 2}),
        ("trimmed_mean", {"f": 0.2}),
        (["nnm", "multi_krum"], {"f": 0.2}),
    ]
).map(lambda pair: aggregation.create(pair[0], **pair[1]))
values = st.integers(-(2**20), 2**20).map(lambda i: i / 1024)  # exact under sums and shifts
matrices = hnp.arrays(np.float64, st.tuples(st.integers(11, 14), st.integers(1, 6)), elements=values).map(
    torch.from_numpy
)


def has_near_ties(x: Tensor) -> bool:
    """Whether two distances between updates are equal, so that a choice may depend on their order."""
    distances = np.sort(squared_distances(gram(x))[np.triu_indices(len(x), 1)])
    return bool((np.diff(distances) < 1e-6 * (1 + distances[:-1])).any())


def gram(x: Tensor) -> Array:
    rows = x.numpy()

    def read(row: int, start: int, out: Array) -> None:
        out[:] = rows[row, start : start + out.size]

    return gram_matrix(read, *rows.shape, rows.dtype)


@given(rules, matrices, st.randoms(use_true_random=False))
def test_order_does_not_matter(rule: Any, x: Tensor, random: Any) -> None:
    assume(not has_near_ties(x) and rule.name != "bulyan")  # which says itself that it meets ties
    order = list(range(len(x)))
    random.shuffle(order)
    torch.testing.assert_close(rule(x[order]), rule(x), rtol=1e-9, atol=1e-9)


@given(rules, matrices, values)
def test_translation(rule: Any, x: Tensor, shift: float) -> None:
    assume(not has_near_ties(x))
    torch.testing.assert_close(rule(x + shift), rule(x) + shift, rtol=1e-9, atol=1e-9)


@given(rules, matrices, st.sampled_from([0.25, 2.0, 1024.0]))
def test_scaling(rule: Any, x: Tensor, factor: float) -> None:
    torch.testing.assert_close(rule(x * factor), rule(x) * factor, rtol=1e-12, atol=0)


@given(rules, matrices)
def test_inside_the_hull_of_each_coordinate(rule: Any, x: Tensor) -> None:
    result = rule(x)
    slack = 1e-9 * (1 + x.abs().amax(0))
    assert bool((result <= x.amax(0) + slack).all())
    assert bool((result >= x.amin(0) - slack).all())


@given(matrices, st.data())
def test_trimming_stays_among_the_honest(x: Tensor, data: st.DataObject) -> None:
    """Each coordinate lies between values of the honest nodes, for all values that two attackers send."""
    liars = data.draw(st.lists(st.integers(0, len(x) - 1), min_size=2, max_size=2, unique=True))
    for liar in liars:
        x[liar] = data.draw(st.floats(allow_nan=True, allow_infinity=True))
    honest = x[[row for row in range(len(x)) if row not in liars]]
    for rule in (aggregation.create("trimmed_mean", f=2), aggregation.create("median")):
        result = rule(x)
        slack = 1e-9 * (1 + honest.abs().amax(0))
        assert bool((result <= honest.amax(0) + slack).all())
        assert bool((result >= honest.amin(0) - slack).all())


@given(matrices, hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.just(14)), elements=st.floats(0, 1)))
def test_gram_of_mixed_rows(x: Tensor, mixing: Any) -> None:
    mixing = mixing[:, : len(x)]
    expected = (torch.from_numpy(mixing.copy()) @ x) @ (torch.from_numpy(mixing.copy()) @ x).T
    result = torch.from_numpy(mixed_gram(mixing, gram(x)))
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-6)


@given(rules, matrices, st.integers(0, 2), st.floats(1.0, 1e6))
def test_no_value_is_larger_than_its_bound_and_f_liars_do_not_raise_it(
    rule: Rule, x: Tensor, liars: int, lie: float
) -> None:
    rows = x.numpy().copy()
    honest = float(np.abs(rows[liars:]).max())
    rows[:liars] = lie * (1.0 + honest)

    def read(row: int, start: int, out: Array) -> None:
        out[:] = rows[row, start : start + out.size]

    combination = Combination(rule, read, len(rows), rows.shape[1], None, dtype=rows.dtype)
    bound, out = combination.bound(np.abs(rows).max(axis=1)), np.empty(rows.shape[1])
    combination.into(0, out)
    assert float(np.abs(out).max()) <= bound * (1 + 1e-9) + 1e-30
    if rule.name in ("median", "trimmed_mean"):
        assert bound <= len(rows) * honest
