"""The scheduler that keeps a stable matching: computed at each call for single tasks, standing for tasks on offer."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .base import LARGEST_AMOUNT, ONE_LANE, MarketFigures, NodeId, NodeView, Scheduler, TaskId, TaskView, meets
from .market import NOISE, Market
from .metrics import MatchingTally, regret
from .optimum import assignment_optimum
from .preferences import Preferences, locality
from .scores import Floats
from .stability import blocking_density, stability_index

MOST_LOOKED_AT = 64
"""Tasks and nodes, at most, from which figures are computed."""

DRIFT = 1.0
"""Changes, as a share of all nodes and tasks, after which prices are computed again."""


@dataclass(slots=True)
class _Places:
    """The copies of one task on offer in the market, numbered from the first."""

    task: TaskView
    left: float  # about how often it can still be assigned
    count: int = 0

    def room(self, each: int) -> int:
        """Return for how many nodes it is, of `each` that each task may have; changes seldom as it runs out."""
        return min(each, 1 << max(1, int(min(each, self.left))).bit_length() - 1)


class GaleShapley(Scheduler):
    """Stable matchings on measured speeds and bandwidths, with a standing market as memory.

    Tasks that are assigned once are matched with the nodes that ask, from scratch, at congestion prices. Tasks on offer
    are in a market with all nodes that have asked, busy ones too, which is repaired as they come, go and change: a node
    that asks gets the task that it holds there, so it stays with tasks that suit it better than they suit others. That
    market is stable by time, or at congestion prices where it is `priced`. `tally` counts the moves.
    """

    def __init__(
        self,
        default_speed: float = 1000.0,
        default_bandwidth: float = 1.25e6,
        priority_first: bool = False,
        best_for_nodes: bool = False,
        switching_cost: float = 0.0,
        priced: bool = False,
    ) -> None:
        super().__init__()
        self.preferences = Preferences(default_speed, default_bandwidth, priority_first, switching_cost)
        self.best_for_nodes = best_for_nodes
        self.market = Market(self.preferences, priced=priced, tolerance=NOISE, best_for_nodes=best_for_nodes)
        self.tally = MatchingTally()
        self._places: dict[TaskId, _Places] = {}  # by task on offer
        self._each = 1  # for how many nodes each is, at most

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        sized = any(node.work_capacity < LARGEST_AMOUNT for node in nodes)
        if len(nodes) == 1 and not sized:
            return self._best(tasks, nodes[0])
        market = Market(self.preferences, nodes, tasks, sized=sized, best_for_nodes=self.best_for_nodes)
        return list(market.assignment.items())

    def offer(self, tasks: Sequence[TaskView]) -> None:
        super().offer(tasks)
        self._each = self._fair
        self._stock()

    def place(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        pairs = self.assign(tasks, nodes) if tasks else []
        served = {node_id for _, node_id in pairs}
        for node in nodes:
            self._count(self.market.change(node) if node.id in self.market else self.market.join(node))
        if self._each != self._fair:
            self._each = self._fair
            self._stock()
        for node in nodes:
            if node.id not in served:
                held = self.market.held(node.id)
                found = [(self.original(held[0]), node.id)] if held else self._best(self.on_offer, node)
                pairs += found
                for task_id, _ in found:
                    self._gave(task_id)
        if self._places and self.market.drift > DRIFT:
            self._count(self.market.renew())
        return pairs

    def forget(self, node: NodeId) -> None:
        if node in self.market:
            self._count(self.market.leave(node))

    def figures(self) -> MarketFigures | None:
        """Return the figures for the first nodes, with their tasks and unassigned ones: some ten milliseconds."""
        nodes, at = self.market.nodes[:MOST_LOOKED_AT], self.market.assignment
        if not self._places or not nodes:
            return None
        places = {node.id: i for i, node in enumerate(nodes)}
        held = [task for task in self.market.tasks if at.get(task.id) in places]
        tasks = held + [task for task in self.market.tasks if task.id not in at][:MOST_LOOKED_AT]
        matched = [places.get(at.get(task.id, ""), -1) for task in tasks]
        gains = np.full((len(tasks), len(nodes)), -np.inf)
        ranks = gains.copy()
        order = {rank: place for place, rank in enumerate(sorted({self.preferences.standing(task) for task in tasks}))}
        for j, task in enumerate(tasks):
            for i, node in enumerate(nodes):
                if meets(task, node):
                    gains[j, i] = -self.preferences.cost(task, node)
                    ranks[j, i] = order[self.preferences.standing(task)] + locality(task, node) / 2
        room = [node.capacity for node in nodes]
        prices = self.market.prices
        paid = gains - np.array([prices[node.id] for node in nodes])
        tenth = [0.1 * abs(gains[j, i]) if i >= 0 else 0.0 for j, i in enumerate(matched)]
        return MarketFigures(
            nodes=len(self.market),
            tasks=len(self.market.tasks),
            events=self.tally.events,
            moves=self.tally.moves,
            stability=stability_index(gains, ranks, room, matched),
            nearly=stability_index(gains, ranks, room, matched, tenth),
            blocking=blocking_density(gains, ranks, room, matched),
            regret=_regret(-gains, matched, room),
            rematches=self.tally.rematches,
            priced=stability_index(paid, ranks, room, matched),
        )

    def no_market(self) -> str:
        if len(self.on_offer) > 1:
            return ""
        if not self.on_offer:
            return "no task is on offer to several nodes at a time"
        return ONE_LANE

    @property
    def _fair(self) -> int:
        """Return for how many nodes each task on offer is, so that every node can have one; changes seldom."""
        return 1 << max(0, -(-len(self.market) // max(1, len(self.on_offer))) - 1).bit_length()

    def _stock(self) -> None:
        """Keep something in the market for each node, unless all is alike: then each node gets the next task."""
        wanted = {task.id: task for task in self.on_offer} if len(self.on_offer) > 1 else {}
        gone: list[TaskId] = []
        new: list[TaskView] = []
        for task_id, places in list(self._places.items()):
            if wanted.get(task_id) != places.task:
                gone += self._trim(places, 0)
                del self._places[task_id]
        for task_id, task in wanted.items():
            places = self._places.setdefault(task_id, _Places(task, task.times))
            if places.task is not task:  # it starts again
                places.task, places.left = task, task.times
            room = places.room(self._each)
            gone += self._trim(places, room)
            new += [self.copy(task, number) for number in range(places.count, room)]
            places.count = room
        self._exchange(gone, new)

    def _trim(self, places: _Places, count: int) -> list[TaskId]:
        """Keep at most `count` places, and return the surplus ones."""
        gone = [self.copy(places.task, number).id for number in range(count, places.count)]
        places.count = min(places.count, count)
        return gone

    def _gave(self, task_id: TaskId) -> None:
        """Account for an assignment of a task on offer, which leaves less of it, and in the end fewer places."""
        if task_id in self._places:
            places = self._places[task_id]
            places.left -= 1
            self._exchange(self._trim(places, places.room(self._each)), [])

    def _exchange(self, gone: list[TaskId], new: list[TaskView]) -> None:
        if gone or new:
            self._count(self.market.exchange(gone, new), len(gone) + len(new))

    def _count(self, moved: dict[TaskId, NodeId | None], events: int = 1) -> None:
        self.tally.events += events
        self.tally.moves += len(moved)
        self.tally.rematches = self.market.rematches

    def _best(self, tasks: Sequence[TaskView], node: NodeView) -> list[tuple[TaskId, NodeId]]:
        """Return the tasks that the one node ranks highest: every task proposes to it, so one pass is enough."""
        willing = [task for task in tasks if meets(task, node)]
        best = heapq.nlargest(node.capacity, willing, key=lambda task: self.preferences.node_score(task, node))
        return [(task.id, node.id) for task in best]


def _regret(costs: Floats, matched: Sequence[int], room: Sequence[int]) -> float:
    """Return the relative excess of the matched pairs over the least cost of the same tasks on these nodes.

    With one slot a task that is the linear program's bound.
    """
    held = [j for j, i in enumerate(matched) if i >= 0]
    cost = float(sum(costs[j, matched[j]] for j in held))
    least = assignment_optimum(costs[held], room) if held else 0.0
    return max(0.0, regret(cost, least)) if 0.0 < least < np.inf else 0.0
