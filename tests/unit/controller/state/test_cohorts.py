"""Cohorts: when each rule is complete, and what dropping out changes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.controller.state.cohorts import IN, OUT, Cohort
from barnraise.core.types import Completion

STAGES = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["open", IN, OUT])), max_size=8)


def cohort(rule: Completion, *members: tuple[str, str], places: int = 0, live: int = 0) -> Cohort:
    """A cohort with members of these nodes at these stages, which ended at the times 1, 2, ..."""
    made = Cohort(1, "train", 0, rule, places=places)
    for number, (node, _) in enumerate(members, 1):
        made.join(number, node)
    for number, (_, stage) in enumerate(members, 1):
        if stage != "open":
            made.settle(number, stage, float(number), live)
    return made


@pytest.mark.parametrize(
    ("rule", "needed"),
    [
        (Completion("first"), 1),
        (Completion("agree", least=2), 2),
        (Completion("sum"), 4),
        (Completion("all"), 4),
        (Completion("share", share=0.5), 2),
        (Completion("share", share=0.6), 3),
    ],
)
def test_each_rule_needs_so_many_results_of_four_places(rule: Completion, needed: int) -> None:
    for came in range(5):
        made = cohort(rule, *((node, IN if place < came else "open") for place, node in enumerate("abcd")), places=4)
        assert made.complete(live=99) == (came >= needed)
        assert made.complete_at == (float(needed) if came >= needed else math.inf)


@given(STAGES)
def test_a_node_counts_once_where_nodes_must_agree(members: list[tuple[str, str]]) -> None:
    made = cohort(Completion("agree", least=2), *members)
    assert made.complete(live=0) == (len({node for node, stage in members if stage == IN}) >= 2)
    assert made.open == any(stage == "open" for _, stage in members)
    assert made.nodes == {node for node, _ in members}
    assert list(made.others(1)) == [n for n, (_, stage) in enumerate(members, 1) if n > 1 and stage != OUT]


@given(STAGES, st.integers(1, 6))
def test_a_share_is_one_of_the_live_nodes_where_places_are_not_fixed(members: list[tuple[str, str]], live: int) -> None:
    made = cohort(Completion("share", share=0.5), *members, live=live)
    assert made.complete(live) == (2 * len(made.came) >= live)


def test_a_cohort_whose_results_are_all_void_is_complete_no_more() -> None:
    made = cohort(Completion("share", share=0.5), ("a", IN), ("b", "open"), live=2)
    assert made.complete_at == 1.0
    made.settle(1, OUT, 5.0, 2)
    assert made.complete_at == math.inf
    made.settle(2, IN, 6.0, 2)
    assert made.complete_at == 6.0


def test_a_member_that_dropped_out_may_come_back() -> None:
    made = cohort(Completion("first"), ("a", OUT), ("b", "open"))
    made.join(1, "a")
    assert made.open
    assert list(made.others(2)) == [1]
