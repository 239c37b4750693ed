"""A matching that stays stable while nodes and tasks come and go.

Each event repairs the matching instead of making it anew. Who lost a place, or is new, goes on proposing: nodes only
get choosier meanwhile, so deferred acceptance simply continues. A place that falls vacant is offered to the best task
that would rather be there, which vacates that task's place, and so on: a vacancy chain (Blum, Roth and Rothblum,
"Vacancy Chains and Equilibration in Senior-Level Labor Markets", 1997). Tasks only gain along it, so it ends.

The result is stable, though not always the task-optimal one; every stable matching places the same tasks and fills
the same number of slots on each node (the rural hospitals theorem).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from typing import Any, Protocol

from barnraise.core.errors import InputError

from .base import NodeId, NodeView, TaskId, TaskView
from .preferences import Preferences

# Scores with the arrival numbers that make both rankings strict: the earlier wins a tie.
Wish = tuple[Any, int]  # a task's for a node
Bid = tuple[Any, int, TaskId]  # a node's for a task


class PairScores(Protocol):
    """Where a market takes its preferences from.

    Higher is preferred. Scores compare with their like, never nan, and stay the same for as long as both are in the
    market. Equal scores go to whoever came first.
    """

    def task_score(self, task: TaskView, node: NodeView) -> Any:
        """How much the task likes the node; None if either refuses the other."""

    def node_score(self, task: TaskView, node: NodeView) -> Any:
        """How much the node likes the task; asked only when neither refuses."""


class Market:
    """A stable matching of tasks to node slots, repaired at each event.

    Every task takes one slot. Each event returns what moved: {task id: its new node, or None if it has none now}. The
    same events give the same matching. A proposal looks at every node, a vacancy at every task.
    """

    def __init__(
        self,
        preferences: PairScores | None = None,
        nodes: Iterable[NodeView] = (),
        tasks: Iterable[TaskView] = (),
    ) -> None:
        self.preferences: PairScores = preferences if preferences is not None else Preferences()
        self._seats: dict[NodeId, _Seat] = {}
        self._bidders: dict[TaskId, _Bidder] = {}
        self._arrivals = 0
        self._before: dict[TaskId, NodeId | None] = {}  # where those that moved in this event were
        for node in nodes:
            self.join(node)
        self._propose(self._well_ordered([self._enter(task) for task in tasks]))
        self._before.clear()

    @property
    def nodes(self) -> list[NodeView]:
        """Those in the market, first come first."""
        return [seat.node for seat in self._seats.values()]

    @property
    def tasks(self) -> list[TaskView]:
        """Those in the market, first come first."""
        return [bidder.task for bidder in self._bidders.values()]

    @property
    def assignment(self) -> dict[TaskId, NodeId]:
        """Task id -> node id of every task that has a place; a copy."""
        return {task_id: bidder.seat.node.id for task_id, bidder in self._bidders.items() if bidder.seat}

    def join(self, node: NodeView) -> dict[TaskId, NodeId | None]:
        """A node arrives with `capacity` free slots. InputError if its id is taken."""
        if node.id in self._seats:
            raise InputError(f"node {node.id!r} is in the market already; call leave() before it joins anew")
        seat = self._seats[node.id] = _Seat(node, self._next_arrival())
        self._fill(seat)
        return self._moved()

    def leave(self, node_id: NodeId) -> dict[TaskId, NodeId | None]:
        """A node departs and its tasks look for other places. InputError if it is not here."""
        if node_id not in self._seats:
            raise InputError(f"node {node_id!r} is not in the market, so it cannot leave; join() it first")
        seat = self._seats.pop(node_id)
        displaced = [self._bidders[task_id] for _, _, task_id in reversed(seat.held)]
        for bidder in displaced:
            self._place(bidder, None)
        self._propose(displaced)
        return self._moved()

    def add(self, task: TaskView) -> dict[TaskId, NodeId | None]:
        """A task arrives. InputError if its id is taken."""
        self._propose([self._enter(task)])
        return self._moved()

    def remove(self, task_id: TaskId) -> dict[TaskId, NodeId | None]:
        """A task departs, done or withdrawn; its slot is offered to others. InputError if it is not here."""
        if task_id not in self._bidders:
            raise InputError(f"task {task_id!r} is not in the market, so it cannot be removed; add() it first")
        bidder = self._bidders.pop(task_id)
        if bidder.seat:
            bidder.seat.release(task_id)
            self._fill(bidder.seat)
        return self._moved()

    def blocking_pairs(self) -> list[tuple[TaskId, NodeId]]:
        """The (task id, node id) pairs that would rather have each other: none, after any sequence of events.

        Looks at every pair, so it is for checks and studies.
        """
        pairs = []
        for bidder in self._bidders.values():
            for seat in self._seats.values():
                wish = self._wish(bidder, seat)
                if wish and bidder.prefers(wish) and seat.welcomes(self._bid(bidder, seat)):
                    pairs.append((bidder.task.id, seat.node.id))
        return pairs

    def _propose(self, pending: list[_Bidder]) -> None:
        """Deferred acceptance goes on: each of `pending`, the last first, takes the best node that will have it."""
        while pending:
            bidder = pending.pop()
            best: tuple[_Seat, Wish, Bid] | None = None
            for seat in self._seats.values():
                wish = self._wish(bidder, seat)
                if wish and (best is None or wish > best[1]):
                    bid = self._bid(bidder, seat)
                    if seat.welcomes(bid):
                        best = seat, wish, bid
            if best is None:
                continue
            if best[0].is_full:
                displaced = self._bidders[best[0].held[0][2]]
                self._place(displaced, None)
                pending.append(displaced)
            self._place(bidder, best)

    def _fill(self, vacant: _Seat) -> None:
        """A vacancy chain: each free slot goes to the task the node likes best among those that prefer it."""
        chain = [vacant]
        while chain:
            seat = chain[-1]
            best: tuple[_Bidder, Wish, Bid] | None = None
            for bidder in () if seat.is_full else self._bidders.values():
                wish = self._wish(bidder, seat)
                if wish and bidder.prefers(wish):
                    bid = self._bid(bidder, seat)
                    if best is None or bid > best[2]:
                        best = bidder, wish, bid
            if best is None:
                chain.pop()
                continue
            bidder, wish, bid = best
            if bidder.seat:
                chain.append(bidder.seat)
            self._place(bidder, (seat, wish, bid))

    def _wish(self, bidder: _Bidder, seat: _Seat) -> Wish | None:
        score = self.preferences.task_score(bidder.task, seat.node)
        return None if score is None else (score, -seat.arrival)

    def _bid(self, bidder: _Bidder, seat: _Seat) -> Bid:
        return self.preferences.node_score(bidder.task, seat.node), -bidder.arrival, bidder.task.id

    def _place(self, bidder: _Bidder, at: tuple[_Seat, Wish, Bid] | None) -> None:
        """The one place where the matching changes."""
        task_id = bidder.task.id
        self._before.setdefault(task_id, bidder.seat.node.id if bidder.seat else None)
        if bidder.seat:
            bidder.seat.release(task_id)
        bidder.seat, bidder.wish = at[:2] if at else (None, None)
        if at:
            insort(at[0].held, at[2])

    def _enter(self, task: TaskView) -> _Bidder:
        if task.id in self._bidders:
            raise InputError(f"task {task.id!r} is in the market already; call remove() before it is added anew")
        bidder = self._bidders[task.id] = _Bidder(task, self._next_arrival())
        return bidder

    def _well_ordered(self, bidders: list[_Bidder]) -> list[_Bidder]:
        """As one node likes them, the best last: where nodes agree, hardly anyone is displaced later.

        Deferred acceptance ends the same in any order; this one only saves time.
        """
        for seat in self._seats.values():
            liked = [bidder for bidder in bidders if self._wish(bidder, seat)]
            others = [bidder for bidder in bidders if not self._wish(bidder, seat)]
            return others + sorted(liked, key=lambda bidder: self._bid(bidder, seat))
        return bidders

    def _moved(self) -> dict[TaskId, NodeId | None]:
        before, self._before = self._before, {}
        now = {task_id: self._bidders[task_id].seat for task_id in before}
        after = {task_id: seat.node.id if seat else None for task_id, seat in now.items()}
        return {task_id: node_id for task_id, node_id in after.items() if node_id != before[task_id]}

    def _next_arrival(self) -> int:
        self._arrivals += 1
        return self._arrivals


class _Seat:
    """A node in the market, and the bids it holds, the least liked first."""

    __slots__ = ("arrival", "held", "node")

    def __init__(self, node: NodeView, arrival: int) -> None:
        self.node, self.arrival = node, arrival
        self.held: list[Bid] = []

    @property
    def is_full(self) -> bool:
        return len(self.held) >= self.node.capacity

    def welcomes(self, bid: Bid) -> bool:
        """Whether there is a free slot, or a task here that the node likes less."""
        return not self.is_full or (bool(self.held) and bid > self.held[0])

    def release(self, task_id: TaskId) -> None:
        self.held = [bid for bid in self.held if bid[2] != task_id]


class _Bidder:
    """A task in the market, where it is, and how much it likes it there."""

    __slots__ = ("arrival", "seat", "task", "wish")

    def __init__(self, task: TaskView, arrival: int) -> None:
        self.task, self.arrival = task, arrival
        self.seat: _Seat | None = None
        self.wish: Wish | None = None

    def prefers(self, wish: Wish) -> bool:
        return self.wish is None or wish > self.wish
