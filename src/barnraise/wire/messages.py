"""Every message between worker and controller. A worker dials out over one connection; each message is one header.

A header is MessagePack of one of the structs below (a tagged union); `PayloadChunk` and `Chunk` are followed by
one frame of raw bytes, and `Offer`, `Assign` and `Newer` may be. The protocol version is exchanged in `Enrol` and
`Hello`, before anything else is believed.

    worker -> controller                     controller -> worker
    Enrol     let me in, here is my proof    Enrolled   you are node N
    Hello     I am here, this is my state    Welcome    this is the run, and what you must do alike
    Heartbeat I am alive                     Pulse      so am I
    Next      I will soon need a task        Assign     here is one
    Watch     I train, what is new?          Newer      a version
    Decline   I cannot do that task
    Offer     this came of my task           Go         send its payload, from this byte on
    PayloadChunk  some of its payload        Ack        it is durable: accepted, or refused because ...
                                             Who        I do not know you (any more): say Hello
    Fetch     send me bytes of a blob        Chunk      here they are
                                             Gone       that blob is no longer kept
    Leave     I hand in my work and go       Stop       the run is over, or you may not take part
                                             Elsewhere  should I be gone, look for me there

What a standby and its controller say to each other is in `wire.following`, what an observer asks in `wire.observing`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from barnraise.core.types import (
    AnyResult,
    AnyTask,
    Blob,
    Count,
    Digest,
    Finite,
    LinkReport,
    News,
    NodeId,
    NodeProfile,
    Seconds,
    Signature,
    Telemetry,
    Text,
)

PROTOCOL_VERSION = 9

HEADER_LIMIT = 1 << 20
"""Largest header in bytes (an Assign with a long chain of deltas is the largest there is)."""

WORKER_HEADER_LIMIT = 1 << 14
"""Largest header in bytes that a worker may send (a Leave with a long reason is the largest there is)."""

CHUNK_BYTES = 1 << 18
"""Raw bytes a frame normally carries: small enough that a heartbeat never waits long behind one."""

INLINE_BYTES = CHUNK_BYTES
"""Updates of so many bytes in all travel with the `Assign` or `Newer` that names them, a payload with its `Offer`."""

FRAME_LIMIT = 1 << 20
"""Largest raw frame in bytes that is ever accepted."""

ENROL_LIMIT = 4096
"""Largest message in bytes from a key that is not enrolled."""

LATER, TAKEN, FOR_GOOD = "later", "taken", "for good"
"""What a refusal means: it passes by itself, the machine asks again; the name, or the keys, are another machine's, come
with others; nothing that the machine does by itself changes it."""

Hex32 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$", min_length=64, max_length=64)]
AssignmentIds = Annotated[tuple[Count, ...], msgspec.Meta(max_length=64)]
HeldVersion = Annotated[int, msgspec.Meta(ge=-1, le=2**53)]  # -1: none
Name = Annotated[str, msgspec.Meta(max_length=64)]
Option = bool | Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] | Finite | Text | None
Options = Annotated[dict[Name, Option], msgspec.Meta(max_length=64)]


class Message(msgspec.Struct, frozen=True, tag_field="t", gc=False):
    """Base of all messages. The tag on the wire is the class name, or the name that the class had before."""


class Term(msgspec.Struct, frozen=True):
    """Which of a run's controllers: each has a higher epoch than the one before, and the highest is obeyed. `seal`
    proves that a controller of this run said so, since only they can make it (`transport.seals`); "": nobody did. `by`
    is the key of the standby that it was: two that took over from the same controller have the same epoch."""

    epoch: Count = 0
    seal: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z", max_length=64)] = ""
    by: Name = ""

    @property
    def rank(self) -> tuple[int, str]:
        """The higher one is obeyed."""
        return self.epoch, self.by


class Enrol(Message, frozen=True, tag=True):
    """Asks for membership: the token's id, and an HMAC with its secret over server key, own keys, name and nonce.
    `signer` is the key that contributions will be signed with. A node that takes new keys needs no invite but its old
    key's word for them, the `endorsement`."""

    protocol: Count
    token: Name
    name: NodeId
    nonce: Hex32
    proof: Hex32
    signer: Hex32
    endorsement: Signature = ""


class Enrolled(Message, frozen=True, tag=True):
    """You are node `node` from now on; your key is on the ledger."""

    node: NodeId


class Hello(Message, frozen=True, tag=True):
    """A worker's state at each (re)connection: the version it holds and the contributions it has no answer for."""

    protocol: Count
    session: Count  # drawn when the process starts: tells a restart from a reconnection
    greeting: Count  # counts this session's greetings: only the answer to the last one counts
    profile: NodeProfile
    have: HeldVersion  # version of the replica
    pending: AssignmentIds = ()
    working: AssignmentIds = ()
    kinds: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = ()  # of task, that it can do
    term: Term = Term()  # the highest that it was welcomed in
    lent: Seconds = 0.0  # for how long its owner lends it yet; 0: as long as the run lasts


class Uplink(msgspec.Struct, frozen=True):
    """How a worker makes a contribution of what its steps changed."""

    codec: Name
    options: Options
    ratios: Annotated[tuple[Finite, ...], msgspec.Meta(max_length=16)]  # what a task's rung chooses from; (): no choice
    last: Name  # codec of a leaving worker's last contribution, its residual included; "": none
    error_feedback: bool
    decay: Finite  # share of the residual that survives a round
    keep: Finite  # share of the residual that the worker trains on with
    clip: Finite | None
    normalize_steps: Count  # scale an update to as many local steps (FedNova); 0: leave it


class Downlink(msgspec.Struct, frozen=True):
    """How versions come, and how a worker takes one in."""

    codec: Name
    options: Options
    merge_lerp: Finite  # share of its own parameters that a worker keeps
    version_momentum: Finite  # share of a worker's momentum that follows the versions


class Inner(msgspec.Struct, frozen=True):
    """How a worker takes its local steps."""

    batch_size: Count
    optimizer: Name
    options: Annotated[dict[Name, Finite], msgspec.Meta(max_length=64)]
    gradient_clip: Finite | None
    proximal: Finite  # weight of the pull towards a task's start (FedProx)
    precision: Name


class WorkerSettings(msgspec.Struct, frozen=True):
    """What the controller decides for all workers, so that two sides cannot diverge."""

    uplink: Uplink
    downlink: Downlink
    inner: Inner
    fragments: Count  # ranges of the parameters that take turns to be exchanged
    overlap: bool  # of training and exchanges
    stateless: bool = False  # tasks begin with what is published, and with nothing of the worker's own
    shares: bool = False  # the inner optimizer's second moments are published too


class Welcome(Message, frozen=True, tag=True):
    """You are in: the run, its settings, its files, and which of your pending contributions are answered."""

    run: Annotated[str, msgspec.Meta(max_length=200)]
    node: NodeId
    greeting: Count
    settings: WorkerSettings
    manifest: Blob  # JSON: model configuration, flat layout, dataset files with digests
    heartbeat: Seconds
    lease: Seconds
    forget: AssignmentIds = ()  # work of yours that runs elsewhere by now: drop it
    term: Term = Term()
    version: HeldVersion = -1  # the newest, and the digest of its parameters
    digest: Digest | None = None
    assigned: Count = 0  # the newest assignment's number


class Heartbeat(Message, frozen=True, tag=True, omit_defaults=True):
    """I am alive; `sent` is my clock, for the answer to carry back. About once a minute: how I do."""

    sent: Seconds
    telemetry: Telemetry | None = None


class Pulse(Message, frozen=True, tag=True):
    """The answer to a heartbeat: echoes its time, so that the worker knows the round trip and that I live."""

    sent: Seconds
    heartbeat: Seconds
    lease: Seconds


class RequestTask(Message, frozen=True, tag="Next"):
    """I will need a task soon, and hold version `have`."""

    have: HeldVersion
    link: LinkReport = LinkReport()


class Assign(Message, frozen=True, tag=True):
    """Here is a task; fetch its updates and rows, then start.

    Updates of INLINE_BYTES at most in all come along as its raw frame, one after the other: on a slow link that saves
    the round trip of asking for them.
    """

    task: AnyTask

    @property
    def news(self) -> News:
        """What may come along."""
        return self.task.news

    @property
    def digests(self) -> list[str]:
        """Of the updates that it names."""
        return [update.blob.digest for update in self.task.updates]


class Decline(Message, frozen=True, tag=True):
    """I will not do the task of this assignment, and why: it is for somebody else."""

    assignment: Count
    reason: Text


class Subscribe(Message, frozen=True, tag="Watch"):
    """I train, and hold version `have`: tell me of the next one, once. What an `Assign` brings counts as held."""

    have: HeldVersion


class Newer(Message, frozen=True, tag=True):
    """The way from the version that was held to the newest, for the task that runs; its bytes as those of `Assign`."""

    news: News

    @property
    def digests(self) -> list[str]:
        """Of the updates that it names."""
        return [update.blob.digest for update in self.news.updates]


class Offer(Message, frozen=True, tag=True):
    """What came of a task, to be judged before its payload travels. One of INLINE_BYTES at most may come along."""

    result: AnyResult


EVERYTHING = 2**53
"""Offset of a `SendPayload` beyond all bytes."""


class SendPayload(Message, frozen=True, tag="Go"):
    """Send the payload of the contribution to `assignment` from `offset` on: what is before is here. With EVERYTHING
    nothing is missing, and the answer is still to come."""

    assignment: Count
    offset: Count


class PayloadChunk(Message, frozen=True, tag=True):
    """Bytes from `offset` of the payload of the contribution to `assignment`; one raw frame follows."""

    assignment: Count
    offset: Count


class Ack(Message, frozen=True, tag=True):
    """The contribution is durable and needs not be kept: accepted, or refused for `reason`."""

    assignment: Count
    accepted: bool
    reason: Text = ""


class Fetch(Message, frozen=True, tag=True):
    """Send me `num_bytes` of the blob from `offset` on, in chunks. Behind a snapshot's bytes stand the digests of its
    leaves (`core.digests`), one after the other."""

    digest: Digest
    offset: Count
    num_bytes: Annotated[int, msgspec.Meta(ge=1, le=FRAME_LIMIT)]


class Chunk(Message, frozen=True, tag=True):
    """Bytes from `offset` of the blob; one raw frame follows."""

    digest: Digest
    offset: Count


class Gone(Message, frozen=True, tag=True):
    """The blob is not kept (any more): ask for a newer task."""

    digest: Digest


class Identify(Message, frozen=True, tag="Who"):
    """I do not know this session: say Hello."""


class Leave(Message, frozen=True, tag=True):
    """I have handed in what I had and go."""

    reason: Text = ""


class Elsewhere(Message, frozen=True, tag=True):
    """Where the run goes on should this controller be gone: each one address, or two with a space between."""

    uris: Annotated[tuple[Text, ...], msgspec.Meta(max_length=8)]


class Stop(Message, frozen=True, tag=True):
    """Work no more: the run is over (`final`), or you may not take part, and why. `refusal` says what follows for the
    machine: LATER, TAKEN, FOR_GOOD; "": nothing beyond that."""

    reason: Text
    final: bool = True
    refusal: Name = ""


FromWorker = Enrol | Hello | Heartbeat | RequestTask | Decline | Subscribe | Offer | PayloadChunk | Fetch | Leave
FromController = (
    Enrolled | Welcome | Pulse | Assign | Newer | SendPayload | Ack | Chunk | Gone | Identify | Stop | Elsewhere
)
