"""What simulated work yields: sizes alone, for thousands of nodes."""

from __future__ import annotations

import hashlib

from barnraise.controller.actions import SlotShare
from barnraise.core.types import Blob, Contribution, Task, Update

AGGREGATE_BYTES_PER_SECOND = 2e9
"""What a controller reads, adds and hashes per second (one core, measured with the parameter server)."""


class CostModel:
    """Payloads, deltas and shards of the right size and no content. Losses are not modelled (0)."""

    def __init__(self, payload_bytes: int, delta_bytes: int, num_parameters: int, shards: tuple[Blob, ...]) -> None:
        self.payload_bytes, self.delta_bytes = payload_bytes, delta_bytes
        self.num_parameters, self._shards = num_parameters, shards

    def shards(self) -> tuple[Blob, ...]:
        return self._shards

    def train(self, node: str, task: Task) -> tuple[Blob, float]:
        return Blob(f"{task.id:064x}", self.payload_bytes), 0.0

    def update(self, node: str, updates: tuple[Update, ...]) -> int:
        return updates[-1].version

    def settle(self, node: str, assignment: int, accepted: bool) -> None:
        """Nothing is kept."""

    def inspect(self, node: str, contribution: Contribution) -> tuple[float, str]:
        return 1.0, ""

    def accept(self, node: str, assignment: int) -> None:
        """Nothing is kept."""

    def aggregate(self, version: int, slots: tuple[SlotShare, ...]) -> tuple[str, Blob]:
        digest = hashlib.sha256(repr((version, slots)).encode()).hexdigest()
        return digest, Blob(f"{version:064x}", self.delta_bytes)

    def evaluate(self, version: int) -> float:
        return 0.0

    def aggregate_seconds(self, slots: int) -> float:
        return 4.0 * self.num_parameters * (slots + 2) / AGGREGATE_BYTES_PER_SECOND


