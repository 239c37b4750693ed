"""Deferred acceptance from scratch (Gale and Shapley, "College Admissions and the Stability of Marriage", 1962).

Tasks propose; a node keeps the best it was offered, up to its capacity, and turns the rest away. The result is stable
(no task and node would both rather have each other) and best for every task among all stable matchings, whatever the
order of proposals. That freedom is used twice: tasks that nodes like go first, so that few are displaced later, and a
task jumps straight to the best nodes that would have it, since a node that refused it once only gets choosier.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from .base import NodeId, NodeView, Scheduler, TaskId, TaskView, meets
from .preferences import Preferences, ScoreRows
from .scores import Floats, Ints, check_scores

SHORTLIST = 64  # names a displaced task looks up at once: amortises O(nodes), and bounds memory


def deferred_acceptance(task_scores: ArrayLike, node_scores: ArrayLike, capacity: ArrayLike) -> Ints:
    """The task-optimal stable matching: int64 [tasks], each task's node index, -1 where unmatched.

    `task_scores` and `node_scores` are [tasks, nodes]: how much the task likes the node, and the node the task; higher
    is preferred, -inf or nan refuses. `capacity` is [nodes], tasks a node can hold. Equal scores go to the lower index.
    InputError for wrong shapes, types or negative capacities. O(tasks * nodes * log) at worst, without recursion.

    >>> deferred_acceptance([[2, 1], [2, 1]], [[1, 1], [2, 2]], [1, 1])
    array([1, 0])
    """
    tasks_side, nodes_side, slots = check_scores(task_scores, node_scores, capacity)
    order = np.argsort(-_mean_of_finite(nodes_side), kind="stable")
    return propose(lambda j: (tasks_side[j], nodes_side[j]), order.tolist(), slots)


class DeferredAcceptance(Scheduler):
    """The task-optimal stable matching on measured speeds and bandwidths, from scratch at each call.

    Scores are those of `Preferences`, which also takes the options. For one node one pass over the queue, otherwise at
    least O(tasks * nodes). Memory grows with tasks + nodes, not with their product.
    """

    def __init__(
        self, default_speed: float = 1000.0, default_bandwidth: float = 1.25e6, priority_first: bool = False
    ) -> None:
        self.preferences = Preferences(default_speed, default_bandwidth, priority_first)

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        if len(nodes) == 1:
            return self._assign_one(tasks, nodes[0])
        rows = ScoreRows(self.preferences, tasks, nodes)
        order = sorted(range(len(tasks)), key=rows.rank.__getitem__, reverse=True)
        slots = np.array([node.capacity for node in nodes], dtype=np.int64)
        assignment = propose(rows.row, order, slots).tolist()
        return [(task.id, nodes[i].id) for task, i in zip(tasks, assignment, strict=True) if i >= 0]

    def _assign_one(self, tasks: Sequence[TaskView], node: NodeView) -> list[tuple[TaskId, NodeId]]:
        """With one node every task proposes to it, so it simply takes those it ranks highest: one pass."""
        willing = [task for task in tasks if meets(task, node)]
        best = heapq.nlargest(node.capacity, willing, key=lambda task: self.preferences.node_score(task, node))
        return [(task.id, node.id) for task in best]


def propose(row: Callable[[int], tuple[Floats, Floats]], order: Iterable[int], capacity: Ints) -> Ints:
    """Deferred acceptance over rows of scores: `row(j)` gives task j's scores for the nodes and theirs for it, [nodes].

    `order` lists every task once; it changes the speed, not the result. -inf on both sides refuses.
    """
    pending = list(order)[::-1]
    assignment = np.full(len(pending), -1, dtype=np.int64)
    slots = capacity.tolist()
    if not slots:
        return assignment
    held: list[list[tuple[float, int]]] = [[] for _ in slots]  # heaps of (score, -task): the least liked on top
    # What a newcomer must beat: score, then task index. A free slot takes anyone, a node without slots no one.
    bar = np.where(capacity > 0, -np.inf, np.inf)
    bar_task = np.full(len(slots), -1, dtype=np.int64)
    shortlists: dict[int, list[tuple[int, float]]] = {}  # (node, its score for the task), the best last
    while pending:
        j = pending[-1]
        if not shortlists.get(j):
            task_scores, node_scores = row(j)
            welcome = (node_scores > bar) | ((node_scores == bar) & (j < bar_task))
            wishes = np.where(welcome, task_scores, -np.inf)
            # Most tasks are never displaced: the first list has one name, and only the next ones are worth sorting.
            best = _best(wishes, SHORTLIST if j in shortlists else 1)
            shortlists[j] = list(zip(best.tolist(), node_scores[best].tolist(), strict=True))[::-1]
            if not best.size:
                pending.pop()
                continue
        i, score = shortlists[j].pop()
        bid = (score, -j)
        if len(held[i]) < slots[i]:
            heapq.heappush(held[i], bid)
            pending.pop()
        elif bid > held[i][0]:
            displaced = -heapq.heapreplace(held[i], bid)[1]
            assignment[displaced] = -1
            pending[-1] = displaced
        else:
            continue
        assignment[j] = i
        if len(held[i]) == slots[i]:
            bar[i], bar_task[i] = held[i][0][0], -held[i][0][1]
    return assignment


def _best(wishes: Floats, count: int) -> Ints:
    """The indices of the `count` highest that are not -inf, best first, the lower index first among equals."""
    if count == 1:
        best = int(wishes.argmax())
        return np.array([best] if wishes[best] > -np.inf else [], dtype=np.int64)
    candidates = np.flatnonzero(wishes > -np.inf)
    if candidates.size > count:
        bound = np.partition(wishes, -count)[-count]
        candidates = np.flatnonzero(wishes >= bound)
    return candidates[np.argsort(-wishes[candidates], kind="stable")][:count]


def _mean_of_finite(scores: Floats) -> Floats:
    finite = np.isfinite(scores)
    with np.errstate(over="ignore", invalid="ignore"):
        mean: Floats = np.where(finite, scores, 0.0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1)
    return mean
