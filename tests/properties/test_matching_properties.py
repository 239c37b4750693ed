"""Matching on random instances, against brute force over all matchings and against the theorems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from barnraise import matching
from barnraise.matching import NodeView, Preferences, TaskView
from barnraise.matching.base import meets
from barnraise.matching.gale_shapley import propose
from barnraise.matching.tables import NodeTable, TaskTable, ViewPairs, cost_matrix

Instance = tuple[NDArray[np.float64], NDArray[np.float64], list[int]]
SCORES = st.sampled_from([float("-inf"), float("nan"), -1.0, 0.0, 1.0, 2.0, 3.0])


@st.composite
def instances(draw: st.DrawFn, max_tasks: int = 7, max_nodes: int = 6, strict: bool = False) -> Instance:
    """Scores with ties and refusals, or (`strict`) permutations with refusals; capacities from 0."""
    n, m = draw(st.integers(0, max_tasks)), draw(st.integers(0, max_nodes))

    def scores() -> NDArray[np.float64]:
        if not strict:
            return np.array([[draw(SCORES) for _ in range(m)] for _ in range(n)]).reshape(n, m)
        values = np.array(draw(st.permutations(range(n * m))), dtype=float).reshape(n, m)
        refused = np.array(draw(st.lists(st.integers(0, 3), min_size=n * m, max_size=n * m)))
        return np.where(refused.reshape(n, m) == 0, np.nan, values)

    return scores(), scores(), draw(st.lists(st.integers(0, 3), min_size=m, max_size=m))


def acceptable(instance: Instance, j: int, i: int) -> bool:
    return bool(instance[0][j, i] > -np.inf and instance[1][j, i] > -np.inf)


def blocking(instance: Instance, assignment: list[int]) -> list[tuple[int, int]]:
    """The definition, pair by pair."""
    task_scores, node_scores, capacity = instance
    pairs = []
    for j, i in product(range(len(task_scores)), range(len(capacity))):
        at = assignment[j]
        gains = at < 0 or task_scores[j, i] > task_scores[j, at]
        holds = [k for k, node in enumerate(assignment) if node == i]
        room = len(holds) < capacity[i] or any(node_scores[k, i] < node_scores[j, i] for k in holds)
        if acceptable(instance, j, i) and gains and room:
            pairs.append((j, i))
    return pairs


def matchings(instance: Instance) -> Iterator[list[int]]:
    """Every matching that respects capacities and refusals."""
    task_scores, _, capacity = instance
    choices = [[-1, *(i for i in range(len(capacity)) if acceptable(instance, j, i))] for j in range(len(task_scores))]
    for assignment in product(*choices):
        load = Counter(assignment)
        if all(load[i] <= slots for i, slots in enumerate(capacity)):
            yield list(assignment)


@settings(deadline=None)
@given(instances(), st.booleans())
def test_the_result_is_a_stable_matching(instance: Instance, best_for_nodes: bool) -> None:
    result = matching.deferred_acceptance(*instance, best_for_nodes=best_for_nodes).tolist()
    load = Counter(result)
    assert all(load[i] <= slots for i, slots in enumerate(instance[2]))
    assert all(i == -1 or acceptable(instance, j, i) for j, i in enumerate(result))
    assert blocking(instance, result) == []
    assert matching.deferred_acceptance(*instance, best_for_nodes=best_for_nodes).tolist() == result


@settings(max_examples=150, deadline=None)
@given(instances(max_tasks=4, max_nodes=3, strict=True))
def test_among_all_stable_matchings_it_is_best_for_every_task(instance: Instance) -> None:
    result = matching.deferred_acceptance(*instance).tolist()
    stable = [assignment for assignment in matchings(instance) if not blocking(instance, assignment)]
    assert result in stable
    for assignment in stable:
        for j, i in enumerate(assignment):
            assert i == result[j] or i == -1 or instance[0][j, result[j]] > instance[0][j, i]
        # rural hospitals: the same tasks are placed, and each node fills as many slots, in every stable matching
        assert [i >= 0 for i in assignment] == [i >= 0 for i in result]
        assert Counter(assignment) == Counter(result)


@settings(max_examples=150, deadline=None)
@given(instances(max_tasks=4, max_nodes=3, strict=True))
def test_at_the_other_end_it_is_best_for_every_node_and_worst_for_every_task(instance: Instance) -> None:
    result = matching.deferred_acceptance(*instance, best_for_nodes=True).tolist()
    stable = [assignment for assignment in matchings(instance) if not blocking(instance, assignment)]
    assert result in stable
    for assignment in stable:
        for j, i in enumerate(assignment):
            assert i == result[j] or instance[0][j, i] > instance[0][j, result[j]]
        for i in range(len(instance[2])):
            ours, theirs = (
                sorted(instance[1][j, i] for j, at in enumerate(a) if at == i) for a in (result, assignment)
            )
            assert all(mine >= its for mine, its in zip(ours, theirs, strict=True))


@settings(deadline=None)
@given(instances(max_tasks=5, max_nodes=4), st.data())
def test_blocking_pairs_match_their_definition(instance: Instance, data: st.DataObject) -> None:
    some = data.draw(st.sampled_from(list(matchings(instance))[:500]))
    assignment = np.array(some, dtype=int)
    pairs = blocking(instance, some)
    assert matching.blocking_pairs(*instance, assignment) == pairs
    possible = sum(acceptable(instance, *pair) for pair in product(range(len(some)), range(len(instance[2]))))
    assert matching.blocking_density(*instance, assignment) == (len(pairs) / possible if possible else 0.0)
    matched = [(j, i) for j, i in enumerate(some) if i >= 0]
    sound = [(j, i) for j, i in matched if not any(j == k or i == node for k, node in pairs)]
    expected = len(sound) / len(matched) if matched else float(not pairs)
    assert abs(matching.stability_index(*instance, assignment) - expected) < 1e-12


@settings(deadline=None)
@given(instances(), st.randoms(use_true_random=False))
def test_the_order_of_proposals_does_not_matter(instance: Instance, random: object) -> None:
    task_scores, node_scores, capacity = instance
    refused = ~((task_scores > -np.inf) & (node_scores > -np.inf))
    tasks_side, nodes_side = np.where(refused, -np.inf, task_scores), np.where(refused, -np.inf, node_scores)
    order = list(range(len(task_scores)))
    random.shuffle(order)  # type: ignore[attr-defined]
    slots = np.array(capacity, dtype=np.int64)
    result = propose(lambda j: (tasks_side[j], nodes_side[j]), order, slots)
    assert result.tolist() == matching.deferred_acceptance(*instance).tolist()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(70, 160), st.integers(70, 160), st.booleans())
def test_larger_instances_are_stable_whether_sides_agree_or_not(seed: int, n: int, m: int, agree: bool) -> None:
    random = np.random.default_rng(seed)
    noise = 0.1 if agree else 10.0
    task_scores = random.random(m) + noise * random.random((n, m))
    node_scores = random.random((n, 1)) + noise * random.random((n, m))
    task_scores[random.random((n, m)) < 0.1] = np.nan
    capacity = random.integers(0, 3, m)
    result = matching.deferred_acceptance(task_scores, node_scores, capacity)
    assert matching.blocking_pairs(task_scores, node_scores, capacity, result) == []


small = st.integers(0, 3)
task_views = st.builds(
    TaskView,
    id=st.just(0),
    work=small.map(float),
    down_bytes=small,
    up_bytes=small,
    shards=st.dictionaries(st.integers(0, 3), small, max_size=3),
    priority=st.integers(-1, 1).map(float),
    memory_bytes=st.integers(0, 1),
    min_trust=st.sampled_from([0.0, 0.5]),
    kind=st.sampled_from(["train", "audit"]),
    accelerator_bytes=st.integers(0, 1),
    only=st.sampled_from([frozenset(), frozenset({"n0"}), frozenset({"n1", "n2"}), frozenset({"gone"})]),
)
node_views = st.builds(
    NodeView,
    id=st.just(""),
    speed=small.map(float),
    up_bandwidth=small.map(float),
    down_bandwidth=small.map(float),
    latency=small.map(float),
    memory_bytes=st.integers(0, 1),
    capacity=st.integers(0, 3),
    trust=st.sampled_from([0.25, 0.75]),
    shards=st.frozensets(st.integers(0, 4), max_size=3),
    kinds=st.sampled_from([frozenset(), frozenset({"train"}), frozenset({"audit"})]),
    accelerator_bytes=st.integers(0, 1),
)


def numbered(tasks: list[TaskView], nodes: list[NodeView]) -> tuple[list[TaskView], list[NodeView]]:
    def renamed(view: object, new_id: object) -> dict[str, object]:
        return {name: getattr(view, name) for name in type(view).__slots__} | {"id": new_id}  # type: ignore[attr-defined]

    return (
        [TaskView(**renamed(task, j)) for j, task in enumerate(tasks)],  # type: ignore[arg-type]
        [NodeView(**renamed(node, f"n{i}")) for i, node in enumerate(nodes)],  # type: ignore[arg-type]
    )


markets = st.builds(numbered, st.lists(task_views, max_size=6), st.lists(node_views, max_size=5))
preferences = st.builds(
    Preferences, default_speed=st.just(2.0), default_bandwidth=st.just(3.0), priority_first=st.booleans()
)


@settings(deadline=None)
@given(markets, st.sampled_from(matching.CATALOG.names()))
def test_every_scheduler_gives_a_maximal_feasible_matching(
    market: tuple[list[TaskView], list[NodeView]], name: str
) -> None:
    tasks, nodes = market
    pairs = matching.create(name).assign(tasks, nodes)
    assert matching.create(name).assign(tasks, nodes) == pairs
    task_of, node_of = {task.id: task for task in tasks}, {node.id: node for node in nodes}
    placed, load = Counter(task for task, _ in pairs), Counter(node for _, node in pairs)
    assert all(count == 1 for count in placed.values())
    assert all(load[node.id] <= node.capacity for node in nodes)
    assert all(meets(task_of[task], node_of[node]) for task, node in pairs)
    for task, node in product(tasks, nodes):  # no slot stays idle that a waiting task could use
        assert task.id in placed or load[node.id] == node.capacity or not meets(task, node)


@settings(deadline=None)
@given(markets, preferences, st.integers(0, 3), st.booleans())
def test_rows_and_columns_of_costs_are_those_of_single_pairs(
    market: tuple[list[TaskView], list[NodeView]], preferences: Preferences, price: int, by_work: bool
) -> None:
    tasks, nodes = market
    table, rows = NodeTable(preferences, by_work), TaskTable()
    for node in nodes:
        table.charge(table.add(node), price)
    for task in tasks:
        rows.add(task)
    pairs = ViewPairs(table, rows)
    plain = cost_matrix(preferences, tasks, nodes)
    for j, task in enumerate(tasks):
        costs, localities = pairs.costs(j), pairs.localities(j)
        for i, node in enumerate(nodes):
            score = preferences.task_score(task, node)
            assert plain[j, i] == (np.inf if score is None else -score)
            dearer = plain[j, i] + price * (task.work if by_work else 1)
            assert costs[i] == dearer or abs(costs[i] - dearer) < 1e-9
            assert (0.0 if localities is None else localities[i]) == preferences.node_score(task, node)[-1]
    for i in range(len(nodes)):
        every = np.arange(len(tasks))
        costs, found = pairs.costs_at(i, every), pairs.localities_at(i, every)
        for j in range(len(tasks)):
            localities = pairs.localities(j)
            assert costs[j] == pairs.costs(j)[i]
            assert (0.0 if found is None else found[j]) == (0.0 if localities is None else localities[i])
        above = np.where(np.isinf(costs), costs, np.nextafter(costs, np.inf))
        assert set(pairs.maybe_cheaper(i, above).tolist()) >= set(np.flatnonzero(costs < above).tolist())


@settings(deadline=None)
@given(markets)
def test_the_short_way_for_one_node_and_the_long_one_agree(market: tuple[list[TaskView], list[NodeView]]) -> None:
    tasks, nodes = market
    scheduler = matching.create("gale_shapley")
    for node in nodes:  # alone, and beside a node that has no room
        idle = NodeView("idle", capacity=0)
        assert sorted(scheduler.assign(tasks, [node])) == sorted(scheduler.assign(tasks, [node, idle]))


@settings(deadline=None)
@given(instances(), st.integers(1, 6))
def test_lists_give_what_their_matrix_gives(instance: Instance, length: int) -> None:
    task_scores, node_scores, capacity = instance
    able = (task_scores > -np.inf) & (node_scores > -np.inf)
    lists = np.full((len(task_scores), length), -1)
    scores, kept = np.zeros(lists.shape), np.full(task_scores.shape, np.nan)
    for j in range(len(task_scores)):
        order = [i for i in np.argsort(-np.nan_to_num(task_scores[j]), kind="stable") if able[j, i]][:length]
        lists[j, : len(order)] = order
        scores[j, : len(order)] = node_scores[j, order]
        kept[j, order] = task_scores[j, order]
    found = matching.deferred_acceptance_from_lists(lists, scores, capacity)
    assert found.tolist() == matching.deferred_acceptance(kept, node_scores, capacity).tolist()


@settings(deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(0, 6),
    st.integers(1, 4),
    st.sampled_from([0.0, 1.5]),
)
def test_blocking_pairs_of_sized_tasks_match_their_definition(seed: int, n: int, m: int, epsilon: float) -> None:
    random = np.random.default_rng(seed)
    likes, ranks = random.integers(0, 6, (2, n, m)).astype(float)
    sizes, capacity = random.integers(1, 5, n), random.integers(0, 9, m).astype(float)
    at = np.full(n, -1)
    for j in range(n):
        for i in random.permutation(m):
            if sizes[j] + sizes[at == i].sum() <= capacity[i] and random.random() < 0.8:
                at[j] = i
                break
    expected = []
    for j, i in product(range(n), range(m)):
        lower = sum(sizes[k] for k in range(n) if at[k] == i and ranks[k, i] < ranks[j, i])
        room = capacity[i] - sizes[at == i].sum() + lower >= sizes[j]
        gain = np.inf if at[j] < 0 else likes[j, i] - likes[j, at[j]]
        if gain > epsilon and room:
            expected.append((j, i))
    assert matching.blocking_pairs(likes, ranks, capacity, at, epsilon, sizes=sizes) == expected
    if not expected:
        assert matching.stability_index(likes, ranks, capacity, at, epsilon, sizes=sizes) == 1.0
