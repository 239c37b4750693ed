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
from barnraise.matching.preferences import ScoreRows

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
@given(instances())
def test_the_result_is_a_stable_matching(instance: Instance) -> None:
    result = matching.deferred_acceptance(*instance).tolist()
    load = Counter(result)
    assert all(load[i] <= slots for i, slots in enumerate(instance[2]))
    assert all(i == -1 or acceptable(instance, j, i) for j, i in enumerate(result))
    assert blocking(instance, result) == []
    assert matching.deferred_acceptance(*instance).tolist() == result


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
@given(markets, st.sampled_from(["fifo", "priority", "capability", "deferred_acceptance"]))
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
@given(markets, preferences)
def test_rows_of_scores_order_as_single_scores_do(
    market: tuple[list[TaskView], list[NodeView]], preferences: Preferences
) -> None:
    tasks, nodes = market
    task_scores, node_scores = ScoreRows(preferences, tasks, nodes).matrices()
    assert task_scores.shape == node_scores.shape == (len(tasks), len(nodes))
    for j, task in enumerate(tasks):
        for i, node in enumerate(nodes):
            score = preferences.task_score(task, node)
            assert task_scores[j, i] == (-np.inf if score is None else score)
            assert (node_scores[j, i] > -np.inf) == (score is not None)
    for i, node in enumerate(nodes):
        fit = [j for j in range(len(tasks)) if meets(tasks[j], node)]
        for j, k in product(fit, fit):
            single = preferences.node_score(tasks[j], node), preferences.node_score(tasks[k], node)
            assert (node_scores[j, i] < node_scores[k, i]) == (single[0] < single[1])


@settings(deadline=None)
@given(markets)
def test_the_scheduler_agrees_with_deferred_acceptance_on_matrices(
    market: tuple[list[TaskView], list[NodeView]],
) -> None:
    tasks, nodes = market
    scheduler = matching.create("deferred_acceptance")
    scores = ScoreRows(Preferences(), tasks, nodes).matrices()
    result = matching.deferred_acceptance(*scores, [node.capacity for node in nodes]).tolist()
    assert dict(scheduler.assign(tasks, nodes)) == {j: f"n{i}" for j, i in enumerate(result) if i >= 0}
    for node in nodes:  # alone, and beside a node that has no room: the short way and the long one
        idle = NodeView("idle", capacity=0)
        assert sorted(scheduler.assign(tasks, [node])) == sorted(scheduler.assign(tasks, [node, idle]))
