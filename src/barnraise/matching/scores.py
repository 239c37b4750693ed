"""Checks of the score matrices and capacities that callers hand us."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from barnraise.core.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def check_scores(task_scores: ArrayLike, node_scores: ArrayLike, capacity: ArrayLike) -> tuple[Floats, Floats, Ints]:
    """Copies as float64 [tasks, nodes] twice and int64 [nodes]; a pair that either side refuses is -inf on both.

    Nan and -inf mean "refused". InputError, with value and limit, for wrong shapes, types or negative capacities.
    """
    tasks_side, nodes_side = _matrix("task_scores", task_scores), _matrix("node_scores", node_scores)
    if tasks_side.shape != nodes_side.shape:
        raise InputError(
            f"task_scores is {list(tasks_side.shape)} and node_scores {list(nodes_side.shape)}, "
            "but both must be [tasks, nodes]; transpose the one that is the other way round"
        )
    slots = whole_numbers("capacity", capacity, tasks_side.shape[1], "node")
    if slots.size and slots.min() < 0:
        raise InputError(f"capacity of node {int(slots.argmin())} is {slots.min()}, but must be at least 0")
    refused = ~((tasks_side > -np.inf) & (nodes_side > -np.inf))  # nan compares false
    tasks_side[refused] = nodes_side[refused] = -np.inf
    return tasks_side, nodes_side, slots


def whole_numbers(name: str, values: ArrayLike, length: int, each: str) -> Ints:
    """`values` as int64 [length]; InputError otherwise."""
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
