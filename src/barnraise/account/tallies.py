"""The outcomes of the work of a run and of each node, counted row by row."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, TypeAlias

import msgspec

from barnraise.account.reducer import Kinds, Reducer
from barnraise.core.types import ANSWERS
from barnraise.ledger import (
    Assigned,
    Change,
    Judged,
    LedgerView,
    NodeChanged,
    NodeTotals,
    Noted,
    Outcomes,
    RunTotals,
    VersionClosed,
    VersionMade,
    notes,
)
from barnraise.ledger.outcomes import LookedAt

LAST = "last"
"""The reason for which the run's last buffer closes."""

Outcome: TypeAlias = Literal["accepted", "found", "refused", "discarded"]


class LastChange(msgspec.Struct):
    """A node's last change, its device as it told last, and its role."""

    change: Change
    reason: str
    time: float
    device: str = ""
    role: str = ""  # "": an ordinary worker


class WorkTally(msgspec.Struct):
    """Counts of a node's work.

    `lost` was taken back before the run's end, `copied` was finished by a copy first; `judged`, `staleness` (their sum)
    and `seconds` are those of contributions, `num_bytes` those of all results.
    """

    assigned: int = 0
    accepted: int = 0
    found: int = 0
    refused: int = 0
    discarded: int = 0
    lost: int = 0
    copied: int = 0
    tokens: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    judged: int = 0
    staleness: tuple[int, int] = (0, 0)  # their sum, and the largest of all results


class Pending(msgspec.Struct):
    """A contribution that was accepted, and is in no version yet."""

    node: str
    tokens: int
    signed: bool


class Tallies(Reducer):
    """Counts the outcomes of the run's work.

    An accepted contribution that could not be used was refused or discarded (`voided`); one that is in no version at
    the end was discarded (`pending`, once something is `left_over`); an accepted result that is no update is a finding,
    and no contribution. `end` is when the run took its last contribution: assignments released from then on are not
    lost, but not needed.
    """

    kinds: ClassVar[Kinds] = (
        NodeChanged, Assigned, Judged, VersionClosed, VersionMade, notes.Voided, notes.LeftOver, notes.Released,
        notes.Reopened, notes.Audited, notes.Scored, notes.Unaudited,
    )  # fmt: skip

    nodes: dict[str, LastChange] = msgspec.field(default_factory=dict)
    work: dict[str, WorkTally] = msgspec.field(default_factory=dict)
    refusals: dict[str, int] = msgspec.field(default_factory=dict)
    pending: dict[int, Pending] = msgspec.field(default_factory=dict)
    voided: dict[int, notes.Voided] = msgspec.field(default_factory=dict)
    version: int = -1
    signed: int = 0
    looked_at: LookedAt = LookedAt()
    left_over: bool = False
    end: float = math.inf

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        if isinstance(decision, Assigned):
            self._of(decision.node).assigned += 1
        elif isinstance(decision, Judged):
            self._judged(decision)
        elif isinstance(decision, Noted):
            self._noted(row_id, decision, view)
        elif isinstance(decision, NodeChanged):
            self._changed(decision)
        elif isinstance(decision, VersionClosed):
            for number in decision.contributions:
                self.pending.pop(number, None)
            if decision.reason == LAST:
                self._ends(row_id, decision.time, view)
        elif isinstance(decision, VersionMade):
            self.version = max(self.version, decision.version)

    def _of(self, node: str) -> WorkTally:
        tally = self.work.get(node)
        if tally is None:
            tally = self.work[node] = WorkTally()
        return tally

    def _changed(self, d: NodeChanged) -> None:
        known = self.nodes.get(d.node)
        device = d.profile.device if d.profile is not None else known.device if known else ""
        role = d.role if d.change is Change.ENROLLED else known.role if known else ""
        self.nodes[d.node] = LastChange(d.change, d.reason, d.time, device, role)

    def _judged(self, d: Judged) -> None:
        tally = self._of(d.node)
        tally.num_bytes += d.claim.num_bytes
        tally.staleness = tally.staleness[0], max(tally.staleness[1], d.staleness)
        void = self.voided.get(d.assignment)
        if void is not None:
            self._count(d, "refused" if void.judged else "discarded", void.reason)
        elif d.verdict != "accepted":
            self._count(d, d.verdict, d.reason)
        elif not d.contributes:
            self._count(d, "found")
            if d.claim.result in ANSWERS:
                self._look_at("answered")
        else:
            self._count(d, "accepted")
            self.pending[d.assignment] = Pending(d.node, d.tokens, d.claim.signature != "")

    def _count(self, d: Judged, outcome: Outcome, because: str = "", by: int = 1) -> None:
        """Count a result, or with `by` = -1 take it back."""
        tally = self._of(d.node)
        setattr(tally, outcome, getattr(tally, outcome) + by)
        if outcome == "found":
            return
        tally.judged += by
        tally.staleness = tally.staleness[0] + by * d.staleness, tally.staleness[1]
        if d.claim.seconds == d.claim.seconds:
            tally.seconds += by * d.claim.seconds
        if outcome == "accepted":
            tally.tokens += by * d.tokens
            self.signed += by * (d.claim.signature != "")
        elif outcome == "refused":
            self.refusals[because] = self.refusals.get(because, 0) + by

    def _noted(self, row_id: int, d: Noted, view: LedgerView) -> None:
        note = d.note
        if isinstance(note, notes.Released | notes.Reopened):
            if d.time < self.end:
                self._released(d, 1)
        elif isinstance(note, notes.Audited):
            self._look_at("anew")
        elif isinstance(note, notes.Scored):
            self._look_at("scored")
        elif isinstance(note, notes.Unaudited):
            self._look_at("lapsed")
        elif isinstance(note, notes.Voided):
            self._void(row_id, note, view)
        elif isinstance(note, notes.LeftOver):
            self.left_over = True
            self._ends(row_id, d.time, view)

    def _look_at(self, field: str) -> None:
        self.looked_at = msgspec.structs.replace(self.looked_at, **{field: getattr(self.looked_at, field) + 1})

    def _released(self, d: Noted, by: int) -> None:
        tally = self._of(d.node)
        if isinstance(d.note, notes.Reopened):
            tally.lost -= by
        elif isinstance(d.note, notes.Released) and d.note.reason == notes.COPY_CAME_FIRST:
            tally.copied += by
        else:
            tally.lost += by

    def _void(self, row_id: int, note: notes.Voided, view: LedgerView) -> None:
        if note.assignment in self.voided:
            return
        self.voided[note.assignment] = note
        self.pending.pop(note.assignment, None)
        accepted = "verdict = 'accepted' AND assignment = ? AND id < ?"
        for _, judged in view.find(Judged, accepted, note.assignment, row_id):
            self._count(judged, "accepted" if judged.contributes else "found", by=-1)
            self._count(judged, "refused" if note.judged else "discarded", note.reason)

    def _ends(self, row_id: int, time: float, view: LedgerView) -> None:
        """The run took its last contribution at `time`: what was released since was not lost."""
        if time < self.end:
            since = "kind IN ('released', 'reopened') AND time >= ? AND time < ? AND id < ?"
            for _, released in view.find(Noted, since, time, self.end, row_id):
                self._released(released, -1)
            self.end = time

    def _left(self) -> dict[str, tuple[int, int, int]]:
        """Return by node its accepted contributions that enter no version: number, tokens, and signed ones."""
        found: dict[str, tuple[int, int, int]] = {}
        for one in self.pending.values() if self.left_over else ():
            count, tokens, signed = found.get(one.node, (0, 0, 0))
            found[one.node] = count + 1, tokens + one.tokens, signed + one.signed
        return found

    def totals(self, epochs: int, seconds: float) -> RunTotals:
        """Return the totals of the run so far; `Timeline` knows the arguments."""
        left, tallies = self._left(), self.work.values()
        late = sum(count for count, _, _ in left.values())
        return RunTotals(
            version=self.version,
            accepted=sum(tally.accepted for tally in tallies) - late,
            refused=sum(tally.refused for tally in tallies),
            discarded=sum(tally.discarded for tally in tallies) + late,
            tokens=sum(tally.tokens for tally in tallies) - sum(tokens for _, tokens, _ in left.values()),
            num_bytes=sum(tally.num_bytes for tally in tallies),
            contributors=sum(tally.accepted > left.get(node, (0,))[0] for node, tally in self.work.items()),
            epochs=epochs,
            seconds=seconds,
            found=sum(tally.found for tally in tallies),
            signed=self.signed - sum(signed for _, _, signed in left.values()),
            looked_at=self.looked_at,
        )

    def each(self) -> list[NodeTotals]:
        """List every node that was ever enrolled, in the order in which they first appeared."""
        left = self._left()
        return [self._node(node, presence, *left.get(node, (0, 0, 0))[:2]) for node, presence in self.nodes.items()]

    def _node(self, node: str, presence: LastChange, late: int, tokens: int) -> NodeTotals:
        tally = self.work.get(node) or WorkTally()
        return NodeTotals(
            node=node,
            change=presence.change,
            reason=presence.reason,
            time=presence.time,
            outcomes=Outcomes(
                assigned=tally.assigned,
                accepted=tally.accepted - late,
                found=tally.found,
                refused=tally.refused,
                discarded=tally.discarded + tally.copied + late,
                lost=tally.lost,
            ),
            tokens=tally.tokens - tokens,
            num_bytes=tally.num_bytes,
            seconds=tally.seconds,
            mean_staleness=tally.staleness[0] / tally.judged if tally.judged else 0.0,
            max_staleness=tally.staleness[1],
            device=presence.device,
            role=presence.role,
        )

    def refused(self) -> dict[str, int]:
        """Count the refused contributions by reason, the most frequent first."""
        there = [(reason, count) for reason, count in self.refusals.items() if count]
        return dict(sorted(there, key=lambda item: (-item[1], item[0])))
