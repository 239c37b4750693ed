"""The nouns of the engine: small records that state machines hold and messages carry. No tensors.

Times are seconds, sizes bytes, rates tokens a second, unless a name says otherwise. Versions number the published
parameters of a run from 0; assignment ids number its assignments from 1, and since an assignment yields at most one
contribution, the assignment id names the contribution too: it is the sequence number that both sides compare after
a lost connection.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

NodeId = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z")]
Digest = Annotated[str, msgspec.Meta(min_length=64, max_length=64, pattern=r"^[0-9a-f]{64}\Z")]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]
Rate = Annotated[float, msgspec.Meta(ge=0.0, le=1e15)]
Text = Annotated[str, msgspec.Meta(max_length=2000)]
TaskKind = Literal["train", "flush"]
"""`train` on rows, or `flush`: hand in the residual that error feedback holds, as the run ends."""


SLOWEST, FASTEST, LONGEST = 1e-3, 1e12, 3600.0
"""Claimed rates are at least and at most so much, claimed delays at most so many seconds: arithmetic on them stays
finite."""


class NodeProfile(msgspec.Struct, frozen=True, gc=False):
    """What a worker measured of its own machine. A claim: it seeds estimates, and never outweighs observation."""

    tokens_per_second: Rate = 0.0
    memory_bytes: Count = 0
    cores: Count = 1
    device: Annotated[str, msgspec.Meta(max_length=120)] = "cpu"
    up_bytes_per_second: Rate = 0.0
    down_bytes_per_second: Rate = 0.0
    latency_seconds: Seconds = 0.0

    def __post_init__(self) -> None:
        _bound(self, ("tokens_per_second", "up_bytes_per_second", "down_bytes_per_second"), ("latency_seconds",))


class LinkReport(msgspec.Struct, frozen=True, gc=False):
    """What a worker measured of its link: a claim that bears on its own tasks alone. 0: not measured yet."""

    round_trip: Seconds = 0.0
    up: Rate = 0.0  # bytes a second
    down: Rate = 0.0

    def __post_init__(self) -> None:
        _bound(self, ("up", "down"), ("round_trip",))


def _bound(claim: msgspec.Struct, rates: tuple[str, ...], delays: tuple[str, ...]) -> None:
    """Hold a claim's numbers within their limits; a rate below the least counts as not known (0)."""
    for name in rates:
        rate = getattr(claim, name)
        if rate and not SLOWEST <= rate <= FASTEST:
            msgspec.structs.force_setattr(claim, name, FASTEST if rate > FASTEST else 0.0)
    for name in delays:
        if getattr(claim, name) > LONGEST:
            msgspec.structs.force_setattr(claim, name, LONGEST)


class Blob(msgspec.Struct, frozen=True, gc=False):
    """A run of bytes that a worker may fetch, named by its SHA-256."""

    digest: Digest
    num_bytes: Count


MOST_ROW_RANGES = 256
"""In one task: with few rows of data a task goes around them so often at most."""


class RowRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Rows [start, stop) of one token shard."""

    shard: Count
    start: Count
    stop: Count


class ParameterRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Elements [start, stop) of the flat parameter vector: what a contribution is an update of."""

    start: Count
    stop: Count


class Update(msgspec.Struct, frozen=True, gc=False):
    """How a replica gets to `version`: one delta on top of the version before, or a snapshot of all of it."""

    kind: Literal["delta", "snapshot"]
    version: Count
    blob: Blob
    parameters_digest: Digest  # of the parameters after it was applied: every replica checks it
    parameters: ParameterRange | None = None  # what a delta changes; None: all


class Task(msgspec.Struct, frozen=True, gc=False):
    """A piece of work as it is assigned: everything a worker needs to know, decided by the controller."""

    id: Count  # the assignment's id
    kind: TaskKind
    rows: Annotated[tuple[RowRange, ...], msgspec.Meta(max_length=MOST_ROW_RANGES)]
    tokens: Count  # token positions in the task's batches: what is credited at most, whatever the worker claims
    local_steps: Count
    batch_size: Count
    rung: Count  # which of `WorkerSettings.ratios` its contribution is compressed at
    learning_rate: float
    seed: Count
    parameters: ParameterRange
    base: Count  # newest version at the time of assignment
    updates: Annotated[tuple[Update, ...], msgspec.Meta(max_length=4096)]  # from what the worker has to `base`
    max_staleness: Count
    merged: Count  # `base` includes this worker's own contributions up to this one
    share: float  # of its own later ones, how much to start with: what they will weigh once they are merged
    skip: Count = 0  # batches of `rows` before the task's `local_steps`: they, and those behind, are somebody else's


class Contribution(msgspec.Struct, frozen=True, gc=False):
    """What a worker made of a task: an update from base version, the work behind it, and its provenance."""

    assignment: Count
    base: Count
    parameters: ParameterRange
    payload: Blob
    steps: Count
    loss: float  # mean training loss over the task, nats a token
    seconds: Seconds
    codec: Count  # that of the payload: the task's rung, or as many as there are rungs for that of residuals
