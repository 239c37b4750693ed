"""Checks of the score matrices and capacities of callers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from barnraise.core.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def check_scores(task_scores: ArrayLike, node_scores: ArrayLike, capacity: ArrayLike) -> tuple[Floats, Floats, Ints]:
    """Return `check_sides` of the scores, and capacities as int64 [nodes].

    InputError, with value and limit, for wrong shapes, types or negative capacities.
    """
    tasks_side, nodes_side = check_sides(task_scores, node_scores)
    return tasks_side, nodes_side, check_slots(capacity, tasks_side.shape[1])


def check_sides(task_scores: ArrayLike, node_scores: ArrayLike) -> tuple[Floats, Floats]:
    """Return copies as float64 [tasks, nodes]; a pair that either side refuses (nan or -inf) is -inf on both.

    InputError for wrong shapes or types.
    """
    tasks_side, nodes_side = _matrix("task_scores", task_scores), _matrix("node_scores", node_scores)
    if tasks_side.shape != nodes_side.shape:
        raise InputError(
            f"task_scores is {list(tasks_side.shape)} and node_scores {list(nodes_side.shape)}, "
            "but both must be [tasks, nodes]; transpose the one that is the other way round"
        )
    refused = ~((tasks_side > -np.inf) & (nodes_side > -np.inf))  # NaN compares false
    tasks_side[refused] = nodes_side[refused] = -np.inf
    return tasks_side, nodes_side


def check_slots(capacity: ArrayLike, num_nodes: int) -> Ints:
    """Return `capacity` as int64 [nodes]; InputError for another shape or type, or negative ones."""
    slots = whole_numbers("capacity", capacity, num_nodes, "node")
    if slots.size and slots.min() < 0:
        raise InputError(f"capacity of node {int(slots.argmin())} is {slots.min()}, but must be at least 0")
    return slots


def amounts(name: str, values: ArrayLike, length: int, each: str) -> Floats:
    """Return `values` as float64 [length], finite and at least 0; InputError otherwise."""
    array = _array(name, values)
    if array.shape != (length,) or array.dtype.kind not in "fiu":
        raise InputError(f"{name} is {array.dtype} {list(array.shape)}, but must be [{length}]: one number a {each}")
    found = array.astype(np.float64)
    if found.size and not (found.min() >= 0 and found.max() < np.inf):  # NaN compares false
        raise InputError(f"{name} holds {found.min()} to {found.max()}, but must be finite and at least 0")
    return found


def whole_numbers(name: str, values: ArrayLike, length: int, each: str) -> Ints:
    """Return `values` as int64 [length]; InputError otherwise."""
    array = _array(name, values)
    if array.shape != (length,):
        raise InputError(f"{name} is {list(array.shape)}, but must be [{length}]: one whole number a {each}")
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} holds {array.dtype}, but must hold whole numbers; convert it with astype(int)")
    return array.astype(np.int64)


def _matrix(name: str, values: ArrayLike) -> Floats:
    array = _array(name, values)
    if array.ndim != 2:
        raise InputError(f"{name} is {list(array.shape)}, but must be a matrix [tasks, nodes]")
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} holds {array.dtype}, but must hold real numbers")
    return array.astype(np.float64)


def _array(name: str, values: ArrayLike) -> NDArray[np.generic]:
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} is not an array of numbers ({error}); give rows of equal length") from error
