"""The work of a simulated node, and of the controller; here as sizes without content.

This is the seam between virtual time and sizes or real tensors. Work happens at once, and takes the virtual seconds of
its `costs`, which the simulator adds. A node's work is an object of its own, so that one node can differ from the rest.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from barnraise.controller.state.effects import Aggregated, ControllerEffect
from barnraise.controller.state.events import Event
from barnraise.core import ranges
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
    Inspection,
    Masked,
    News,
    PayloadResult,
    Sketched,
    Task,
    Train,
    Transcript,
)
from barnraise.emulation.conduct import HONEST, Conduct
from barnraise.emulation.costs import ControllerCosts, NodeCosts
from barnraise.emulation.effects import EFFECTS, SizedWork
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import Assign, Newer

NO_CONTENT = b""
"""The content of blobs that have a size alone."""

ALIKE = array("f", [1.0] * SKETCH_SIZE).tobytes()
"""The sketch of any update without content."""


class NodeWork(Protocol):
    """The work of one node, process after process."""

    costs: NodeCosts
    conduct: Conduct

    def start(self) -> None:
        """Start a new worker process with its model and data; an earlier one is dead."""

    def fetched(self, blob: Blob, content: Buffer) -> None:
        """Receive a blob that holds no rows."""

    def take(self, news: News) -> None:
        """Use up the blobs fetched for `news`, which would have to be fetched again for other news."""

    def update(self, news: News) -> None:
        """Bring the replica up to date with the blobs taken, the oldest first, between two tasks."""

    def begin(self, task: AnyTask) -> None:
        """Begin a task, with the fetched deltas that it undoes."""

    def run(self, task: AnyTask, steps: int, news: Sequence[tuple[int, News]]) -> AnyResult | None:
        """Run `steps` of the task's steps; each of `news` comes while a step is taken, counted from 1.

        None: it failed. The seconds of the result are those of the machine that simulates.
        """

    def payload(self, assignment: int) -> Buffer:
        """Return the payload of an assignment, until the controller has answered."""

    def settle(self, assignment: int, accepted: bool) -> None:
        """Record the controller's verdict on the node's contribution."""


MakeNodeWork = Callable[[str], NodeWork]
"""Makes the work of the node of this name."""


class ControllerWork(Protocol):
    """The work of the controller; nodes have their names."""

    costs: ControllerCosts

    def files(self) -> tuple[Blob, ...]:
        """Return the token shards, in order, and last the held-out rows."""

    def serve(self, blob: Blob) -> Buffer | None:
        """Return the content of another blob; None when it is not kept (any more)."""

    def hold(self, node: str, message: Assign | Newer) -> None:
        """Record that the message to the node names blobs."""

    def release(self, digests: tuple[str, ...]) -> None:
        """Release deltas that no task names any more."""

    def inspect(
        self, node: str, result: PayloadResult, payload: Buffer, depth: Inspection = "full"
    ) -> tuple[float, str]:
        """Return the payload's norm and its defect, at its arrival."""

    def sketch(self, contribution: Contribution, payload: Buffer, seed: int) -> bytes:
        """Return the sketch of a valid payload's update."""

    def accept(self, node: str, assignment: int) -> None:
        """Record that the inspected contribution is on the ledger."""

    def discard(self, node: str, assignment: int) -> None:
        """Discard a payload that will not be used."""

    def carry_out(self, effect: ControllerEffect) -> Event:
        """Carry out an effect that needs the tensors alone, and return its answer."""


class CostedNodeWork:
    """Yields payloads of the right size.

    Losses are not modelled (0). It has no state, so one is enough for all honest nodes. `payload_bytes` at each rung
    are for an update of `num_values` values.
    """

    def __init__(
        self, payload_bytes: Sequence[int], num_values: int, costs: NodeCosts, conduct: Conduct = HONEST
    ) -> None:
        self.payload_bytes, self.num_values, self.costs = payload_bytes, num_values, costs
        self.conduct = conduct

    def start(self) -> None:
        """Do nothing: there is no state."""

    def fetched(self, blob: Blob, content: Buffer) -> None:
        """Do nothing: there is no state."""

    def take(self, news: News) -> None:
        """Do nothing: there is no state."""

    def update(self, news: News) -> None:
        """Do nothing: there is no state."""

    def begin(self, task: AnyTask) -> None:
        """Do nothing: there is no state."""

    def run(self, task: AnyTask, steps: int, news: Sequence[tuple[int, News]]) -> AnyResult | None:
        return _COSTED[type(task)](self, task, steps)

    def _contribution(self, task: Train | Flush, steps: int) -> Contribution:
        share = ranges.size(task.parameters) / self.num_values
        size = self.payload_bytes[task.rung if isinstance(task, Train) else 0] * min(1.0, share)
        codec = task.rung if isinstance(task, Train) else len(self.payload_bytes)
        found = Contribution.of(task, Blob(f"b{task.id:063x}", math.ceil(size)), codec=codec, steps=steps)
        stateless = isinstance(task, Train) and task.pace is not None
        return msgspec.structs.replace(found, transcript=Transcript(task.base, steps)) if stateless else found

    def payload(self, assignment: int) -> Buffer:
        return NO_CONTENT

    def settle(self, assignment: int, accepted: bool) -> None:
        """Do nothing: there is no state."""


def _finding(work: CostedNodeWork, task: Evaluate, steps: int) -> Finding:
    return Finding(assignment=task.id, base=task.version, steps=steps, loss=0.0, seconds=0.0, weight=task.tokens)


def _sketched(work: CostedNodeWork, task: Audit, steps: int) -> Sketched:
    done = steps if steps == task.steps else 0
    return Sketched(assignment=task.id, base=task.base, steps=done, loss=0.0, seconds=0.0, sketch=ALIKE)


_COSTED: dict[type[Task], Callable[[CostedNodeWork, Any, int], AnyResult]] = {
    Train: CostedNodeWork._contribution,
    Masked: CostedNodeWork._contribution,
    Flush: CostedNodeWork._contribution,
    Evaluate: _finding,
    Audit: _sketched,
}
"""The result of each kind of task that a simulated node does: there are no trustees in a simulation."""


class CostedControllerWork:
    """Deltas and files of the right size; every contribution is valid."""

    def __init__(self, delta_bytes: int, file_bytes: Sequence[int], costs: ControllerCosts) -> None:
        self.delta_bytes, self.costs, self._newest = delta_bytes, costs, 0
        self._files = tuple(Blob(f"a{index:063x}", size) for index, size in enumerate(file_bytes))

    def files(self) -> tuple[Blob, ...]:
        return self._files

    def serve(self, blob: Blob) -> Buffer | None:
        return NO_CONTENT

    def hold(self, node: str, message: Assign | Newer) -> None:
        """Do nothing: there is no state."""

    def release(self, digests: tuple[str, ...]) -> None:
        """Do nothing: there is no state."""

    def inspect(
        self, node: str, result: PayloadResult, payload: Buffer, depth: Inspection = "full"
    ) -> tuple[float, str]:
        return 1.0, ""

    def sketch(self, contribution: Contribution, payload: Buffer, seed: int) -> bytes:
        return ALIKE

    def accept(self, node: str, assignment: int) -> None:
        """Do nothing: there is no state."""

    def discard(self, node: str, assignment: int) -> None:
        """Do nothing: there is no state."""

    def carry_out(self, effect: ControllerEffect) -> Event:
        answer = EFFECTS[type(effect)].sized(SizedWork(self._newest, self.delta_bytes), effect)
        if type(answer) is Aggregated:
            self._newest = answer.version
        return answer
