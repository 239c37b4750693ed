"""How the standing market was over a run: as it was last told, and in the mean over the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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
"""Those figures that are shares, by the names that they have in what programs read, as fields of `Matched`."""

COUNTS = {"market_events": "events", "moves": "moves", "rematches": "rematches"}
"""The others, of the newest controller's time."""


MOST_POINTS = 400
"""Points of a curve over the whole run."""


@dataclass(frozen=True)
class Matching:
    """The newest figures, and the same with shares that are means over the time since the first."""

    newest: Matched
    mean: Matched


class Matchings(Reducer):
    """Keeps the market's newest figures, the `means` of its shares, and why no market stands.

    The newest shares hold from `at` on; `absent` is empty while a market stands, and before anything was told.
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
        """Take the next note. Its figures hold from its time on.

        They hold from the last one's time on where a controller's clock was set back.
        """
        if isinstance(noted.note, NoMarket):
            self.absent = noted.note.reason
        elif isinstance(noted.note, Matched):
            self.at, self.newest, self.absent = max(self.at, noted.time), noted.note, ""
            for name, mean in self.means.items():
                mean.note(self.at, getattr(noted.note, name))

    def until(self, time: float) -> Matching | None:
        """Return the figures as of `time`; None where no market stood."""
        if self.newest is None:
            return None
        means = {name: mean.mean(max(self.at, time)) for name, mean in self.means.items()}
        return Matching(self.newest, msgspec.structs.replace(self.newest, **means))


class MarketPoint(NamedTuple):
    """The market's figures at one time, as in `Matched`; `moves` and `rematches` since its controller started."""

    time: float
    nodes: int
    tasks: int
    moves: int
    rematches: int
    stability: float
    nearly: float
    priced: float
    blocking: float
    regret: float


class MarketCurve(Reducer):
    """Keeps the market's figures over the run: every `stride`-th, so that there are MOST_POINTS at most."""

    kinds: ClassVar[Kinds] = (Matched,)

    points: list[MarketPoint] = msgspec.field(default_factory=list)
    stride: int = 1
    seen: int = 0

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        if not isinstance(decision, Noted) or not isinstance(decision.note, Matched):
            return
        if self.seen % self.stride == 0:
            if len(self.points) == MOST_POINTS:
                self.points, self.stride = self.points[::2], 2 * self.stride
            told = msgspec.structs.asdict(decision.note)
            self.points.append(MarketPoint(decision.time, **{name: told[name] for name in MarketPoint._fields[1:]}))
        self.seen += 1


def as_figures(matching: Matching | None) -> dict[str, float | None]:
    """Return all figures side by side for programs, None where no market stands."""
    newest, mean = (matching.newest, matching.mean) if matching else (None, None)
    found = {
        **{name: getattr(newest, key, None) for name, key in (COUNTS | SHARES).items()},
        **{f"mean_{name}": getattr(mean, key, None) for name, key in SHARES.items()},
    }
    return {name: value if value is None or value >= 0.0 else None for name, value in found.items()}
