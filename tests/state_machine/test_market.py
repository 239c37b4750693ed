"""The market under random events: after each one the matching is stable, by the definition, and feasible. And the level
beneath it, with preferences that follow no pattern, against deferred acceptance from scratch.
"""

from __future__ import annotations

import dataclasses
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
from barnraise.matching.level import Level
from barnraise.matching.scores import Floats, Ints

from .rest import Rest

IDS = st.integers(0, 11)
SIZE = 12


nodes_of = st.builds(
    NodeView,
    id=IDS.map(str),
    speed=st.integers(0, 3),
    up_bandwidth=st.integers(0, 2).map(lambda n: n * 1e6),
    latency=st.sampled_from([0.0, 0.3]),
    memory_bytes=st.integers(0, 1),
    capacity=st.integers(0, 3),
    trust=st.sampled_from([0.25, 1.0]),
    shards=st.frozensets(st.integers(0, 2)),
    kinds=st.sampled_from([frozenset(), frozenset(), frozenset({"train"})]),
    work_capacity=st.sampled_from([0.0, 1.0, 2.5, 4.0, 7.0, 1e18]),
)
tasks_of = st.builds(
    TaskView,
    id=IDS,
    work=st.sampled_from([0.0, 1.0, 1.2, 1.3, 2.0, 3.0, 3.5]),
    kind=st.sampled_from(["train", "train", "audit"]),
    up_bytes=st.integers(0, 2).map(lambda n: n * 1e6),
    shards=st.dictionaries(st.integers(0, 2), st.integers(0, 2).map(lambda n: n * 1_000_000)),
    priority=st.integers(0, 1),
    memory_bytes=st.integers(0, 1),
    min_trust=st.sampled_from([0.0, 0.0, 0.5]),
)


class MarketMachine(RuleBasedStateMachine):
    """Nodes and tasks come, go, change, and come back under the same name with other properties."""

    @initialize(
        sized=st.booleans(),
        priced=st.booleans(),
        priority_first=st.booleans(),
        best_for_nodes=st.booleans(),
        switching_cost=st.sampled_from([0.0, 0.5]),
        nodes=st.lists(nodes_of, unique_by=lambda node: node.id),
        tasks=st.lists(tasks_of, unique_by=lambda task: task.id),
    )
    def open(
        self,
        sized: bool,
        priced: bool,
        priority_first: bool,
        best_for_nodes: bool,
        switching_cost: float,
        nodes: list[NodeView],
        tasks: list[TaskView],
    ) -> None:
        preferences = Preferences(2.0, 1e6, priority_first, switching_cost)
        self.market = Market(preferences, nodes, tasks, sized=sized, priced=priced, best_for_nodes=best_for_nodes)
        self.tasks = {task.id: task for task in tasks}
        self.nodes = {node.id: node for node in nodes}
        self.last = self.market.assignment

    def follow(self, moved: dict[int, str | None]) -> None:
        """The tasks that an event reports as moved are exactly the tasks that moved."""
        now = self.market.assignment
        stayed = self.last.keys() | now.keys()
        changed = {task: now.get(task) for task in stayed & self.tasks.keys() if now.get(task) != self.last.get(task)}
        assert moved == changed
        self.last = now

    @rule(node=nodes_of)
    def join(self, node: NodeView) -> None:
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

    @rule(node=nodes_of, room_only=st.booleans())
    def change(self, node: NodeView, room_only: bool) -> None:
        if node.id not in self.nodes:
            with pytest.raises(InputError, match="not in the market"):
                self.market.change(node)
            return
        if room_only:
            before = self.nodes[node.id]
            node = dataclasses.replace(before, capacity=node.capacity, work_capacity=node.work_capacity)
        self.nodes[node.id] = node
        self.follow(self.market.change(node))

    @rule(task=tasks_of)
    def add(self, task: TaskView) -> None:
        if task.id in self.tasks:
            with pytest.raises(InputError, match="already"):
                self.market.add(task)
            return
        self.tasks[task.id] = task
        self.follow(self.market.add(task))

    @rule(index=IDS)
    def remove(self, index: int) -> None:
        if index not in self.tasks:
            with pytest.raises(InputError, match="not in the market"):
                self.market.remove(index)
            return
        del self.tasks[index]
        self.follow(self.market.remove(index))

    @rule(gone=st.sets(IDS), new=st.lists(tasks_of, unique_by=lambda task: task.id))
    def exchange(self, gone: set[int], new: list[TaskView]) -> None:
        gone &= self.tasks.keys()
        new = [task for task in new if task.id not in self.tasks]
        for index in gone:
            del self.tasks[index]
        self.tasks |= {task.id: task for task in new}
        self.follow(self.market.exchange(sorted(gone), new))

    @precondition(lambda self: self.market.drift > 0.5)
    @rule()
    def renew(self) -> None:
        self.follow(self.market.renew())
        assert self.market.drift == 0

    @invariant()
    def stable(self) -> None:
        if hasattr(self, "market"):
            assert self.market.tasks == list(self.tasks.values())
            assert {node.id: node for node in self.market.nodes} == self.nodes
            Rest(self.market, self.tasks, self.nodes).check()


TestMarket = MarketMachine.TestCase
TestMarket.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)


# The level: preferences without any pattern


class Table:
    """Costs and localities from a seed, with ties or without, and refusals; 12 tasks, 12 nodes."""

    def __init__(self, seed: int, strict: bool) -> None:
        random = np.random.default_rng(seed)
        if strict:
            likes = [random.permutation(SIZE * SIZE).reshape(SIZE, SIZE) for _ in range(2)]
        else:
            likes = [random.integers(0, 3, (SIZE, SIZE)) for _ in range(2)]
        self.cost, self.rank = likes[0].astype(float), likes[1].astype(float)
        self.standing = random.integers(0, 1 if strict else 3, SIZE).tolist()
        self.cost[random.random((SIZE, SIZE)) < 0.2] = np.inf

    def costs(self, j: int) -> Floats:
        return self.cost[j].copy()

    def maybe_cheaper(self, i: int, limits: Floats) -> Ints:
        return np.flatnonzero(self.cost[: len(limits), i] < limits[:SIZE])

    def costs_at(self, i: int, tasks: Ints) -> Floats:
        return self.cost[tasks, i]

    def cheapest(self, tasks: list[int], toll: Floats) -> tuple[list[int], list[float]]:
        return [-1] * len(tasks), [np.inf] * len(tasks)

    def localities(self, j: int) -> Floats | None:
        return self.rank[j]

    def localities_at(self, i: int, tasks: Ints) -> Floats | None:
        return self.rank[tasks, i]

    def likes(self, j: int, i: int) -> tuple[float, float]:
        return self.standing[j], float(self.rank[j, i])


class LevelMachine(RuleBasedStateMachine):
    """Tasks come and go, and slots change, several at once."""

    @initialize(seed=st.integers(0, 2**32), strict=st.booleans(), switching_cost=st.sampled_from([0.0, 1.5]))
    def open(self, seed: int, strict: bool, switching_cost: float) -> None:
        self.table, self.strict, self.switching_cost = Table(seed, strict), strict, switching_cost
        self.level = Level(self.table, switching_cost)
        self.level.restart([0] * SIZE)
        self.slots, self.here = [0] * SIZE, set[int]()

    @rule(changes=st.dictionaries(IDS, st.integers(0, 3), max_size=4), tasks=st.sets(IDS, max_size=3))
    def happens(self, changes: dict[int, int], tasks: set[int]) -> None:
        for j in sorted(tasks):
            if j in self.here:
                self.level.withdraw(j)
            else:
                self.level.enter(j, self.table.standing[j])
        self.here ^= tasks
        for i, slots in changes.items():
            self.slots[i] = slots
            self.level.set_slots(i, slots)
        self.level.settle()
        self.level.close()

    @invariant()
    def stable(self) -> None:
        if not hasattr(self, "level"):
            return
        at, table = self.level.at, self.table
        held = {i: [j for j in self.here if at[j] == i] for i in range(SIZE)}
        assert all(len(held[i]) <= self.slots[i] for i in range(SIZE))
        for j in self.here:
            assert at[j] < 0 or table.cost[j, at[j]] < np.inf
            for i in range(SIZE):
                here = table.cost[j, at[j]] - self.switching_cost if at[j] >= 0 else np.inf
                if i != at[j] and table.cost[j, i] < here:
                    assert len(held[i]) >= self.slots[i]
                    assert all(table.likes(k, i) >= table.likes(j, i) for k in held[i])
        if self.strict and not self.switching_cost:
            self.matches_the_same_as_from_scratch(held)

    def matches_the_same_as_from_scratch(self, held: dict[int, list[int]]) -> None:
        """Rural hospitals: the same tasks are placed, and each node fills as many slots."""
        here = sorted(self.here)
        scratch = matching.deferred_acceptance(-self.table.cost[here], self.table.rank[here], self.slots).tolist()
        assert {j for j, i in zip(here, scratch, strict=True) if i >= 0} == {j for j in here if self.level.at[j] >= 0}
        assert Counter(i for i in scratch if i >= 0) == Counter(i for i in held for _ in held[i])


TestLevel = LevelMachine.TestCase
TestLevel.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 2), min_size=SIZE, max_size=SIZE), st.integers(0, SIZE))
def test_tasks_that_come_one_by_one_end_where_deferred_acceptance_does(
    seed: int, slots: list[int], num_tasks: int
) -> None:
    """With strict ranks, and no departures, that is the stable matching which is best for every task."""
    table = Table(seed, strict=True)
    level = Level(table)
    level.restart(slots)
    for j in range(num_tasks):
        level.enter(j, table.standing[j])
        level.settle()
        level.close()
    scratch = matching.deferred_acceptance(-table.cost[:num_tasks], table.rank[:num_tasks], slots)
    assert level.at[:num_tasks] == scratch.tolist()


# By hand


def test_the_same_events_give_the_same_matching() -> None:
    def run() -> list[dict[int, str | None]]:
        random = np.random.default_rng(7)
        market, moves = Market(sized=True), []
        for _ in range(300):
            event, index = random.integers(0, 4), int(random.integers(0, 12))
            work, speed = (float(value) for value in random.lognormal(0, 1, 2))
            node, task = NodeView(str(index), speed, capacity=5, work_capacity=3 * speed), TaskView(index, work)
            calls: list[Any] = [
                lambda node=node: market.join(node),
                lambda node=node: market.leave(node.id),
                lambda task=task: market.add(task),
                lambda task=task: market.remove(task.id),
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
    tasks = [TaskView(1, 300), TaskView(2, 200), TaskView(3, 100)]
    market = Market(nodes=[fast, middle, slow], tasks=tasks, priced=False)
    assert market.assignment == {1: "fast", 2: "middle", 3: "slow"}
    assert market.leave("fast") == {1: "middle", 2: "slow", 3: None}
    assert market.join(fast) == {1: "fast", 2: "middle", 3: "slow"}
    assert market.remove(1) == {2: "fast", 3: "middle"}
    assert market.add(TaskView(4, 290)) == {4: "fast", 2: "middle", 3: "slow"}
    assert market.rematches == 8  # 11 moves, less the one task that lost its place and the two that had none
    assert market.blocking_pairs() == []


def test_larger_tasks_take_room_first_and_the_rest_shares_what_they_leave() -> None:
    node = NodeView("node", 1.0, capacity=10, work_capacity=4.5)
    market = Market(nodes=[node], tasks=[TaskView(1, 1), TaskView(2, 1), TaskView(3, 2), TaskView(4, 1)], sized=True)
    assert market.assignment == {1: "node", 2: "node", 3: "node"}
    assert market.add(TaskView(5, 2)) == {5: "node", 1: None, 2: None}
    assert market.remove(3) == {1: "node", 2: "node"}
    assert market.change(dataclasses.replace(node, work_capacity=9.0)) == {4: "node"}
    assert market.change(dataclasses.replace(node, work_capacity=1.9)) == {2: None, 4: None, 5: None}
    assert market.assignment == {1: "node"}


def test_noise_moves_nothing() -> None:
    nodes = [NodeView("a", 10.0), NodeView("b", 9.0)]
    steady = Market(Preferences(switching_cost=20.0), nodes, [TaskView(1, 100)], tolerance=0.2)
    nervous = Market(nodes=nodes, tasks=[TaskView(1, 100)])
    for market in (steady, nervous):
        assert market.assignment == {1: "a"}
    assert steady.change(NodeView("b", 10.5)) == {}  # within the tolerance
    assert steady.nodes[1].speed == 9.0
    assert steady.change(NodeView("b", 12.0)) == {}  # 1.7 s would be gained, a move costs 20
    assert steady.nodes[1].speed == 12.0
    assert nervous.change(NodeView("b", 10.5)) == {1: "b"}
    assert steady.change(NodeView("a", 2.0)) == {1: "b"}
    assert steady.renew() == {}


def test_a_vacancy_goes_to_the_node_that_gains_most_so_few_move() -> None:
    nodes = [NodeView(str(i), 100.0 - i) for i in range(20)]
    market = Market(nodes=nodes, tasks=[TaskView(j, 1000) for j in range(20)])
    assert list(market.leave("0").values()) == [None]  # equals do not displace each other
    assert list(market.join(NodeView("0", 100.0)).values()) == ["0"]
    assert list(market.join(NodeView("new", 200.0)).values()) == ["new"]


def test_tasks_that_are_all_alike_take_the_cheapest_places() -> None:
    nodes = [NodeView(str(i), 1.0 + i, capacity=2, kinds={"audit"} if i == 9 else frozenset()) for i in range(10)]
    market = Market(nodes=nodes, tasks=[TaskView(j, 100) for j in range(7)])
    assert Counter(market.assignment.values()) == {"8": 2, "7": 2, "6": 2, "5": 1}
    assert set(market.prices.values()) == {0.0}
    assert market.blocking_pairs() == []


def test_prices_spread_tasks_at_nearly_the_least_total_and_come_back_with_a_node() -> None:
    random = np.random.default_rng(0)
    speed, work = np.clip(random.lognormal(0, 1, (2, 120)), 0.1, 100)
    nodes = [NodeView(f"n{i}", speed[i], latency=random.random()) for i in range(120)]
    tasks = [TaskView(j, work[j]) for j in range(120)]
    cost = np.array([[Preferences().cost(task, node) for node in nodes] for task in tasks])
    least = matching.assignment_optimum(cost, [1] * 120)

    def ratio(market: Market) -> float:
        return sum(cost[task, int(node[1:])] for task, node in market.assignment.items()) / least

    priced, plain = Market(nodes=nodes, tasks=tasks), Market(nodes=nodes, tasks=tasks, priced=False)
    assert ratio(priced) < 1.03
    assert ratio(priced) < ratio(plain)
    prices = priced.prices
    for node in nodes[:40]:
        priced.leave(node.id)
        priced.join(node)
    assert ratio(priced) < 1.04
    assert priced.drift == 80 / 240
    priced.renew()
    assert priced.drift == 0
    assert priced.prices == pytest.approx(prices)
    assert len(priced.assignment) == 120


def test_prices_hold_until_they_are_renewed() -> None:
    fast, slow = NodeView("fast", 10.0), NodeView("slow", 1.0)
    market = Market(nodes=[fast, slow], tasks=[TaskView(1, 100), TaskView(2, 60)])
    assert market.assignment == {1: "fast", 2: "slow"}
    assert market.prices["fast"] > 50  # else task 2 would rather be there, too
    assert market.remove(1) == {}
    assert market.add(TaskView(3, 1)) == {3: "fast"}  # dear or not: a task without a place takes the free node
    market.remove(3)
    assert market.drift == 1 / 3  # the task that is missing; the one that came has gone
    assert market.renew() == {2: "fast"}


def test_either_end_of_the_lattice_can_be_had() -> None:
    """Each task is done sooner where the other's data is: tasks would change over, nodes would not."""
    computes = NodeView("computes", 2.0, up_bandwidth=1e7, down_bandwidth=1e9, shards={2})
    sends = NodeView("sends", 1.0, up_bandwidth=1e8, down_bandwidth=1e9, shards={1})
    tasks = [TaskView(1, 100, shards={1: 10**9}), TaskView(2, 100, up_bytes=1e9, shards={2: 10**9})]
    ends = [{1: "computes", 2: "sends"}, {1: "sends", 2: "computes"}]
    for best_for_nodes, end in enumerate(ends):
        market = Market(nodes=[computes, sends], tasks=tasks, priced=False, best_for_nodes=bool(best_for_nodes))
        assert market.assignment == end
        assert market.blocking_pairs() == []
        scheduler = matching.create("gale_shapley", best_for_nodes=bool(best_for_nodes))
        assert dict(scheduler.assign(tasks, [computes, sends])) == end


def test_tasks_that_replace_others_like_them_are_no_drift() -> None:
    market = Market(nodes=[NodeView("a", 1.0), NodeView("b", 2.0)], tasks=[TaskView(1, 100), TaskView(2, 60)])
    market.exchange([1, 2], [TaskView(3, 60, shards={1: 0}), TaskView(4, 100)])
    assert market.drift == 0
    market.exchange([3], [TaskView(3, 30)])
    assert market.drift == 2 / 4  # one of 60 is missing, one of 30 too many
    assert market.assignment.keys() == {3, 4}


@pytest.mark.parametrize(
    ("gone", "new"), [([1, 9], []), ([1], [TaskView(2, 5)]), ([1, 1], []), ([1], [TaskView(3, 5), TaskView(3, 6)])]
)
def test_an_exchange_that_cannot_be_changes_nothing(gone: list[int], new: list[TaskView]) -> None:
    market = Market(nodes=[NodeView("a", 1.0)], tasks=[TaskView(1, 100), TaskView(2, 60)])
    with pytest.raises(InputError, match=r"in the market|twice"):
        market.exchange(gone, new)
    assert [task.id for task in market.tasks] == [1, 2]
    assert market.assignment == {1: "a"}


def test_assignment_is_a_copy_and_duplicates_are_refused() -> None:
    market = Market(nodes=[NodeView("a")], tasks=[TaskView(1)])
    market.assignment.clear()
    assert market.assignment == {1: "a"}
    with pytest.raises(InputError, match="task 1 is in the market already"):
        Market(tasks=[TaskView(1), TaskView(1)])
    with pytest.raises(InputError, match="node 'a' is in the market already"):
        Market(nodes=[NodeView("a"), NodeView("a")])
