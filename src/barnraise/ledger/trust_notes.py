"""The controller's notes about trust: repeated work, scores, and their consequences for nodes."""

from __future__ import annotations

from typing import TypeAlias

from barnraise.ledger.note import Note


class Audited(Note, frozen=True, gc=False):
    """Node `by` has repeated the work of assignment `audited`, as `assignment`.

    `cosine` is that of the angle between both updates, `distance` their distance as a share of the sent one's length.
    Both are from sketches (`core.sketches`); a stateful worker's task cannot be repeated exactly.
    """

    audited: int
    assignment: int
    by: str
    cosine: float
    distance: float
    sound: bool | None = None  # whether other results confirm the one that was sent; None: open


class Unaudited(Note, frozen=True, gc=False):
    """A task that was drawn for an audit is not repeated any more, without a verdict."""

    assignment: int
    reason: str


class Convicted(Note, frozen=True, gc=False):
    """A node's result for `assignment` differs from those of others for the same task.

    `against` are the assignments of those, which agree with each other. The node gets no tasks until `until` (the
    controller's clock), or never again (None).
    """

    assignment: int
    against: tuple[int, ...]
    until: float | None


class Scored(Note, frozen=True, gc=False):
    """The score of a contribution: how a step along it lowers the loss of `version`, in nats a token.

    `own` is on the rows that it was to be trained on, `others` on others; `more` is how much more its own gain, in
    standard errors (None: not finite). It `passed` if that is enough; `suspicion` is the remaining one
    (`trust.suspicion`).
    """

    assignment: int
    version: int
    own: float | None
    others: float | None
    more: float | None
    passed: bool
    suspicion: float


class Discredited(Note, frozen=True, gc=False):
    """A node's contributions help their own rows no more than other rows, too often for chance.

    `assignment` was the last of them, and `suspicion` is beyond its limit (`trust.suspicion`). The node gets no tasks
    until `until` (the controller's clock), or never again (None).
    """

    assignment: int
    suspicion: float
    until: float | None


class Offended(Note, frozen=True, gc=False):
    """A node has submitted `count` results that no correct node sends.

    `assignment` was the last, and `reason` is its defect. The node gets no tasks until `until` (the controller's
    clock), or never again (None).
    """

    assignment: int
    count: int
    reason: str
    until: float | None


Sentence: TypeAlias = Convicted | Discredited | Offended
"""The verdict that a node gets no tasks until `until`, and its contributions that are in no version yet are taken back.
"""
