"""The reducers of a run's account, folded from its ledger's rows: a file can hold their state."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from barnraise.account import pauses
from barnraise.account.activity import Activity
from barnraise.account.chronicle import Chronicle
from barnraise.account.counts import EventCounts
from barnraise.account.details import Details
from barnraise.account.doubts import Doubts
from barnraise.account.hindsight import Hindsight
from barnraise.account.loss_curve import LossCurve
from barnraise.account.matched import MarketCurve, Matchings
from barnraise.account.merging import NewestVersion
from barnraise.account.metrics import Metrics
from barnraise.account.overheads import Overheads
from barnraise.account.pauses import Pauses
from barnraise.account.reducer import Kinds, Reducer, Timeline
from barnraise.account.tallies import Tallies
from barnraise.ledger import Assigned, Decision, Judged, LedgerView, Noted, notes


class Foreseen(Reducer):
    """Hands `Hindsight` the tasks that were expected to take some time, and their results."""

    kinds: ClassVar[Kinds] = (Assigned, Judged, notes.Released)

    hindsight: Hindsight = msgspec.field(default_factory=Hindsight)

    def add(self, row_id: int, decision: Decision, view: LedgerView) -> None:
        if not isinstance(decision, Assigned) or decision.terms.compute > 0.0:
            self.hindsight.add(decision)


class NewestNotes(Reducer):
    """The newest notes of some kinds; `run_file` is what counts of the run file."""

    kinds: ClassVar[Kinds] = (
        notes.Traffic, notes.Employed, notes.BufferSize, notes.RunFile, notes.Finished, notes.PrivacyBudget,
        notes.PrivacySpent, *pauses.KINDS
    )  # fmt: skip

    traffic: notes.Traffic | None = None
    employed: notes.Employed | None = None
    buffer_size: notes.BufferSize | None = None
    run_file: dict[str, Any] = msgspec.field(default_factory=dict)
    finished: str = ""
    budget: notes.PrivacyBudget | None = None
    spent: notes.PrivacySpent | None = None
    pauses: Pauses = Pauses()

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        note = decision.note if isinstance(decision, Noted) else None
        if isinstance(note, notes.Traffic):
            self.traffic = note
        elif isinstance(note, notes.Employed):
            self.employed = note
        elif isinstance(note, notes.BufferSize):
            self.buffer_size = note
        elif isinstance(note, notes.RunFile):
            self.run_file = note.content
        elif isinstance(note, notes.PrivacyBudget):
            self.budget = note
        elif isinstance(note, notes.PrivacySpent):
            self.spent = note
        elif isinstance(note, notes.Finished):
            self.finished = note.reason
        elif isinstance(decision, Noted):
            self.pauses = self.pauses.after(decision)


class OverTime(msgspec.Struct):
    """A run over its time: activities of nodes, figures of the market, how often things happened, facts about nodes."""

    activity: Activity = msgspec.field(default_factory=Activity)
    market: MarketCurve = msgspec.field(default_factory=MarketCurve)
    counts: EventCounts = msgspec.field(default_factory=EventCounts)
    details: Details = msgspec.field(default_factory=Details)

    @property
    def reducers(self) -> list[Reducer]:
        return [self.activity, self.market, self.counts, self.details]


class Folded(msgspec.Struct):
    """The state of each reducer of an account."""

    timeline: Timeline = msgspec.field(default_factory=Timeline)
    tallies: Tallies = msgspec.field(default_factory=Tallies)
    losses: LossCurve = msgspec.field(default_factory=LossCurve)
    chronicle: Chronicle = msgspec.field(default_factory=Chronicle)
    newest: NewestNotes = msgspec.field(default_factory=NewestNotes)
    version: NewestVersion = msgspec.field(default_factory=NewestVersion)
    foreseen: Foreseen = msgspec.field(default_factory=Foreseen)
    matchings: Matchings = msgspec.field(default_factory=Matchings)
    doubts: Doubts = msgspec.field(default_factory=Doubts)
    metrics: Metrics = msgspec.field(default_factory=Metrics)
    overheads: Overheads = msgspec.field(default_factory=Overheads)
    over_time: OverTime = msgspec.field(default_factory=OverTime)

    @property
    def reducers(self) -> list[Reducer]:
        """Return the list of all reducers."""
        return [
            self.tallies, self.losses, self.chronicle, self.newest, self.version, self.foreseen, self.matchings,
            self.doubts, self.metrics, self.overheads, *self.over_time.reducers,
        ]  # fmt: skip
