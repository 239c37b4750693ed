"""Sums of cohorts in a version: with the mean as good as their rows, and refused by rules that need rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from barnraise import aggregation
from barnraise.aggregation import fallback
from barnraise.aggregation.catalog import resolve
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.tensors.stages.base import Array, Making, Sum
from barnraise.controller.tensors.stages.reducing import PseudoGradient
from barnraise.core.errors import InputError, OptionError, VersionRefusedError
from barnraise.core.threads import Crew
from barnraise.core.types import ParameterRange

from ..test_parameter_server import Uploads, make_server, slot, vector

SIZE = 64


class Total:
    """The sum of some vectors, as a secure sum would give it."""

    def __init__(self, values: Tensor) -> None:
        self.values = values.numpy()

    @property
    def largest(self) -> float:
        return float(np.abs(self.values).max())

    def read(self, start: int, out: Array) -> None:
        out[:] = self.values[start : start + out.size]


def summed(cohort: Sequence[tuple[str, float, Tensor]], span: tuple[int, int], ages: Sequence[int] = ()) -> Sum:
    total = torch.stack([weight * update for _, weight, update in cohort]).sum(0)
    names, weights = [name for name, _, _ in cohort], [weight for _, weight, _ in cohort]
    return Sum(ParameterRange(*span), Total(total), sum(weights), names, ages or [0] * len(cohort))


spans = st.sampled_from([(0, SIZE), (0, 24), (24, SIZE), (8, 40)])
weights = st.floats(0.125, 64.0, width=16)
contributions = st.tuples(spans, weights, st.sampled_from([1.0, 0.5, 0.25]), st.integers(0, 2))  # cohort 0: a row


@settings(max_examples=60, deadline=None)
@given(st.lists(contributions, min_size=1, max_size=8), st.floats(0.25, 1.0), st.randoms(use_true_random=False))
def test_sums_and_rows_make_the_version_of_the_weighted_mean(given: Any, rate: float, random: Any) -> None:
    """Each element is sum_i w_i s_i x_i / sum_i w_i over all that cover it, times the scale of its range."""
    server, start = make_server(SIZE), make_server(SIZE).parameters
    uploads, slots = Uploads(server), list[Slot]()
    cohorts: dict[tuple[int, tuple[int, int]], list[tuple[str, float, Tensor]]] = {}
    weighed, total = torch.zeros(SIZE, dtype=torch.float64), torch.zeros(SIZE, dtype=torch.float64)
    for number, (span, weight, scale, cohort) in enumerate(given):
        update = vector(number + 1, span[1] - span[0])
        weighed[slice(*span)] += weight
        total[slice(*span)] += weight * scale * update.double()
        if cohort:  # a masked update is scaled before it is sent
            cohorts.setdefault((cohort, span), []).append((f"n{number}", weight, scale * update))
        else:
            uploads.add(number, update)
            slots.append(Slot(f"n{number}", ParameterRange(*span), (Held(number, weight, 0, scale=scale),)))
    cuts = sorted({edge for span, *_ in given for edge in span})
    pieces = [(a, b) for a, b in pairwise(cuts) if weighed[a] > 0]
    scales = tuple(random.choice([1.0, 0.5]) for _ in pieces)
    expected = torch.where(weighed > 0, total / weighed.clamp(min=1e-9), 0.0) * rate
    for piece, scale in zip(pieces, scales, strict=True):
        expected[slice(*piece)] *= scale if len(pieces) > 1 else 1.0
    sums = [summed(cohort, span) for (_, span), cohort in cohorts.items()]
    server.aggregate(1, slots, uploads.read, rate, scales, sums)
    torch.testing.assert_close((start - server.parameters).double(), expected, rtol=1e-4, atol=1e-4)


def test_a_sum_alone_makes_a_version_without_slots() -> None:
    server, ones = make_server(SIZE), torch.ones(SIZE)
    start = server.parameters.clone()
    cohort = summed([("a", 1.0, 2 * ones), ("b", 3.0, 6 * ones)], (0, SIZE), ages=[0, 4])
    assert (cohort.nodes, cohort.age, cohort.largest) == (["a", "b"], 4, 5.0)
    server.aggregate(1, [], {}.__getitem__, sums=[cohort])
    torch.testing.assert_close(start - server.parameters, 5 * ones)


@pytest.mark.parametrize("rule", ["median", "krum", "geometric_median", "centered_clipping"])
def test_a_rule_that_needs_rows_refuses_a_sum_and_nothing_changes(rule: str) -> None:
    server = make_server(SIZE, rule=rule)
    before, uploads = server.parameters.clone(), Uploads(server)
    uploads.add(1, vector(1, SIZE))
    sums = [summed([("b", 1.0, vector(2, SIZE)), ("c", 1.0, vector(3, SIZE))], (0, SIZE))]
    with pytest.raises(VersionRefusedError, match=f"'{rule}' needs each update as a row, but those of 2 nodes") as told:
        server.aggregate(1, [slot("a", (1, 1.0), span=(0, SIZE))], uploads.read, sums=sums)
    assert isinstance(told.value.__cause__, InputError)
    assert "set aggregation.rule to mean" in told.value.reason
    assert torch.equal(server.parameters, before)


def test_a_rule_that_needs_rows_reads_the_means_of_groups() -> None:
    server, ones = make_server(SIZE, rule="median"), torch.ones(SIZE)
    start = server.parameters.clone()
    groups = [
        replace(summed([(f"{number}a", 1.0, value * ones), (f"{number}b", 3.0, value * ones)], (0, SIZE)), grouped=True)
        for number, value in enumerate((1.0, 2.0, 1e6))
    ]
    server.aggregate(1, [], {}.__getitem__, sums=groups)
    torch.testing.assert_close(start - server.parameters, 2 * ones)


def test_a_rule_withstands_fewer_attackers_where_groups_of_them_are_left_out() -> None:
    groups = [
        replace(summed([(f"{number}a", 1.0, value), (f"{number}b", 3.0, value)], (0, SIZE)), grouped=True)
        for number, value in enumerate(vector(seed, SIZE) for seed in range(3))
    ]
    rule, whole = aggregation.create("multi_krum", f=1), Making(1, (), {}.__getitem__, 1.0, (), SIZE, groups)
    with pytest.raises(OptionError, match="5 updates, got 3"):
        PseudoGradient(rule, whole, {}, {}, Crew())
    left, found = replace(whole, exposed=1), np.empty(SIZE, np.float32)
    PseudoGradient(rule, left, {}, {}, Crew()).into(0, found)
    mean = torch.stack([vector(seed, SIZE) for seed in range(3)]).mean(0)
    torch.testing.assert_close(torch.from_numpy(found), mean)


def test_a_rule_says_whether_it_needs_rows_or_a_sum() -> None:
    assert aggregation.create("mean").needs == "sum"
    assert aggregation.create(["clip_median", "mean"]).needs == "rows"
    assert aggregation.create(["bucketing", "mean"]).needs == "rows"
    assert aggregation.create("trimmed_mean", f=0.2).needs == "rows"
    assert fallback.build(resolve("krum", {"f": 1}), "mean").needs == "rows"
    assert fallback.build(resolve("mean", {}), "mean").needs == "sum"


@pytest.mark.parametrize("name", aggregation.names())
def test_a_rule_that_needs_a_sum_gives_the_same_for_the_sum_of_any_of_its_rows(name: str) -> None:
    """A rule that declares a sum, and is no weighted mean, would be found here."""
    declared = aggregation.CATALOG.entry(name).declares
    if declared.needs == "rows":
        assert not aggregation.create([name, "mean"] if declared.prepares else name).weighted
        return
    rule, x = aggregation.create(name), torch.stack([vector(seed, SIZE) for seed in range(5)])
    weights = [1.0, 2.0, 0.5, 4.0, 3.0]
    assert rule.weighted
    part = (x[:3] * torch.tensor(weights[:3])[:, None]).sum(0) / sum(weights[:3])
    fewer = rule(torch.stack([part, x[3], x[4]]), [sum(weights[:3]), *weights[3:]])
    torch.testing.assert_close(fewer, rule(x, weights))


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_sum_without_a_weight_or_without_nodes_is_refused(weight: float) -> None:
    total = Total(torch.ones(SIZE))
    with pytest.raises(InputError, match="must add up to a positive number"):
        Sum(ParameterRange(0, SIZE), total, weight, ["a"], [0])
    for nodes, ages in ([], []), (["a", "b"], [0]):
        with pytest.raises(InputError, match="give each node and its age"):
            Sum(ParameterRange(0, SIZE), total, 1.0, nodes, ages)
