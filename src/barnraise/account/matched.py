"""How the standing market was over a run: as it was last told, and in the mean over the time."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from barnraise.ledger.notes import Matched
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


@dataclass(frozen=True)
class Matching:
    """What was told last, and the same with shares that are means over the time since the market was first told of."""

    newest: Matched
    mean: Matched


@dataclass
class Matchings:
    """Is told of each `Matched` in order, with its time."""

    newest: Matched | None = None
    absent: str = ""  # why no market stands; empty while one does, and before anything was told
    _means: dict[str, TimeAverage] = field(default_factory=lambda: {name: TimeAverage() for name in SHARES.values()})
    _at: float = 0.0

    def add(self, time: float, matched: Matched) -> None:
        """It holds from `time` on, or from the last one's: a controller's clock may be set back."""
        self._at, self.newest, self.absent = max(self._at, time), matched, ""
        for name, mean in self._means.items():
            mean.note(self._at, getattr(matched, name))

    @property
    def told_at(self) -> float:
        """When the newest was told; before all times if none was."""
        return self._at if self.newest is not None else -1.0

    def until(self, time: float) -> Matching | None:
        """As of `time`; None where no market stands."""
        if self.newest is None:
            return None
        means = {name: mean.mean(max(self._at, time)) for name, mean in self._means.items()}
        return Matching(self.newest, msgspec.structs.replace(self.newest, **means))


def as_figures(matching: Matching | None) -> dict[str, float | None]:
    """All of it side by side for programs, None where no market stands."""
    newest, mean = (matching.newest, matching.mean) if matching else (None, None)
    found = {
        **{name: getattr(newest, key, None) for name, key in (COUNTS | SHARES).items()},
        **{f"mean_{name}": getattr(mean, key, None) for name, key in SHARES.items()},
    }
    return {name: value if value is None or value >= 0.0 else None for name, value in found.items()}
