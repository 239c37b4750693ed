"""The controller's state: everything that its decisions say. `folding.apply` changes it, and nothing else does.

What is not decided but merely observed (who asked for work, when a node was last heard) lives in the controller's parts
(`controller.part`) and starts empty after a restart.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import msgspec

from barnraise.controller.actions import Held, SlotShare
from barnraise.core.types import NodeProfile, ParameterRange, Task, kind_of
from barnraise.ledger.decisions import Assigned, VersionClosed


class Stage(Enum):
    """Where an assignment is between its node and a version."""

    OPEN = "open"  # its node's: it works on it, or sends it, or it is being inspected
    ACCEPTED = "accepted"  # in the buffer, or in the version that is being made
    MERGED = "merged"  # in a version
    FOUND = "found"  # what it was to find is known
    RELEASED = "released"  # its node was lost, or gave it up: its own again should it come back, else anybody's
    REFUSED = "refused"  # to be done by somebody else, or again
    VOIDED = "voided"  # accepted, but of no use: likewise
    UNDONE = "undone"  # what its node left of it, or what comes after a piece of it: likewise
    DISCARDED = "discarded"  # left over at the end
    REDONE = "redone"  # another assignment has its rows


TRANSITIONS: dict[Stage, frozenset[Stage]] = {
    Stage.OPEN: frozenset({Stage.ACCEPTED, Stage.FOUND, Stage.REFUSED, Stage.DISCARDED, Stage.RELEASED, Stage.UNDONE}),
    Stage.ACCEPTED: frozenset({Stage.MERGED, Stage.VOIDED, Stage.DISCARDED}),
    Stage.RELEASED: frozenset({Stage.OPEN, Stage.UNDONE, Stage.REDONE}),
    Stage.REFUSED: frozenset({Stage.UNDONE, Stage.REDONE}),
    Stage.VOIDED: frozenset({Stage.UNDONE, Stage.REDONE}),
    Stage.UNDONE: frozenset({Stage.UNDONE, Stage.REDONE}),
    Stage.MERGED: frozenset(),
    Stage.FOUND: frozenset(),
    Stage.DISCARDED: frozenset(),
    Stage.REDONE: frozenset(),
}
"""From each stage to those that may follow."""


class Work(Assigned, frozen=True):
    """An assignment that is not settled yet, or work that was lost or left undone and waits to be done again.

    Its steps are those from `done` on of the assignment `root`, which handed out the rows: `tokens` are theirs.
    """

    root: int = 0
    done: int = 0
    stage: Stage = Stage.OPEN

    def at(self, stage: Stage, **changes: Any) -> Work:
        """The same work, gone on to `stage`."""
        assert stage in TRANSITIONS[self.stage], f"assignment {self.assignment} cannot be {stage} after {self.stage}"
        return msgspec.structs.replace(self, stage=stage, **changes)

    @property
    def task(self) -> type[Task]:
        """The kind of task that it is."""
        return kind_of(self.kind)

    def credit(self, steps: int) -> int:
        """Tokens of so many of its steps."""
        return self.tokens * steps // self.local_steps if self.local_steps else self.tokens


class Finding(msgspec.Struct, frozen=True):
    """What came of work that ends in no update: a mean, and what that counts for among others of its kind."""

    work: Work
    loss: float
    weight: float


class NodeState(msgspec.Struct):
    """What the ledger says about one node."""

    id: str
    key: str = ""
    live: bool = False
    revoked: str = ""  # why the host wants it in the run no more
    session: int = 0
    joined: float = 0.0
    profile: NodeProfile = NodeProfile()
    rate: float = 0.0  # tokens a second, as observed: EWMA tokens / EWMA seconds; 0 until then
    rate_tokens: float = 0.0
    rate_seconds: float = 0.0
    turnaround: float = 0.0  # seconds from a task to its contribution, EWMA; and of how far they are from that
    turnaround_spread: float = 0.0
    norm: float = 0.0  # of its accepted updates, EWMA; and of learning rate times steps behind them
    travel: float = 0.0
    turns: int = 0  # training tasks so far
    step_seconds: list[float] = []  # its newest contributions'
    last_verdict_time: float = 0.0
    rung: int = 0  # as tuned to its link, like the steps its tasks have at least and whose ranges take turns
    least_steps: int = 0
    partition: int = 0
    open: list[int] = []
    verdicts: dict[int, tuple[bool, str]] = {}
    accepted: int = 0
    refused: int = 0
    tokens: int = 0
    last_staleness: int = 0
    merged: int = 0  # its newest contribution that is in a version
    waited: float = 0.0  # seconds that this one then waited for the others', if it was the only one of its round


class SlotState(msgspec.Struct):
    """One node's accepted contributions in the open buffer, for one range of the parameters."""

    node: str
    parameters: ParameterRange
    contributions: list[Held] = []
    fresh_weight: float = 0.0  # theirs, were none of them stale

    def share(self) -> SlotShare:
        """The slot as part of a version."""
        weight = sum(held.weight for held in self.contributions)
        freshness = weight / self.fresh_weight if self.fresh_weight else 1.0
        return SlotShare(self.node, self.parameters, tuple(self.contributions), freshness)


class State(msgspec.Struct):
    """Everything the ledger says. Totals are over the whole run, across restarts."""

    nodes: dict[str, NodeState] = {}
    keys: dict[str, str] = {}
    works: dict[int, Work] = {}
    current: int = 0  # works that started from the newest version
    redo: dict[int, Work] = {}  # lost work, the longest lost first
    slots: dict[str, dict[ParameterRange, SlotState]] = {}  # the open buffer, by node
    version: int = 0
    version_time: float = 0.0
    buffer_time: float = math.inf  # when the open buffer got its first contribution
    half_time: float = math.inf  # when half of the living had contributed to the open buffer
    digest: str = ""
    findings: dict[int, Finding] = {}  # that nothing was made of yet
    merging: dict[int, Work] = {}  # accepted, and in no version yet; `tokens` are those credited
    closing: VersionClosed | None = None
    closing_slots: list[SlotState] = []
    last_assignment: int = 0
    cursor: int = 0
    num_live: int = 0
    buffer_size: int = 0
    buffer_tokens: int = 0
    tokens: int = 0  # in accepted contributions
    version_tokens: int = 0  # in versions
    accepted: int = 0
    refused: int = 0
    discarded: int = 0
    staleness_sum: int = 0
    evaluations: list[tuple[int, float]] = []
    checkpoint: int = -1
    checkpoint_time: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    paused: str = ""
    stopping: str = ""
    flushing: float | None = None  # since when the budget is met and nothing but residuals is wanted
    flushed: dict[str, None] = {}  # nodes whose residual has come
    final: bool = False
    finished: str = ""

    def num_in_buffer(self, node: str) -> int:
        """Contributions of the node in the open buffer."""
        return sum(len(slot.contributions) for slot in self.slots.get(node, {}).values())
