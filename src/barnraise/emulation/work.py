"""What the work of a simulated run yields and costs: the seam between virtual time and sizes or real tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from barnraise.controller.actions import Aggregate
from barnraise.core.types import Blob, Contribution, ParameterRange, Task, Update
from barnraise.emulation.costs import Costs
from barnraise.worker.actions import ApplyUpdates

Trained = tuple[Blob, int, float, int]
"""A contribution's payload, the steps behind it, their mean loss, and the payload's codec."""


class Work(Protocol):
    """Work happens at once and takes virtual seconds, by its `costs`, that the simulator adds. Nodes go by their
    names."""

    costs: Costs

    def shards(self) -> tuple[Blob, ...]:
        """The token shards, in order."""

    def start(self, node: str) -> None:
        """A new worker process has its model and data; an earlier one of that name is dead."""

    def fetch(self, node: str, blob: Blob) -> bool:
        """Hand the node a blob; False when the controller does not keep it (any more)."""

    def take(self, node: str, news: ApplyUpdates) -> None:
        """What the node has fetched for `news` is used up, and would have to be fetched again for other news."""

    def update(self, node: str, news: ApplyUpdates) -> None:
        """Bring the node's replica up to date with what was taken, the oldest first, between two tasks."""

    def train(self, node: str, task: Task, steps: int, news: Sequence[tuple[int, ApplyUpdates]]) -> Trained | None:
        """So many of the task's steps; each of `news` comes while a step is taken, counted from 1. None: it failed."""

    def settle(self, node: str, assignment: int, accepted: bool) -> None:
        """The node learns what became of its contribution."""

    def inspect(self, node: str, contribution: Contribution) -> tuple[float, str]:
        """The payload's norm and what is wrong with it, as it arrives at the controller."""

    def accept(self, node: str, assignment: int) -> None:
        """The contribution that was inspected is on the ledger."""

    def discard(self, node: str, assignment: int) -> None:
        """The controller will not use what the node sent."""

    def aggregate(self, action: Aggregate) -> tuple[str, Blob, ParameterRange | None]:
        """Make a version: its digest, its delta, and which parameters that changes (None: all)."""

    def hold(self, node: str, updates: tuple[Update, ...]) -> None:
        """The node's newest task names these."""

    def release(self, digests: tuple[str, ...]) -> None:
        """No task names these deltas any more."""

    def evaluate(self) -> float:
        """Held-out loss of the newest version."""


class CostModel:
    """Payloads, deltas and shards of the right size and no content. Losses are not modelled (0).

    `payload_bytes` at each rung are for an update of `span` parameters.
    """

    def __init__(
        self,
        *,
        payload_bytes: Sequence[int],
        span: int,
        delta_bytes: int,
        shard_bytes: Sequence[int],
        costs: Costs,
    ) -> None:
        self.payload_bytes, self.delta_bytes = payload_bytes, delta_bytes
        self.span, self.costs = span, costs
        self._shards = tuple(Blob(f"a{index:063x}", size) for index, size in enumerate(shard_bytes))

    def shards(self) -> tuple[Blob, ...]:
        return self._shards

    def start(self, node: str) -> None:
        """Nothing is kept."""

    def fetch(self, node: str, blob: Blob) -> bool:
        return True

    def take(self, node: str, news: ApplyUpdates) -> None:
        """Nothing is kept."""

    def update(self, node: str, news: ApplyUpdates) -> None:
        """Nothing is kept."""

    def train(self, node: str, task: Task, steps: int, news: Sequence[tuple[int, ApplyUpdates]]) -> Trained | None:
        share = (task.parameters.stop - task.parameters.start) / self.span
        payload = Blob(f"b{task.id:063x}", math.ceil(self.payload_bytes[task.rung] * min(1.0, share)))
        return payload, steps, 0.0, len(self.payload_bytes) if task.kind == "flush" else task.rung

    def settle(self, node: str, assignment: int, accepted: bool) -> None:
        """Nothing is kept."""

    def inspect(self, node: str, contribution: Contribution) -> tuple[float, str]:
        return 1.0, ""

    def accept(self, node: str, assignment: int) -> None:
        """Nothing is kept."""

    def discard(self, node: str, assignment: int) -> None:
        """Nothing is kept."""

    def aggregate(self, action: Aggregate) -> tuple[str, Blob, ParameterRange | None]:
        return f"e{action.version:063x}", Blob(f"d{action.version:063x}", self.delta_bytes), None

    def hold(self, node: str, updates: tuple[Update, ...]) -> None:
        """Nothing is kept."""

    def release(self, digests: tuple[str, ...]) -> None:
        """Nothing is kept."""

    def evaluate(self) -> float:
        return 0.0
