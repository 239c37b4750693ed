"""What the work of a simulated run yields: a node's, and the controller's; here as sizes without content.

This is the seam between virtual time and sizes or real tensors. Work happens at once, and takes the virtual seconds
that its `costs` say, which the simulator adds. What a node does is an object of its own, so that one node can be
another than the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from barnraise.controller.actions import Aggregate
from barnraise.core.types import Blob, Contribution, ParameterRange, Task, Update
from barnraise.emulation.costs import ControllerCosts, NodeCosts
from barnraise.wire.frames import Buffer
from barnraise.worker.actions import ApplyUpdates

Trained = tuple[Blob, int, float]
"""A contribution's payload, the steps behind it, and their mean loss."""

NO_CONTENT = b""
"""The content of whatever has a size alone."""


class NodeWork(Protocol):
    """What one node does, process after process."""

    costs: NodeCosts

    def start(self) -> None:
        """A new worker process has its model and data; an earlier one is dead."""

    def fetched(self, blob: Blob, content: Buffer) -> None:
        """A blob has come that is no token shard."""

    def take(self, news: ApplyUpdates) -> None:
        """What was fetched for `news` is used up, and would have to be fetched again for other news."""

    def update(self, news: ApplyUpdates) -> None:
        """Bring the replica up to date with what was taken, the oldest first, between two tasks."""

    def train(self, task: Task, steps: int, news: Sequence[tuple[int, ApplyUpdates]]) -> Trained | None:
        """So many of the task's steps; each of `news` comes while a step is taken, counted from 1. None: it failed."""

    def payload(self, assignment: int) -> Buffer:
        """What is sent for an assignment, while the controller has not answered."""

    def settle(self, assignment: int, accepted: bool) -> None:
        """The node learns what became of its contribution."""


MakeNodeWork = Callable[[str], NodeWork]
"""The work of the node of this name."""


class ControllerWork(Protocol):
    """What the controller does. Nodes go by their names."""

    costs: ControllerCosts

    def shards(self) -> tuple[Blob, ...]:
        """The token shards, in order."""

    def serve(self, blob: Blob) -> Buffer | None:
        """The content of a blob that is no token shard; None when it is not kept (any more)."""

    def hold(self, node: str, updates: tuple[Update, ...]) -> None:
        """The node's newest task names these."""

    def release(self, digests: tuple[str, ...]) -> None:
        """No task names these deltas any more."""

    def inspect(self, node: str, contribution: Contribution, payload: Buffer) -> tuple[float, str]:
        """The payload's norm and what is wrong with it, as it arrives."""

    def accept(self, node: str, assignment: int) -> None:
        """The contribution that was inspected is on the ledger."""

    def discard(self, node: str, assignment: int) -> None:
        """What the node sent will not be used."""

    def aggregate(self, action: Aggregate) -> tuple[str, Blob, ParameterRange | None]:
        """Make a version: its digest, its delta, and which parameters that changes (None: all)."""

    def evaluate(self) -> float:
        """Held-out loss of the newest version."""


class CostedNodeWork:
    """Payloads of the right size. Losses are not modelled (0). Nothing is kept, so one is enough for many nodes.

    `payload_bytes` at each rung are for an update of `span` parameters.
    """

    def __init__(self, payload_bytes: Sequence[int], span: int, costs: NodeCosts) -> None:
        self.payload_bytes, self.span, self.costs = payload_bytes, span, costs

    def start(self) -> None:
        """Nothing is kept."""

    def fetched(self, blob: Blob, content: Buffer) -> None:
        """Nothing is kept."""

    def take(self, news: ApplyUpdates) -> None:
        """Nothing is kept."""

    def update(self, news: ApplyUpdates) -> None:
        """Nothing is kept."""

    def train(self, task: Task, steps: int, news: Sequence[tuple[int, ApplyUpdates]]) -> Trained | None:
        share = (task.parameters.stop - task.parameters.start) / self.span
        return Blob(f"b{task.id:063x}", math.ceil(self.payload_bytes[task.rung] * min(1.0, share))), steps, 0.0

    def payload(self, assignment: int) -> Buffer:
        return NO_CONTENT

    def settle(self, assignment: int, accepted: bool) -> None:
        """Nothing is kept."""


class CostedControllerWork:
    """Deltas and shards of the right size; whatever comes is sound."""

    def __init__(self, delta_bytes: int, shard_bytes: Sequence[int], costs: ControllerCosts) -> None:
        self.delta_bytes, self.costs = delta_bytes, costs
        self._shards = tuple(Blob(f"a{index:063x}", size) for index, size in enumerate(shard_bytes))

    def shards(self) -> tuple[Blob, ...]:
        return self._shards

    def serve(self, blob: Blob) -> Buffer | None:
        return NO_CONTENT

    def hold(self, node: str, updates: tuple[Update, ...]) -> None:
        """Nothing is kept."""

    def release(self, digests: tuple[str, ...]) -> None:
        """Nothing is kept."""

    def inspect(self, node: str, contribution: Contribution, payload: Buffer) -> tuple[float, str]:
        return 1.0, ""

    def accept(self, node: str, assignment: int) -> None:
        """Nothing is kept."""

    def discard(self, node: str, assignment: int) -> None:
        """Nothing is kept."""

    def aggregate(self, action: Aggregate) -> tuple[str, Blob, ParameterRange | None]:
        return f"e{action.version:063x}", Blob(f"d{action.version:063x}", self.delta_bytes), None

    def evaluate(self) -> float:
        return 0.0
