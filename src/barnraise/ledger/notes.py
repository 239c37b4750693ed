"""What the controller notes besides its decisions about nodes, work and versions: one struct for each kind of note.

A note is one row of the table `events`: its kind, and its fields as JSON. Those that change the controller's state are
listed in `controller.state.fold`; all others are for the reader of the ledger. A kind that this version of barnraise
does not know is kept as `Unknown`: what another version noted stops no replay.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from barnraise.ledger.figures import Employed as Employed
from barnraise.ledger.figures import Matched as Matched
from barnraise.ledger.figures import NoMarket as NoMarket
from barnraise.ledger.figures import Sampled as Sampled
from barnraise.ledger.note import Note as Note
from barnraise.ledger.note import SomeNote as SomeNote
from barnraise.ledger.note import kind_of as kind_of
from barnraise.ledger.trust_notes import Audited as Audited
from barnraise.ledger.trust_notes import Convicted as Convicted
from barnraise.ledger.trust_notes import Discredited as Discredited
from barnraise.ledger.trust_notes import Offended as Offended
from barnraise.ledger.trust_notes import Scored as Scored
from barnraise.ledger.trust_notes import Sentence as Sentence
from barnraise.ledger.trust_notes import Unaudited as Unaudited


class Started(Note, frozen=True, gc=False):
    """A new run begins, with a version 0 of this digest, under the controller's public `key`; "" in older ledgers, and
    in a simulation."""

    digest: str
    run: str
    key: str = ""


class Resumed(Note, frozen=True, gc=False):
    """A controller went on, at this version."""

    version: int
    epoch: int


class StandbyFollows(Note, frozen=True, gc=False):
    """A standby follows the run; workers find it at `uri` should it take over. `key` may come back after its invite has
    expired; "" in older ledgers."""

    name: str
    uri: str
    key: str = ""


class StandbyLost(Note, frozen=True, gc=False):
    """The standby is heard no more."""

    name: str
    reason: str


class DurabilityLowered(Note, frozen=True, gc=False):
    """Contributions are acknowledged once they are on the controller's disk: no standby has followed for so many
    seconds, though controller.durability is standby."""

    seconds: float


class DurabilityRestored(Note, frozen=True, gc=False):
    """Acknowledgements wait for a standby again, which has this name."""

    name: str


class RunFile(Note, frozen=True, gc=False):
    """What counts of the run file from here on, and how it differs from what did before."""

    changed: str
    content: dict[str, Any]


class RestsOn(Note, frozen=True, gc=False):
    """The run rests on files with these digests (SHA-256, by their names) from here on. The manifest names the data."""

    files: dict[str, str]


class Paused(Note, frozen=True, gc=False):
    """Fewer nodes live than the aggregation rule needs: nobody gets work."""

    reason: str


class Continued(Note, frozen=True, gc=False):
    """Enough nodes live again."""

    reason: str = ""


class BufferSize(Note, frozen=True, gc=False):
    """So many nodes' contributions make a version from here on."""

    nodes: int
    live: int
    why: str


class Advice(Note, frozen=True, gc=False):
    """The host could do something about what is going on."""

    reason: str


class Tuned(Note, frozen=True, gc=False):
    """A node's tasks are fitted to its link: how densely it sends, its least local steps, which partition of the
    parameters it takes turns in, and the bytes of a payload; then what that follows from (seconds, bytes a second)."""

    rung: int
    local_steps: int
    partition: int = 0
    bytes: int = 0
    step: float = 0.0
    round_trip: float = 0.0
    up: float = 0.0
    down: float = 0.0


NOT_HELD = "the worker does not hold it"
"""Why an assignment is released whose node has lost or given up its work."""

DECLINED = "declined: "
"""How the reason begins for which an assignment is released that its node gives back."""


class Released(Note, frozen=True, gc=False):
    """An assignment is its node's no more: somebody else may do it."""

    assignment: int
    reason: str


NOT_SIGNED = "is not signed by the key that its node enrolled with"
"""Why a contribution is refused that its node can deny, and nobody who keeps to the protocol sends."""

COPY_CAME_FIRST = "a copy of it came first"
"""Why an assignment is released, or its result discarded, that was done twice. Nobody is judged by it."""


class Copied(Note, frozen=True, gc=False):
    """The result of an assignment is so many seconds late: node `by` gets the same to do, and the first result wins."""

    assignment: int
    by: str
    seconds: float


class Reopened(Note, frozen=True, gc=False):
    """Its node came back before anybody took the assignment: it is its own again."""

    assignment: int


class HeldOff(Note, frozen=True, gc=False):
    """A node that is lost and comes back again and again gets no tasks for so long."""

    seconds: float
    reason: str


class Voided(Note, frozen=True, gc=False):
    """A contribution that was accepted cannot be used. `judged`: by its node's fault, not by that of our disk."""

    assignment: int
    version: int
    reason: str
    judged: bool


class Excluded(Note, frozen=True, gc=False):
    """A version is made without these nodes' updates: the loss after it is lower by `gain` nats a token so."""

    figures: ClassVar[bool] = True

    version: int
    nodes: tuple[str, ...]
    gain: float


class VersionRefused(Note, frozen=True, gc=False):
    """A version cannot be made of any of these contributions."""

    version: int
    reason: str
    contributions: tuple[int, ...]


class Flushing(Note, frozen=True, gc=False):
    """The token budget is met: of so many live nodes the residuals are wanted, and nothing else."""

    nodes: int


class LeftOver(Note, frozen=True, gc=False):
    """So many accepted contributions are too few for a last version."""

    contributions: int
    reason: str


class Evaluated(Note, frozen=True, gc=False):
    """The held-out loss (nats a token; None: not finite) of a version, and the tokens in it. Nodes of at least so many
    `owners` measured each of its rows; 0: the controller measured it, or the ledger is an older one."""

    version: int
    loss: float | None
    tokens: int
    owners: int = 0


class Disputed(Note, frozen=True, gc=False):
    """These nodes measured different losses of a version on the same held-out rows [start, stop), or tell different
    numbers of predictions (`weights`): the controller measures. Which of them is wrong is not known."""

    version: int
    start: int
    stop: int
    nodes: tuple[str, ...]
    losses: tuple[float, ...]
    weights: tuple[float, ...]


class Checkpointed(Note, frozen=True, gc=False):
    """A version is durable, with the outer optimizer's state; `digest` is that of the checkpoint's manifest, "" in
    older ledgers."""

    version: int
    digest: str = ""


class CheckpointFailed(Note, frozen=True, gc=False):
    """It is not."""

    version: int
    reason: str


class Stopping(Note, frozen=True, gc=False):
    """The run shall end with what was accepted so far."""

    reason: str


class Interrupted(Note, frozen=True, gc=False):
    """The controller's process shall end; the run stays open."""

    reason: str


BUDGET_MET = "the token budget is met"
"""Why a run finishes, unless it is told to before."""


class Finished(Note, frozen=True, gc=False):
    """The run is over."""

    reason: str


class FrameDropped(Note, frozen=True, gc=False):
    """So many frames of a node were malformed."""

    reason: str
    count: int = 1


class Traffic(Note, frozen=True, gc=False):
    """Bytes of payloads and headers that came up and went down by now, over all nodes."""

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
"""The kinds of notes that are no news."""

_NOTES = {kind_of(note): note for note in Note.__subclasses__() if note is not Unknown}


def detail_of(note: Note) -> dict[str, Any]:
    """A note's fields, as its row holds them."""
    return note.detail if isinstance(note, Unknown) else msgspec.structs.asdict(note)


def note_of(kind: str, detail: dict[str, Any]) -> Note:
    """The note that a row holds. Raises msgspec.ValidationError where its fields are not those of its kind.

    >>> note_of("paused", {"reason": "alone"})
    Paused(reason='alone')
    >>> note_of("struck_by_lightning", {"times": 2}).kind
    'struck_by_lightning'
    """
    known = _NOTES.get(kind)
    return Unknown(kind, detail) if known is None else msgspec.convert(detail, known)
