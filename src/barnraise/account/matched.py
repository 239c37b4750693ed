"""The standing market over a run: its newest figures, and their mean over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from barnraise.account.reducer import Kinds, Reducer
from barnraise.ledger import LedgerView, Noted
from barnraise.ledger.notes import Matched, NoMarket
from barnraise.matching.metrics import TimeAverage

SHARES = {
    "stability": "stability",
    "nearly_stable": "nearly",
    "stable_at_prices": "priced",
    "blocking_density": "blocking",
    "regret": "regret",
}
"""Figures that are shares, by their names for programs, as fields of `Matched`."""

COUNTS = {"market_events": "events", "moves": "moves", "rematches": "rematches"}
"""Counts, for the newest controller's time."""


@dataclass(frozen=True)
class Matching:
    """The newest figures, and the same with shares that are means over the time since the first."""

    newest: Matched
    mean: Matched


class Matchings(Reducer):
    """Folds the notes of the market, in order.

    It keeps the newest figures, the `means` of the shares, which hold from `at` on, and why no market stands (`absent`;
    empty while one does, and before the first note).
    """

    kinds: ClassVar[Kinds] = (Matched, NoMarket)

    newest: Matched | None = None
    absent: str = ""
    means: dict[str, TimeAverage] = msgspec.field(
        default_factory=lambda: {name: TimeAverage() for name in SHARES.values()}
    )
    at: float = 0.0

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        if isinstance(decision, Noted):
            self.note(decision)

    def note(self, noted: Noted) -> None:
        """Add the next note of the market.

        Figures hold from its time on, or from the last one's: a controller's clock may be set back.
        """
        if isinstance(noted.note, NoMarket):
            self.absent = noted.note.reason
        elif isinstance(noted.note, Matched):
            self.at, self.newest, self.absent = max(self.at, noted.time), noted.note, ""
            for name, mean in self.means.items():
                mean.note(self.at, getattr(noted.note, name))

    def until(self, time: float) -> Matching | None:
        """Return the figures as of `time`; None where no market stands."""
        if self.newest is None:
            return None
        means = {name: mean.mean(max(self.at, time)) for name, mean in self.means.items()}
        return Matching(self.newest, msgspec.structs.replace(self.newest, **means))


def as_figures(matching: Matching | None) -> dict[str, float | None]:
    """Return all figures in one mapping for programs, None where no market stands."""
    newest, mean = (matching.newest, matching.mean) if matching else (None, None)
    found = {
        **{name: getattr(newest, key, None) for name, key in (COUNTS | SHARES).items()},
        **{f"mean_{name}": getattr(mean, key, None) for name, key in SHARES.items()},
    }
    return {name: value if value is None or value >= 0.0 else None for name, value in found.items()}
