"""What the controller's state machine is told before it starts: plain values and pure policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnraise.core.types import Blob, ParameterRange
from barnraise.data.ranges import RowIndex
from barnraise.matching.base import Scheduler
from barnraise.staleness.base import StalenessPolicy
from barnraise.wire.messages import WorkerSettings


@dataclass(frozen=True)
class EngineSettings:
    """Everything the machine needs to know of the run file, the dataset and the model."""

    run: str
    worker: WorkerSettings
    manifest: Blob
    num_parameters: int
    rows: RowIndex
    context: int
    tokens: int
    batch_size: int
    local_steps: int
    pace: str  # "fixed", "matched" or "literal": see training.pace
    max_local_steps: int
    learning_rate: float
    rate_multiplier: Callable[[int, int], float]  # (tokens done, tokens in all) -> share of learning_rate
    seed: int
    asynchronous: bool
    participation: bool  # a version moves by its nodes' share of all work, not by their whole mean
    staleness: StalenessPolicy
    scheduler: Scheduler
    buffer_size: int | None  # None: automatic
    minimum_nodes: int
    max_update_norm: float | None
    partitions: tuple[tuple[ParameterRange, ...], ...]  # what takes turns to be exchanged; the coarsest first
    tune: bool  # each node's rung, least local steps and partition follow its link: see training.tuning
    rungs: tuple[int, ...]  # bytes of a payload of one of the first partition's ranges at each, ascending
    last_bytes: int  # of a residual's payload; 0 without residuals
    update_bytes: int  # of one version's delta
    max_payload_bytes: int  # of any payload
    upload_memory: int  # bytes of payloads that are on their way or inspected at a time
    flush: bool  # workers hand in their residuals when the token budget is met
    sync_window: float
    sync_longest_wait: float
    heartbeat: float
    lease: float
    longest_lease: float  # of a node whose link is slow
    checkpoint_seconds: float
    evaluations: int

    @property
    def snapshot_bytes(self) -> int:
        return 4 * self.num_parameters

    @property
    def parts(self) -> tuple[int, ...]:
        """How many times finer than the first each of the partitions is."""
        return tuple(len(ranges) // len(self.partitions[0]) for ranges in self.partitions)

    @property
    def flush_patience(self) -> float:
        """Seconds that the run's end waits for residuals: enough for a payload at 0.4 Mbit/s."""
        return FLUSH_SECONDS + self.max_payload_bytes / SLOWEST_LINK

    def intervals(self, live: int) -> tuple[float, float]:
        """Heartbeat and lease in seconds for a fleet of `live` nodes: at most FLEET_HEARTBEATS a second in all."""
        stretch = max(1.0, live / (FLEET_HEARTBEATS * self.heartbeat))
        return self.heartbeat * stretch, self.lease * stretch


FLUSH_SECONDS = 30.0
SLOWEST_LINK = 50_000.0  # bytes a second

FLEET_HEARTBEATS = 100.0
"""Heartbeats a second that a controller is willing to hear."""
