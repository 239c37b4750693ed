"""Prices of nodes, and the cheapest node of tasks, are the same together as one by one, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnraise.matching import Market, NodeView, Preferences, TaskView, equals
from barnraise.matching.level import SHUT
from barnraise.matching.tables import NodeTable, TaskTable, ViewPairs

KINDS = [frozenset[str](), frozenset({"train"}), frozenset({"train", "evaluate"})]


def fleet(seed: int, size: int, coarse: bool, alike: bool) -> tuple[list[NodeView], list[TaskView]]:
    """`coarse`: of few speeds and sizes, so that many costs are equal. `alike`: no task needs anything special."""
    random = np.random.default_rng(seed)

    def amount() -> float:
        return float(random.integers(1, 4)) if coarse else float(random.lognormal())

    nodes, tasks = [], []
    for i in range(size):
        special = {} if alike else {"kinds": KINDS[random.integers(3)], "memory_bytes": int(random.integers(1, 9))}
        shards = frozenset(random.integers(0, 9, 3).tolist())
        nodes.append(
            NodeView(f"n{i}", amount(), amount(), amount(), capacity=int(random.integers(3)), shards=shards, **special)
        )
    for j in range(size):
        needs = {} if alike or j % 3 else {"shards": {int(random.integers(9)): 2}, "memory_bytes": 4}
        tasks.append(TaskView(j, amount(), down_bytes=amount(), up_bytes=amount(), **needs))
    return nodes, tasks


@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("alike", [False, True])
def test_a_node_that_comes_back_has_the_very_price_of_the_opening(sized: bool, alike: bool) -> None:
    nodes, tasks = fleet(7, 70, False, alike)
    if sized:
        nodes = [replace(node, capacity=9, work_capacity=1.5 * node.speed) for node in nodes]
    market = Market(nodes=nodes, tasks=tasks, sized=sized)
    prices = market.prices
    assert len(set(prices.values())) > 5
    for node in nodes:
        market.leave(node.id)
        market.join(node)
    assert market.prices == prices


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_the_cheapest_nodes_are_those_of_the_costs(seed: int, coarse: bool, alike: bool) -> None:
    nodes, tasks = fleet(seed, 12, coarse, alike)
    pairs = ViewPairs(NodeTable(Preferences()), TaskTable())
    for node in nodes:
        pairs.nodes.add(node)
    for node in nodes[::4]:
        pairs.nodes.remove(node.id)
    rows = [pairs.tasks.add(task) for task in tasks]
    toll = np.random.default_rng(seed).integers(0, 2, len(nodes) + 3) * SHUT
    for j, i, cost in zip(rows, *pairs.cheapest(rows, toll), strict=True):
        costs = pairs.costs(j)
        charged = costs + toll[: len(costs)]
        least = np.flatnonzero(charged == charged.min())
        if i >= 0:
            assert (least.tolist(), cost) == ([i], costs[i])
        elif alike and charged.min() < SHUT:
            assert len(least) > 1 or np.sort(charged)[1] <= charged.min() * (1 + 1e-8)
    empty = ViewPairs(NodeTable(Preferences()), pairs.tasks)
    assert empty.cheapest(rows, toll)[0] == [-1] * len(rows)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_equals_choose_in_turn(seed: int, coarse: bool) -> None:
    """Too many for the least total: by size, then first come, each takes the cheapest node that has room."""
    nodes, tasks = fleet(seed, 40, coarse, alike=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equals, "MOST_PAIRS", 0)
        market = Market(nodes=nodes, tasks=tasks, priced=False)
    preferences, room, expected = Preferences(), {node.id: node.capacity for node in nodes}, {}
    for task in sorted(tasks, key=preferences.standing, reverse=True):
        open_to_it = [node for node in nodes if room[node.id]]
        if open_to_it:
            best = min(open_to_it, key=lambda node: preferences.cost(task, node))
            room[best.id] -= 1
            expected[task.id] = best.id
    assert market.assignment == expected
    assert market.blocking_pairs() == []
