"""Stability of a matching: blocking pairs, the stability index, the blocking density.

Task j and node i block by more than eps if j gains more than eps_j, and the free room on i, together with the tasks
that i ranks lower, makes room for j. Without `sizes` a task takes one slot. Against true scores these measure a
matching's quality; against estimated ones, the knowledge of its maker.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from barnraise.core.errors import InputError

from .scores import Floats, Ints, amounts, check_sides, check_slots, whole_numbers


def blocking_pairs(
    task_scores: ArrayLike,
    node_scores: ArrayLike,
    capacity: ArrayLike,
    assignment: ArrayLike,
    epsilon: ArrayLike = 0.0,
    *,
    sizes: ArrayLike | None = None,
) -> list[tuple[int, int]]:
    """Return the (task, node) pairs that prefer each other, in index order; empty for a stable matching.

    Scores and `capacity` are those of `deferred_acceptance`, `assignment` is its result: [tasks], -1 for unmatched.
    Task j gains more than `epsilon` (a number, or [tasks]), and i scores the tasks that must make way strictly lower.
    With `sizes` [tasks] `capacity` is in the same unit, and need not be whole. InputError for wrong shapes, or a
    matching over capacity or with a pair that was refused.
    """
    blocking = _blocking((task_scores, node_scores), capacity, assignment, epsilon, sizes)[0]
    return [(int(j), int(i)) for j, i in np.argwhere(blocking)]


def stability_index(
    task_scores: ArrayLike,
    node_scores: ArrayLike,
    capacity: ArrayLike,
    assignment: ArrayLike,
    epsilon: ArrayLike = 0.0,
    *,
    sizes: ArrayLike | None = None,
) -> float:
    """Return the MSI: the share of matched pairs neither of whose ends is in a blocking pair; 1.0 if stable.

    It saturates: a few popular nodes affect nearly every pair, so read it beside `blocking_density`. Without any match
    it is 1.0 if nothing blocks, else 0.0. Arguments and errors as in `blocking_pairs`.
    """
    blocking, _, matched = _blocking((task_scores, node_scores), capacity, assignment, epsilon, sizes)
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
    *,
    sizes: ArrayLike | None = None,
) -> float:
    """Return blocking pairs over acceptable pairs, 0.0 for a stable matching.

    Arguments and errors as in `blocking_pairs`.
    """
    blocking, acceptable, _ = _blocking((task_scores, node_scores), capacity, assignment, epsilon, sizes)
    return float(blocking.sum() / max(acceptable.sum(), 1))


def _blocking(
    scores: tuple[ArrayLike, ArrayLike],
    capacity: ArrayLike,
    assignment: ArrayLike,
    epsilon: ArrayLike,
    sizes: ArrayLike | None,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Ints]:
    """Return (blocking [tasks, nodes], acceptable [tasks, nodes], assignment [tasks])."""
    tasks_side, nodes_side = check_sides(*scores)
    num_tasks, num_nodes = tasks_side.shape
    if sizes is None:
        room, work = check_slots(capacity, num_nodes).astype(np.float64), np.ones(num_tasks)
    else:
        room, work = amounts("capacity", capacity, num_nodes, "node"), amounts("sizes", sizes, num_tasks, "task")
    matched = whole_numbers("assignment", assignment, num_tasks, "task")
    acceptable = tasks_side > -np.inf
    tolerance = _tolerance(epsilon, num_tasks)
    tasks = np.flatnonzero(matched >= 0)
    outside = np.flatnonzero((matched < -1) | (matched >= num_nodes))
    if outside.size:
        j = int(outside[0])
        raise InputError(f"assignment of task {j} is {matched[j]}, but must be -1 or a node from 0 to {num_nodes - 1}")
    load = np.bincount(matched[tasks], weights=work[tasks], minlength=num_nodes).astype(np.float64)
    _check_assignment(matched, acceptable, load, room)

    current = np.full(num_tasks, -np.inf)
    current[tasks] = tasks_side[tasks, matched[tasks]]
    with np.errstate(invalid="ignore"):  # inf - inf: no gain
        gains = tasks_side - current[:, None] > tolerance[:, None]
    welcome = np.empty((num_tasks, num_nodes), dtype=np.bool_)
    for i in range(num_nodes):
        held = tasks[matched[tasks] == i]
        held = held[np.argsort(nodes_side[held, i], kind="stable")]
        lower = np.searchsorted(nodes_side[held, i], nodes_side[:, i], side="left")  # how many of them rank lower
        would_be_free = room[i] - load[i] + np.concatenate([[0.0], np.cumsum(work[held])])[lower]
        welcome[:, i] = would_be_free >= work * (1 - 1e-12)
    blocking: NDArray[np.bool_] = acceptable & gains & welcome
    return blocking, acceptable, matched


def _check_assignment(matched: Ints, acceptable: NDArray[np.bool_], load: Floats, room: Floats) -> None:
    over = load > room * (1 + 1e-9)
    if over.any():
        i = int(np.argmax(over))
        raise InputError(f"assignment puts {load[i]:g} on node {i}, whose capacity is {room[i]:g}")
    tasks = np.flatnonzero(matched >= 0)
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
