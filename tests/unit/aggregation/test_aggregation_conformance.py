"""Every rule of the catalog keeps the promises of a rule, alone and behind everything that may stand in front of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from barnraise import aggregation
from barnraise.aggregation.base import Rule
from barnraise.aggregation.bucketing import Bucketing
from barnraise.aggregation.catalog import CATALOG, in_order
from barnraise.aggregation.chain import Chain
from barnraise.aggregation.context import Context
from barnraise.aggregation.mean import Mean
from barnraise.core.errors import OptionError

SIZE = 300


def chains() -> list[tuple[str, ...]]:
    """Each rule that ends a chain, alone and behind each that prepares, as far as the order allows."""
    entries = {name: CATALOG.entry(name) for name in CATALOG.names()}
    fronts = [name for name, entry in entries.items() if entry.declares.prepares]
    found = []
    for name in entries.keys() - set(fronts):
        for chain in [(name,), *((front, name) for front in fronts)]:
            in_order([entries[each] for each in chain])
            found.append(chain)
    return sorted(found)


EVERY = pytest.mark.parametrize("names", chains(), ids="+".join)


def rule_of(names: Sequence[str]) -> Rule:
    return aggregation.create(list(names))


def updates(num_rows: int, seed: int = 0) -> Tensor:
    return torch.randn(num_rows, SIZE, generator=torch.Generator().manual_seed(seed))


def context_of(rule: Rule, num_rows: int) -> Context:
    context = Context.first(rule.keeps, num_rows, SIZE, np.dtype(np.float32))
    return replace(context, ages=list(range(num_rows)))


def test_every_rule_is_there() -> None:
    assert {name for chain in chains() for name in chain} == set(CATALOG.names())


@EVERY
@pytest.mark.parametrize("more", [0, 1, 4])
def test_a_rule_makes_one_finite_update_of_many_version_after_version(names: Sequence[str], more: int) -> None:
    rule = rule_of(names)
    num_rows = rule.minimum + more

    def play() -> list[Tensor]:
        context = context_of(rule, num_rows)
        found = []
        for version in range(1, 4):
            rows = updates(num_rows, version)
            before = rows.clone()
            found.append(rule(rows, context=replace(context, version=version)))
            assert torch.equal(rows, before), "updates are left as they are"
        return found

    first = play()
    assert all(made.shape == (SIZE,) and bool(made.isfinite().all()) for made in first)
    assert all(torch.equal(a, b) for a, b in zip(first, play(), strict=True)), "a replay makes it again"


@EVERY
def test_a_rule_of_equal_updates_is_that_update(names: Sequence[str]) -> None:
    rule = rule_of(names)
    row = updates(1)
    made = rule(row.repeat(rule.minimum + 2, 1))
    short = made.norm() < row.norm()  # clipping towards what is kept begins at 0
    assert short or torch.allclose(made, row[0], rtol=1e-5, atol=1e-5)
    assert torch.nn.functional.cosine_similarity(made, row[0], dim=0) > 1 - 1e-5


@EVERY
def test_a_rule_refuses_fewer_updates_than_it_declares(names: Sequence[str]) -> None:
    rule = rule_of(names)
    if rule.minimum > 1:
        with pytest.raises(OptionError, match=r"need|take"):
            rule(updates(rule.minimum - 1))


@EVERY
def test_rows_may_come_one_by_one(names: Sequence[str]) -> None:
    rule = rule_of(names)
    rows = updates(rule.minimum + 2).requires_grad_()
    assert torch.equal(rule(list(rows)), rule(rows))
    assert torch.equal(rule(rows.t().contiguous().t()), rule(rows))
    assert rule(rows.double()).dtype == torch.float64
    assert rule(rows.bfloat16()).dtype == torch.float32


@EVERY
def test_ties_are_settled(names: Sequence[str]) -> None:
    rule = rule_of(names)
    rows = updates(3).repeat(-(-rule.minimum // 3) + 1, 1)
    first = rule(rows)
    assert bool(first.isfinite().all())
    assert all(torch.equal(rule(rows), first) for _ in range(3))


class ByNodes(Mean):
    """A rule of another package: it weighs by the number of nodes, and by the age of their updates."""

    def mix_knowing(self, gram: Any, shares: Any, context: Context) -> Any:
        assert len(context.ages) == len(context.nodes)
        self.seen = context
        return np.full((1, len(context.nodes)), 1.0 / len(context.nodes))


def test_a_rule_behind_bucketing_gets_the_nodes_of_the_merged_rows() -> None:
    rule = ByNodes()
    chain = Chain([Bucketing(s=2), rule])
    rows = updates(4)
    torch.testing.assert_close(chain(rows, context=context_of(chain, 4)), rows.mean(0))
    assert len(rule.seen.nodes) == 2
    assert sorted("+".join(rule.seen.nodes).split("+")) == ["0", "1", "2", "3"]
    assert [max(map(int, name.split("+"))) for name in rule.seen.nodes] == list(rule.seen.ages), "as old as the oldest"
