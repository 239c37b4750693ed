"""The controller's state: the content of its decisions, which only `fold.apply` changes.

Observations without a decision (open requests, the times of messages) are in the controller's parts
(`controller.state.part`) and start empty after a restart.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec

from barnraise.controller.state.actions import Slot
from barnraise.controller.state.cohorts import Cohort
from barnraise.core.sites import Losses
from barnraise.core.types import KINDS, NodeProfile, Ranges, Task
from barnraise.ledger.decisions import Assigned
from barnraise.matching.predictor import Learned, Times, sort_of
from barnraise.privacy.spending import Spending
from barnraise.trust.reputation import Reputation
from barnraise.trust.roles import TRUSTEE, WORKER


class Status(Enum):
    """The stage of an assignment between its node and a version."""

    OPEN = "open"  # with its node: it works on it, or sends it, or it is being inspected
    ACCEPTED = "accepted"  # in the buffer, or in the version that is being made
    MERGED = "merged"  # in a version
    FOUND = "found"  # its finding is known
    RELEASED = "released"  # its node was lost, or gave it up: its own again on return, else another node's
    REFUSED = "refused"  # to be done by another node, or again
    VOIDED = "voided"  # accepted, but unusable: likewise
    UNDONE = "undone"  # the rest of its node's work, or the steps behind those that another node repeats: likewise
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
    """An open assignment, or lost or unfinished work that waits to be done again.

    Its steps are those from `done` on of the assignment `root`, which has the rows: `tokens` are theirs. It is a member
    of `cohorts`, as far as they are kept.
    """

    root: int = 0
    done: int = 0
    stage: Status = Status.OPEN
    cohorts: tuple[int, ...] = ()

    def at(self, stage: Status, **changes: Any) -> Work:
        """Return the same work at `stage`."""
        assert stage in TRANSITIONS[self.stage], f"assignment {self.assignment} cannot be {stage} after {self.stage}"
        return msgspec.structs.replace(self, stage=stage, **changes)

    @property
    def task(self) -> type[Task]:
        """Return the kind of task that it is."""
        return KINDS.get(self.kind, Task)

    @property
    def expected(self) -> Times:
        """Return the times that were expected at its assignment."""
        terms = self.terms
        return Times(terms.compute, terms.fetch, terms.send, terms.compute_spread, terms.link_spread)

    @property
    def sort(self) -> str:
        """Return the sort of tasks with equal times."""
        return sort_of(self.kind, self.tokens, self.local_steps)

    def credit(self, steps: int) -> int:
        """Return the tokens of `steps` of its steps."""
        return self.tokens * steps // self.local_steps if self.local_steps else self.tokens


class KeptFinding(msgspec.Struct, frozen=True):
    """The finding of work without an update: a mean, and its weight among others of its kind."""

    work: Work
    loss: float
    weight: float


class Speed(msgspec.Struct):
    """The observed speed of a node, smoothed over its contributions (EWMA)."""

    rate: float = 0.0  # tokens a second: `tokens` / `seconds`; 0 until one was seen
    tokens: float = 0.0
    seconds: float = 0.0
    turnaround: float = 0.0  # seconds from a task to its contribution, and their deviation
    spread: float = 0.0
    step_seconds: list[float] = []  # its newest contributions'
    verdict_time: float = 0.0  # time of the last
    learned: Learned = msgspec.field(default_factory=Learned)  # expected times of its tasks
    waited: float = 0.0  # seconds that its newest then waited for the others', if it was the only one of its round


class Updates(msgspec.Struct):
    """Statistics of a node's updates."""

    travel: float = 0.0  # learning rate times steps of the tasks behind those accepted, EWMA
    staleness: int = 0  # the newest one's
    merged: int = 0  # the newest that is in a version


class Tuning(msgspec.Struct):
    """The shape of a node's tasks, adapted to its link.

    The rung, the least steps, and the partition whose ranges alternate.
    """

    rung: int = 0
    least_steps: int = 0
    partition: int = 0


class Tally(msgspec.Struct):
    """Counts of a node's work so far."""

    turns: int = 0  # training tasks that it got
    accepted: int = 0
    refused: int = 0
    tokens: int = 0  # in accepted contributions
    reputation: Reputation = Reputation()  # results of others' checks


class Presence(msgspec.Struct):
    """How long a node has been present: since when at all, seconds before its last arrival, and its time."""

    first: float = 0.0
    before: float = 0.0
    since: float = 0.0

    def share(self, now: float) -> float:
        """Return the share of the time since its first arrival, for a present node."""
        return (self.before + now - self.since) / (now - self.first) if now > self.first else 1.0


class Session(msgspec.Struct):
    """A node's report as it last joined, and the time."""

    id: int = 0
    joined: float = 0.0
    profile: NodeProfile = NodeProfile()
    presence: Presence = msgspec.field(default_factory=Presence)


class Badge(msgspec.Struct, frozen=True):
    """A node's admission: its key, its signing key ("": it signs nothing), its role, and its owner ("": its own)."""

    key: str = ""
    signer: str = ""
    role: str = WORKER
    owner: str = ""


class NodeState(msgspec.Struct):
    """The ledger's facts about one node."""

    id: str
    badge: Badge = Badge()
    live: bool = False
    revoked: str = ""  # why the host excluded it
    session: Session = msgspec.field(default_factory=Session)
    speed: Speed = msgspec.field(default_factory=Speed)
    updates: Updates = msgspec.field(default_factory=Updates)
    tuning: Tuning = msgspec.field(default_factory=Tuning)
    tally: Tally = msgspec.field(default_factory=Tally)
    open: list[int] = []
    verdicts: dict[int, tuple[bool, str]] = {}

    @property
    def works(self) -> bool:
        """Return whether it is a node that works on the model, and counts among the live ones."""
        return self.badge.role != TRUSTEE

    @property
    def owner(self) -> str:
        """Return the owner, the same for all nodes that belong together."""
        return self.badge.owner or self.id


class SiteRecord(msgspec.Struct, frozen=True):
    """A node's rows of its own, by its claim: their lane, rounded counts, salted hash, and what losses may be used."""

    lane: int
    rows: int
    held_out: int
    digest: str
    losses: Losses


class Roster(msgspec.Struct):
    """The index of the nodes: their names by their keys, the number of those that take part, those with own rows.

    Trustees do not count as taking part. Updates up to the task `unseated` may be sealed to an earlier committee.
    """

    keys: dict[str, str] = {}
    live: int = 0
    sites: dict[str, SiteRecord] = {}
    unseated: int = 0


class Newest(msgspec.Struct):
    """The newest version, and when it was made."""

    version: int = 0
    digest: str = ""
    time: float = 0.0
    round: int = 0  # the cohort of the tasks that start from it, in synchronous mode; 0: there is none yet


class OpenBuffer(msgspec.Struct):
    """Contributions accepted since the last version was closed, and the number of nodes for the next one."""

    slots: dict[str, dict[Ranges, Slot]] = {}  # by node
    tokens: int = 0
    size: int = 0  # K
    time: float = math.inf  # time of its first contribution

    def count(self, node: str) -> int:
        """Return the number of the node's contributions in it."""
        slots = self.slots.get(node)
        return sum(len(slot.contributions) for slot in slots.values()) if slots else 0

    @property
    def num_contributions(self) -> int:
        """Return the number of all contributions in it."""
        return sum(len(slot.contributions) for slots in self.slots.values() for slot in slots.values())

    def take_out(self, node: str, assignment: int, tokens: int, trains: bool) -> None:
        """Remove a contribution of the node's, with its tokens."""
        slots = {where: slot.without(assignment, tokens, trains) for where, slot in self.slots.pop(node).items()}
        if left := {where: slot for where, slot in slots.items() if slot.contributions}:
            self.slots[node] = left
        self.tokens -= tokens
        if not self.slots:
            self.empty()

    def empty(self) -> None:
        """Clear the buffer, and keep its size."""
        self.slots, self.tokens, self.time = {}, 0, math.inf


def list_digest(version: int, slots: Sequence[Slot]) -> str:
    """Return the SHA-256 of a version and the list of its contributions."""
    numbers = [held.assignment for slot in slots for held in slot.contributions]
    return hashlib.sha256(msgspec.json.encode([version, numbers])).hexdigest()


class Closing(msgspec.Struct):
    """The version that is being made: the closed buffer less contributions that were voided since.

    Once its list is `released` (the list's digest; "": it is not) it changes no more: masks are removed for exactly
    these contributions, and for others they never are. Such a version is made of all of them, or of none. `masks` are
    the assignments that brought sums of masks, `endorsements` the signatures of the list by the trustees' seats.
    """

    version: int
    slots: list[Slot]
    tokens: int
    rate: float
    scales: tuple[float, ...]
    released: str = ""
    masks: tuple[int, ...] = ()
    endorsements: tuple[str, ...] = ()

    @property
    def contributions(self) -> tuple[int, ...]:
        """Return the assignments of its contributions, in order."""
        return tuple(held.assignment for slot in self.slots for held in slot.contributions)

    @property
    def list_digest(self) -> str:
        """Return the SHA-256 of the version and its list, for a release."""
        return list_digest(self.version, self.slots)


class Totals(msgspec.Struct):
    """Totals over the whole run, across restarts."""

    assigned: int = 0  # which is the last assignment's number too
    copies: int = 0  # copies of open work among them
    rows: int = 0  # rows assigned for the first time; and how many of each shard
    handed: dict[int, int] = {}
    accepted: int = 0
    refused: int = 0
    discarded: int = 0
    tokens: int = 0  # in accepted contributions
    version_tokens: int = 0  # in versions
    staleness: int = 0  # sum over accepted contributions
    bytes_up: int = 0
    bytes_down: int = 0


class Record(msgspec.Struct):
    """Facts about the run's versions.

    Their losses, the findings for the next one, the newest about whose loss owners disagreed, the newest checkpoint,
    and the newest version that was measured by the run's metrics; the digests of those that masked work began at.
    """

    evaluations: list[tuple[int, float]] = []
    disputed: int = -1
    findings: dict[int, KeptFinding] = {}  # not yet combined
    checkpoint: int = -1
    checkpoint_time: float = 0.0
    measured: int = -1
    measured_tokens: int = 0  # in that version
    digests: dict[int, str] = {}  # digests of the versions that masked work began at


class Progress(msgspec.Struct):
    """The progress of the run: why it rests, or why it ends, and the parts of its end that are done.

    The aggregation rule pauses it for want of nodes (`paused`), and so does the host (`host_paused`): each for itself.
    """

    paused: str = ""
    host_paused: str = ""
    continued: float = 0.0  # when the host continued it last
    stopping: str = ""
    flushing: float | None = None  # since when the budget is met and only residuals are accepted
    flushed: dict[str, None] = {}  # nodes whose residual has come
    final: bool = False  # nothing more enters the model
    finished: str = ""
    spending: Spending | None = None  # the count behind a budget of differential privacy


class State(msgspec.Struct):
    """All facts of the ledger, folded."""

    nodes: dict[str, NodeState] = {}
    roster: Roster = msgspec.field(default_factory=Roster)
    works: dict[int, Work] = {}
    redo: dict[int, Work] = {}  # lost work, the longest lost first
    merging: dict[int, Work] = {}  # accepted, and in no version yet; `tokens` are those credited
    cohorts: dict[int, Cohort] = {}
    newest: Newest = msgspec.field(default_factory=Newest)
    buffer: OpenBuffer = msgspec.field(default_factory=OpenBuffer)
    closing: Closing | None = None
    totals: Totals = msgspec.field(default_factory=Totals)
    record: Record = msgspec.field(default_factory=Record)
    progress: Progress = msgspec.field(default_factory=Progress)

    def is_lost(self, work: Work) -> bool:
        """Return whether work is on rows of its node's own that are not there any more, and is never done again."""
        site = self.roster.sites.get(work.node)
        if site is None or not work.task.trains:
            return False
        return bool(self.nodes[work.node].revoked) or any(rows.shard != site.lane for rows in work.rows)

    @property
    def num_live(self) -> int:
        """Return the number of nodes that take part."""
        return self.roster.live

    @property
    def round(self) -> Cohort | None:
        """Return the cohort of the synchronous round that is open; None before its first task."""
        return self.cohorts.get(self.newest.round)

    def copies_of(self, work: Work) -> Cohort | None:
        """Return the cohort of work that was given to a second node, and of its copy; None where there is no copy."""
        found = (self.cohorts[number] for number in work.cohorts if number in self.cohorts)
        return next((cohort for cohort in found if cohort.completion.rule == "first"), None)

    @property
    def sums(self) -> bool:
        """Return whether the closed version holds results that only their sum reveals."""
        numbers = self.closing.contributions if self.closing is not None else ()
        return any(self.merging[number].task.summed_only for number in numbers)

    def came_second(self, work: Work) -> bool:
        """Return whether a copy of open work was accepted, so that this one is not needed any more."""
        cohort = self.copies_of(work)
        return cohort is not None and bool(cohort.came)
