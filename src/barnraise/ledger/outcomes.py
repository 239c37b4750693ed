"""The outcomes of the work in a ledger as plain values: for the run, a node, a version and an assignment."""

from __future__ import annotations

from typing import Literal

import msgspec

from barnraise.ledger.decisions import Change


class LookedAt(msgspec.Struct, frozen=True):
    """Counts of contributions that other nodes repeated or the controller scored, and of answers of trustees."""

    anew: int = 0
    scored: int = 0
    lapsed: int = 0  # audits without a verdict
    answered: int = 0  # about lists


class RunTotals(msgspec.Struct, frozen=True):
    """The run so far; `seconds` adds up the epochs, without the time between them."""

    version: int  # the newest whose parameters exist, -1 for none
    accepted: int
    refused: int
    discarded: int
    tokens: int  # accepted contributions'
    num_bytes: int  # size of the payloads of all judged contributions
    contributors: int  # nodes with an accepted contribution
    epochs: int
    seconds: float
    found: int = 0  # accepted results that are no contributions: measurements, repeated work, trustees' answers
    signed: int = 0  # accepted contributions that their nodes signed
    looked_at: LookedAt = LookedAt()


class Outcomes(msgspec.Struct, frozen=True):
    """The outcomes of a node's assignments."""

    assigned: int
    accepted: int
    found: int  # accepted results that are no contributions
    refused: int
    discarded: int
    lost: int  # taken back because the node left or forgot them, before the run's end

    @property
    def judged(self) -> int:
        return self.accepted + self.found + self.refused + self.discarded

    @property
    def open(self) -> int:
        """Return those without an outcome: yet, or when the run ended."""
        return self.assigned - self.judged - self.lost


class NodeTotals(msgspec.Struct, frozen=True):
    """The totals of one node so far."""

    node: str
    change: Change  # the last
    reason: str
    time: float  # time of that change
    outcomes: Outcomes
    tokens: int  # accepted contributions'
    num_bytes: int
    seconds: float  # seconds of work on contributions, by the node's claim
    mean_staleness: float  # judged contributions'
    max_staleness: int
    device: str  # by the node's claim
    role: str = ""  # "": an ordinary worker


class VersionRow(msgspec.Struct, frozen=True):
    """One version and its contributions; `made_time` and `digest` are None until it is made."""

    version: int
    time: float
    num_nodes: int
    num_contributions: int
    tokens: int
    reason: str
    made_time: float | None
    digest: str | None
    delta_bytes: int | None


class LossPoint(msgspec.Struct, frozen=True):
    """The held-out loss (nats a token) of a version, the tokens in it, and the run's seconds when it was made."""

    version: int
    tokens: int
    seconds: float
    loss: float
    owners: int = 0  # owners that measured each row, at least; 0: the controller did, or unknown


class AssignmentRow(msgspec.Struct, frozen=True):
    """One assignment and its outcome; `stop` is None while it is open."""

    assignment: int
    node: str
    start: float
    stop: float | None
    outcome: Literal["accepted", "found", "refused", "discarded", "lost", "open"]
    tokens: int
