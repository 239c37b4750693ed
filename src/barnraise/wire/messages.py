"""Every message between worker and controller; a worker dials out over one connection, each message is one header.

A header is MessagePack of one of the structs below (a tagged union); `PayloadChunk` and `Chunk` are followed by one
frame of raw bytes, and `Offer`, `Assign` and `Newer` may be. The protocol version is exchanged in `Enrol` and `Hello`,
before any other field is used.

    worker -> controller                            controller -> worker
    Enrol         asks for membership, with proof   Enrolled     confirms it as node N
    Hello         begins a session, with its state  Welcome      admits it, with the run and its settings
    Heartbeat     the worker is alive               Pulse        the controller is alive
    RequestTask   asks for a task soon              Assign       assigns one
    Subscribe     asks for the next version         Newer        the updates up to the newest version
    Decline       refuses a task
    Offer         header of a task's result         SendPayload  asks for its payload, from a byte on
    PayloadChunk  bytes of a payload                Ack          the result is durable: accepted or refused
                                                    Identify     the session is unknown: say Hello
    Fetch         asks for bytes of a blob          Chunk        bytes of a blob
                                                    Gone         the blob is no longer kept
    Leave         the worker has submitted all      Stop         the run is over, or the node is excluded
                                                    Elsewhere    addresses to try when the controller is lost
                                                    Included     proves that a version has a masked update, or not

The messages of a standby are in `wire.following`, those of an observer in `wire.observing`.
"""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar

import msgspec

from barnraise.core.sites import OwnRows, SiteTerms
from barnraise.core.types import (
    MOST_SEATS,
    AnyResult,
    AnyTask,
    Blob,
    Count,
    Digest,
    Finite,
    LinkReport,
    ListBytes,
    News,
    NodeId,
    NodeProfile,
    Seconds,
    Signature,
    Telemetry,
    Text,
)
from barnraise.wire.private import Encrypted, Private

PROTOCOL_VERSION = 18

HEADER_LIMIT = 1 << 20
"""Largest header in bytes (an Assign with a long chain of deltas is the largest)."""

WORKER_HEADER_LIMIT = 1 << 14
"""Largest header in bytes that a worker may send (a Leave with a long reason is the largest)."""

CHUNK_BYTES = 1 << 18
"""Raw bytes in a frame, normally: few enough that a heartbeat never waits long behind one."""

INLINE_BYTES = CHUNK_BYTES
"""Bytes of updates, in all, that travel with the `Assign` or `Newer` that names them; of a payload with its `Offer`."""

FRAME_LIMIT = 1 << 20
"""Largest raw frame in bytes that is accepted."""

ENROL_LIMIT = 4096
"""Largest message in bytes from a key that is not enrolled."""

LATER, TAKEN, FOR_GOOD = "later", "taken", "for good"
"""Meaning of a refusal: temporary, ask again later; name or keys are taken, use others; permanent."""

Hex32 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$", min_length=64, max_length=64)]
AssignmentIds = Annotated[tuple[Count, ...], msgspec.Meta(max_length=64)]
HeldVersion = Annotated[int, msgspec.Meta(ge=-1, le=2**53)]  # -1: none
Name = Annotated[str, msgspec.Meta(max_length=64)]
Option = bool | Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] | Finite | Text | None
Options = Annotated[dict[Name, Option], msgspec.Meta(max_length=64)]


class Raw(enum.Enum):
    """Whether a frame of raw bytes follows the header of a message."""

    NEVER, OPTIONAL, ALWAYS = range(3)


class Message(msgspec.Struct, frozen=True, tag_field="t", gc=False):
    """Base class of all messages; a subclass declares its `raw` frame.

    The tag on the wire is the class name, or the name that the class had in earlier releases.
    """

    raw: ClassVar[Raw] = Raw.NEVER


class Greeting(Message, frozen=True):
    """Base class of the messages by which a machine with an invite asks to come in.

    The proof is an HMAC by the secret of the invite `token` over server key, own keys, name and nonce.
    """

    protocol: Count
    token: Name
    name: NodeId
    nonce: Hex32
    proof: Hex32


class Term(msgspec.Struct, frozen=True):
    """The term of one of a run's controllers: each has a higher epoch than the one before, and the highest is obeyed.

    `seal` proves that a controller of this run sent it (`transport.seals`); "": unproven. `by` is the key of the
    standby that the controller was: two that took over from the same controller have the same epoch.
    """

    epoch: Count = 0
    seal: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z", max_length=64)] = ""
    by: Name = ""

    @property
    def rank(self) -> tuple[int, str]:
        """Return the order of terms: the higher one is obeyed."""
        return self.epoch, self.by


class Enrol(Greeting, frozen=True, tag=True):
    """Asks for membership, with a proof of an invite.

    `signer` is the public key of later contributions' signatures. A node that takes new keys needs no invite, but an
    `endorsement` of them by its old key.
    """

    signer: Hex32
    endorsement: Signature = ""


class Enrolled(Message, frozen=True, tag=True):
    """Confirms membership as node `node`; its key is on the ledger."""

    node: NodeId


class Hello(Message, frozen=True, tag=True):
    """Gives a worker's state at each (re)connection: the version it holds and its unanswered contributions."""

    protocol: Count
    session: Count  # drawn at process start: tells a restart from a reconnection
    greeting: Count  # number of this session's greeting: only the answer to the last one counts
    profile: NodeProfile
    have: HeldVersion  # version of the replica
    pending: AssignmentIds = ()
    working: AssignmentIds = ()
    kinds: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = ()  # tasks that it can do
    term: Term = Term()  # the highest that welcomed it
    lent: Seconds = 0.0  # seconds for which its owner still lends it; 0: for the whole run
    own: OwnRows | None = None  # its rows, once they are made, where rows stay with their nodes


class Masks(msgspec.Struct, frozen=True):
    """Settings of masked updates of `size` values: the ring, how many trustees may collude, and the sizes of groups.

    A `group` is the fewest members of one; 0: all of a list are one. Trustees release the sums of `least` members or
    more. `freshness` are the factors of a weight by staleness in versions, the last one for all above. Each member adds
    noise of standard deviation `deviation` to each element; 0: none here.
    """

    value_bits: Count
    most_members: Count
    limit: Finite  # magnitude at which an element saturates
    size: Count
    group: Count
    least: Count
    colluding: Count
    freshness: Annotated[tuple[Finite, ...], msgspec.Meta(min_length=1, max_length=256)] = (1.0,)
    deviation: Finite = 0.0


class Uplink(msgspec.Struct, frozen=True):
    """Settings of how a worker makes a contribution of its changed parameters."""

    codec: Name
    options: Options
    ratios: Annotated[tuple[Finite, ...], msgspec.Meta(max_length=16)]  # choices of a task's rung; (): no choice
    last: Name  # codec of a leaving worker's last contribution, with its residual; "": none
    error_feedback: bool
    decay: Finite  # share of the residual that survives a round
    keep: Finite  # share of the residual that the worker trains on with
    clip: Finite | None
    normalize_steps: Count  # scale an update to this number of local steps (FedNova); 0: unscaled
    masks: Masks | None = None  # None: updates are not masked
    encryption: Encrypted | None = None  # None: they are not encrypted


class Downlink(msgspec.Struct, frozen=True):
    """Settings of how versions arrive and how a worker takes one in."""

    codec: Name
    options: Options
    merge_lerp: Finite  # share of its own parameters that a worker keeps
    version_momentum: Finite  # share of a worker's momentum that follows the versions


class Inner(msgspec.Struct, frozen=True):
    """Settings of how a worker takes its local steps."""

    batch_size: Count
    optimizer: Name
    options: Annotated[dict[Name, Finite], msgspec.Meta(max_length=64)]
    gradient_clip: Finite | None
    proximal: Finite  # weight of the pull towards a task's start (FedProx)
    precision: Name
    decays: Name = "all"  # parameters that weight decay applies to
    checkpoint_activations: bool = False
    compile: Name = "never"  # whether workers compile the model
    offload_optimizer: bool = False  # to main memory, from that of an accelerator


class WorkerSettings(msgspec.Struct, frozen=True):
    """Settings that the controller decides for all workers, so that both sides agree."""

    uplink: Uplink
    downlink: Downlink
    inner: Inner
    fragments: Count  # ranges of the parameters that are exchanged alternately
    overlap: bool  # whether training and exchanges overlap
    stateless: bool = False  # tasks begin at published parameters, without any state of the worker
    shares: bool = False  # the inner optimizer's second moments are published too
    private: Private | None = None  # updates, or gradients of rows, are clipped and noised
    site: SiteTerms | None = None  # for rows that stay with their nodes


class Welcome(Message, frozen=True, tag=True):
    """Admits a worker's session: the run, its settings and files, and which pending contributions are answered."""

    run: Annotated[str, msgspec.Meta(max_length=200)]
    node: NodeId
    greeting: Count
    settings: WorkerSettings
    manifest: Blob  # JSON: `wire.manifest.Manifest`
    heartbeat: Seconds
    lease: Seconds
    forget: AssignmentIds = ()  # assignments that other nodes have now: drop them
    term: Term = Term()
    version: HeldVersion = -1  # the newest, with the digest of its parameters
    digest: Digest | None = None
    assigned: Count = 0  # the newest assignment's number


class Heartbeat(Message, frozen=True, tag=True, omit_defaults=True):
    """Says that the worker lives; `sent` is its clock, which the answer returns.

    About once a minute it has the worker's load.
    """

    sent: Seconds
    telemetry: Telemetry | None = None


class Pulse(Message, frozen=True, tag=True):
    """Answers a heartbeat with its time, from which the worker measures the round trip."""

    sent: Seconds
    heartbeat: Seconds
    lease: Seconds


class RequestTask(Message, frozen=True, tag="Next"):
    """Asks for a task soon; the worker holds version `have`."""

    have: HeldVersion
    link: LinkReport = LinkReport()


class Assign(Message, frozen=True, tag=True):
    """Assigns a task, whose updates and rows the worker fetches before it starts.

    Updates of INLINE_BYTES at most in all are attached as its raw frame, one after the other: on a slow link that saves
    a round trip.
    """

    raw: ClassVar[Raw] = Raw.OPTIONAL
    task: AnyTask

    @property
    def news(self) -> News:
        """Return the updates that may be attached."""
        return self.task.news

    @property
    def digests(self) -> list[str]:
        """Return the digests of the updates that it names."""
        return [update.blob.digest for update in self.task.updates]


class Decline(Message, frozen=True, tag=True):
    """Refuses an assignment with a reason; the controller gives it to another node."""

    assignment: Count
    reason: Text


class Subscribe(Message, frozen=True, tag="Watch"):
    """Asks for the next version, once, while the worker trains on version `have`.

    An update in an `Assign` counts as held.
    """

    have: HeldVersion


class Newer(Message, frozen=True, tag=True):
    """Updates from the held version to the newest, for the running task; attached like those of `Assign`."""

    raw: ClassVar[Raw] = Raw.OPTIONAL
    news: News

    @property
    def digests(self) -> list[str]:
        """Return the digests of the updates that it names."""
        return [update.blob.digest for update in self.news.updates]


class Offer(Message, frozen=True, tag=True):
    """The header of a task's result, which is judged before its payload travels.

    A payload of INLINE_BYTES at most may be attached.
    """

    raw: ClassVar[Raw] = Raw.OPTIONAL
    result: AnyResult


EVERYTHING = 2**53
"""Offset of a `SendPayload` beyond all bytes."""


class SendPayload(Message, frozen=True, tag="Go"):
    """Asks for the payload of the contribution to `assignment` from `offset` on: the bytes before have arrived.

    EVERYTHING: no bytes are missing, and the answer follows later.
    """

    assignment: Count
    offset: Count


class PayloadChunk(Message, frozen=True, tag=True):
    """Bytes from `offset` of the payload of the contribution to `assignment`; one raw frame follows."""

    raw: ClassVar[Raw] = Raw.ALWAYS
    assignment: Count
    offset: Count


class Ack(Message, frozen=True, tag=True):
    """Tells that the contribution is durable and may be dropped: accepted, or refused for `reason`."""

    assignment: Count
    accepted: bool
    reason: Text = ""


class Fetch(Message, frozen=True, tag=True):
    """Asks for `num_bytes` of the blob from `offset` on, in chunks.

    Behind a snapshot's bytes are the concatenated digests of its leaves (`core.digests`).
    """

    digest: Digest
    offset: Count
    num_bytes: Annotated[int, msgspec.Meta(ge=1, le=FRAME_LIMIT)]


class Chunk(Message, frozen=True, tag=True):
    """Bytes from `offset` of the blob; one raw frame follows."""

    raw: ClassVar[Raw] = Raw.ALWAYS
    digest: Digest
    offset: Count


class Gone(Message, frozen=True, tag=True):
    """Tells that the blob is no longer kept: ask for a newer task."""

    digest: Digest


class Identify(Message, frozen=True, tag="Who"):
    """Tells that the session is unknown: the worker must say Hello."""


class Leave(Message, frozen=True, tag=True):
    """Tells that the worker has submitted its work and leaves."""

    reason: Text = ""


class Included(Message, frozen=True, tag=True):
    """Tells the outcome of an accepted masked update: the list that has it and is in `version`, or a `reason` why none.

    `members` are the bytes of the list and `digest` is their SHA-256 on the ledger; `endorsements` are the trustees'
    signatures of it by seat, "" where there is none.
    """

    assignment: Count
    version: Count
    members: ListBytes = b""
    digest: Annotated[str, msgspec.Meta(max_length=64)] = ""
    endorsements: Annotated[tuple[Signature, ...], msgspec.Meta(max_length=MOST_SEATS)] = ()
    reason: Text = ""


class Elsewhere(Message, frozen=True, tag=True):
    """Addresses at which the run continues if this controller is lost: each one, or two separated by a space."""

    uris: Annotated[tuple[Text, ...], msgspec.Meta(max_length=8)]


class Stop(Message, frozen=True, tag=True):
    """Ends a session: the run is over (`final`), or the node may not take part, with the reason.

    `refusal` says how the machine proceeds: LATER, TAKEN, FOR_GOOD; "": no instruction.
    """

    reason: Text
    final: bool = True
    refusal: Name = ""


FromWorker = Enrol | Hello | Heartbeat | RequestTask | Decline | Subscribe | Offer | PayloadChunk | Fetch | Leave
FromController = (
    Enrolled
    | Welcome
    | Pulse
    | Assign
    | Newer
    | SendPayload
    | Ack
    | Chunk
    | Gone
    | Identify
    | Stop
    | Elsewhere
    | Included
)
