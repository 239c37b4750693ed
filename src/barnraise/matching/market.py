"""A standing market: a matching that stays stable while nodes and tasks come, go and change.

Each event repairs the matching (`level.py`). With `sized`, room is counted in units of work. Then a stable matching
need not exist, unless nodes rank larger tasks first; so tasks are taken by half-octave size classes, from the largest
down. Within a class every task takes one slot, as large as the class; a node offers as many as the larger classes leave
room for. Smaller tasks never displace larger ones, so an event is repaired class by class, once from top to bottom.

Prices (`prices.py`) are computed when the market opens, and by `renew`; in between they hold, and a node that joins
gets the price that follows from them. A price never leaves a task without a place, but it may leave a good node idle
when much has gone since: `drift` says how much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from barnraise.core.errors import InputError

from .base import LARGEST_AMOUNT, NodeId, NodeView, TaskId, TaskView
from .equals import settle_from_scratch
from .level import Level
from .preferences import Preferences, class_size
from .pricing import PriceBook
from .tables import NodeTable, TaskTable, ViewPairs

NOISE = 0.2
"""Share by which a node's measured rates must differ from those in use to move a task."""

Room = tuple[int, float]  # (number of tasks, amount of work) of a node
NO_ROOM: Room = (0, 0.0)


class Market:
    """A stable matching of tasks to nodes, repaired at each event.

    Each event returns the moves: {task id: its new node, or None if it has none now}; `rematches` counts those of all
    events that had a node and got another. The same events give the same matching. `sized`: `work_capacity` of nodes
    counts, not `capacity` alone. `priced`: congestion prices. `tolerance`: the share by which a node's rates must
    differ from those in use to count as a change. `best_for_nodes`: the stable matching that is best for nodes is made
    as the market opens, and by `renew`; events repair it from there.
    """

    def __init__(
        self,
        preferences: Preferences | None = None,
        nodes: Iterable[NodeView] = (),
        tasks: Iterable[TaskView] = (),
        *,
        sized: bool = False,
        priced: bool = True,
        tolerance: float = 0.0,
        best_for_nodes: bool = False,
    ) -> None:
        self.preferences = preferences if preferences is not None else Preferences()
        self.sized, self.priced, self.tolerance = sized, priced, tolerance
        self.best_for_nodes = best_for_nodes
        self._nodes = NodeTable(self.preferences, by_work=sized)
        self._tasks: dict[TaskId, TaskView] = {}
        self._order: list[tuple[float, ...]] = []  # the levels, the highest first
        self._levels: dict[tuple[float, ...], _Class] = {}
        self._book: PriceBook | None = None
        self.rematches = 0  # moves that took a task from one node to another
        self._changed = 0  # changes since prices were made: nodes that came, went or changed, and tasks without a match
        self._beyond: Counter[object] = Counter()  # surplus tasks among them, by their common properties
        for node in nodes:
            self._check_new_node(node)
            self._nodes.add(node)
        for task in tasks:
            self._check_new_task(task)
            self._enter(task)
        self.renew()

    @property
    def nodes(self) -> list[NodeView]:
        """Return the nodes in the market, in the order of their rows."""
        return [node for node in self._nodes.views if node is not None]

    @property
    def tasks(self) -> list[TaskView]:
        """Return the tasks in the market, in order of arrival."""
        return list(self._tasks.values())

    @property
    def assignment(self) -> dict[TaskId, NodeId]:
        """Return task id -> node id of every task that has a place; a copy."""
        found: dict[TaskId, NodeId] = {}
        for task_id, task in self._tasks.items():
            level = self._levels[self._key(task)]
            i = level.market.at[level.tasks.index[task_id]]
            if i >= 0:
                found[task_id] = self._name(i)
        return found

    def __contains__(self, node_id: NodeId) -> bool:
        """Return whether a node is in the market."""
        return node_id in self._nodes.index

    def __len__(self) -> int:
        """Return the number of nodes in the market."""
        return len(self._nodes.index)

    def held(self, node_id: NodeId) -> list[TaskId]:
        """Return the tasks that have a place on a node, the most liked first.

        InputError if the node is not here.
        """
        self._check_known(node_id, "hold tasks")
        i = self._nodes.index[node_id]
        levels = (self._levels[key] for key in self._order)
        return [level.name(bid[3]) for level in levels for bid in reversed(level.market.held[i])]

    @property
    def prices(self) -> dict[NodeId, float]:
        """Return the seconds that a place costs beside its time: for a task, or if `sized` for a unit of work."""
        return {node_id: self._nodes.price(i) for node_id, i in self._nodes.index.items()}

    @property
    def drift(self) -> float:
        """Return the changes since prices were made, as a share of all nodes and tasks.

        Each arrival, departure and change of a node counts, and tasks, except those that replaced others like them.
        """
        return self._changed / max(1, len(self._nodes.index) + len(self._tasks))

    def join(self, node: NodeView) -> dict[TaskId, NodeId | None]:
        """Add a node with all of its room.

        InputError if its id is taken.
        """
        self._check_new_node(node)
        self._changed += 1
        i = self._nodes.add(node)
        self._charge(i)
        self._settle({i})
        return self._moved()

    def leave(self, node_id: NodeId) -> dict[TaskId, NodeId | None]:
        """Remove a node; its tasks look for other places.

        InputError if it is not here.
        """
        self._check_known(node_id, "leave")
        self._changed += 1
        self._settle({self._nodes.remove(node_id)})
        return self._moved()

    def change(self, node: NodeView) -> dict[TaskId, NodeId | None]:
        """Update a node's room, rates, shards or trust.

        Rates within `tolerance` move nothing, nor do gains below the preferences' switching cost. InputError if it is
        not here.
        """
        self._check_known(node.id, "change")
        i = self._nodes.index[node.id]
        before = self._nodes.views[i]
        assert before is not None
        if same_but_for_room(before, node, self.tolerance):
            if (before.capacity, before.work_capacity) == (node.capacity, node.work_capacity):
                return {}
            self._changed += 1
            self._nodes.set_room(i, node.capacity, node.work_capacity)
            self._settle({i})
        else:  # it leaves and rejoins with its new state: both steps are sure to end
            self._changed += 1
            self._nodes.remove(node.id)
            self._settle({i})
            again = self._nodes.add(node)
            assert again == i
            self._charge(i)
            self._settle({i})
        return self._moved()

    def add(self, task: TaskView) -> dict[TaskId, NodeId | None]:
        """Add a task to the market.

        InputError if its id is taken.
        """
        return self.exchange((), (task,))

    def remove(self, task_id: TaskId) -> dict[TaskId, NodeId | None]:
        """Remove a task, done or withdrawn; its room is offered to others.

        InputError if it is not here.
        """
        return self.exchange((task_id,), ())

    def exchange(self, gone: Sequence[TaskId], new: Sequence[TaskView]) -> dict[TaskId, NodeId | None]:
        """Remove tasks and add others in one event.

        Vacancies go to the new ones first where they are of equal rank, so fewer move than in two events. InputError as
        for `remove` and `add`.
        """
        going, coming = set(gone), {task.id for task in new}
        for task_id in going - self._tasks.keys():
            raise InputError(f"task {task_id!r} is not in the market, so it cannot be removed; add() it first")
        for task_id in coming & (self._tasks.keys() - going):
            raise InputError(f"task {task_id!r} is in the market already; call remove() before it is added again")
        if len(going) < len(gone) or len(coming) < len(new):
            raise InputError("a task goes or comes twice in one exchange; name each once")
        keys = {self._withdraw(task_id) for task_id in gone}
        for task in new:
            self._enter(task)
        self._settle(set())
        moved = self._moved()
        for key in sorted(keys):
            if not self._levels[key].market.num_tasks:
                del self._levels[key]
                self._order.remove(key)
        return moved

    def _withdraw(self, task_id: TaskId) -> tuple[float, ...]:
        """Return the level that the task was in."""
        task = self._tasks.pop(task_id)
        self._differ(task, -1)
        key = self._key(task)
        level = self._levels[key]
        level.market.withdraw(level.tasks.remove(task_id))
        return key

    def renew(self) -> dict[TaskId, NodeId | None]:
        """Compute prices and the matching from scratch; of equally good places a task keeps its own.

        Takes half a second at ten thousand nodes and tasks: for an idle moment after some `drift`.
        """
        self._changed = 0
        self._beyond.clear()
        if self.priced:
            self._book = PriceBook(self._nodes, self._tasks.values())
            self._book.charge(self._nodes)
        left = [self._room(i) for i in range(len(self._nodes))]
        for key in self._order:
            level = self._levels[key]
            settle_from_scratch(level.market, level.offer_all(left), best_for_nodes=self.best_for_nodes)
            for i in level.market.touched:
                left[i] = level.left(i)
        return self._moved()

    def blocking_pairs(self) -> list[tuple[TaskId, NodeId]]:
        """Return the (task id, node id) pairs that prefer each other by more than the switching cost.

        At the prices in use; there are none after any sequence of events. Looks at every pair, so it is for checks and
        studies.
        """
        return [(level.name(j), self._name(i)) for level in self._levels.values() for j, i in level.market.blocking()]

    # Repairs

    def _settle(self, changed: set[int]) -> None:
        """Settle from the largest class down: a node whose load changed above has other slots below."""
        left = {i: self._room(i) for i in changed}
        for key in self._order:
            level = self._levels[key]
            for i, room in left.items():
                level.offer(i, room)
            level.market.settle()
            left = {i: level.left(i) for i in [*left, *(level.market.touched - left.keys())]}

    def _enter(self, task: TaskView) -> None:
        key = self._key(task)
        if key not in self._levels:
            self._order.append(key)
            self._order.sort(reverse=True)
            size = class_size(key[-1]) if self.sized else 0.0
            level = self._levels[key] = _Class(size, self._nodes, self.preferences.switching_cost)
            rooms = [self._room(i) for i in range(len(self._nodes))]
            for above in (self._levels[other] for other in self._order[: self._order.index(key)]):
                for i, held in enumerate(above.market.held):
                    if held:
                        rooms[i] = above.less(i, rooms[i])
            level.market.restart(level.offer_all(rooms))
        level = self._levels[key]
        self._tasks[task.id] = task
        self._differ(task, 1)
        level.market.enter(level.tasks.add(task), self.preferences.standing(task))

    def _differ(self, task: TaskView, by: int) -> None:
        likes = task.work, task.down_bytes, task.up_bytes, sum(task.shards.values()), task.priority, task.requirements
        before = self._beyond.pop(likes, 0)
        if before + by:
            self._beyond[likes] = before + by
        self._changed += abs(before + by) - abs(before)

    def _key(self, task: TaskView) -> tuple[float, ...]:
        return self.preferences.level(task) if self.sized else ()

    def _room(self, i: int) -> Room:
        node = self._nodes.views[i]
        return (node.capacity, node.work_capacity) if node else NO_ROOM

    def _charge(self, i: int) -> None:
        if self._book is not None:
            self._nodes.charge(i, self._book.price(self._nodes, i))

    def _moved(self) -> dict[TaskId, NodeId | None]:
        moved: dict[TaskId, NodeId | None] = {}
        for level in self._levels.values():
            if not level.market.touched:
                continue
            at = level.market.at
            for j, before in level.market.moved.items():
                if at[j] != before:
                    self.rematches += before >= 0 <= at[j]
                    moved[level.name(j)] = self._name(at[j]) if at[j] >= 0 else None
            level.market.close()
        return moved

    def _name(self, i: int) -> NodeId:
        node = self._nodes.views[i]
        assert node is not None
        return node.id

    def _check_new_node(self, node: NodeView) -> None:
        if node.id in self._nodes.index:
            raise InputError(f"node {node.id!r} is in the market already; call leave() before it joins again")

    def _check_known(self, node_id: NodeId, what: str) -> None:
        if node_id not in self._nodes.index:
            raise InputError(f"node {node_id!r} is not in the market, so it cannot {what}; join() it first")

    def _check_new_task(self, task: TaskView) -> None:
        if task.id in self._tasks:
            raise InputError(f"task {task.id!r} is in the market already; call remove() before it is added again")


class _Class:
    """The tasks of one size class, and the level in which they are matched; `size` 0: a task takes no work."""

    def __init__(self, size: float, nodes: NodeTable, switching_cost: float) -> None:
        self.size = size
        self.tasks = TaskTable()
        self.market = Level(ViewPairs(nodes, self.tasks), switching_cost)
        self._rooms: list[Room] = []  # by node, for this class and those below

    def offer(self, i: int, room: Room) -> None:
        """Give node `i` this room for this class and those below."""
        if i >= len(self._rooms):
            self._rooms += [NO_ROOM] * (i + 1 - len(self._rooms))
        self._rooms[i] = room
        self.market.set_slots(i, self._slots(*room))

    def offer_all(self, rooms: list[Room]) -> list[int]:
        """Do the same for each node [rows] without opening the slots, and return their numbers."""
        self._rooms = list(rooms)
        return [self._slots(*room) for room in rooms]

    def left(self, i: int) -> Room:
        """Return the room of node `i` for the classes below."""
        return self.less(i, self._rooms[i])

    def less(self, i: int, room: Room) -> Room:
        """Return the room of node `i` that this class leaves."""
        held = self.market.held[i]
        if not held:
            return room
        tasks, work = room
        if self.size and work < LARGEST_AMOUNT:
            work = max(0.0, work - sum(self._work(bid[3]) for bid in held))
        return tasks - len(held), work

    def _slots(self, tasks: int, work: float) -> int:
        """Return how many tasks of this class fit into room for `tasks` tasks and `work` units."""
        if not self.size or work >= LARGEST_AMOUNT:
            return tasks
        return int(min(tasks, work / self.size))

    def name(self, j: int) -> TaskId:
        task = self.tasks.views[j]
        assert task is not None
        return task.id

    def _work(self, j: int) -> float:
        task = self.tasks.views[j]
        assert task is not None
        return task.work


def same_but_for_room(before: NodeView, now: NodeView, tolerance: float) -> bool:
    """Return whether only the room of a node differs, and its rates by less than `tolerance`."""
    fixed = ("kinds", "memory_bytes", "accelerator_bytes", "trust", "shards")
    if any(getattr(before, name) != getattr(now, name) for name in fixed):
        return False
    rates = ("speed", "up_bandwidth", "down_bandwidth", "latency")
    return all(
        abs(getattr(now, name) - getattr(before, name)) <= tolerance * abs(getattr(before, name)) for name in rates
    )
