"""What the controller can decide. Each decision is one row of one table of the ledger; together they are the truth.

A decision holds all that `apply` needs: no clock, no policy and no random number is consulted when a ledger is
replayed. `table` names the table; the fields are its columns, and so are those of the groups (`Columns`) among them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal

import msgspec

from barnraise.core.types import AnyResult, Contribution, NodeProfile, ParameterRange, RowRange, Transcript
from barnraise.ledger.notes import Note

UNKNOWN_CODEC = -1
"""Of a contribution that was judged before contributions named theirs."""


class Change(StrEnum):
    """What can happen to a node's membership; all but the first three mean that it is gone, and how."""

    ENROLLED = "enrolled"  # it proved a key
    REKEYED = "rekeyed"  # it took new keys, for which its old one vouched
    JOINED = "joined"  # with a new session, or with another profile
    LEFT = "left"  # it said so
    SILENT = "silent"  # its lease ended
    MISSING = "missing"  # it did not come back after the controller's restart
    DISMISSED = "dismissed"  # its updates could not be taken
    ENDED = "ended"  # a local worker's process, as it was told to
    BROKE = "broke"  # a local worker's process, by itself
    KILLED = "killed"  # a local worker's process, by a signal
    REVOKED = "revoked"  # the host put it out, for good

    @property
    def gone(self) -> bool:
        return self not in (Change.ENROLLED, Change.REKEYED, Change.JOINED)

    @classmethod
    def _missing_(cls, value: object) -> Change:
        """Another version of barnraise knows more ways to leave."""
        return cls.LEFT


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Base of all decisions. `time` is the controller's clock in seconds when it was taken."""

    table: ClassVar[str]
    time: float


class Columns(msgspec.Struct, frozen=True, gc=False):
    """Base of what groups fields of a decision. In the table they are columns like the others."""


class NodeChanged(Decision, frozen=True, gc=False):
    """A node was enrolled with its keys (the transport's, and `signer`, that of its signatures; "": it signs nothing),
    took new ones, joined with a new session, or is gone."""

    table: ClassVar[str] = "nodes"
    node: str
    change: Change
    reason: str = ""
    key: str = ""
    session: int = 0
    profile: NodeProfile | None = None
    signer: str = ""
    role: str = ""  # what an enrolled node is there for; "": it works, and nothing else was thought of
    owner: str = ""  # whose an enrolled node is, as far as is known; "": nobody else's


class Terms(Columns, frozen=True, gc=False):
    """What a contribution is to be like."""

    max_staleness: int
    learning_rate: float
    parameters: ParameterRange
    rung: int = 0  # how densely it is to be compressed
    compute: float = 0.0  # seconds that it is expected to take, 0 where nothing is: its own, and of its bytes
    fetch: float = 0.0
    send: float = 0.0
    compute_spread: float = 0.0  # standard deviations of the logarithms: of its own seconds, and of its bytes'
    link_spread: float = 0.0
    pace: float | None = None  # of a stateless task: what of a version's movement is one step's


class Assigned(Decision, frozen=True, gc=False):
    """A task went to a node. `rows` start at `cursor` of the endless row stream, or are those of work that was lost."""

    table: ClassVar[str] = "assignments"
    assignment: int
    node: str
    kind: str
    base: int
    tokens: int
    local_steps: int
    rows: tuple[RowRange, ...]
    cursor: int  # rows handed out for the first time, these included
    terms: Terms
    redo: int = 0  # the assignment whose lost work this repeats, 0 for fresh rows


class Claim(Columns, frozen=True, gc=False):
    """What the worker says of what it made."""

    base: int
    steps: int
    loss: float
    seconds: float
    num_bytes: int = 0  # of the payload, if there is one, like its digest
    digest: str = ""
    codec: int = UNKNOWN_CODEC  # that the payload is written in
    transcript: Transcript | None = None  # of a stateless task
    signature: str = ""  # the node's, of what it says

    @classmethod
    def of(cls, result: AnyResult) -> Claim:
        """What `result` says."""
        made = result.base, result.steps, result.loss, result.seconds
        if not isinstance(result, Contribution):
            return cls(*made)
        payload, told = result.payload, result.transcript
        return cls(*made, payload.num_bytes, payload.digest, result.codec, told, result.signature)


class Judged(Decision, frozen=True, gc=False):
    """A contribution was accepted (its payload is in a segment by then), refused, or left over at the end."""

    table: ClassVar[str] = "contributions"
    assignment: int
    node: str
    verdict: Literal["accepted", "refused", "discarded"]
    reason: str
    claim: Claim
    version: int  # the newest published when it arrived
    staleness: int
    tokens: int
    norm: float
    parameters: ParameterRange
    weight: float  # its share of its node's slot is weight / sum of weights there
    scale: float = 1.0  # by which its update is multiplied: less than 1 where it was longer than its task can make it

    @property
    def brings(self) -> bool:
        """Whether a payload comes with it."""
        return self.verdict == "accepted" and self.claim.digest != ""


class VersionClosed(Decision, frozen=True, gc=False):
    """The buffer closed: these contributions, in this order, make `version`."""

    table: ClassVar[str] = "versions"
    version: int
    contributions: tuple[int, ...]
    num_nodes: int
    tokens: int
    reason: str
    rate: float = 1.0  # share of the aggregate that the outer optimizer steps along
    scales: tuple[float, ...] = ()  # of several ranges of the parameters, in order: what of that each gets


class VersionMade(Decision, frozen=True, gc=False):
    """The version's parameters exist and hash to `digest`; completes the row of its `VersionClosed`."""

    table: ClassVar[str] = "versions"
    version: int
    digest: str
    delta_bytes: int


class Noted(Decision, frozen=True, gc=False):
    """Anything else worth keeping: a note of one of the kinds in `ledger.notes`, about a node where there is one."""

    table: ClassVar[str] = "events"
    note: Note
    node: str = ""

    @property
    def kind(self) -> str:
        """The name of the note's kind."""
        return self.note.kind


AnyDecision = NodeChanged | Assigned | Judged | VersionClosed | VersionMade | Noted
