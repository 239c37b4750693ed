"""The settings of the controller's state machine: plain values and pure policies, grouped by part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from barnraise.core.types import Blob, ParameterRange, RowRange
from barnraise.data.ranges import RowIndex
from barnraise.ledger.privacy_notes import PrivacyBudget
from barnraise.matching.base import Scheduler
from barnraise.staleness.base import StalenessPolicy
from barnraise.training.reach import Reach
from barnraise.trust.signatures import RunId
from barnraise.wire.messages import WorkerSettings

FLUSH_SECONDS = 30.0
SLOWEST_LINK = 50_000.0  # bytes a second

FLEET_HEARTBEATS = 800.0
"""Heartbeats a second that a controller accepts: a fifth of a core, where they come over HTTP
(docs/research/benchmarks.md)."""

SIMULATED_HEARTBEATS = 100.0
"""The same in virtual time, where each is an event of the simulator."""

DISK_PATIENCE, DISK_PAUSE = 60.0, 2.0
"""Seconds for which a failed commit or last checkpoint (disk full) is retried, and between two retries."""


@dataclass(frozen=True)
class LeaseSettings:
    """Seconds between a node's frames, and of silence after which it counts as lost."""

    heartbeat: float
    lease: float
    longest: float  # lease of a node whose link is slow
    fleet: float = FLEET_HEARTBEATS  # heartbeats a second, of all nodes together

    def intervals(self, live: int) -> tuple[float, float]:
        """Return heartbeat and lease in seconds for `live` nodes: both grow where these are too many."""
        stretch = live / (self.fleet * self.heartbeat)
        if stretch <= 1.0:
            return self.heartbeat, self.lease
        return self.heartbeat * stretch, self.lease * stretch


@dataclass(frozen=True)
class PrivacySettings:
    """The budget of differential privacy, as the ledger notes it, and what a number of steps of one unit spends."""

    budget: PrivacyBudget
    epsilon: Callable[[int], float]


@dataclass(frozen=True)
class MaskSettings:
    """Settings of masked sums: how many trustees there are, and how many may collude.

    A version has updates of `least` nodes or more, and of `most`. The controller waits for trustees for `patience`
    seconds, then gives the list up. `most_tokens` are those of the heaviest task, `sum_bytes` those of a group's sum.
    """

    trustees: int
    colluding: int
    least: int
    most: int
    patience: float
    most_tokens: int
    sum_bytes: int


@dataclass(frozen=True)
class ProtectionSettings:
    """Protections of updates: the budget of what they tell of a row or a site, and masks; None where there are none.

    `overhead_limit` is the alpha above which the host is told that protections cost too much; 0 without any.
    """

    privacy: PrivacySettings | None = None
    masks: MaskSettings | None = None
    overhead_limit: float = 0.0


@dataclass(frozen=True)
class PayloadSettings:
    """The published vector, and the sizes of payloads."""

    exchanged: int  # values that travel, published moments included
    partitions: tuple[tuple[ParameterRange, ...], ...]  # ranges that are exchanged alternately; the coarsest first
    rungs: tuple[int, ...]  # bytes of a payload of one of the first partition's ranges at each, ascending
    last: int  # a residual's payload; 0 without residuals
    delta: int  # one version's delta
    most: int  # the largest payload
    memory: int  # for payloads that are on their way or inspected at a time
    max_norm: float | None  # largest norm of an update (L2); None: longer ones are shortened to the limit of their task
    checkpoint_bytes: float = math.inf  # bytes of payloads after which a checkpoint is taken early
    reach: Reach = field(default_factory=Reach)  # the longest update
    by_range: bool = False  # nodes have ranges of their own: K and the least number of nodes are those of each range
    protection: ProtectionSettings = ProtectionSettings()

    @property
    def last_codec(self) -> int:
        """Return the number of the codec of residuals, which follows the rungs."""
        return len(self.rungs)

    @property
    def snapshot(self) -> int:
        return 4 * self.exchanged

    @property
    def divisors(self) -> tuple[int, ...]:
        """Return the factor by which each partition divides a whole payload."""
        return tuple(len(ranges) // len(self.partitions[0]) for ranges in self.partitions)


@dataclass(frozen=True)
class SiteSettings:
    """Settings of rows that stay with their nodes: the digest of their form, and the share of sites for a version."""

    form: str
    share: float = 1.0


@dataclass(frozen=True)
class RowNeeds:
    """A node's needs for rows.

    `token_bytes` of disk for a token in a shard, and by their length `memory` (bytes) for training with one row at a
    time. `accelerator`: bytes of an accelerator by length, where tasks must run on one. `sites`: the rows stay with
    their nodes, and only these can do tasks on them.
    """

    token_bytes: int
    memory: Mapping[int, int]
    accelerator: Mapping[int, int] = field(default_factory=dict)
    sites: SiteSettings | None = None


@dataclass(frozen=True)
class TaskSettings:
    """Settings of tasks: their number, size and learning rates."""

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
    scheduler: Callable[[], Scheduler]  # makes one: some remember earlier assignments

    def shard_bytes(self, shard: int) -> int:
        """Return the bytes of the file of a shard's rows."""
        return self.rows.sizes[shard] * self.rows.lengths[shard] * self.needs.token_bytes

    def memory_for(self, rows: Iterable[RowRange]) -> int:
        """Return the bytes that a worker needs to train on these rows, one at a time; 0 for rows of no shard."""
        return self._most(self.needs.memory, rows)

    def accelerator_for(self, rows: Iterable[RowRange]) -> int:
        """Return the bytes that these rows need on an accelerator; 0 where tasks may run without one."""
        return self._most(self.needs.accelerator, rows) if self.needs.accelerator else 0

    def _most(self, needs: Mapping[int, int], rows: Iterable[RowRange]) -> int:
        lengths = self.rows.lengths
        if self.needs.sites is not None:  # all rows have the same length
            return needs.get(self.context, 0)
        return max([needs.get(lengths[some.shard], 0) for some in rows if some.shard < len(lengths)], default=0)

    @property
    def tokens(self) -> int:
        """Return the tokens of a usual task."""
        return self.local_steps * self.batch_size * self.context


def _no_more(living: int) -> int:
    return 0


@dataclass(frozen=True)
class GateSettings:
    """Settings of the loss gate: the training rows that compare a version's loss (0: off), drawn by a secret `key`."""

    rows: int = 0
    key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class VersionSettings:
    """Settings of versions: when they are made, and how."""

    staleness: StalenessPolicy
    participation: bool  # a version moves by its nodes' share of all work, not by their whole mean
    outer_rate: float  # the outer optimizer's rate
    buffer_size: int | None  # None: automatic
    minimum_nodes: int  # fewer nodes make no version
    flush: bool  # workers submit their residuals when the token budget is met
    sync_window: float
    sync_longest_wait: float
    checkpoint_seconds: float
    wanted_nodes: Callable[[int], int] = _no_more  # least number of nodes for a version, by the live ones
    yields: bool = False  # only those that keep pace count as living there
    gate: GateSettings = GateSettings()

    def least(self, living: int) -> int:
        """Return the least number of distinct nodes for a version, while `living` nodes live."""
        least, wanted = self.minimum_nodes, self.wanted_nodes(living)
        if wanted > least:
            least = wanted
        return least if least > 1 else 1


@dataclass(frozen=True)
class PatienceSettings:
    """When a run ends early: after `patience` evaluations whose loss is not `least_gain` below the lowest; 0: never."""

    patience: int = 0
    least_gain: float = 0.0


@dataclass(frozen=True)
class EvaluationSettings:
    """Settings of evaluation: when and on which rows the held-out loss is measured, and whether workers do it."""

    times: int  # over the run
    rows: int  # held-out rows, from the first
    row_tokens: int  # in each of them
    file: int  # number of the file that holds them, which follows the token shards
    by_workers: bool  # or sites
    most_loss: float = math.inf  # nats a token; higher claims of a worker are refused
    stop_early: PatienceSettings = PatienceSettings()
    by_sites: bool = False  # on their own held-out rows
    measures: bool = False  # whether the controller measures metrics or samples besides


@dataclass(frozen=True)
class AuditSettings:
    """The share of contributions that are repeated, chosen by a secret `key`."""

    share: float = 0.0
    key: bytes = field(default=b"", repr=False)
    tolerance: float = 0.0  # distance of honest stateless updates, as a share of their length
    perturbation: float = 0.0  # perturbation of a stateless task's start, once its result was contradicted


@dataclass(frozen=True)
class ScoreSettings:
    """The share of contributions that are scored, chosen by a secret `key`."""

    share: float = 0.0
    key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class EngineSettings:
    """All settings of the machine from the run file, the dataset and the model."""

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
        """Return the seconds that the run's end waits for residuals: enough for a payload at 0.4 Mbit/s."""
        return FLUSH_SECONDS + self.payloads.most / SLOWEST_LINK
