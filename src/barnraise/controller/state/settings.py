"""What the controller's state machine is told before it starts: plain values and pure policies, grouped by the part
that they are for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from barnraise.core.types import Blob, ParameterRange, RowRange
from barnraise.data.ranges import RowIndex
from barnraise.matching.base import Scheduler
from barnraise.staleness.base import StalenessPolicy
from barnraise.training.reach import Reach
from barnraise.trust.signatures import RunId
from barnraise.wire.messages import WorkerSettings

FLUSH_SECONDS = 30.0
SLOWEST_LINK = 50_000.0  # bytes a second

FLEET_HEARTBEATS = 800.0
"""Heartbeats a second that a controller is willing to hear: a fifth of a core, where they come over HTTP
(docs/research/benchmarks.md)."""

SIMULATED_HEARTBEATS = 100.0
"""The same in virtual time, where each is an event of the simulator."""

DISK_PATIENCE, DISK_PAUSE = 60.0, 2.0
"""Seconds for which a commit or a last checkpoint that fails (disk full) is tried again before the run is given up, and
between two tries."""


@dataclass(frozen=True)
class LeaseSettings:
    """Seconds between a node's frames, and of silence after which it counts as gone."""

    heartbeat: float
    lease: float
    longest: float  # lease of a node whose link is slow
    fleet: float = FLEET_HEARTBEATS  # heartbeats a second, of all nodes together

    def intervals(self, live: int) -> tuple[float, float]:
        """Heartbeat and lease in seconds for a fleet of `live` nodes: both grow where these are too many."""
        stretch = max(1.0, live / (self.fleet * self.heartbeat))
        return self.heartbeat * stretch, self.lease * stretch


@dataclass(frozen=True)
class PayloadSettings:
    """What is published, and the bytes of what travels of it."""

    num_parameters: int  # with what is published behind those of the model
    partitions: tuple[tuple[ParameterRange, ...], ...]  # what takes turns to be exchanged; the coarsest first
    rungs: tuple[int, ...]  # bytes of a payload of one of the first partition's ranges at each, ascending
    last: int  # of a residual's payload; 0 without residuals
    delta: int  # of one version's
    most: int  # of any payload
    memory: int  # for payloads that are on their way or inspected at a time
    max_norm: float | None  # of an update (L2); None: longer ones are shortened to what a task can make
    checkpoint_bytes: float = math.inf  # of payloads, after which a checkpoint is taken however little time went by
    reach: Reach = field(default_factory=Reach)  # how long that is

    @property
    def last_codec(self) -> int:
        """The number of the codec of residuals: it comes behind those of the rungs."""
        return len(self.rungs)

    @property
    def snapshot(self) -> int:
        return 4 * self.num_parameters

    @property
    def divisors(self) -> tuple[int, ...]:
        """By how much each of the partitions divides what the first one leaves whole."""
        return tuple(len(ranges) // len(self.partitions[0]) for ranges in self.partitions)


@dataclass(frozen=True)
class RowNeeds:
    """What a node needs for rows: `token_bytes` of disk for a token in a shard, and by their length `memory` (bytes)
    for training with one row at a time."""

    token_bytes: int
    memory: Mapping[int, int]


@dataclass(frozen=True)
class TaskSettings:
    """What there is to do, in how large tasks, and at which rates."""

    rows: RowIndex
    context: int  # tokens of a row: the mean, where rows have several lengths
    needs: RowNeeds
    batch_size: int
    local_steps: int
    max_local_steps: int
    pace: str  # "fixed", "matched" or "literal": see training.pace
    tune: bool  # each node's rung, least local steps and partition follow its link: see training.tuning
    learning_rate: float
    rate_multiplier: Callable[[int, int], float]  # (tokens done, tokens in all) -> share of learning_rate
    seed: int
    scheduler: Callable[[], Scheduler]  # makes one: some remember what they gave to whom

    def shard_bytes(self, shard: int) -> int:
        """Of the file that holds its rows."""
        return self.rows.sizes[shard] * self.rows.lengths[shard] * self.needs.token_bytes

    def memory_for(self, rows: Iterable[RowRange]) -> int:
        """Bytes that a worker needs for training on these, one at a time; none for rows of no shard."""
        shards = (some.shard for some in rows if some.shard < self.rows.num_shards)
        return max((self.needs.memory.get(self.rows.lengths[shard], 0) for shard in shards), default=0)

    @property
    def tokens(self) -> int:
        """Of a usual task."""
        return self.local_steps * self.batch_size * self.context


def _no_more(living: int) -> int:
    return 0


@dataclass(frozen=True)
class GateSettings:
    """On how many training rows the loss of a version is compared before it is made (0: it is not), drawn by a `key`
    that no worker knows."""

    rows: int = 0
    key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class VersionSettings:
    """What makes a version, and what is done with it."""

    staleness: StalenessPolicy
    participation: bool  # a version moves by its nodes' share of all work, not by their whole mean
    outer_rate: float  # of the outer optimizer
    buffer_size: int | None  # None: automatic
    minimum_nodes: int  # below which no version is made
    flush: bool  # workers hand in their residuals when the token budget is met
    sync_window: float
    sync_longest_wait: float
    checkpoint_seconds: float
    wanted_nodes: Callable[[int], int] = _no_more  # while so many live, no version is made of fewer
    yields: bool = False  # only those that keep pace count as living there
    gate: GateSettings = GateSettings()

    def least(self, living: int) -> int:
        """Of how many distinct nodes a version is made at least, while so many live."""
        return max(1, self.minimum_nodes, self.wanted_nodes(living))


@dataclass(frozen=True)
class EvaluationSettings:
    """When and on what the held-out loss is measured, and whether workers do it."""

    times: int  # over the run
    rows: int  # held-out rows, from the first
    row_tokens: int  # in each of them
    file: int  # number of the file that holds them, which follows the token shards
    by_workers: bool
    most_loss: float = math.inf  # nats a token, that is believed of a worker


@dataclass(frozen=True)
class AuditSettings:
    """Which share of contributions is done anew, chosen by a `key` that nobody knows beforehand."""

    share: float = 0.0
    key: bytes = field(default=b"", repr=False)
    tolerance: float = 0.0  # of a stateless task's update, as a share of its length
    perturbation: float = 0.0  # of a stateless task's start, once its result was contradicted


@dataclass(frozen=True)
class ScoreSettings:
    """Which share of contributions is scored, chosen by a `key` that nobody knows beforehand."""

    share: float = 0.0
    key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class EngineSettings:
    """Everything the machine needs to know of the run file, the dataset and the model."""

    run: RunId
    tokens: int  # the budget
    asynchronous: bool
    worker: WorkerSettings
    manifest: Blob
    leases: LeaseSettings
    payloads: PayloadSettings
    tasks: TaskSettings
    versions: VersionSettings
    evaluations: EvaluationSettings
    audits: AuditSettings = AuditSettings()
    scores: ScoreSettings = ScoreSettings()

    @property
    def flush_patience(self) -> float:
        """Seconds that the run's end waits for residuals: enough for a payload at 0.4 Mbit/s."""
        return FLUSH_SECONDS + self.payloads.most / SLOWEST_LINK
