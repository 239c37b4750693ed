"""Counts of a model's right answers on held-out formulas, by set and by the search that the formulas take.

All figures are counts, so that sums over sets and bands stay exact. Shares and intervals follow from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields

BANDS: Mapping[str, int] = {"0": 0, "1": 1, "2": 2, "3": 3, "4 to 5": 5}
"""Bands of formulas by decisions taken back, with the most of each; MANY has more."""

MANY = "6 or more"

_NORMAL = 1.959964  # standard deviations within which 95% of a normal distribution lie


@dataclass(frozen=True)
class AnswerCounts:
    """Counts over held-out formulas.

    `verdicts`: the last token is the right verdict, whatever came before. `traces`: the checker accepts the whole
    trace, so that it proves its verdict. `assignments`: of the `satisfiable` formulas, those whose trace ends in SAT
    with literals that satisfy the formula. `accepted`: of all `steps` written, those that the checker accepts; of each
    trace it accepts the steps before the first wrong one. `propagation` and `decision`: the verdicts that `baselines`
    has right. `drawn_verdicts` and `drawn_traces`: the same as `verdicts` and `traces` of the best of several traces.
    """

    formulas: int = 0
    satisfiable: int = 0
    verdicts: int = 0
    traces: int = 0
    assignments: int = 0
    steps: int = 0
    accepted: int = 0
    propagation: int = 0
    decision: int = 0
    drawn_verdicts: int = 0
    drawn_traces: int = 0

    @property
    def majority(self) -> int:
        """Return how many verdicts are right by always giving the more frequent one."""
        return max(self.satisfiable, self.formulas - self.satisfiable)


def total(tallies: Iterable[AnswerCounts]) -> AnswerCounts:
    """Return the sum of `tallies`."""
    rows = [astuple(tally) for tally in tallies] or [(0,) * len(fields(AnswerCounts))]
    return AnswerCounts(*map(sum, zip(*rows, strict=True)))


def band_of(backtracks: int) -> str:
    """Return the band of a formula on which the solver takes this many decisions back.

    >>> [band_of(number) for number in (0, 3, 4, 5, 6, 60)]
    ['0', '3', '4 to 5', '4 to 5', '6 or more', '6 or more']
    """
    return next((band for band, most in BANDS.items() if backtracks <= most), MANY)


@dataclass(frozen=True)
class SetScores:
    """The scores on one held-out set, by band of decisions that the solver takes back.

    `familiar`: its formulas are of the kinds and sizes that the model was trained on.
    """

    name: str
    bands: Mapping[str, AnswerCounts]
    familiar: bool = True

    @property
    def all(self) -> AnswerCounts:
        """Return the counts over all formulas of the set."""
        return total(self.bands.values())

    @property
    def searched(self) -> AnswerCounts:
        """Return the counts over the formulas that need search: the solver takes a decision back."""
        return searched(self.bands)


@dataclass(frozen=True)
class Draws:
    """A second figure: the checker chooses among `number` traces of a formula.

    The first is the greedy one, the others are drawn at `temperature`. The checker takes the first trace that it
    accepts, else the verdict is the one that most of them give.
    """

    number: int
    temperature: float


@dataclass(frozen=True)
class SatScores:
    """The scores on all held-out sets, and one formula with the model's whole answer.

    The first set is distributed as the formulas of training.
    """

    sets: tuple[SetScores, ...]
    example: str
    draws: Draws | None = None

    @property
    def bands(self) -> dict[str, AnswerCounts]:
        """Return the counts over the familiar sets by band, those without formulas left out."""
        found = {
            band: total(scores.bands[band] for scores in self.sets if scores.familiar and band in scores.bands)
            for band in (*BANDS, MANY)
        }
        return {band: tally for band, tally in found.items() if tally.formulas}

    @property
    def searched(self) -> AnswerCounts:
        """Return the headline: the counts over formulas of all familiar sets that need search."""
        return searched(self.bands)


def searched(bands: Mapping[str, AnswerCounts]) -> AnswerCounts:
    """Return the sum over the bands in which a decision is taken back."""
    return total(tally for band, tally in bands.items() if band != "0")


def interval(right: int, number: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share, of which `right` of `number` draws were seen; all of [0, 1] for none.

    >>> tuple(round(end, 3) for end in interval(96, 100))
    (0.902, 0.984)
    """
    if not number:
        return 0.0, 1.0
    share, square = right / number, _NORMAL**2
    centre = share + square / (2 * number)
    reach = _NORMAL * math.sqrt(share * (1 - share) / number + square / (4 * number**2))
    low, high = ((centre + side * reach) / (1 + square / number) for side in (-1, 1))
    return max(0.0, low), min(1.0, high)
