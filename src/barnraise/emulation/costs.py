"""Costs of vector operations besides training: seconds that the simulator adds to virtual time.

Each is a pass over elements at its nanoseconds an element, on one core of a recent server; another machine may be half
as fast. The costs of codecs are in their catalog (`python benchmarks/codecs.py` prints them for this machine).
"""

from __future__ import annotations

from collections.abc import Mapping

from barnraise.compression.catalog import CATALOG, Traits
from barnraise.controller.state.effects import SCORED_ROWS, Aggregate, Gate
from barnraise.core import ranges
from barnraise.core.types import (
    AnyResult,
    AnyTask,
    Blob,
    Contribution,
    Inspection,
    News,
    PayloadResult,
    Sketched,
    Update,
)

NANO = 1e-9
HASH = 0.63 * NANO  # SHA-256, a byte
PASS = 0.6 * NANO  # reading and writing a float32: copies, sums
NORM = 1.9 * NANO
SKETCH = 9 * NANO
MEAN, ROBUST = 0.9 * NANO, 2.5 * NANO  # an aggregation rule's, for an element of each row
OUTER = 2.0 * NANO  # an outer optimizer's, between SGD's 0.5 and Adam's 7
FLOPS = 2e10  # floating-point operations a second of one core that evaluates


class NodeCosts:
    """Seconds of a node that trains `trained` parameters, with the codecs of contributions and of versions."""

    def __init__(self, trained: int, codec: str, downlink: str) -> None:
        self.trained = trained
        self.codec: Traits = CATALOG.entry(codec).declares
        self.downlink: Traits = CATALOG.entry(downlink).declares

    def hand_in(self, result: AnyResult) -> float:
        """Return the cost from parameters to a payload: delta, residual, encoding, new residual, digest."""
        if not isinstance(result, Contribution):
            return SKETCH * self.trained if isinstance(result, Sketched) else 0.0
        payload, size = result.payload, ranges.size(result.parameters)
        coded = self.codec.encode.seconds(size, payload.num_bytes) + self.codec.decode.seconds(size, payload.num_bytes)
        return 4 * PASS * self.trained + coded + HASH * payload.num_bytes

    def begin(self, task: AnyTask) -> float:
        """Return the cost of the deltas that a task undoes: a copy of the replica, and each delta subtracted."""
        undoes = task.undoes
        if not undoes:
            return 0.0
        taken = (PASS * self.trained + self._decode(update) for update in undoes)
        return sum(taken, PASS * self.trained)

    def apply(self, news: News) -> float:
        """Return the cost of another version: each update decoded and added, and the replica hashed after it."""
        total = 0.0
        for update in news.updates:
            total += (PASS + 4 * HASH) * self.trained + HASH * update.blob.num_bytes
            if update.kind == "delta":
                total += self._decode(update)
        return total

    def _decode(self, update: Update) -> float:
        changed = update.parameters
        size = ranges.size(changed) if changed else self.trained
        return self.downlink.decode.seconds(size, update.blob.num_bytes)


class ControllerCosts:
    """Seconds of the controller, for the same and a model of `model_size` parameters.

    `robust` aggregation reads the updates more often than a mean. An evaluation has the given tokens, at `flops`
    operations a second; rows have `row_tokens` at most.
    """

    def __init__(
        self,
        trained: int,
        codec: str,
        downlink: str,
        *,
        model_size: int,
        robust: bool,
        evaluation_tokens: int,
        row_tokens: int,
        flops: float,
    ) -> None:
        self.trained = trained
        self.codec: Traits = CATALOG.entry(codec).declares
        self.downlink: Traits = CATALOG.entry(downlink).declares
        self.row = ROBUST if robust else MEAN
        token = 2.0 * model_size / flops
        self.evaluate = evaluation_tokens * token
        self._row = row_tokens * token  # forward
        self.score = 6 * SCORED_ROWS * row_tokens * token  # two kinds of rows, three times each

    def gate(self, action: Gate) -> float:
        """Return the cost of losses and gradients, with all nodes and without one, as in a run without liars."""
        return 2 * 3 * action.rows * self._row

    def inspect(self, result: PayloadResult, depth: Inspection = "full", *, sketched: bool = False) -> float:
        """Return the cost of inspecting a payload: its digest, its elements, their norm, and a sketch of them.

        At another depth than "full", that of its digest alone.
        """
        if depth != "full" or not isinstance(result, Contribution):
            return HASH * result.payload.num_bytes
        size, num_bytes = ranges.size(result.parameters), result.payload.num_bytes
        look = HASH * num_bytes + self.codec.decode.seconds(size, num_bytes) + NORM * size
        return look + (self.codec.decode.seconds(size, num_bytes) + SKETCH * size) * sketched

    def aggregate(self, action: Aggregate, delta: Blob, payload_bytes: Mapping[int, int]) -> float:
        """Return the cost of a version: payloads decoded again, rule, outer optimizer, delta, two digests.

        `payload_bytes` of contributions, by assignment.
        """
        total = 0.0
        for slot in action.slots:
            size = ranges.size(slot.parameters)
            total += self.row * size
            for held in slot.contributions:
                total += self.codec.decode.seconds(size, payload_bytes[held.assignment])
        moved = ranges.size(ranges.moved([slot.parameters for slot in action.slots]))
        there, back = self.downlink.encode, self.downlink.decode
        total += there.seconds(moved, delta.num_bytes) + back.seconds(moved, delta.num_bytes)
        return total + (OUTER + 2 * PASS) * moved + HASH * (4 * self.trained + delta.num_bytes)
