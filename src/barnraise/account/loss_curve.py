"""The held-out losses of a run's versions, each beside the tokens in its version."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from barnraise.account.reducer import Kinds, Reducer
from barnraise.ledger import Judged, LedgerView, Noted, VersionClosed, VersionMade, notes
from barnraise.ledger.outcomes import LossPoint


class LossCurve(Reducer):
    """Keeps a point for each version that was evaluated, the oldest first; a loss that is not a number gives none.

    `tokens` are those of all versions so far, without those of contributions that were `voided`: (version, tokens).
    `unmade` has the places of points whose version has no parameters yet.
    """

    kinds: ClassVar[Kinds] = (VersionClosed, VersionMade, notes.Voided, notes.Evaluated)

    points: list[LossPoint] = msgspec.field(default_factory=list)
    tokens: int = 0
    voided: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)  # by assignment
    unmade: dict[int, list[int]] = msgspec.field(default_factory=dict)  # by version

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        if isinstance(decision, VersionClosed):
            self.tokens += decision.tokens
        elif isinstance(decision, VersionMade):
            for place in self.unmade.pop(decision.version, ()):
                self.points[place] = msgspec.structs.replace(self.points[place], seconds=decision.time)
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Voided):
            self._void(row_id, decision.note, view)
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Evaluated):
            self._evaluated(row_id, decision.note, view)

    def _evaluated(self, row_id: int, note: notes.Evaluated, view: LedgerView) -> None:
        if note.loss is None:
            return
        version, tokens, seconds = note.version, 0, 0.0
        if version > 0:
            closed = view.find(VersionClosed, "version = ? AND id < ?", version, row_id)
            if not closed:
                return  # another version of barnraise tells of versions that it does not close
            made = view.find(VersionMade, "version = ? AND made_id < ?", version, row_id)
            later = view.find(VersionClosed, "version > ? AND id < ?", version, row_id)
            void = sum(lost for its, lost in self.voided.values() if its > version)
            tokens = self.tokens - sum(d.tokens for _, d in later) + void
            seconds = (made or closed)[0][1].time
            if not made:
                self.unmade.setdefault(version, []).append(len(self.points))
        self.points.append(LossPoint(version, tokens, seconds, note.loss, note.owners))

    def _void(self, row_id: int, note: notes.Voided, view: LedgerView) -> None:
        closed = view.find(VersionClosed, "version = ? AND id < ?", note.version, row_id)
        if note.assignment in self.voided or not closed or note.assignment not in closed[0][1].contributions:
            return
        judged = view.find(Judged, "verdict = 'accepted' AND assignment = ? AND id < ?", note.assignment, row_id)
        lost = sum(d.tokens for _, d in judged)
        self.voided[note.assignment] = note.version, lost
        self.tokens -= lost
        for place in range(len(self.points) - 1, -1, -1):
            point = self.points[place]
            if point.version >= note.version:
                self.points[place] = msgspec.structs.replace(point, tokens=point.tokens - lost)
