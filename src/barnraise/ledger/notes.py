"""The controller's notes besides its decisions about nodes, work and versions: one struct for each kind.

A note is one row of the table `events`: its kind, and its fields as JSON. Those that change the controller's state are
listed in `controller.state.fold`; all others are for the reader of the ledger. A kind that this version of barnraise
does not know is kept as `Unknown`: notes of another version stop no replay.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from barnraise.core.errors import PROBLEM_RAISED
from barnraise.ledger.figures import Employed as Employed
from barnraise.ledger.figures import Matched as Matched
from barnraise.ledger.figures import NoMarket as NoMarket
from barnraise.ledger.figures import Sampled as Sampled
from barnraise.ledger.measured import Measured as Measured
from barnraise.ledger.measured import MetricFailed as MetricFailed
from barnraise.ledger.measured import TextSample as TextSample
from barnraise.ledger.note import Note as Note
from barnraise.ledger.note import SomeNote as SomeNote
from barnraise.ledger.note import kind_of as kind_of
from barnraise.ledger.pause_notes import Continued as Continued
from barnraise.ledger.pause_notes import HostContinued as HostContinued
from barnraise.ledger.pause_notes import HostPaused as HostPaused
from barnraise.ledger.pause_notes import Paused as Paused
from barnraise.ledger.privacy_notes import PrivacyBudget as PrivacyBudget
from barnraise.ledger.privacy_notes import PrivacySpent as PrivacySpent
from barnraise.ledger.site_notes import SiteAwaited as SiteAwaited
from barnraise.ledger.site_notes import SiteDeclared as SiteDeclared
from barnraise.ledger.site_notes import SiteRefused as SiteRefused
from barnraise.ledger.trust_notes import Audited as Audited
from barnraise.ledger.trust_notes import Convicted as Convicted
from barnraise.ledger.trust_notes import Discredited as Discredited
from barnraise.ledger.trust_notes import Offended as Offended
from barnraise.ledger.trust_notes import Scored as Scored
from barnraise.ledger.trust_notes import Sentence as Sentence
from barnraise.ledger.trust_notes import Unaudited as Unaudited


class Started(Note, frozen=True, gc=False):
    """A new run begins, with the digest of version 0, under the controller's public `key`.

    "" in older ledgers, and in a simulation.
    """

    digest: str
    run: str
    key: str = ""


class Resumed(Note, frozen=True, gc=False):
    """A controller resumed the run at this version."""

    sentence: ClassVar[str] = "the controller was started again, at version {version}"

    version: int
    epoch: int


class StandbyFollows(Note, frozen=True, gc=False):
    """A standby follows the run; workers find it at `uri` after a takeover.

    `key` may return after its invite has expired; "" in older ledgers.
    """

    sentence: ClassVar[str] = "standby {name} follows the run"

    name: str
    uri: str
    key: str = ""


class StandbyLost(Note, frozen=True, gc=False):
    """The connection to the standby is lost."""

    sentence: ClassVar[str] = "standby {name} is gone: {reason}"

    name: str
    reason: str


class DurabilityLowered(Note, frozen=True, gc=False):
    """Contributions are acknowledged once they are on the controller's disk, as no standby follows.

    controller.durability is standby, but none has followed for these seconds.
    """

    sentence: ClassVar[str] = "acknowledging without a standby: none has followed for {seconds:g} s"

    seconds: float


class DurabilityRestored(Note, frozen=True, gc=False):
    """Acknowledgements wait for a standby again, which has this name."""

    sentence: ClassVar[str] = "acknowledgements wait for standby {name} again"

    name: str


class RunFile(Note, frozen=True, gc=False):
    """The run file's values from here on, and the differences to those before."""

    changed: str
    content: dict[str, Any]


class RestsOn(Note, frozen=True, gc=False):
    """The run depends on files with these digests (SHA-256, by their names) from here on.

    The manifest names the data.
    """

    files: dict[str, str]


class BufferSize(Note, frozen=True, gc=False):
    """The number of nodes whose contributions make a version from here on."""

    sentence: ClassVar[str] = "K is {nodes} ({live} live)"

    nodes: int
    live: int
    why: str


class Advice(Note, frozen=True, gc=False):
    """Advice to the host about the run's condition."""

    sentence: ClassVar[str] = "advice: {reason}"

    reason: str


class Tuned(Note, frozen=True, gc=False):
    """A node's tasks are adapted to its link.

    Compression, least local steps, partition of the parameters, and the bytes of a payload; then the measurements
    behind that (seconds, bytes a second).
    """

    rung: int
    local_steps: int
    partition: int = 0
    bytes: int = 0
    step: float = 0.0
    round_trip: float = 0.0
    up: float = 0.0
    down: float = 0.0


NOT_HELD = "the worker does not hold it"
"""Reason of the release of an assignment whose node has lost or dropped its work."""

DECLINED = "declined: "
"""Prefix of the reason of the release of an assignment that its node declines."""

RAISED = DECLINED + PROBLEM_RAISED
"""The same where the code of the problem raised: that says nothing of the node."""


class Released(Note, frozen=True, gc=False):
    """An assignment is released from its node: another node may do it."""

    assignment: int
    reason: str


NOT_SIGNED = "is not signed by the key that its node enrolled with"
"""Reason of the refusal of a contribution that its node can deny, and that no correct node sends."""

COPY_CAME_FIRST = "a copy of it came first"
"""Reason of the release, or discard, of an assignment that was done twice, without blame for its node."""


class Copied(Note, frozen=True, gc=False):
    """A late assignment is copied: node `by` gets the same task, and the first result wins.

    The result is `seconds` late.
    """

    assignment: int
    by: str
    seconds: float


class Reopened(Note, frozen=True, gc=False):
    """An assignment is its node's again, which returned before another node took it."""

    assignment: int


class HeldOff(Note, frozen=True, gc=False):
    """A node gets no tasks for these seconds, for the reason that is told."""

    seconds: float
    reason: str


class Voided(Note, frozen=True, gc=False):
    """An accepted contribution cannot be used.

    `judged`: by its node's fault, not by that of the controller's disk.
    """

    sentence: ClassVar[str] = "a contribution of {node} is void: {reason}"

    assignment: int
    version: int
    reason: str
    judged: bool


class Excluded(Note, frozen=True, gc=False):
    """A version is made without these nodes' updates, which lowers its loss by `gain` nats a token."""

    figures: ClassVar[bool] = True

    version: int
    nodes: tuple[str, ...]
    gain: float


class VersionReleased(Note, frozen=True, gc=False):
    """The list of a closed version is final: masks may be removed for exactly these contributions.

    `digest` is that of the version and its assignments, `members` that of the list that trustees sign; "" in older
    ledgers.
    """

    version: int
    digest: str
    members: str = ""


class VersionUnmasked(Note, frozen=True, gc=False):
    """Trustees sent the sums of a version's masks, which these assignments brought; more than may collude confirm them.

    A version is made, and made again, with these. `endorsements` are the trustees' signatures of the list by seat, ""
    where there is none; older ledgers have none.
    """

    version: int
    masks: tuple[int, ...]
    endorsements: tuple[str, ...] = ()


class GroupLeftOut(Note, frozen=True, gc=False):
    """A version is made without these contributions, as honest members cannot have the sum of their masked group.

    Which of them is wrong is not known: all stay accepted.
    """

    sentence: ClassVar[str] = "a version was made without a group: {reason}"

    version: int
    reason: str
    contributions: tuple[int, ...]


class VersionRefused(Note, frozen=True, gc=False):
    """A version cannot be made of any of these contributions."""

    sentence: ClassVar[str] = "a version was made without its contributions: {reason}"

    version: int
    reason: str
    contributions: tuple[int, ...]


class Flushing(Note, frozen=True, gc=False):
    """The token budget is met: the controller asks this number of live nodes for their residuals only."""

    nodes: int


class LeftOver(Note, frozen=True, gc=False):
    """This number of accepted contributions is too small for a last version."""

    contributions: int
    reason: str


class Evaluated(Note, frozen=True, gc=False):
    """The held-out loss (nats a token; None: not finite) of a version, and the tokens in it.

    Nodes of at least `owners` owners measured each of its rows; 0: the controller measured it, or the ledger is an
    older one.
    """

    version: int
    loss: float | None
    tokens: int
    owners: int = 0


class Disputed(Note, frozen=True, gc=False):
    """Nodes disagree about a version's loss on the same held-out rows [start, stop), so the controller measures.

    Or about the number of predictions (`weights`). Which of them is wrong is not known.
    """

    version: int
    start: int
    stop: int
    nodes: tuple[str, ...]
    losses: tuple[float, ...]
    weights: tuple[float, ...]


class Checkpointed(Note, frozen=True, gc=False):
    """A version is durable, with the outer optimizer's state.

    `digest` is that of the checkpoint's manifest, "" in older ledgers.
    """

    version: int
    digest: str = ""


class CheckpointFailed(Note, frozen=True, gc=False):
    """A version's checkpoint could not be written."""

    sentence: ClassVar[str] = "a checkpoint failed: {reason}"

    version: int
    reason: str


class Stopping(Note, frozen=True, gc=False):
    """The run was asked to end with the contributions accepted so far."""

    sentence: ClassVar[str] = "stopping: {reason}"

    reason: str


class Interrupted(Note, frozen=True, gc=False):
    """The controller's process was asked to end; the run stays open."""

    sentence: ClassVar[str] = "interrupted: {reason}"

    reason: str


BUDGET_MET = "the token budget is met"
"""Reason why a run finishes by itself."""


class Finished(Note, frozen=True, gc=False):
    """The run is over, for this reason."""

    sentence: ClassVar[str] = "finished: {reason}"

    reason: str


class FrameDropped(Note, frozen=True, gc=False):
    """The number of malformed frames of a node."""

    sentence: ClassVar[str] = "a frame from {node} was dropped: {reason}"

    reason: str
    count: int = 1


class Traffic(Note, frozen=True, gc=False):
    """Bytes of payloads and headers that all nodes have sent and received by now."""

    figures: ClassVar[bool] = True

    up: int
    down: int


class Unknown(Note, frozen=True, gc=False):
    """A note of a kind that another version of barnraise makes."""

    name: str
    detail: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.name


FIGURES = tuple(kind_of(note) for note in Note.__subclasses__() if note.figures)
"""The kinds of notes that are not shown as news."""

_NOTES = {kind_of(note): note for note in Note.__subclasses__() if note is not Unknown}


def detail_of(note: Note) -> dict[str, Any]:
    """Return a note's fields, as its row holds them."""
    return note.detail if isinstance(note, Unknown) else msgspec.structs.asdict(note)


def note_of(kind: str, detail: dict[str, Any]) -> Note:
    """Return the note that a row holds.

    Raises msgspec.ValidationError where its fields are not those of its kind.

    >>> note_of("paused", {"reason": "alone"})
    Paused(reason='alone')
    >>> note_of("struck_by_lightning", {"times": 2}).kind
    'struck_by_lightning'
    """
    known = _NOTES.get(kind)
    return Unknown(kind, detail) if known is None else msgspec.convert(detail, known)
