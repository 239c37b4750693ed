"""The market under random events: after each one the matching is stable, by the definition, and feasible."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnraise import matching
from barnraise.core.errors import InputError
from barnraise.matching import Market, NodeView, Preferences, TaskView
from barnraise.matching.market import PairScores

IDS = st.integers(0, 11)


class Table:
    """Preferences without any pattern, with ties and refusals, from a seed."""

    def __init__(self, seed: int, levels: int) -> None:
        random = np.random.default_rng(seed)
        self.likes_node, self.likes_task = random.integers(0, levels, (2, 12, 12)).tolist()
        self.refused = (random.random((12, 12)) < 0.2).tolist()

    def task_score(self, task: TaskView, node: NodeView) -> int | None:
        i = int(node.id)
        return None if self.refused[task.id][i] else self.likes_node[task.id][i]

    def node_score(self, task: TaskView, node: NodeView) -> int:
        score: int = self.likes_task[task.id][int(node.id)]
        return score


def strict_scores(
    preferences: PairScores, tasks: list[TaskView], nodes: list[NodeView]
) -> tuple[np.ndarray, np.ndarray]:
    """Ranks as matrices [tasks, nodes], nan where refused; equal scores go to whoever came first."""
    task_ranks, node_ranks = np.full((2, len(tasks), len(nodes)), np.nan)
    likes = {(j, i): preferences.task_score(task, node) for j, task in enumerate(tasks) for i, node in enumerate(nodes)}
    for j in range(len(tasks)):
        known = [i for i in range(len(nodes)) if likes[j, i] is not None]
        for rank, i in enumerate(sorted(known, key=lambda i: (likes[j, i], -i))):
            task_ranks[j, i] = rank
    for i, node in enumerate(nodes):
        known = [j for j in range(len(tasks)) if likes[j, i] is not None]
        for rank, j in enumerate(sorted(known, key=lambda j: (preferences.node_score(tasks[j], node), -j))):
            node_ranks[j, i] = rank
    return task_ranks, node_ranks


def check(market: Market, preferences: PairScores, tasks: list[TaskView], nodes: list[NodeView]) -> None:
    """The matching is feasible, stable by the definition, and places whom every stable matching places."""
    task_ranks, node_ranks = strict_scores(preferences, tasks, nodes)
    capacity = [node.capacity for node in nodes]
    place = {node.id: i for i, node in enumerate(nodes)}
    assignment = market.assignment
    assert assignment.keys() <= {task.id for task in tasks}
    at = [place[assignment[task.id]] if task.id in assignment else -1 for task in tasks]
    load = Counter(i for i in at if i >= 0)
    assert all(load[i] <= slots for i, slots in enumerate(capacity))
    for j, held in enumerate(at):
        assert held < 0 or not np.isnan(task_ranks[j, held])
        for i in range(len(nodes)):
            wants = not np.isnan(task_ranks[j, i]) and (held < 0 or task_ranks[j, i] > task_ranks[j, held])
            less_liked = any(k == i and node_ranks[other, i] < node_ranks[j, i] for other, k in enumerate(at))
            assert not (wants and (load[i] < capacity[i] or less_liked)), f"task {j} and node {i} block"
    assert market.blocking_pairs() == []
    scratch = matching.deferred_acceptance(task_ranks, node_ranks, np.array(capacity, dtype=int)).tolist()
    assert [i >= 0 for i in scratch] == [i >= 0 for i in at]
    assert Counter(i for i in scratch if i >= 0) == load


class MarketMachine(RuleBasedStateMachine):
    """Nodes and tasks come, go and come back under the same name with other properties."""

    @initialize(seed=st.integers(0, 2**32), levels=st.sampled_from([2, 5, 1000]), measured=st.booleans())
    def open(self, seed: int, levels: int, measured: bool) -> None:
        self.preferences: PairScores = Preferences(default_speed=2.0) if measured else Table(seed, levels)
        self.market = Market(self.preferences)
        self.tasks: dict[int, TaskView] = {}
        self.nodes: dict[str, NodeView] = {}
        self.last: dict[int, str] = {}

    def follow(self, moved: dict[int, str | None]) -> None:
        """What an event says has moved is exactly what has."""
        now = self.market.assignment
        stayed = self.last.keys() | now.keys()
        changed = {task: now.get(task) for task in stayed & self.tasks.keys() if now.get(task) != self.last.get(task)}
        assert moved == changed
        self.last = now

    @precondition(lambda self: len(self.nodes) < 12)
    @rule(
        index=IDS,
        speed=st.integers(0, 3),
        bandwidth=st.integers(0, 2),
        memory=st.integers(0, 1),
        capacity=st.integers(0, 3),
        shards=st.frozensets(st.integers(0, 2)),
    )
    def join(self, index: int, speed: int, bandwidth: int, memory: int, capacity: int, shards: frozenset[int]) -> None:
        node = NodeView(
            str(index), speed, bandwidth * 1e6, bandwidth * 1e6, 0.0, memory, capacity=capacity, shards=shards
        )
        if node.id in self.nodes:
            with pytest.raises(InputError, match="already"):
                self.market.join(node)
            return
        self.nodes[node.id] = node
        self.follow(self.market.join(node))

    @rule(index=IDS)
    def leave(self, index: int) -> None:
        if str(index) not in self.nodes:
            with pytest.raises(InputError, match="not in the market"):
                self.market.leave(str(index))
            return
        del self.nodes[str(index)]
        self.follow(self.market.leave(str(index)))

    @rule(
        index=IDS,
        work=st.integers(0, 3),
        num_bytes=st.integers(0, 2),
        priority=st.integers(0, 1),
        memory=st.integers(0, 1),
        shards=st.dictionaries(st.integers(0, 2), st.integers(0, 2)),
    )
    def add(self, index: int, work: int, num_bytes: int, priority: int, memory: int, shards: dict[int, int]) -> None:
        task = TaskView(index, work, up_bytes=num_bytes * 1e6, shards=shards, priority=priority, memory_bytes=memory)
        if index in self.tasks:
            with pytest.raises(InputError, match="already"):
                self.market.add(task)
            return
        self.tasks[index] = task
        self.follow(self.market.add(task))

    @rule(index=IDS)
    def remove(self, index: int) -> None:
        if index not in self.tasks:
            with pytest.raises(InputError, match="not in the market"):
                self.market.remove(index)
            return
        del self.tasks[index]
        self.follow(self.market.remove(index))

    @invariant()
    def stable(self) -> None:
        if hasattr(self, "market"):
            tasks, nodes = list(self.tasks.values()), list(self.nodes.values())
            assert (self.market.tasks, self.market.nodes) == (tasks, nodes)
            check(self.market, self.preferences, tasks, nodes)


TestMarket = MarketMachine.TestCase
TestMarket.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([2, 1000]), st.lists(st.integers(0, 2), max_size=8), st.integers(0, 10))
def test_a_market_that_opens_full_is_the_task_optimal_matching(
    seed: int, levels: int, capacity: list[int], num_tasks: int
) -> None:
    preferences = Table(seed, levels)
    nodes = [NodeView(str(i), capacity=slots) for i, slots in enumerate(capacity)]
    tasks = [TaskView(j) for j in range(num_tasks)]
    market = Market(preferences, nodes, tasks)
    check(market, preferences, tasks, nodes)
    scratch = matching.deferred_acceptance(
        *strict_scores(preferences, tasks, nodes), np.array(capacity, dtype=int)
    ).tolist()
    assert market.assignment == {j: str(i) for j, i in enumerate(scratch) if i >= 0}
    one_by_one = Market(preferences, nodes)
    for task in tasks:
        one_by_one.add(task)
    assert one_by_one.assignment == market.assignment


def test_the_same_events_give_the_same_matching() -> None:
    def run() -> list[dict[int, str | None]]:
        random = np.random.default_rng(7)
        market, moves = Market(Table(3, 1000)), []
        for _ in range(300):
            event, index = random.integers(0, 4), int(random.integers(0, 12))
            calls: list[Any] = [
                lambda i=index: market.join(NodeView(str(i))),
                lambda i=index: market.leave(str(i)),
                lambda j=index: market.add(TaskView(j)),
                lambda j=index: market.remove(j),
            ]
            try:
                moves.append(calls[event]())
            except InputError:
                continue
        return moves

    first = run()
    assert any(len(moves) > 1 for moves in first)  # chains happened
    assert run() == first


def test_a_departure_sends_tasks_on_and_an_arrival_starts_a_vacancy_chain() -> None:
    fast, middle, slow = (NodeView(name, speed) for name, speed in [("fast", 100.0), ("middle", 10.0), ("slow", 1.0)])
    market = Market(nodes=[fast, middle, slow], tasks=[TaskView(1, 300), TaskView(2, 200), TaskView(3, 100)])
    assert market.assignment == {1: "fast", 2: "middle", 3: "slow"}
    assert market.leave("fast") == {1: "middle", 2: "slow", 3: None}
    assert market.join(fast) == {1: "fast", 2: "middle", 3: "slow"}
    assert market.remove(1) == {2: "fast", 3: "middle"}
    assert market.add(TaskView(4, 250)) == {4: "fast", 2: "middle", 3: "slow"}
    assert market.blocking_pairs() == []


def test_assignment_is_a_copy_and_duplicates_are_refused() -> None:
    market = Market(nodes=[NodeView("a")], tasks=[TaskView(1)])
    market.assignment.clear()
    assert market.assignment == {1: "a"}
    with pytest.raises(InputError, match="task 1 is in the market already"):
        Market(tasks=[TaskView(1), TaskView(1)])
    with pytest.raises(InputError, match="node 'a' is in the market already"):
        Market(nodes=[NodeView("a"), NodeView("a")])
