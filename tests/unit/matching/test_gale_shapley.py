"""Deferred acceptance and the measures of stability on cases worked out by hand, and on input that cannot work."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest

from barnraise import matching
from barnraise.core.errors import InputError
from barnraise.matching import gale_shapley
from barnraise.matching.persistent_market import _regret

NAN, INF = float("nan"), float("inf")


def ranked(*orders: str) -> np.ndarray:
    """Return one row for each order, the most preferred first: "bac" scores columns a, b, c as 2, 3, 1."""
    columns = sorted(orders[0])
    return np.array([[len(columns) - order.index(column) for column in columns] for order in orders], dtype=float)


def test_the_docstring_example_holds() -> None:
    results = doctest.testmod(gale_shapley)
    assert results.attempted
    assert not results.failed


def test_each_task_gets_its_first_choice_when_tasks_and_nodes_disagree() -> None:
    # Tasks want abc, bca, cab; nodes want exactly the opposite: three stable matchings, the tasks' best is returned.
    task_scores = ranked("abc", "bca", "cab")
    node_scores = -task_scores
    assert matching.deferred_acceptance(task_scores, node_scores, [1, 1, 1]).tolist() == [0, 1, 2]


def test_displaced_tasks_continue_proposing() -> None:
    # All want a, then b, then c; a prefers task 2, b task 1: the first to arrive must make way.
    task_scores = ranked("abc", "abc", "abc")
    node_scores = np.array([[1, 1, 3], [2, 3, 2], [3, 2, 1]], dtype=float)
    assert matching.deferred_acceptance(task_scores, node_scores, [1, 1, 1]).tolist() == [2, 1, 0]


def test_a_node_keeps_its_best_up_to_capacity() -> None:
    task_scores = np.array([[2, 1], [2, 1], [2, 1], [2, 1]])
    node_scores = np.array([[1, 1], [4, 4], [3, 3], [2, 2]])
    assert matching.deferred_acceptance(task_scores, node_scores, [2, 1]).tolist() == [-1, 0, 0, 1]
    assert matching.deferred_acceptance(task_scores, node_scores, [0, 0]).tolist() == [-1] * 4
    assert matching.deferred_acceptance(task_scores, node_scores, [10**12, 0]).tolist() == [0] * 4


def test_equal_scores_go_to_the_lower_index_on_both_sides() -> None:
    flat = np.zeros((3, 3))
    assert matching.deferred_acceptance(flat, flat, [1, 1, 1]).tolist() == [0, 1, 2]
    assert matching.deferred_acceptance(flat, flat, [2, 0, 0]).tolist() == [0, 0, -1]


@pytest.mark.parametrize("refusal", [NAN, -INF])
@pytest.mark.parametrize("side", [0, 1])
def test_nan_and_minus_infinity_refuse_a_pair_from_either_side(refusal: float, side: int) -> None:
    task_scores, node_scores = np.ones((2, 2)), np.ones((2, 2))
    (task_scores, node_scores)[side][[0, 0, 1], [0, 1, 0]] = refusal
    assert matching.deferred_acceptance(task_scores, node_scores, [1, 1]).tolist() == [-1, 1]
    assert matching.blocking_pairs(task_scores, node_scores, [1, 1], [-1, -1]) == [(1, 1)]


def test_infinite_scores_are_the_best_there_is() -> None:
    task_scores = np.array([[1.0, INF], [INF, INF]])
    node_scores = np.array([[INF, 1.0], [1.0, INF]])
    assert matching.deferred_acceptance(task_scores, node_scores, [1, 1]).tolist() == [1, 0]
    assert matching.deferred_acceptance(task_scores, node_scores, [0, 1]).tolist() == [-1, 1]


def test_a_displaced_task_looks_beyond_its_first_shortlist() -> None:
    # Everyone agrees on the nodes; the last column fools the order of proposals into the worst one.
    size = gale_shapley.SHORTLIST * 2 + 10
    task_scores = np.tile(-np.arange(size, dtype=float), (size, 1))
    node_scores = np.tile(np.arange(size, dtype=float)[:, None], (1, size))
    node_scores[:, -1] = -1e6 * np.arange(size)
    slots = np.ones(size, dtype=int)
    assert matching.deferred_acceptance(task_scores, node_scores, slots).tolist() == list(range(size - 1, -1, -1))
    indifferent = np.zeros((size, size))
    for task_side in (task_scores, indifferent):
        result = matching.deferred_acceptance(task_side, node_scores, slots)
        assert sorted(result.tolist()) == list(range(size))
        assert matching.blocking_pairs(task_side, node_scores, slots, result) == []


@pytest.mark.parametrize(("shape", "capacity"), [((0, 3), [1, 1, 1]), ((3, 0), []), ((0, 0), [])])
def test_empty_markets(shape: tuple[int, int], capacity: list[int]) -> None:
    scores = np.empty(shape)
    result = matching.deferred_acceptance(scores, scores, capacity)
    assert result.tolist() == [-1] * shape[0]
    assert result.dtype == np.int64
    assert matching.blocking_pairs(scores, scores, capacity, result) == []
    assert matching.stability_index(scores, scores, capacity, result) == 1.0
    assert matching.blocking_density(scores, scores, capacity, result) == 0.0


def test_inputs_are_left_alone() -> None:
    task_scores, node_scores, capacity = np.array([[NAN, 1.0]]), np.array([[1.0, -INF]]), np.array([1, 1])
    matching.deferred_acceptance(task_scores, node_scores, capacity)
    assert np.isnan(task_scores[0, 0])
    assert task_scores[0, 1] == 1.0
    assert node_scores[0, 0] == 1.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([1, 2], [1, 2], [1, 1]), r"task_scores is \[2\], but must be a matrix"),
        (([[1, 2], [1]], [[1, 2], [1, 2]], [1, 1]), "task_scores is not an array of numbers"),
        ((np.ones((2, 3)), np.ones((3, 2)), [1, 1, 1]), "transpose"),
        ((np.ones((2, 3)), np.ones((2, 3)), [1, 1]), r"capacity is \[2\], but must be \[3\]: one whole number a node"),
        ((np.ones((2, 2)), np.ones((2, 2)), [1, -1]), "capacity of node 1 is -1, but must be at least 0"),
        ((np.ones((2, 2)), np.ones((2, 2)), [1.0, 2.0]), "capacity holds float64"),
        ((np.ones((2, 2)), np.ones((2, 2)), [True, False]), "capacity holds bool"),
        ((np.ones((2, 2), dtype=complex), np.ones((2, 2)), [1, 1]), "task_scores holds complex128"),
        ((np.ones((2, 2)), [["a", "b"], ["c", "d"]], [1, 1]), "node_scores holds <U1"),
        ((np.ones((2, 2)), np.array([[None, 1], [1, 1]], dtype=object), [1, 1]), "node_scores holds object"),
    ],
)
def test_input_that_cannot_work_is_refused_with_the_reason(arguments: tuple[Any, Any, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        matching.deferred_acceptance(*arguments)
    with pytest.raises(InputError, match=says):
        matching.blocking_pairs(*arguments, [-1, -1])


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ([0], r"assignment is \[1\], but must be \[2\]: one whole number a task"),
        ([0, 2], "assignment of task 1 is 2, but must be -1 or a node from 0 to 1"),
        ([-2, 0], "assignment of task 0 is -2"),
        ([0.0, 1.0], "assignment holds float64"),
        ([0, 0], "puts 2 on node 0, whose capacity is 1"),
        ([1, -1], "puts task 0 on node 1, but one of them refuses the other"),
    ],
)
def test_a_matching_that_is_none_is_refused(assignment: list[Any], says: str) -> None:
    task_scores = np.array([[1.0, NAN], [1.0, 1.0]])
    with pytest.raises(InputError, match=says):
        matching.stability_index(task_scores, np.ones((2, 2)), [1, 1], assignment)


def test_blocking_pairs_index_and_density_by_hand() -> None:
    task_scores = np.array([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [1.0, 3.0, 2.0]])
    node_scores = np.array([[2.0, 1.0, 1.0], [1.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    swapped = [1, 0, 2]  # task 0 and node 0 want each other; so do task 2 and node 1
    args = (task_scores, node_scores, [1, 1, 1])
    assert matching.blocking_pairs(*args, swapped) == [(0, 0), (2, 1)]
    assert matching.stability_index(*args, swapped) == 0.0
    assert matching.blocking_density(*args, swapped) == pytest.approx(2 / 9)
    assert matching.blocking_pairs(*args, [0, 2, 1]) == []
    assert matching.stability_index(*args, [0, 2, 1]) == 1.0
    # a lone wolf: no node is matched, so every acceptable pair blocks
    assert matching.stability_index(*args, [-1, -1, -1]) == 0.0
    assert matching.blocking_density(*args, [-1, -1, -1]) == 1.0
    # only node 0 and task 0 are tainted here: one matched pair of two is sound
    two = (np.array([[2.0, 1.0], [1.0, 2.0]]), np.ones((2, 2)), [1, 2])
    assert matching.blocking_pairs(*two, [-1, 1]) == [(0, 0), (0, 1)]
    assert matching.stability_index(*two, [1, 1]) == 0.5


def test_epsilon_forgives_small_gains() -> None:
    def blocking(epsilon: Any) -> list[tuple[int, int]]:
        task_scores = np.array([[5.0, 4.0], [1.0, 9.0]])
        return matching.blocking_pairs(task_scores, np.ones((2, 2)), [2, 2], [1, 0], epsilon)

    assert blocking(0) == [(0, 0), (1, 1)]
    assert blocking(1.0) == [(1, 1)]
    assert blocking([0.5, 8.0]) == [(0, 0)]
    assert blocking(INF) == []
    for bad in (-1.0, NAN, [1.0, 2.0, 3.0], "much"):
        with pytest.raises(InputError, match="epsilon"):
            blocking(bad)


def test_regret_is_against_the_least_that_the_same_tasks_could_cost() -> None:
    costs = np.array([[1.0, 4.0], [2.0, 9.0], [7.0, 7.0]])
    assert _regret(costs, [0, 1, -1], [1, 1]) == pytest.approx(10.0 / 6.0 - 1.0)
    assert _regret(costs, [1, 0, -1], [1, 1]) == 0.0
    assert _regret(costs, [-1, -1, -1], [1, 1]) == 0.0
