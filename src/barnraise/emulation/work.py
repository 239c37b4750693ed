"""What the work of a simulated run yields: a node's, and the controller's; here as sizes without content.

This is the seam between virtual time and sizes or real tensors. Work happens at once, and takes the virtual seconds
that its `costs` say, which the simulator adds. What a node does is an object of its own, so that one node can be
another than the rest.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from barnraise.controller.state.actions import Aggregate, Gate, Score
from barnraise.controller.state.events import Gains
from barnraise.core.types import (
    SKETCH_SIZE,
    AnyResult,
    AnyTask,
    Audit,
    Blob,
    Contribution,
    Evaluate,
    Finding,
    Flush,
    News,
    ParameterRange,
    Sketched,
    Task,
    Train,
    Transcript,
)
from barnraise.emulation.conduct import HONEST, Conduct
from barnraise.emulation.costs import ControllerCosts, NodeCosts
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import Assign, Newer

NO_CONTENT = b""
"""The content of whatever has a size alone."""

ALIKE = array("f", [1.0] * SKETCH_SIZE).tobytes()
"""The sketch of any update without content."""


class NodeWork(Protocol):
    """What one node does, process after process."""

    costs: NodeCosts
    conduct: Conduct

    def start(self) -> None:
        """A new worker process has its model and data; an earlier one is dead."""

    def fetched(self, blob: Blob, content: Buffer) -> None:
        """A blob has come that holds no rows."""

    def take(self, news: News) -> None:
        """What was fetched for `news` is used up, and would have to be fetched again for other news."""

    def update(self, news: News) -> None:
        """Bring the replica up to date with what was taken, the oldest first, between two tasks."""

    def begin(self, task: AnyTask) -> None:
        """The task begins: what it undoes was fetched, and is used up."""

    def run(self, task: AnyTask, steps: int, news: Sequence[tuple[int, News]]) -> AnyResult | None:
        """So many of the task's steps; each of `news` comes while a step is taken, counted from 1. None: it failed.

        The seconds of the result are those of the machine that simulates.
        """

    def payload(self, assignment: int) -> Buffer:
        """What is sent for an assignment, while the controller has not answered."""

    def settle(self, assignment: int, accepted: bool) -> None:
        """The node learns what became of its contribution."""


MakeNodeWork = Callable[[str], NodeWork]
"""The work of the node of this name."""


class ControllerWork(Protocol):
    """What the controller does. Nodes go by their names."""

    costs: ControllerCosts

    def files(self) -> tuple[Blob, ...]:
        """The token shards, in order, and last the held-out rows."""

    def serve(self, blob: Blob) -> Buffer | None:
        """The content of a blob that is none of them; None when it is not kept (any more)."""

    def hold(self, node: str, message: Assign | Newer) -> None:
        """The node is told of what the message names."""

    def release(self, digests: tuple[str, ...]) -> None:
        """No task names these deltas any more."""

    def inspect(self, node: str, contribution: Contribution, payload: Buffer) -> tuple[float, str]:
        """The payload's norm and what is wrong with it, as it arrives."""

    def sketch(self, contribution: Contribution, payload: Buffer, seed: int) -> bytes:
        """Of the update that the payload, which is sound, holds."""

    def score(self, action: Score) -> Gains | None:
        """What a contribution that is on the ledger does for the loss on its own rows, and on others."""

    def accept(self, node: str, assignment: int) -> None:
        """The contribution that was inspected is on the ledger."""

    def discard(self, node: str, assignment: int) -> None:
        """What the node sent will not be used."""

    def gate(self, action: Gate) -> tuple[tuple[str, ...], float]:
        """Which nodes the version is better without, and by how much lower its loss is."""

    def aggregate(self, action: Aggregate) -> tuple[str, Blob, ParameterRange | None]:
        """Make a version: its digest, its delta, and which parameters that changes (None: all)."""

    def evaluate(self) -> float:
        """Held-out loss of the newest version."""


class CostedNodeWork:
    """Payloads of the right size. Losses are not modelled (0). Nothing is kept, so one is enough for all honest nodes.

    `payload_bytes` at each rung are for an update of `num_parameters` parameters.
    """

    def __init__(
        self, payload_bytes: Sequence[int], num_parameters: int, costs: NodeCosts, conduct: Conduct = HONEST
    ) -> None:
        self.payload_bytes, self.num_parameters, self.costs = payload_bytes, num_parameters, costs
        self.conduct = conduct

    def start(self) -> None:
        """Nothing is kept."""

    def fetched(self, blob: Blob, content: Buffer) -> None:
        """Nothing is kept."""

    def take(self, news: News) -> None:
        """Nothing is kept."""

    def update(self, news: News) -> None:
        """Nothing is kept."""

    def begin(self, task: AnyTask) -> None:
        """Nothing is kept."""

    def run(self, task: AnyTask, steps: int, news: Sequence[tuple[int, News]]) -> AnyResult | None:
        return _COSTED[type(task)](self, task, steps)

    def _contribution(self, task: Train | Flush, steps: int) -> Contribution:
        share = (task.parameters.stop - task.parameters.start) / self.num_parameters
        size = self.payload_bytes[task.rung if isinstance(task, Train) else 0] * min(1.0, share)
        codec = task.rung if isinstance(task, Train) else len(self.payload_bytes)
        found = Contribution.of(task, Blob(f"b{task.id:063x}", math.ceil(size)), codec=codec, steps=steps)
        stateless = isinstance(task, Train) and task.pace is not None
        return msgspec.structs.replace(found, transcript=Transcript(task.base, steps)) if stateless else found

    def payload(self, assignment: int) -> Buffer:
        return NO_CONTENT

    def settle(self, assignment: int, accepted: bool) -> None:
        """Nothing is kept."""


def _finding(work: CostedNodeWork, task: Evaluate, steps: int) -> Finding:
    return Finding(assignment=task.id, base=task.version, steps=steps, loss=0.0, seconds=0.0, weight=task.tokens)


def _sketched(work: CostedNodeWork, task: Audit, steps: int) -> Sketched:
    done = steps if steps == task.steps else 0
    return Sketched(assignment=task.id, base=task.base, steps=done, loss=0.0, seconds=0.0, sketch=ALIKE)


_COSTED: dict[type[Task], Callable[[CostedNodeWork, Any, int], AnyResult]] = {
    Train: CostedNodeWork._contribution,
    Flush: CostedNodeWork._contribution,
    Evaluate: _finding,
    Audit: _sketched,
}
"""What comes of each kind of task."""


class CostedControllerWork:
    """Deltas and files of the right size; whatever comes is sound."""

    def __init__(self, delta_bytes: int, file_bytes: Sequence[int], costs: ControllerCosts) -> None:
        self.delta_bytes, self.costs = delta_bytes, costs
        self._files = tuple(Blob(f"a{index:063x}", size) for index, size in enumerate(file_bytes))

    def files(self) -> tuple[Blob, ...]:
        return self._files

    def serve(self, blob: Blob) -> Buffer | None:
        return NO_CONTENT

    def hold(self, node: str, message: Assign | Newer) -> None:
        """Nothing is kept."""

    def release(self, digests: tuple[str, ...]) -> None:
        """Nothing is kept."""

    def inspect(self, node: str, contribution: Contribution, payload: Buffer) -> tuple[float, str]:
        return 1.0, ""

    def sketch(self, contribution: Contribution, payload: Buffer, seed: int) -> bytes:
        return ALIKE

    def score(self, action: Score) -> Gains | None:
        return Gains(1.0, 0.0, 1.0)

    def accept(self, node: str, assignment: int) -> None:
        """Nothing is kept."""

    def discard(self, node: str, assignment: int) -> None:
        """Nothing is kept."""

    def gate(self, action: Gate) -> tuple[tuple[str, ...], float]:
        return (), 0.0

    def aggregate(self, action: Aggregate) -> tuple[str, Blob, ParameterRange | None]:
        return f"e{action.version:063x}", Blob(f"d{action.version:063x}", self.delta_bytes), None

    def evaluate(self) -> float:
        return 0.0
