"""The interface of schedulers: views of tasks and nodes, and pairs of them as the answer.

Times are seconds, sizes bytes, work and speed in the same unit of work (tokens, tokens a second).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from barnraise.core.errors import InputError

TaskId = int
NodeId = str

COPIES = 1 << 50
"""Ids from minus this down are copies of tasks on offer."""

NO_STANDING_MARKET = "this scheduler keeps none, and matches the nodes that ask with the tasks there are"
ONE_LANE = "one lane of rows is on offer, to which all nodes are alike: a node that asks gets its next rows"
"""Reasons why no market of nodes and tasks stands."""

LARGEST_AMOUNT = 1e18  # keeps every sum and quotient of amounts finite


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as the matcher sees it: its costs, its transfers, and its requirements on a node.

    `down_bytes` travel to whichever node gets the task and `up_bytes` back; each of `shards` (shard -> bytes) travels
    only to a node that does not have it. `memory_bytes` are of the memory in which a node trains; `accelerator_bytes`
    are of an accelerator, for work that must run on one (0: it need not). InputError if an amount is not between 0 and
    1e18.
    """

    id: TaskId
    work: float = 0.0
    kind: str = "train"
    down_bytes: float = 0
    up_bytes: float = 0
    shards: Mapping[int, int] = field(default_factory=dict)
    priority: float = 0.0  # higher is more urgent
    memory_bytes: int = 0  # required
    min_trust: float = 0.0  # required
    accelerator_bytes: int = 0  # required
    only: AbstractSet[NodeId] = frozenset()  # the nodes that may do it; empty: all
    times: float = field(default=LARGEST_AMOUNT, compare=False)  # how often it can be assigned, about, if on offer

    def __post_init__(self) -> None:
        memory = "memory_bytes", "accelerator_bytes"
        _check_amounts("task", self, ("work", "down_bytes", "up_bytes", *memory, "min_trust", "times"))
        if not abs(self.priority) <= LARGEST_AMOUNT:
            raise InputError(f"task {self.id!r}: priority is {self.priority}, but must be finite; use 0 for normal")
        for shard, num_bytes in self.shards.items():
            if not 0 <= num_bytes <= LARGEST_AMOUNT:
                raise InputError(f"task {self.id!r}: shard {shard} has {num_bytes} bytes; give a size from 0 to 1e18")

    @property
    def requirements(self) -> tuple[str, int, float, int, AbstractSet[NodeId]]:
        """Return all fields that `meets` uses: tasks that agree here can run on the same nodes."""
        return self.kind, self.memory_bytes, self.min_trust, self.accelerator_bytes, self.only


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as the matcher sees it: measured rates, room, shards and accepted kinds.

    Its room is `capacity` tasks, and among them `work_capacity` units of work (by default without a limit of its own).
    A rate of 0 means "not measured yet". InputError if an amount is not between 0 and 1e18.
    """

    id: NodeId
    speed: float = 0.0
    up_bandwidth: float = 0.0
    down_bandwidth: float = 0.0
    latency: float = 0.0
    memory_bytes: int = 0
    capacity: int = 1  # tasks it can take now, one slot each
    trust: float = 1.0
    shards: AbstractSet[int] = frozenset()  # already on its disk
    kinds: AbstractSet[str] = frozenset()  # kinds of tasks; empty: any
    work_capacity: float = LARGEST_AMOUNT  # C_i: the work of all tasks that it takes at once
    accelerator_bytes: int = 0  # memory of its accelerator; 0: none, or not known

    def __post_init__(self) -> None:
        most = LARGEST_AMOUNT
        if not (
            0 <= self.speed <= most
            and 0 <= self.up_bandwidth <= most
            and 0 <= self.down_bandwidth <= most
            and 0 <= self.latency <= most
            and 0 <= self.memory_bytes <= most
            and 0 <= self.accelerator_bytes <= most
            and 0 <= self.trust <= most
            and 0 <= self.work_capacity <= most
        ):  # a loop over the names takes five times as long, for each node that asks
            rates, memory = (
                ("speed", "up_bandwidth", "down_bandwidth", "latency"),
                ("memory_bytes", "accelerator_bytes"),
            )
            _check_amounts("node", self, (*rates, *memory, "trust", "work_capacity"))
        if type(self.capacity) is not int or not 0 <= self.capacity <= LARGEST_AMOUNT:
            raise InputError(f"node {self.id!r}: capacity is {self.capacity!r}, but must be a whole number from 0 up")


def meets(task: TaskView, node: NodeView) -> bool:
    """Return whether `node` meets the requirements of `task`."""
    return (
        task.memory_bytes <= node.memory_bytes
        and task.accelerator_bytes <= node.accelerator_bytes
        and task.min_trust <= node.trust
        and (not task.only or node.id in task.only)
        and (not node.kinds or task.kind in node.kinds)
    )


@dataclass(frozen=True, slots=True)
class MarketFigures:
    """The state of a standing matching, and its changes as `metrics.MatchingTally` counts them.

    `stability` is the stability index by time alone, `nearly` that with a tenth of a task's time as epsilon, `blocking`
    the blocking density, `regret` the excess over the least total cost, `priced` the stability index at current prices.
    """

    nodes: int
    tasks: int
    events: int
    moves: int
    stability: float
    nearly: float
    blocking: float
    regret: float = 0.0
    rematches: int = 0
    priced: float = 1.0


class Scheduler(ABC):
    """Base class of schedulers, which decide which node gets which task.

    No external clock or randomness: the same calls in the same order give the same answers. Schedulers with a memory (a
    rotation, amounts given) say so. The dispatcher calls `place` for nodes that ask. Some work does not run out as it
    is assigned, such as the next rows of a shard. Such a task is on offer, to as many nodes as want it.
    """

    on_offer: Sequence[TaskView] = ()

    def __init__(self) -> None:
        self._copies: dict[tuple[TaskId, int], TaskView] = {}
        self._originals: dict[TaskId, TaskId] = {}

    def offer(self, tasks: Sequence[TaskView]) -> None:
        """Replace the tasks on offer, all of which differ.

        The oldest come first, with ids above -2^50.
        """
        self.on_offer = tasks

    def place(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        """Run `assign` on `tasks` and the tasks on offer, which several nodes may get."""
        pairs = self.assign([*tasks, *self.offered(len(nodes))], nodes)
        return [(self.original(task_id), node) for task_id, node in pairs]

    def offered(self, count: int) -> list[TaskView]:
        """Return the tasks on offer, each as often as needed to give `count` nodes something."""
        if count <= len(self.on_offer):
            return [*self.on_offer]
        rounds = -(-count // len(self.on_offer)) if self.on_offer else 0
        return [self.copy(task, number) for number in range(rounds) for task in self.on_offer]

    def copy(self, task: TaskView, number: int) -> TaskView:
        """Return the task for the first node that gets it, else a copy of it with another id.

        `number` is how many nodes have got it.
        """
        if not number:
            return task
        known = self._copies.get((task.id, number))
        if known is None or (known.shards, known.only) != (task.shards, task.only):
            known = replace(task, id=-COPIES - len(self._originals))
            self._copies[task.id, number], self._originals[known.id] = known, task.id
        return known

    def original(self, task_id: TaskId) -> TaskId:
        """Return the task on offer of which the task is a copy, or the task itself."""
        return self._originals.get(task_id, task_id)

    def figures(self) -> MarketFigures | None:
        """Return the figures of the standing matching; None where there is none."""
        return None

    def no_market(self) -> str:
        """Return why there is no market of nodes and tasks; empty while there is one, or soon will be."""
        return NO_STANDING_MARKET

    def forget(self, node: NodeId) -> None:  # noqa: B027 (most have nothing to forget)
        """Remove a node that has left, perhaps for a while."""

    @abstractmethod
    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        """Return pairs (task id, node id), each task at most once, each node within `capacity` and `work_capacity`.

        Called by the dispatcher whenever nodes ask for work: mostly for one node, sometimes for thousands. `tasks` is
        the queue, oldest first; `nodes` those that ask, in order of asking; ids are unique. A node never gets a task
        whose requirements it does not meet; tasks that cannot be placed are left out and come again with the next call.
        """


def _check_amounts(what: str, view: TaskView | NodeView, names: Sequence[str]) -> None:
    for name in names:
        value = getattr(view, name)
        if not 0 <= value <= LARGEST_AMOUNT:  # NaN compares false
            raise InputError(f"{what} {view.id!r}: {name} is {value}, but must be from 0 to 1e18; use 0 if unknown")
