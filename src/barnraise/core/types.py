"""The nouns of the engine: small records that state machines hold and messages carry. No tensors.

Times are seconds, sizes bytes, rates tokens a second, unless a name says otherwise. Versions number the published
parameters of a run from 0; assignment ids number its assignments from 1, and since one yields at most one contribution,
it names the contribution too: it is the sequence number that both sides compare after a lost connection.
"""

from __future__ import annotations

import typing
from typing import Annotated, ClassVar, Literal

import msgspec

NodeId = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z")]
Digest = Annotated[str, msgspec.Meta(min_length=64, max_length=64, pattern=r"^[0-9a-f]{64}\Z")]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]
Rate = Annotated[float, msgspec.Meta(ge=0.0, le=1e15)]
Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]  # refuses NaN too
Text = Annotated[str, msgspec.Meta(max_length=2000)]
Signature = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^([0-9a-f]{128})?\Z")]  # "": there is none

SLOWEST, FASTEST, LONGEST, SLOWEST_LINE = 1e-3, 1e12, 3600.0, 100.0
"""Bounds of claimed rates, claimed delays in seconds, and a line's bytes a second: arithmetic on them stays finite."""


class NodeProfile(msgspec.Struct, frozen=True, gc=False):
    """What a worker measured of its own machine. A claim: it seeds estimates, and never outweighs observation."""

    tokens_per_second: Rate = 0.0
    memory_bytes: Count = 0
    cores: Count = 1
    device: Annotated[str, msgspec.Meta(max_length=120)] = "cpu"
    up_bytes_per_second: Rate = 0.0
    down_bytes_per_second: Rate = 0.0
    latency_seconds: Seconds = 0.0
    accelerator_bytes: Count = 0  # of an accelerator's own memory; 0: there is none, or it is not known

    @property
    def room(self) -> int:
        """Bytes that parameters, moments and a batch have to fit into; 0 if that is not known."""
        return self.memory_bytes if self.device.startswith("cpu") else self.accelerator_bytes

    def __post_init__(self) -> None:
        _bound(self, ("tokens_per_second",), ("latency_seconds",), ("up_bytes_per_second", "down_bytes_per_second"))


class LinkReport(msgspec.Struct, frozen=True, gc=False):
    """What a worker measured of its link: a claim that bears on its own tasks, and on what is for all as far as many
    nodes say the like. 0: not measured yet."""

    round_trip: Seconds = 0.0
    up: Rate = 0.0  # bytes a second
    down: Rate = 0.0

    def __post_init__(self) -> None:
        fits = self.round_trip <= LONGEST and 0.0 <= self.up <= FASTEST and 0.0 <= self.down <= FASTEST
        if not fits or 0.0 < self.up < SLOWEST_LINE or 0.0 < self.down < SLOWEST_LINE:
            _bound(self, (), ("round_trip",), ("up", "down"))


def _bound(claim: msgspec.Struct, rates: tuple[str, ...], delays: tuple[str, ...], lines: tuple[str, ...] = ()) -> None:
    """Hold a claim's numbers within their limits; a rate below the least counts as not known (0)."""
    for name in (*rates, *lines):
        rate, least = getattr(claim, name), SLOWEST_LINE if name in lines else SLOWEST
        if rate and not least <= rate <= FASTEST:
            msgspec.structs.force_setattr(claim, name, FASTEST if rate > FASTEST else 0.0)
    for name in delays:
        if getattr(claim, name) > LONGEST:
            msgspec.structs.force_setattr(claim, name, LONGEST)


Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class Load(msgspec.Struct, frozen=True, gc=False):
    """How busy a worker's machine is, and how much of it the worker takes: cores and accelerator as shares (None: not
    known), bytes of the worker's process and of the accelerator's memory, the minute's load average a core."""

    cpu: Share = 0.0
    gpu: Share | None = None
    memory_bytes: Count = 0
    gpu_bytes: Count = 0
    average: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 0.0


class Telemetry(msgspec.Struct, frozen=True, gc=False):
    """How a worker and its machine do, as it measured of late: a claim that decides nothing."""

    load: Load = Load()
    link: LinkReport = LinkReport()
    tokens_per_second: Rate = 0.0
    step_seconds: Seconds = 0.0

    def __post_init__(self) -> None:
        _bound(self, ("tokens_per_second",), ("step_seconds",))


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


class News(msgspec.Struct, frozen=True, gc=False):
    """The way from the version that a worker has to the newest, and what of its own work that one holds."""

    updates: Annotated[tuple[Update, ...], msgspec.Meta(max_length=4096)] = ()  # none: it has it
    merged: Count = 0  # the newest of its own contributions that is included
    share: Finite = 1.0  # of its later ones, how much to go on with: what they will weigh once they are merged


class Batches(msgspec.Struct, frozen=True, gc=False):
    """Rows in random batches: the order of all of them follows from `seed`."""

    rows: Annotated[tuple[RowRange, ...], msgspec.Meta(max_length=MOST_ROW_RANGES)]
    size: Count  # rows in a batch
    seed: Count
    skip: Count = 0  # batches before the task's own: they, and those behind, are somebody else's


class Task(msgspec.Struct, frozen=True, gc=False, tag_field="kind", kw_only=True):
    """Work as it is assigned: everything a worker needs to know, decided by the controller.

    Each kind of task is a struct of its own. What the engine does with all of them alike, it does by what the kind
    declares: whether it `trains` (its tokens count, and its time tells how fast a node is), `contributes` (it ends in
    an update that enters a version, else in a finding, without a payload), can be `redone` by somebody else when it is
    lost, `preempts` (a worker ends what runs for it, and forgets what waits), `measures` (its findings add up to what
    is known of a version), or is `exact` (for its base alone: a worker takes no later one in before it is done).
    """

    trains: ClassVar[bool] = False
    contributes: ClassVar[bool] = False
    redone: ClassVar[bool] = False
    preempts: ClassVar[bool] = False
    measures: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    toll: ClassVar[float] = 0.0  # what one of its tokens costs a machine, in tokens of training
    id: Count  # the assignment's id
    base: Count  # the version that it starts from: the newest at the time of assignment
    news: News = News()

    @property
    def steps(self) -> int:
        """Steps in which it is done, after each of which it can be cut short."""
        return 0

    @property
    def effort(self) -> float:
        """What it costs a machine, in tokens of training."""
        return 0.0

    @property
    def rows(self) -> tuple[RowRange, ...]:
        """Rows that it reads, of token shards or, after the last of them, of the held-out rows."""
        return ()

    @property
    def undoes(self) -> tuple[Update, ...]:
        """Deltas up to its base, the oldest first, that it takes back: it is about the version before them."""
        return ()

    @property
    def updates(self) -> tuple[Update, ...]:
        """All that are fetched for it."""
        return (*self.news.updates, *self.undoes)


MOST_UNDONE = 64  # versions that a task takes back, at most


class Train(Task, frozen=True, gc=False, tag="train", kw_only=True):
    """Take `local_steps` steps of the inner optimizer on batches of rows, and hand in what they changed."""

    trains: ClassVar[bool] = True
    contributes: ClassVar[bool] = True
    redone: ClassVar[bool] = True
    toll: ClassVar[float] = 1.0
    batches: Batches
    tokens: Count  # token positions in its batches: what is credited at most, whatever the worker claims
    local_steps: Count
    learning_rate: Finite
    rung: Count  # which of `Uplink.ratios` its contribution is compressed at
    parameters: ParameterRange
    max_staleness: Count
    pace: Finite | None = None  # of a stateless task: a version's movement times this is one step's, at a rate of 1

    @property
    def steps(self) -> int:
        return self.local_steps

    @property
    def effort(self) -> float:
        return self.tokens

    @property
    def rows(self) -> tuple[RowRange, ...]:
        return self.batches.rows


class Flush(Task, frozen=True, gc=False, tag="flush", kw_only=True):
    """Hand in the residual that error feedback holds, as the run ends."""

    contributes: ClassVar[bool] = True
    preempts: ClassVar[bool] = True
    parameters: ParameterRange


FORWARD = 3
"""By how much the forward pass alone is cheaper than training: the backward pass costs about twice as much again."""


class Earlier(Task, frozen=True, gc=False, kw_only=True):
    """Work on the version that is left when the deltas of `back` are taken back from the base."""

    exact: ClassVar[bool] = True
    back: Annotated[tuple[Update, ...], msgspec.Meta(max_length=MOST_UNDONE)] = ()

    @property
    def version(self) -> int:
        return self.base - len(self.back)

    @property
    def undoes(self) -> tuple[Update, ...]:
        return self.back


class Evaluate(Earlier, frozen=True, gc=False, tag="evaluate", kw_only=True):
    """Measure the loss of an earlier version, or of the base, on held-out rows."""

    redone: ClassVar[bool] = True
    measures: ClassVar[bool] = True
    toll: ClassVar[float] = 1 / FORWARD
    held_out: RowRange
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    tokens: Count  # token positions in its rows

    @property
    def steps(self) -> int:
        return -(-max(0, self.held_out.stop - self.held_out.start) // self.batch_size)

    @property
    def effort(self) -> float:
        return self.tokens / FORWARD

    @property
    def rows(self) -> tuple[RowRange, ...]:
        return (self.held_out,)


class Audit(Earlier, frozen=True, gc=False, tag="audit", kw_only=True):
    """Do somebody's training anew, from the version that it began with, and tell a sketch (of `seed`) of the update."""

    toll: ClassVar[float] = 1.0
    train: Train  # as it was given, with the steps that were handed in, and without news
    transcript: Transcript | None = None  # of a stateless task
    seed: Count
    perturbation: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0  # of each parameter of the start, at first

    @property
    def steps(self) -> int:
        return self.train.local_steps

    @property
    def effort(self) -> float:
        return self.train.tokens

    @property
    def rows(self) -> tuple[RowRange, ...]:
        return self.train.rows


AnyTask = Train | Flush | Evaluate | Audit


class Result(msgspec.Struct, frozen=True, gc=False, tag_field="kind", kw_only=True):
    """What a worker made of a task, as it tells it: a claim until it is judged."""

    assignment: Count
    base: Count
    steps: Count
    loss: float  # mean over the task, nats a token
    seconds: Seconds


MOST_TAKEN = 64  # versions, by a stateless task between its steps


class Taken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """After so many batches a task went on from this version."""

    step: Count
    version: Count


class Transcript(msgspec.Struct, frozen=True, gc=False):
    """What, besides the task itself, a stateless task's update is a function of: the version that it began with, the
    batches it went through (not finite steps too), whether that version's movement was known, and versions taken in."""

    start: Count
    batches: Count
    moved: bool = False
    taken: Annotated[tuple[Taken, ...], msgspec.Meta(max_length=MOST_TAKEN)] = ()

    @property
    def newest(self) -> int:
        """The newest version that it knew."""
        return self.taken[-1].version if self.taken else self.start


class Contribution(Result, frozen=True, gc=False, tag="update", kw_only=True):
    """An update from base version, the work behind it, and its provenance."""

    parameters: ParameterRange
    payload: Blob
    codec: Count  # that of the payload: the task's rung, or as many as there are rungs for that of residuals
    transcript: Transcript | None = None  # of a stateless task
    signature: Signature = ""  # its node's: `trust.signatures` says of what

    @classmethod
    def of(
        cls, task: Train | Flush, payload: Blob, *, codec: int, steps: int, loss: float = 0.0, seconds: float = 0.0
    ) -> Contribution:
        """What so many steps of `task` came to."""
        return cls(
            assignment=task.id,
            base=task.base,
            steps=steps,
            loss=loss,
            seconds=seconds,
            parameters=task.parameters,
            payload=payload,
            codec=codec,
        )


class Finding(Result, frozen=True, gc=False, tag="finding", kw_only=True):
    """What was measured: no payload follows. `weight` is what the mean counts for among others of its kind."""

    weight: Count


SKETCH_SIZE, SKETCH_BYTES = 1024, 4096
"""Numbers in a sketch, and its bytes: little-endian float32."""


class Sketched(Result, frozen=True, gc=False, tag="sketch", kw_only=True):
    """A sketch of the update that was made again (`core.sketches`)."""

    sketch: Annotated[bytes, msgspec.Meta(min_length=SKETCH_BYTES, max_length=SKETCH_BYTES)]


AnyResult = Contribution | Finding | Sketched


def kind_of(name: str) -> type[Task]:
    """The kind of task of that name; one that this version of barnraise does not know is none in particular.

    >>> kind_of("train").trains, kind_of("flush").trains, kind_of("unheard-of").contributes
    (True, False, False)
    """
    return KINDS.get(name, Task)


def name_of(kind: type[Task]) -> str:
    """Its name, on the wire and in the ledger."""
    return str(kind.__struct_config__.tag)


KINDS: dict[str, type[Task]] = {name_of(kind): kind for kind in typing.get_args(AnyTask)}
"""All kinds of tasks, by their names."""
