"""The controller's decisions: each is one row of one table of the ledger, and together they are its state.

A decision holds all that `apply` needs: no clock, no policy and no random number is consulted when a ledger is
replayed. `table` names the table; the fields are its columns, and so are those of the groups (`Columns`) among them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal

import msgspec

from barnraise.core.types import (
    Contribution,
    NodeProfile,
    PayloadResult,
    Ranges,
    Result,
    RowRange,
    Transcript,
    Unmasked,
    name_of,
)
from barnraise.ledger.notes import Note

UNKNOWN_CODEC = -1
"""The codec of a contribution that was judged before contributions named theirs."""


UPDATES = ("", name_of(Contribution))
"""The kinds of results that enter a version: "" was judged before ledgers named them."""


class Change(StrEnum):
    """Changes of a node's membership; after all but the first three it is absent, for the named reason."""

    ENROLLED = "enrolled"  # it proved a key
    REKEYED = "rekeyed"  # it took new keys, for which its old one vouched
    JOINED = "joined"  # with a new session, or another profile
    LEFT = "left"  # it announced that
    SILENT = "silent"  # its lease ended
    MISSING = "missing"  # it did not come back after the controller's restart
    DISMISSED = "dismissed"  # its updates could not be taken
    ENDED = "ended"  # a local worker's process ended as requested
    BROKE = "broke"  # a local worker's process failed
    KILLED = "killed"  # a signal ended a local worker's process
    REVOKED = "revoked"  # the host excluded it permanently

    @property
    def gone(self) -> bool:
        return self not in (Change.ENROLLED, Change.REKEYED, Change.JOINED)

    @classmethod
    def _missing_(cls, value: object) -> Change:
        """Accept an unknown change: another version of barnraise knows more ways to leave."""
        return cls.LEFT


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Base of all decisions; `time` is the controller's clock in seconds when it was taken."""

    table: ClassVar[str]
    time: float


class Columns(msgspec.Struct, frozen=True, gc=False):
    """Base of groups of a decision's fields, which are columns of its table like the others."""


class NodeChanged(Decision, frozen=True, gc=False):
    """A change of a node's membership: enrolled, with new keys, joined with a new session, or gone.

    `signer` is the key of its signatures; "": it signs nothing.
    """

    table: ClassVar[str] = "nodes"
    node: str
    change: Change
    reason: str = ""
    key: str = ""
    session: int = 0
    profile: NodeProfile | None = None
    signer: str = ""
    role: str = ""  # role of an enrolled node; "": an ordinary worker
    owner: str = ""  # owner of an enrolled node, if known; "": its own


class Terms(Columns, frozen=True, gc=False):
    """The requirements of a contribution."""

    max_staleness: int
    learning_rate: float
    parameters: Ranges
    rung: int = 0  # index of its compression
    compute: float = 0.0  # expected seconds of computing and of transfers; 0: unknown
    fetch: float = 0.0
    send: float = 0.0
    compute_spread: float = 0.0  # standard deviations of the logarithms of these seconds
    link_spread: float = 0.0
    pace: float | None = None  # stateless tasks: a step's share of a version's movement


class Assigned(Decision, frozen=True, gc=False):
    """An assignment of a task to a node.

    `rows` start at `cursor` of the endless row stream, or are those of lost work.
    """

    table: ClassVar[str] = "assignments"
    assignment: int
    node: str
    kind: str
    base: int
    tokens: int
    local_steps: int
    rows: tuple[RowRange, ...]
    cursor: int  # rows assigned for the first time, these included
    terms: Terms
    redo: int = 0  # the assignment whose lost work this repeats, 0 for fresh rows
    cohort: int = 0  # the cohort it joins, named after its first assignment; 0: as other columns say (`gathering`)


class Claim(Columns, frozen=True, gc=False):
    """The worker's claims about its result."""

    base: int
    steps: int
    loss: float
    seconds: float
    num_bytes: int = 0  # size of the payload, if there is one, as `digest`
    digest: str = ""
    codec: int = UNKNOWN_CODEC  # codec of the payload
    transcript: Transcript | None = None  # for stateless tasks
    signature: str = ""  # the node's signature of its claims
    result: str = ""  # kind of the result: update, finding, sketch; "": judged before ledgers named it

    @classmethod
    def of(cls, result: Result) -> Claim:
        """Return the claims of `result`."""
        made, kind = (result.base, result.steps, result.loss, result.seconds), name_of(type(result))
        if not isinstance(result, PayloadResult):
            return cls(*made, result=kind)
        payload, codec, told = result.payload, UNKNOWN_CODEC, None
        if isinstance(result, Contribution):
            codec, told = result.codec, result.transcript
        return cls(*made, payload.num_bytes, payload.digest, codec, told, result.signature, kind)


class Weighing(Columns, frozen=True, gc=False):
    """The weight of an accepted result: its share of its node's slot is weight / sum of weights there.

    Trust and staleness in it are those at the time when the controller asked for the payload.
    """

    weight: float
    scale: float = 1.0  # factor of its update: less than 1 where it was longer than its task allows
    trust: float | None = None  # its node's; None: that at the verdict, in a ledger from before it was fixed


class Judged(Decision, frozen=True, gc=False):
    """A verdict on a result: accepted (its payload, if any, is in a segment then), refused, or left over at the end."""

    table: ClassVar[str] = "contributions"
    assignment: int
    node: str
    verdict: Literal["accepted", "refused", "discarded"]
    reason: str
    claim: Claim
    version: int  # the newest published at its arrival
    staleness: int
    tokens: int
    norm: float
    parameters: Ranges
    weighing: Weighing

    @property
    def brings(self) -> bool:
        """Return whether a payload comes with it."""
        return self.verdict == "accepted" and self.claim.digest != ""

    @property
    def contributes(self) -> bool:
        """Return whether an update comes with it, which enters a version."""
        return self.brings and self.claim.result in UPDATES

    @property
    def unmasks(self) -> int:
        """Return the version whose sums of masks come with it; 0: none."""
        return self.claim.base + 1 if self.brings and self.claim.result == name_of(Unmasked) else 0


class VersionClosed(Decision, frozen=True, gc=False):
    """The close of a buffer: these contributions, in this order, make `version`."""

    table: ClassVar[str] = "versions"
    version: int
    contributions: tuple[int, ...]
    num_nodes: int
    tokens: int
    reason: str
    rate: float = 1.0  # share of the aggregate that the outer optimizer steps along
    scales: tuple[float, ...] = ()  # factors of each of several parameter ranges, in order


class VersionMade(Decision, frozen=True, gc=False):
    """The version's parameters exist and hash to `digest`; completes the row of its `VersionClosed`."""

    table: ClassVar[str] = "versions"
    version: int
    digest: str
    delta_bytes: int


class Noted(Decision, frozen=True, gc=False):
    """A note of one of the kinds in `ledger.notes`, about a node where there is one."""

    table: ClassVar[str] = "events"
    note: Note
    node: str = ""

    @property
    def kind(self) -> str:
        """Return the name of the note's kind."""
        return self.note.kind


AnyDecision = NodeChanged | Assigned | Judged | VersionClosed | VersionMade | Noted
