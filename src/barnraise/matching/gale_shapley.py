"""Deferred acceptance from scratch (Gale and Shapley, "College Admissions and the Stability of Marriage", 1962).

Tasks propose; a node keeps the best offers up to its capacity, and refuses the rest. The result is stable (no task and
node both prefer each other) and best for every task among all stable matchings, for any order of proposals. That
freedom is used twice: tasks that nodes prefer go first, so that few are displaced later, and a task proposes directly
to the best nodes that would accept it, since a node that refused it once only becomes choosier.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike

from barnraise.core.errors import InputError

from .scores import Floats, Ints, check_scores, check_slots

SHORTLIST = 64  # nodes that a displaced task looks up at once: amortises O(nodes), and bounds memory
SHORTEST = 4  # the same, from a given list


def deferred_acceptance(
    task_scores: ArrayLike, node_scores: ArrayLike, capacity: ArrayLike, *, best_for_nodes: bool = False
) -> Ints:
    """Return a stable matching: int64 [tasks], each task's node index, -1 where unmatched.

    The stable matchings form a lattice, of which this is an end: every task, or every node, is as well off as in any.
    `task_scores` and `node_scores` are [tasks, nodes]: how much the task likes the node, and the node the task; higher
    is preferred, -inf or nan refuses. `capacity` is [nodes], tasks a node can hold. Equal scores go to the lower index.
    InputError for wrong shapes, types or negative capacities. O(tasks * nodes * log) at worst, without recursion.

    >>> deferred_acceptance([[2, 1], [2, 1]], [[1, 1], [2, 2]], [1, 1])
    array([1, 0])
    """
    tasks_side, nodes_side, slots = check_scores(task_scores, node_scores, capacity)
    if best_for_nodes:
        return nodes_propose(tasks_side, nodes_side, slots)
    order = np.argsort(-_mean_of_finite(nodes_side), kind="stable")
    return propose(lambda j: (tasks_side[j], nodes_side[j]), order.tolist(), slots)


def deferred_acceptance_from_lists(lists: ArrayLike, node_scores: ArrayLike, capacity: ArrayLike) -> Ints:
    """Return a stable matching where each task has a short list: int64 [tasks], -1 where unmatched.

    `lists` is [tasks, length]: node indices, the most preferred first, -1 behind the last; `node_scores` of the same
    shape how much each of these nodes likes the task. O(tasks * length * log) at worst.

    >>> deferred_acceptance_from_lists([[0, 1], [0, -1]], [[1, 1], [2, 0]], [1, 1])
    array([1, 0])
    """
    choices, scores = np.asarray(lists), np.asarray(node_scores, dtype=np.float64)
    if choices.ndim != 2 or choices.shape != scores.shape:
        raise InputError(
            f"lists is {list(choices.shape)} and node_scores {list(scores.shape)}, but both must be [tasks, length]"
        )
    slots = check_slots(capacity, np.size(capacity))
    if choices.size and not (choices.min() >= -1 and choices.max() < len(slots)):
        raise InputError(f"lists holds nodes from {choices.min()} to {choices.max()}; give -1 to {len(slots) - 1}")

    def shortlist(j: int, taken: int, bar: Floats, bar_task: Ints) -> list[tuple[int, float]]:
        if not taken:  # enough for most tasks; a node that refused once is not asked again
            pairs = zip(choices[j, :2].tolist(), scores[j, :2].tolist(), strict=True)
            return [pair for pair in pairs if pair[0] >= 0][::-1]
        nodes, its_scores = choices[j], scores[j]
        to_beat = bar[nodes]
        welcome = (its_scores > to_beat) | ((its_scores == to_beat) & (j < bar_task[nodes]))
        places = (welcome & (nodes >= 0)).nonzero()[0][:SHORTEST]
        return list(zip(nodes[places].tolist(), its_scores[places].tolist(), strict=True))[::-1]

    order = np.argsort(-scores[:, 0], kind="stable") if choices.shape[1] else np.arange(len(choices))
    return _accept(shortlist, order.tolist(), slots)


def propose(row: Callable[[int], tuple[Floats, Floats]], order: Iterable[int], capacity: Ints) -> Ints:
    """Run deferred acceptance over rows of scores:

    `row(j)` gives task j's scores for the nodes and theirs for it, [nodes].

    `order` lists every task once; it changes the speed, not the result. -inf on both sides refuses.
    """

    def shortlist(j: int, taken: int, bar: Floats, bar_task: Ints) -> list[tuple[int, float]]:
        task_scores, node_scores = row(j)
        welcome = (node_scores > bar) | ((node_scores == bar) & (j < bar_task))
        wishes = np.where(welcome, task_scores, -np.inf)
        # Most tasks are never displaced: the first list has one name, and only later ones are sorted.
        best = _best(wishes, SHORTLIST if taken else 1)
        return list(zip(best.tolist(), node_scores[best].tolist(), strict=True))[::-1]

    return _accept(shortlist, order, capacity)


def nodes_propose(task_scores: Floats, node_scores: Floats, capacity: Ints) -> Ints:
    """Run deferred acceptance from the other side: nodes propose while they have room, and tasks keep the best.

    Each node proposes to the tasks that it likes best. -inf on both sides refuses.
    """
    assignment = np.full(len(task_scores), -1, dtype=np.int64)
    wishes = np.argsort(-node_scores, axis=0, kind="stable")
    room, asked = capacity.tolist(), [0] * len(capacity)
    pending = list(range(len(room)))[::-1]
    while pending:
        i = pending.pop()
        while room[i] and asked[i] < len(wishes):
            j = wishes[asked[i], i]
            asked[i] += 1
            if node_scores[j, i] == -np.inf:
                break
            held = int(assignment[j])
            if held >= 0:
                if (task_scores[j, i], -i) <= (task_scores[j, held], -held):
                    continue
                room[held] += 1
                pending.append(held)
            assignment[j] = i
            room[i] -= 1
    return assignment


def _accept(
    shortlist: Callable[[int, int, Floats, Ints], list[tuple[int, float]]], order: Iterable[int], capacity: Ints
) -> Ints:
    """Run deferred acceptance with lists of nodes to propose to.

    `shortlist` returns the next nodes, and their scores, for a task, the best last; its arguments are the task, how
    many lists it had, and the score, then task index, to beat on each node.
    """
    pending = list(order)[::-1]
    assignment = np.full(len(pending), -1, dtype=np.int64)
    slots = capacity.tolist()
    if not slots:
        return assignment
    held: list[list[tuple[float, int]]] = [[] for _ in slots]  # heaps of (score, -task): the least liked on top
    bar = np.where(capacity > 0, -np.inf, np.inf)  # a free slot accepts any task, a node without slots none
    bar_task = np.full(len(slots), -1, dtype=np.int64)
    shortlists: dict[int, list[tuple[int, float]]] = {}
    taken = [0] * len(pending)
    while pending:
        j = pending[-1]
        if not shortlists.get(j):
            shortlists[j] = shortlist(j, taken[j], bar, bar_task)
            taken[j] += 1
            if not shortlists[j]:
                pending.pop()
                continue
        i, score = shortlists[j].pop()
        bid = (score, -j)
        if len(held[i]) < slots[i]:
            heapq.heappush(held[i], bid)
            pending.pop()
        elif slots[i] and bid > held[i][0]:
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
    """Return the indices of the `count` highest that are not -inf, best first, the lower index first among equals."""
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
