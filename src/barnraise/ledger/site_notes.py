"""Notes about sites: nodes that train on rows of their own, which stay with them."""

from __future__ import annotations

from typing import ClassVar

from barnraise.ledger.note import Note


class SiteDeclared(Note, frozen=True, gc=False):
    """A node has rows of its own, in this lane: rounded counts, and a hash with a salt that only it knows.

    Lost work on rows that it had before is not done again.
    """

    sentence: ClassVar[str] = "{node} has about {rows:,} rows of its own"

    lane: int
    rows: int
    held_out: int
    digest: str
    losses: str = "off"


class SiteRefused(Note, frozen=True, gc=False):
    """The rows of a node are not those of the run."""

    sentence: ClassVar[str] = "the rows of {node} were refused: {reason}"

    reason: str


class SiteAwaited(Note, frozen=True, gc=False):
    """Lost work of a node that is gone waits for it, as only it has the rows."""

    sentence: ClassVar[str] = "{tasks} tasks wait for the rows of {node}; they are dropped if you revoke it"

    tasks: int
