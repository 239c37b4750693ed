"""How stable a matching is: blocking pairs, the stability index, the blocking density.

Against true scores these measure what a matching is worth; against estimated ones, what its maker could have known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from barnraise.core.errors import InputError

from .scores import Floats, Ints, check_scores, whole_numbers


def blocking_pairs(
    task_scores: ArrayLike,
    node_scores: ArrayLike,
    capacity: ArrayLike,
    assignment: ArrayLike,
    epsilon: ArrayLike = 0.0,
) -> list[tuple[int, int]]:
    """The (task, node) pairs that would rather have each other, in index order; empty for a stable matching.

    Scores and `capacity` are those of `deferred_acceptance`, `assignment` is its result: [tasks], -1 for unmatched.
    Task j and node i block if j gains more than `epsilon` (a number, or [tasks]) and i has a free slot or holds a task
    it scores strictly lower. InputError for wrong shapes, or a matching over capacity or with a pair that was refused.
    """
    blocking = _blocking(task_scores, node_scores, capacity, assignment, epsilon)[0]
    return [(int(j), int(i)) for j, i in np.argwhere(blocking)]


def stability_index(
    task_scores: ArrayLike,
    node_scores: ArrayLike,
    capacity: ArrayLike,
    assignment: ArrayLike,
    epsilon: ArrayLike = 0.0,
) -> float:
    """MSI: the share of matched pairs neither of whose ends is in a blocking pair; 1.0 for a stable matching.

    It saturates: a few sought-after nodes taint nearly every pair, so read it beside `blocking_density`. With nobody
    matched it is 1.0 if nothing blocks, else 0.0. Arguments and errors as in `blocking_pairs`.
    """
    blocking, _, matched = _blocking(task_scores, node_scores, capacity, assignment, epsilon)
    tasks = np.flatnonzero(matched >= 0)
    if not tasks.size:
        return float(not blocking.any())
    blocking_tasks, blocking_nodes = np.nonzero(blocking)
    tainted = np.isin(tasks, blocking_tasks) | np.isin(matched[tasks], blocking_nodes)
    return float(1.0 - tainted.mean())


def blocking_density(
    task_scores: ArrayLike,
    node_scores: ArrayLike,
    capacity: ArrayLike,
    assignment: ArrayLike,
    epsilon: ArrayLike = 0.0,
) -> float:
    """Blocking pairs over acceptable pairs, 0.0 for a stable matching. Arguments and errors as in `blocking_pairs`."""
    blocking, acceptable, _ = _blocking(task_scores, node_scores, capacity, assignment, epsilon)
    return float(blocking.sum() / max(acceptable.sum(), 1))


def _blocking(
    task_scores: ArrayLike, node_scores: ArrayLike, capacity: ArrayLike, assignment: ArrayLike, epsilon: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Ints]:
    """(blocking [tasks, nodes], acceptable [tasks, nodes], assignment [tasks])."""
    tasks_side, nodes_side, slots = check_scores(task_scores, node_scores, capacity)
    num_tasks, num_nodes = tasks_side.shape
    matched = whole_numbers("assignment", assignment, num_tasks, "task")
    acceptable = tasks_side > -np.inf
    _check_assignment(matched, acceptable, slots)
    tolerance = _tolerance(epsilon, num_tasks)

    tasks = np.flatnonzero(matched >= 0)
    current = np.full(num_tasks, -np.inf)
    current[tasks] = tasks_side[tasks, matched[tasks]]
    worst = np.full(num_nodes, np.inf)
    np.minimum.at(worst, matched[tasks], nodes_side[tasks, matched[tasks]])
    worst[np.bincount(matched[tasks], minlength=num_nodes) < slots] = -np.inf  # a free slot
    with np.errstate(invalid="ignore"):  # inf - inf: no gain
        gains = tasks_side - current[:, None] > tolerance[:, None]
    blocking: NDArray[np.bool_] = acceptable & gains & (nodes_side > worst)
    return blocking, acceptable, matched


def _check_assignment(matched: Ints, acceptable: NDArray[np.bool_], slots: Ints) -> None:
    outside = np.flatnonzero((matched < -1) | (matched >= len(slots)))
    if outside.size:
        j = int(outside[0])
        raise InputError(f"assignment of task {j} is {matched[j]}, but must be -1 or a node from 0 to {len(slots) - 1}")
    tasks = np.flatnonzero(matched >= 0)
    load = np.bincount(matched[tasks], minlength=len(slots))
    if (load > slots).any():
        i = int(np.argmax(load > slots))
        raise InputError(f"assignment puts {load[i]} tasks on node {i}, whose capacity is {slots[i]}")
    refused = tasks[~acceptable[tasks, matched[tasks]]]
    if refused.size:
        j = int(refused[0])
        raise InputError(f"assignment puts task {j} on node {matched[j]}, but one of them refuses the other")


def _tolerance(epsilon: ArrayLike, num_tasks: int) -> Floats:
    try:
        tolerance = np.broadcast_to(np.asarray(epsilon, dtype=np.float64), (num_tasks,))
    except (ValueError, TypeError) as error:
        raise InputError(f"epsilon must be a number or [{num_tasks}], one a task ({error})") from error
    if not (tolerance >= 0).all():
        raise InputError("epsilon holds a negative value or nan, but must be at least 0; 0 is exact stability")
    return tolerance
