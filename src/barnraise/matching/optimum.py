"""The least total cost, by which other schedulers are measured, and a scheduler for small numbers.

    min sum_ij x_ij c_ij,   sum_i x_ij = 1 for each task j,   sum_j w_j x_ij <= C_i for each node i

With unit sizes the optimum is whole (the assignment problem); with sizes this is the linear relaxation, a bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .base import NodeId, NodeView, TaskId, TaskView
from .equals import cheapest
from .planned import Planned
from .preferences import Preferences
from .room import Room
from .scores import Floats
from .tables import cost_matrix


def assignment_optimum(costs: ArrayLike, capacity: ArrayLike) -> float:
    """Return the least total of `costs` [tasks, nodes] with one slot a task and `capacity` [nodes] slots.

    inf in `costs` refuses; the result is inf if not every task finds a slot. The Hungarian method: minutes at ten
    thousand.

    >>> assignment_optimum([[1, 4], [2, 9]], [1, 1])
    6.0
    """
    matrix = np.asarray(costs, dtype=np.float64)
    seats = _seats(np.asarray(capacity), len(matrix))
    rows, columns = cheapest(matrix[:, seats])
    return float(matrix[rows, seats[columns]].sum()) if len(rows) == len(matrix) else math.inf


def relaxed_optimum(costs: ArrayLike, sizes: ArrayLike, capacity: ArrayLike) -> tuple[float, Floats]:
    """Return (the least total, x [tasks, nodes]) with tasks that may be divided among nodes.

    Tasks of `sizes` [tasks] on nodes with room for `capacity` [nodes]: no assignment of whole tasks costs less. (inf,
    zeros) if there is none, as where a task fits nowhere. HiGHS: seconds at 400.

    >>> total, shares = relaxed_optimum([[1, 4], [1, 4]], [2, 2], [3, 8])
    >>> total, shares.sum(axis=0).tolist()
    (3.5, [1.5, 0.5])
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    matrix, work = np.asarray(costs, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    shares = np.zeros(matrix.shape)
    tasks, nodes = np.nonzero(np.isfinite(matrix))
    if not np.isfinite(matrix).any(axis=1).all():
        return math.inf, shares
    if not len(matrix):
        return 0.0, shares
    places = np.arange(len(tasks))
    once = csr_array((np.ones(len(tasks)), (tasks, places)), shape=(len(matrix), len(tasks)))
    load = csr_array((work[tasks], (nodes, places)), shape=(matrix.shape[1], len(tasks)))
    found = linprog(
        matrix[tasks, nodes], A_ub=load, b_ub=np.asarray(capacity), A_eq=once, b_eq=np.ones(len(matrix)), method="highs"
    )
    if found.status != 0:
        return math.inf, shares
    shares[tasks, nodes] = found.x
    return float(found.fun), shares


class Optimum(Planned):
    """Assigns as many tasks as possible, at the least total cost; priorities are ignored.

    With `work_capacity` the linear relaxation is solved, and tasks go to the node with their largest part, the surest
    first, as far as there is room; the rest to the cheapest node with room. O(tasks^2 * nodes): for some hundreds.
    """

    def __init__(self, default_speed: float = 1000.0, default_bandwidth: float = 1.25e6) -> None:
        super().__init__()
        self.preferences = Preferences(default_speed, default_bandwidth)

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        if not tasks or not nodes:
            return []
        room, costs = Room(nodes), cost_matrix(self.preferences, tasks, nodes)
        if room.by_work:
            work, limits = np.array([task.work for task in tasks]), np.array(room.work)
            allowed = np.where(work[:, None] <= limits, costs, np.inf)
            fits, shares = np.isfinite(allowed).any(axis=1), np.zeros(allowed.shape)
            _, shares[fits] = relaxed_optimum(allowed[fits], work[fits], limits)
            wishes = np.argsort(-shares.max(axis=1), kind="stable").tolist()
            places = {j: int(shares[j].argmax()) for j in wishes if shares[j].max() > 0}
        else:
            seats = _seats(np.array(room.slots), len(tasks))
            rows, columns = cheapest(costs[:, seats])
            wishes, places = list(range(len(tasks))), dict(zip(rows, seats[columns].tolist(), strict=True))
        left = []
        for j in wishes:
            if j in places and room.fits(tasks[j], places[j]):
                room.give(tasks[j], places[j])
            else:
                left.append(j)
        for j in left if room.by_work else ():
            for i in np.argsort(costs[j], kind="stable").tolist():
                if room.fits(tasks[j], i):
                    room.give(tasks[j], i)
                    break
        return room.pairs


def _seats(capacity: np.typing.NDArray[np.int64], most: int) -> np.typing.NDArray[np.int64]:
    """Return each node's number once a slot, at most `most` times."""
    return np.repeat(np.arange(len(capacity)), np.minimum(capacity, most))
