"""The engine's basic records, held by state machines and carried by messages, without tensors.

Times are seconds, sizes bytes, rates tokens a second, unless a name says otherwise. Versions number the published
parameters of a run from 0; assignment ids number its assignments from 1. An assignment yields at most one contribution,
so its id names the contribution too: both sides compare it after a lost connection.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

NodeId = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z")]
Digest = Annotated[str, msgspec.Meta(min_length=64, max_length=64, pattern=r"^[0-9a-f]{64}\Z")]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]
Rate = Annotated[float, msgspec.Meta(ge=0.0, le=1e15)]
Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]  # refuses NaN too
Text = Annotated[str, msgspec.Meta(max_length=2000)]
Signature = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^([0-9a-f]{128})?\Z")]  # "": unsigned

SLOWEST, FASTEST, LONGEST, SLOWEST_LINE = 1e-3, 1e12, 3600.0, 100.0
"""Bounds of claimed rates, claimed delays in seconds, and a line's bytes a second: arithmetic on them stays finite."""

WARNED_OVERHEAD, LARGEST_OVERHEAD = 1.2, 1e3
"""Alpha from which on it is told, and its bound: a worker's time with protections over that without."""


class NodeProfile(msgspec.Struct, frozen=True, gc=False):
    """A worker's measurements of its own machine: a claim, which seeds estimates and yields to observation."""

    tokens_per_second: Rate = 0.0
    memory_bytes: Count = 0
    cores: Count = 1
    device: Annotated[str, msgspec.Meta(max_length=120)] = "cpu"
    up_bytes_per_second: Rate = 0.0
    down_bytes_per_second: Rate = 0.0
    latency_seconds: Seconds = 0.0
    accelerator_bytes: Count = 0  # memory of an accelerator; 0: none, or not known

    @property
    def room(self) -> int:
        """Return the bytes that parameters, moments and a batch have to fit into; 0 if that is not known."""
        return self.memory_bytes if self.device.startswith("cpu") else self.accelerator_bytes

    def __post_init__(self) -> None:
        _bound(self, ("tokens_per_second",), ("latency_seconds",), ("up_bytes_per_second", "down_bytes_per_second"))


class LinkReport(msgspec.Struct, frozen=True, gc=False):
    """A worker's measurements of its link: a claim; common settings follow only if many nodes claim alike.

    0: not measured.
    """

    round_trip: Seconds = 0.0
    up: Rate = 0.0  # bytes a second
    down: Rate = 0.0

    def __post_init__(self) -> None:
        up, down = self.up, self.down
        if (
            self.round_trip > LONGEST
            or (up and not SLOWEST_LINE <= up <= FASTEST)
            or (down and not SLOWEST_LINE <= down <= FASTEST)
        ):
            _bound(self, (), ("round_trip",), ("up", "down"))


def _bound(claim: msgspec.Struct, rates: tuple[str, ...], delays: tuple[str, ...], lines: tuple[str, ...] = ()) -> None:
    """Clamp a claim's numbers to their limits; a rate below the least counts as not known (0)."""
    for name in (*rates, *lines):
        rate, least = getattr(claim, name), SLOWEST_LINE if name in lines else SLOWEST
        if rate and not least <= rate <= FASTEST:
            msgspec.structs.force_setattr(claim, name, FASTEST if rate > FASTEST else 0.0)
    for name in delays:
        if getattr(claim, name) > LONGEST:
            msgspec.structs.force_setattr(claim, name, LONGEST)


Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class Load(msgspec.Struct, frozen=True, gc=False):
    """A worker machine's load: cores, accelerator (shares; None: not known), bytes of memory, load average a core."""

    cpu: Share = 0.0
    gpu: Share | None = None
    memory_bytes: Count = 0
    gpu_bytes: Count = 0
    average: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 0.0


class Telemetry(msgspec.Struct, frozen=True, gc=False):
    """Recent state of a worker and its machine: a claim that decides nothing."""

    load: Load = Load()
    link: LinkReport = LinkReport()
    tokens_per_second: Rate = 0.0
    step_seconds: Seconds = 0.0
    overhead: Annotated[float, msgspec.Meta(ge=0.0, le=LARGEST_OVERHEAD)] = 0.0  # alpha of its protections; 0: unknown

    def __post_init__(self) -> None:
        _bound(self, ("tokens_per_second",), ("step_seconds",))


class Blob(msgspec.Struct, frozen=True, gc=False):
    """A byte string that a worker may fetch, named by its SHA-256."""

    digest: Digest
    num_bytes: Count


MOST_ROW_RANGES = 256
"""In one task. With few rows of data, a task passes over them at most this many times."""


class RowRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Rows [start, stop) of one token shard."""

    shard: Count
    start: Count
    stop: Count


class ParameterRange(typing.NamedTuple):
    """Elements [start, stop) of the flat parameter vector: the `Ranges` of a single range, too."""

    start: int
    stop: int

    def __repr__(self) -> str:
        """Return the range as any other `Ranges` are shown."""
        return f"({self.start}, {self.stop})"


MOST_RANGES = 4096
"""In one update: more than any model has tensors in a row that another stage holds."""

Ranges = Annotated[tuple[Count, ...], msgspec.Meta(min_length=2, max_length=2 * MOST_RANGES)]
"""The parameters that an update covers: (start, stop, start, stop, ...), disjoint, ascending and not touching.

One range is written as ever, [start, stop]; a payload is written over the concatenation of its ranges. `core.ranges`
has the operations.
"""


class Update(msgspec.Struct, frozen=True, gc=False):
    """A step of a replica to `version`: a delta on the version before, or a snapshot of all parameters."""

    kind: Literal["delta", "snapshot"]
    version: Count
    blob: Blob
    parameters_digest: Digest  # after the update; every replica checks it
    parameters: Ranges | None = None  # the ranges that a delta changes; None: all


class News(msgspec.Struct, frozen=True, gc=False):
    """Updates from a worker's version to the newest, and the newest of its own contributions in that version."""

    updates: Annotated[tuple[Update, ...], msgspec.Meta(max_length=4096)] = ()  # empty: it has it
    merged: Count = 0  # the newest of its own contributions that is included
    share: Finite = 1.0  # weight of its later contributions once they are merged


class Batches(msgspec.Struct, frozen=True, gc=False):
    """Rows in random batches, in an order that follows from `seed`."""

    rows: Annotated[tuple[RowRange, ...], msgspec.Meta(max_length=MOST_ROW_RANGES)]
    size: Count  # rows in a batch
    seed: Count
    skip: Count = 0  # batches before the task's own, which belong to other tasks, as do later ones


class Result(msgspec.Struct, frozen=True, gc=False, tag_field="kind", kw_only=True):
    """A worker's report on a task: a claim until it is judged."""

    assignment: Count
    base: Count
    steps: Count
    loss: float  # mean over the task, nats a token
    seconds: Seconds


MOST_TAKEN = 64  # versions that a stateless task takes in between its steps


class Taken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A version that a task took in after `step` batches."""

    step: Count
    version: Count


class Transcript(msgspec.Struct, frozen=True, gc=False):
    """The inputs besides the task that determine a stateless task's update: its first version, batches and more."""

    start: Count
    batches: Count
    moved: bool = False
    taken: Annotated[tuple[Taken, ...], msgspec.Meta(max_length=MOST_TAKEN)] = ()

    @property
    def newest(self) -> int:
        """Return the newest version that it knew."""
        return self.taken[-1].version if self.taken else self.start


class PayloadResult(Result, frozen=True, gc=False, kw_only=True):
    """A result with a payload, which is sent when the controller asks for it; a small one is attached.

    A subclass has these fields, in the order in which they are sent.
    """

    if TYPE_CHECKING:
        payload: Blob
        signature: Signature  # its node's: see `trust.signatures`


class Contribution(PayloadResult, frozen=True, gc=False, tag="update", kw_only=True):
    """An update from base version, the work behind it, and its provenance."""

    parameters: Ranges
    payload: Blob
    codec: Count  # the task's rung; residuals have the number of rungs
    transcript: Transcript | None = None  # for stateless tasks
    signature: Signature = ""
    cohort: Count | msgspec.UnsetType = msgspec.UNSET

    @property
    def support(self) -> int:
        """Return the number that chooses the elements of the update, as its task says."""
        return self.base if self.cohort is msgspec.UNSET else self.cohort

    @classmethod
    def of(
        cls, task: Train | Flush, payload: Blob, *, codec: int, steps: int, loss: float = 0.0, seconds: float = 0.0
    ) -> Contribution:
        """Return the contribution of `steps` steps of `task`."""
        return cls(
            assignment=task.id,
            base=task.base,
            steps=steps,
            loss=loss,
            seconds=seconds,
            parameters=task.parameters,
            payload=payload,
            codec=codec,
            cohort=task.cohort if isinstance(task, Train) else msgspec.UNSET,
        )


class Unmasked(PayloadResult, frozen=True, gc=False, tag="unmasked", kw_only=True):
    """Sums of the masks of a list's groups, as its payload, over the seeds that the task names."""

    payload: Blob
    signature: Signature = ""


class Endorsed(Result, frozen=True, gc=False, tag="endorsed", kw_only=True):
    """A trustee's answer to a list: its signature of the list's digest, or the reason why it signs none.

    `faulty` are members of the list whose sealed seeds it cannot open, or whose signatures are wrong.
    """

    endorsement: Signature = ""
    reason: Text = ""
    faulty: Annotated[tuple[Count, ...], msgspec.Meta(max_length=4096)] = ()


class Vetted(Result, frozen=True, gc=False, tag="vetted", kw_only=True):
    """A trustee's judgement of the entries of a list: those that it refuses, and the first of its reasons.

    `unlisted` are entries of nodes that are not on its roster of members with their key, `faulty` other ones that it
    refuses. With a reason and neither of them it refuses the list as a whole.
    """

    reason: Text = ""
    faulty: Annotated[tuple[Count, ...], msgspec.Meta(max_length=4096)] = ()
    unlisted: Annotated[tuple[Count, ...], msgspec.Meta(max_length=4096)] = ()


class Confirmed(Result, frozen=True, gc=False, tag="confirmed", kw_only=True):
    """The SHA-256 of sums of masks that a trustee computed, or the reason why it computed none."""

    digest: Annotated[str, msgspec.Meta(max_length=64)] = ""
    reason: Text = ""


class Finding(Result, frozen=True, gc=False, tag="finding", kw_only=True):
    """A measurement, without a payload. `weight` is that of its mean among others of its kind."""

    weight: Count


SKETCH_SIZE, SKETCH_BYTES = 1024, 4096
"""Numbers in a sketch, and its bytes: little-endian float32."""


class Sketched(Result, frozen=True, gc=False, tag="sketch", kw_only=True):
    """A sketch of an update that was computed a second time (`core.sketches`)."""

    sketch: Annotated[bytes, msgspec.Meta(min_length=SKETCH_BYTES, max_length=SKETCH_BYTES)]


Inspection: TypeAlias = Literal["none", "header", "full"]
"""How far the controller looks into a payload before a verdict.

At its digest alone; at the header that its codec wrote, too; or at each of its numbers.
"""


class Completion(NamedTuple):
    """The rule by which assignments that belong together are complete (`controller.state.cohorts`).

    With the `first` result; with `least` results of different nodes that agree; with the `sum`, or `all`, of the
    results of all places; or with results of a `share` of the places.
    """

    rule: Literal["first", "agree", "sum", "all", "share"]
    least: int = 1
    share: float = 1.0


class Task(msgspec.Struct, frozen=True, gc=False, tag_field="kind", kw_only=True):
    """An assignment's work: everything a worker needs to know, decided by the controller.

    A kind of task declares its traits: it `trains` (its tokens count, its time measures a node's speed), `contributes`
    (results in an update that enters a version, else in a finding), can be `redone` by another node, `preempts` (a
    worker ends its running task and drops the waiting ones), `measures` (its findings are combined), is `exact` (the
    worker takes in no later version before it is done). It declares what it results in (`result`), how far the
    controller looks into a payload (`inspects`), and whether the controller has its rows (`shows_rows`): a task on rows
    that stay with their node can be neither audited nor scored. `gathers` is the rule by which results of tasks that
    belong together are complete. Where results are `summed_only`, the controller reads their sum and none of them. A
    task without a `replica` reads no version of the model.
    """

    result: ClassVar[type[Result]] = Result
    inspects: ClassVar[Inspection] = "none"
    shows_rows: ClassVar[bool] = True
    gathers: ClassVar[Completion] = Completion("first")
    summed_only: ClassVar[bool] = False
    replica: ClassVar[bool] = True

    trains: ClassVar[bool] = False
    contributes: ClassVar[bool] = False
    redone: ClassVar[bool] = False
    preempts: ClassVar[bool] = False
    measures: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    toll: ClassVar[float] = 0.0  # a token's cost for a machine, in tokens of training
    id: Count  # the assignment's id
    base: Count  # the version that it starts from, the newest at assignment
    news: News = News()

    @property
    def steps(self) -> int:
        """Return the number of steps, after each of which the task can be cut short."""
        return 0

    @property
    def effort(self) -> float:
        """Return the cost for a machine, in tokens of training."""
        return 0.0

    @property
    def rows(self) -> tuple[RowRange, ...]:
        """Return the rows that it reads, of token shards or, after the last of them, of the held-out rows."""
        return ()

    @property
    def undoes(self) -> tuple[Update, ...]:
        """Return the deltas up to its base, oldest first, that it undoes to get an earlier version."""
        return ()

    @property
    def updates(self) -> tuple[Update, ...]:
        """Return all updates that a worker fetches for it."""
        undoes = self.undoes
        return (*self.news.updates, *undoes) if undoes else self.news.updates


MOST_UNDONE = 64  # versions that a task undoes, at most


class Train(Task, frozen=True, gc=False, tag="train", kw_only=True):
    """Take `local_steps` steps of the inner optimizer on batches of rows, and submit the change of the parameters."""

    result: ClassVar[type[Result]] = Contribution
    inspects: ClassVar[Inspection] = "full"
    trains: ClassVar[bool] = True
    contributes: ClassVar[bool] = True
    redone: ClassVar[bool] = True
    gathers: ClassVar[Completion] = Completion("share", share=0.5)
    toll: ClassVar[float] = 1.0
    batches: Batches
    tokens: Count  # token positions in its batches: the most that is credited, whatever the worker claims
    local_steps: Count
    learning_rate: Finite
    rung: Count  # index into `Uplink.ratios`: the compression of its contribution
    parameters: Ranges
    max_staleness: Count
    pace: Finite | None = None  # stateless tasks: a version's movement times this is one step's at a rate of 1
    cohort: Count | msgspec.UnsetType = msgspec.UNSET  # that its result is to be summed with

    @property
    def support(self) -> int:
        """Return the number that chooses the elements which all updates of a sum have in common (random blocks)."""
        return self.base if self.cohort is msgspec.UNSET else self.cohort

    @property
    def steps(self) -> int:
        return self.local_steps

    @property
    def effort(self) -> float:
        return self.tokens

    @property
    def rows(self) -> tuple[RowRange, ...]:
        return self.batches.rows


class Seat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A trustee's seat in a committee: its node, the key that seeds are sealed to, and the key of its signatures."""

    node: NodeId
    sealing: Digest
    signer: Digest


MOST_SEATS = 64

Seats = Annotated[tuple[Seat, ...], msgspec.Meta(max_length=MOST_SEATS)]
"""Trustees that hold the seeds of masks, in the order of their seats."""


class Masked(Train, frozen=True, gc=False, tag="masked", kw_only=True):
    """Train as `Train` does, and submit the change under masks whose seeds the committee holds.

    `weight` is that of the whole task in the sum, as a share of the largest weight.
    """

    inspects: ClassVar[Inspection] = "header"
    summed_only: ClassVar[bool] = True
    committee: Seats
    weight: Share


MOST_LISTED = 1024
"""Updates in a list."""

ListBytes = Annotated[bytes, msgspec.Meta(max_length=1 << 20)]
ShareBytes = Annotated[bytes, msgspec.Meta(max_length=1 << 14)]


class ForTrustees(Task, frozen=True, gc=False, kw_only=True):
    """A task of a trustee: about a list of masked updates, by its canonical bytes.

    For each entry it has the member's signing key, and the seeds that are sealed to this trustee.
    """

    replica: ClassVar[bool] = False
    members: ListBytes
    signers: Annotated[tuple[Digest, ...], msgspec.Meta(max_length=MOST_LISTED)]
    shares: Annotated[tuple[ShareBytes, ...], msgspec.Meta(max_length=MOST_LISTED)]
    committee: Seats


class Vet(ForTrustees, frozen=True, gc=False, tag="vet", kw_only=True):
    """Judge the entries of a list of masked updates before it is fixed; nothing is signed."""

    result: ClassVar[type[Result]] = Vetted


class Endorse(ForTrustees, frozen=True, gc=False, tag="endorse", kw_only=True):
    """Sign the digest of a list of masked updates, each of which a trustee signs for in one list alone."""

    result: ClassVar[type[Result]] = Endorsed


class AboutMasks(ForTrustees, frozen=True, gc=False, kw_only=True):
    """A task about the masks that follow from `seeds`, by their numbers, of a list that a quorum endorsed."""

    endorsements: Annotated[tuple[Signature, ...], msgspec.Meta(max_length=MOST_SEATS)]  # by seat; "": none
    seeds: Ranges


class Confirm(AboutMasks, frozen=True, gc=False, tag="confirm", kw_only=True):
    """Sum the masks for each group of the list, and tell the digest of the sums alone."""

    result: ClassVar[type[Result]] = Confirmed


class Unmask(AboutMasks, frozen=True, gc=False, tag="unmask", kw_only=True):
    """Sum the masks for each group of the list, and send the sums."""

    result: ClassVar[type[Result]] = Unmasked


class Flush(Task, frozen=True, gc=False, tag="flush", kw_only=True):
    """Submit the residual that error feedback holds, as the run ends."""

    result: ClassVar[type[Result]] = Contribution
    inspects: ClassVar[Inspection] = "full"
    contributes: ClassVar[bool] = True
    preempts: ClassVar[bool] = True
    parameters: Ranges


FORWARD = 3
"""Cost of training over that of the forward pass alone: the backward pass costs about twice as much as the forward."""


class Earlier(Task, frozen=True, gc=False, kw_only=True):
    """A task on the version that remains when the deltas of `back` are undone from the base."""

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

    result: ClassVar[type[Result]] = Finding
    redone: ClassVar[bool] = True
    measures: ClassVar[bool] = True
    gathers: ClassVar[Completion] = Completion("agree", least=2)
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
    """Repeat another node's training from the version it began with, and return a sketch (of `seed`) of the update."""

    result: ClassVar[type[Result]] = Sketched
    gathers: ClassVar[Completion] = Completion("agree", least=2)
    toll: ClassVar[float] = 1.0
    train: Train  # as assigned, with the steps that were submitted, without news
    transcript: Transcript | None = None  # for stateless tasks
    seed: Count
    perturbation: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0  # noise on each parameter of the start

    @property
    def steps(self) -> int:
        return self.train.local_steps

    @property
    def effort(self) -> float:
        return self.train.tokens

    @property
    def rows(self) -> tuple[RowRange, ...]:
        return self.train.rows


AnyTask = Train | Flush | Evaluate | Audit | Masked | Vet | Endorse | Confirm | Unmask


AnyResult = Contribution | Finding | Sketched | Unmasked | Vetted | Endorsed | Confirmed


def kind_of(name: str) -> type[Task]:
    """Return the kind of task called `name`; `Task` itself for a name that this version of barnraise does not know.

    >>> kind_of("train").trains, kind_of("flush").trains, kind_of("unheard-of").contributes
    (True, False, False)
    """
    return KINDS.get(name, Task)


def name_of(kind: type[Task | Result]) -> str:
    """Return the name of a kind of task, or of result, on the wire and in the ledger."""
    return str(kind.__struct_config__.tag)


KINDS: dict[str, type[Task]] = {name_of(kind): kind for kind in typing.get_args(AnyTask)}
"""All kinds of tasks by name."""

ANSWERS = frozenset(name_of(kind.result) for kind in KINDS.values() if issubclass(kind, ForTrustees))
"""The kinds of trustees' results, by name."""
