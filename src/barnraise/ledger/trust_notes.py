"""What the controller notes of whom it believes: work that was done anew, scores, and what followed for a node."""

from __future__ import annotations

from typing import TypeAlias

from barnraise.ledger.note import Note


class Audited(Note, frozen=True, gc=False):
    """Node `by` has done the work of assignment `audited` anew, as `assignment`: the cosine of the angle between its
    update and the one that was sent, and how far they are apart as a share of what was sent. Both are as sketches tell
    (`core.sketches`); a worker that goes on from its own moments and residual is not done anew exactly."""

    audited: int
    assignment: int
    by: str
    cosine: float
    distance: float
    sound: bool | None = None  # whether what was sent is what others make of the task; None: nobody knows


class Unaudited(Note, frozen=True, gc=False):
    """The work of an assignment was drawn to be done anew, and nobody does it any more, though nothing is settled."""

    assignment: int
    reason: str


class Convicted(Note, frozen=True, gc=False):
    """What a node handed in for `assignment` is not what others make of the same task: `against` are the assignments
    under which they did it, and agree with each other. The node gets no tasks until then (the controller's clock), or
    never again (None)."""

    assignment: int
    against: tuple[int, ...]
    until: float | None


class Scored(Note, frozen=True, gc=False):
    """By how many nats a token a step along a contribution lowers the loss of `version`: on `own` rows, which it was to
    be trained on, and on `others`; and how much `more` its own gain than others like them, in standard errors (None:
    what is no number). It `passed` if that is enough; how much `suspicion` is left (`trust.suspicion`)."""

    assignment: int
    version: int
    own: float | None
    others: float | None
    more: float | None
    passed: bool
    suspicion: float


class Discredited(Note, frozen=True, gc=False):
    """A node's contributions, of which `assignment` was the last, do no more for the rows that they were to be trained
    on than for others, too often for chance: `suspicion` is beyond its limit (`trust.suspicion`). The node gets no
    tasks until then (the controller's clock), or never again (None)."""

    assignment: int
    suspicion: float
    until: float | None


class Offended(Note, frozen=True, gc=False):
    """A node has handed in `count` results that no honest machine does: `assignment` was the last, and this its
    `reason`. The node gets no tasks until then (the controller's clock), or never again (None)."""

    assignment: int
    count: int
    reason: str
    until: float | None


Sentence: TypeAlias = Convicted | Discredited | Offended
"""That a node was found guilty: it gets no tasks until `until`, and what is in no version yet is taken back."""
