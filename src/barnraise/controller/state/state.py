"""The controller's state: everything that its decisions say. `folding.apply` changes it, and nothing else does.

What is not decided but merely observed (who asked for work, when a node was last heard) lives in the controller's parts
(`controller.state.part`) and starts empty after a restart.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import msgspec

from barnraise.controller.state.actions import Slot
from barnraise.core.types import KINDS, NodeProfile, ParameterRange, Task
from barnraise.ledger.decisions import Assigned
from barnraise.matching.predictor import Learned, Times, sort_of
from barnraise.trust.reputation import Reputation
from barnraise.trust.roles import WORKER


class Status(Enum):
    """Where an assignment is between its node and a version."""

    OPEN = "open"  # its node's: it works on it, or sends it, or it is being inspected
    ACCEPTED = "accepted"  # in the buffer, or in the version that is being made
    MERGED = "merged"  # in a version
    FOUND = "found"  # what it was to find is known
    RELEASED = "released"  # its node was lost, or gave it up: its own again should it come back, else anybody's
    REFUSED = "refused"  # to be done by somebody else, or again
    VOIDED = "voided"  # accepted, but of no use: likewise
    UNDONE = "undone"  # what its node left of it, or what comes behind the steps that somebody redoes: likewise
    DISCARDED = "discarded"  # left over at the end
    REDONE = "redone"  # another assignment has its rows


TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.OPEN: frozenset(
        {Status.ACCEPTED, Status.FOUND, Status.REFUSED, Status.DISCARDED, Status.RELEASED, Status.UNDONE}
    ),
    Status.ACCEPTED: frozenset({Status.MERGED, Status.VOIDED, Status.DISCARDED}),
    Status.RELEASED: frozenset({Status.OPEN, Status.UNDONE, Status.REDONE}),
    Status.REFUSED: frozenset({Status.UNDONE, Status.REDONE}),
    Status.VOIDED: frozenset({Status.UNDONE, Status.REDONE}),
    Status.UNDONE: frozenset({Status.UNDONE, Status.REDONE}),
    Status.MERGED: frozenset(),
    Status.FOUND: frozenset(),
    Status.DISCARDED: frozenset(),
    Status.REDONE: frozenset(),
}
"""From each stage to those that may follow."""


class Work(Assigned, frozen=True):
    """An assignment that is not settled yet, or work that was lost or left undone and waits to be done again.

    Its steps are those from `done` on of the assignment `root`, which handed out the rows: `tokens` are theirs. While
    it is open its `twin` is the assignment that is the same: open, too, or it came first; below 0 where that came to
    nothing.
    """

    root: int = 0
    done: int = 0
    stage: Status = Status.OPEN
    twin: int = 0

    def at(self, stage: Status, **changes: Any) -> Work:
        """The same work, gone on to `stage`."""
        assert stage in TRANSITIONS[self.stage], f"assignment {self.assignment} cannot be {stage} after {self.stage}"
        return msgspec.structs.replace(self, stage=stage, twin=min(self.twin, 0), **changes)

    @property
    def task(self) -> type[Task]:
        """The kind of task that it is."""
        return KINDS.get(self.kind, Task)

    @property
    def expected(self) -> Times:
        """What it was expected to take as it was given."""
        terms = self.terms
        return Times(terms.compute, terms.fetch, terms.send, terms.compute_spread, terms.link_spread)

    @property
    def sort(self) -> str:
        """Which tasks take as long."""
        return sort_of(self.kind, self.tokens, self.local_steps)

    def credit(self, steps: int) -> int:
        """Tokens of so many of its steps."""
        return self.tokens * steps // self.local_steps if self.local_steps else self.tokens


class KeptFinding(msgspec.Struct, frozen=True):
    """What came of work that ends in no update: a mean, and what that counts for among others of its kind."""

    work: Work
    loss: float
    weight: float


class Speed(msgspec.Struct):
    """How fast a node was seen to be, smoothed over its contributions (EWMA)."""

    rate: float = 0.0  # tokens a second: `tokens` / `seconds`; 0 until one was seen
    tokens: float = 0.0
    seconds: float = 0.0
    turnaround: float = 0.0  # seconds from a task to its contribution; and of how far they are from that
    spread: float = 0.0
    step_seconds: list[float] = []  # its newest contributions'
    verdict_time: float = 0.0  # of the last
    learned: Learned = msgspec.field(default_factory=Learned)  # of how long its tasks take
    waited: float = 0.0  # seconds that its newest then waited for the others', if it was the only one of its round


class Updates(msgspec.Struct):
    """What the updates of a node are like."""

    travel: float = 0.0  # learning rate times steps of the tasks behind those accepted, EWMA
    staleness: int = 0  # of the newest
    merged: int = 0  # the newest that is in a version


class Tuning(msgspec.Struct):
    """What a node's tasks are like, as fitted to its link: how densely it sends, the steps that they have at least, and
    whose ranges of the parameters take turns."""

    rung: int = 0
    least_steps: int = 0
    partition: int = 0


class Tally(msgspec.Struct):
    """What a node did so far."""

    turns: int = 0  # training tasks that it was given
    accepted: int = 0
    refused: int = 0
    tokens: int = 0  # in accepted contributions
    standing: Reputation = Reputation()  # what others found of it


class Presence(msgspec.Struct):
    """How long a node has been here: since when at all, seconds before it came last, and when that was."""

    first: float = 0.0
    before: float = 0.0
    since: float = 0.0

    def share(self, now: float) -> float:
        """Of the time since it came first, of a node that is here."""
        return (self.before + now - self.since) / (now - self.first) if now > self.first else 1.0


class Session(msgspec.Struct):
    """What a node said as it joined last, and when."""

    id: int = 0
    joined: float = 0.0
    profile: NodeProfile = NodeProfile()
    presence: Presence = msgspec.field(default_factory=Presence)


class Badge(msgspec.Struct, frozen=True):
    """What a node was let in by: its key, that of its signatures ("": it signs nothing), what it is there for, and
    whose it is ("": nobody else's)."""

    key: str = ""
    signer: str = ""
    role: str = WORKER
    owner: str = ""


class NodeState(msgspec.Struct):
    """What the ledger says about one node."""

    id: str
    badge: Badge = Badge()
    live: bool = False
    revoked: str = ""  # why the host wants it in the run no more
    session: Session = msgspec.field(default_factory=Session)
    speed: Speed = msgspec.field(default_factory=Speed)
    updates: Updates = msgspec.field(default_factory=Updates)
    tuning: Tuning = msgspec.field(default_factory=Tuning)
    tally: Tally = msgspec.field(default_factory=Tally)
    open: list[int] = []
    verdicts: dict[int, tuple[bool, str]] = {}

    @property
    def owner(self) -> str:
        """The same for all nodes that count as one's."""
        return self.badge.owner or self.id


class Newest(msgspec.Struct):
    """The newest version, and when it was made."""

    version: int = 0
    digest: str = ""
    time: float = 0.0
    in_flight: int = 0  # works that started from it


class OpenBuffer(msgspec.Struct):
    """What was accepted since the last version was closed, and how many nodes the next one takes."""

    slots: dict[str, dict[ParameterRange, Slot]] = {}  # by node
    tokens: int = 0
    size: int = 0  # K
    time: float = math.inf  # of its first contribution
    half_time: float = math.inf  # when half of the living had contributed

    def count(self, node: str) -> int:
        """The node's contributions in it."""
        return sum(len(slot.contributions) for slot in self.slots.get(node, {}).values())

    def take_out(self, node: str, assignment: int, tokens: int, trains: bool) -> None:
        """A contribution of the node's, of so many tokens, that is in it is not any more."""
        slots = {where: slot.without(assignment, tokens, trains) for where, slot in self.slots.pop(node).items()}
        if left := {where: slot for where, slot in slots.items() if slot.contributions}:
            self.slots[node] = left
        self.tokens -= tokens
        if not self.slots:
            self.empty()

    def empty(self) -> None:
        """Begin anew, with the same size."""
        self.slots, self.tokens, self.time, self.half_time = {}, 0, math.inf, math.inf


class Closing(msgspec.Struct):
    """The version that is being made: what of the closed buffer was not voided since."""

    version: int
    slots: list[Slot]
    tokens: int
    rate: float
    scales: tuple[float, ...]


class Totals(msgspec.Struct):
    """Over the whole run, across restarts."""

    assigned: int = 0  # which is the last assignment's number too
    copies: int = 0  # of them, that were copies of open work
    rows: int = 0  # that were handed out, but for those of lost work again; and how many of each shard
    handed: dict[int, int] = {}
    accepted: int = 0
    refused: int = 0
    discarded: int = 0
    tokens: int = 0  # in accepted contributions
    version_tokens: int = 0  # in versions
    staleness: int = 0  # of accepted contributions, added up
    bytes_up: int = 0
    bytes_down: int = 0


class Record(msgspec.Struct):
    """What is known, and kept, of versions: their losses, the findings for the next one, the newest about whose loss
    owners disagreed, and the newest checkpoint."""

    evaluations: list[tuple[int, float]] = []
    disputed: int = -1
    findings: dict[int, KeptFinding] = {}  # that nothing was made of yet
    checkpoint: int = -1
    checkpoint_time: float = 0.0


class Progress(msgspec.Struct):
    """How far the run is: why it rests, or why it ends, and what of its end has come."""

    paused: str = ""
    stopping: str = ""
    flushing: float | None = None  # since when the budget is met and nothing but residuals is wanted
    flushed: dict[str, None] = {}  # nodes whose residual has come
    final: bool = False  # nothing more enters the model
    finished: str = ""


class State(msgspec.Struct):
    """Everything the ledger says."""

    nodes: dict[str, NodeState] = {}
    keys: dict[str, str] = {}
    num_live: int = 0
    works: dict[int, Work] = {}
    redo: dict[int, Work] = {}  # lost work, the longest lost first
    merging: dict[int, Work] = {}  # accepted, and in no version yet; `tokens` are those credited
    newest: Newest = msgspec.field(default_factory=Newest)
    buffer: OpenBuffer = msgspec.field(default_factory=OpenBuffer)
    closing: Closing | None = None
    totals: Totals = msgspec.field(default_factory=Totals)
    record: Record = msgspec.field(default_factory=Record)
    progress: Progress = msgspec.field(default_factory=Progress)

    def came_second(self, work: Work) -> bool:
        """Whether the twin of open work was accepted: this one is not wanted any more."""
        return work.twin > 0 and work.twin not in self.works
