"""A level's matching from scratch: rank by rank, and tasks of equal rank at the least total cost.

Equals do not displace each other, so with any distribution of the slots that higher ranks leave among them, the
matching is stable, as long as none of them prefers a slot that stays free. The least total (Hungarian method) is such a
one. Where nodes have a choice among those of one rank, by locality, there are two ends: tasks propose, or nodes do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import util
from importlib.machinery import PathFinder
from typing import TypeAlias, cast

import numpy as np

from .gale_shapley import nodes_propose
from .level import Level
from .scores import Floats, Ints

Solver: TypeAlias = Callable[[Floats], tuple[Ints, Ints]]

MOST_PAIRS = 250_000
"""Equals x slots that are worth solving (some 10 ms); larger numbers propose one after the other."""


def settle_from_scratch(level: Level, slots: list[int], *, best_for_nodes: bool = False) -> None:
    """Match all tasks of `level` from scratch, with `slots` slots on each node [rows].

    `best_for_nodes`: where nodes have a choice they propose, unless there are too many pairs.
    """
    for group in level.restart(slots):
        if len(group) > 1:
            all_alike = all(level.pairs.localities(j) is None for j in group)
            seats = _seats(level, len(group))
            if all_alike and seats.size and seats.size * len(group) <= MOST_PAIRS:
                _place_equals(level, group, seats)
                continue
            if best_for_nodes and not all_alike and len(group) * len(level.slots) <= MOST_PAIRS:
                _let_nodes_propose(level, group)
                continue
        level.propose(group)


def _let_nodes_propose(level: Level, group: list[int]) -> None:
    costs = np.stack([level.costs(j) for j in group])
    none = np.zeros(costs.shape[1])
    rows = (level.pairs.localities(j) for j in group)
    localities = np.stack([none if row is None else row for row in rows])
    unfit = np.isinf(costs)
    room = level.rooms()[: costs.shape[1]]
    found = nodes_propose(np.where(unfit, -np.inf, -costs), np.where(unfit, -np.inf, localities), room)
    for k, i in enumerate(found.tolist()):
        if i >= 0:
            level.place(group[k], i, float(costs[k, i]), float(localities[k, i]))


def _seats(level: Level, most: int) -> Ints:
    """Return the rows of nodes with free slots, each once a slot, but at most `most` times."""
    room = np.minimum(level.rooms(), most)
    return np.repeat(np.arange(len(room)), room)


def _place_equals(level: Level, group: list[int], seats: Ints) -> None:
    costs = np.stack([level.costs(j)[seats] for j in group])
    if (costs == costs[0]).all():  # all alike: any of them takes any of the cheapest
        order = np.argsort(costs[0], kind="stable")
        for j, seat in zip(group, order[np.isfinite(costs[0][order])].tolist(), strict=False):
            level.place(j, int(seats[seat]), float(costs[0, seat]))
        return
    for k, seat in zip(*cheapest(costs), strict=True):
        level.place(group[k], int(seats[seat]), float(costs[k, seat]))


def cheapest(costs: Floats) -> tuple[list[int], list[int]]:
    """Return (rows, columns) of the largest matching with the least total of `costs`, where inf refuses."""
    finite = np.isfinite(costs)
    if not finite.any():
        return [], []
    low, high = costs[finite].min(), costs[finite].max()
    refused = (high - low + 1.0) * (min(costs.shape) + 1)  # dearer than any change of all others
    rows, columns = _solver()(np.where(finite, costs - low, refused))
    kept = finite[rows, columns]
    return rows[kept].tolist(), columns[kept].tolist()


@cache
def _solver() -> Solver:
    """Return SciPy's `linear_sum_assignment`, without the rest of `scipy.optimize`: 40 MB, and half a second.

    It is a compiled module of its own. Where a version of SciPy has it elsewhere, the whole package is imported.
    """
    scipy = util.find_spec("scipy")
    places = [] if scipy is None else [f"{place}/optimize" for place in scipy.submodule_search_locations or ()]
    found = PathFinder.find_spec("_lsap", places)
    if found is None or found.loader is None:
        from scipy.optimize import linear_sum_assignment

        return cast("Solver", linear_sum_assignment)
    module = util.module_from_spec(found)
    found.loader.exec_module(module)
    return cast("Solver", module.linear_sum_assignment)
