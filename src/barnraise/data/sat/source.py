"""The distribution of a SAT dataset's formulas: where they come from, and the shares of those that need search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import msgspec

from barnraise.core.errors import OptionError
from barnraise.data.sat.formulas import Formulas, require_within

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Band:
    """The formulas whose traces take `at_least` to `at_most` decisions back, and their share of the rows.

    `satisfiable` is the share of satisfiable ones among them; as they come when it is None.
    """

    at_least: int = 0
    at_most: int | None = None
    share: float = 1.0
    satisfiable: float | None = None

    def __post_init__(self) -> None:
        require_within(("backtracking.share", self.share, 0, 1), ("backtracking.at_least", self.at_least, 0, 10**6))
        if self.at_most is not None and self.at_most < self.at_least:
            raise OptionError(
                f"backtracking has at_least {self.at_least} and at_most {self.at_most}, but a band ascends; swap them"
            )
        if self.satisfiable is not None:
            require_within(("backtracking.satisfiable", self.satisfiable, 0, 1))

    def holds(self, backtracks: int) -> bool:
        """Return whether a formula on which the solver takes `backtracks` decisions back is one of these."""
        return self.at_least <= backtracks and (self.at_most is None or backtracks <= self.at_most)

    def __str__(self) -> str:
        """Return the band in words.

        >>> str(Band(1)), str(Band(2, 5)), str(Band(3, 3)), str(Band())
        ('1 or more backtracks', '2 to 5 backtracks', '3 backtracks', 'any backtracks')
        """
        if self.at_most is None:
            return f"{self.at_least} or more backtracks" if self.at_least else "any backtracks"
        if self.at_least == self.at_most:
            return f"{self.at_least} backtrack{'s' * (self.at_least != 1)}"
        return f"{self.at_least} to {self.at_most} backtracks"


class RowShare(NamedTuple):
    """A part of the rows: those of a band, with one verdict or with any (None)."""

    band: Band
    satisfiable: bool | None
    share: float

    def holds(self, backtracks: int, satisfiable: bool) -> bool:
        return self.band.holds(backtracks) and self.satisfiable in (None, satisfiable)

    def __str__(self) -> str:
        verdict = {None: "", True: "satisfiable with ", False: "unsatisfiable with "}[self.satisfiable]
        return f"{verdict}{self.band}"


@dataclass(frozen=True)
class Source:
    """Formulas of a family or of DIMACS files, and the shares in which they are kept.

    `backtracking` has bands whose shares sum to at most 1; other rows are as they come. Without it `balanced` keeps as
    many satisfiable as unsatisfiable formulas. `pairs` is the share of rows that come as two formulas one literal apart
    with different verdicts: the first of them counts for the other shares, its partner is as it comes. `files` names
    DIMACS files: their formulas are trained on again and again, with `renamings` each time under other names of
    variables, with other signs and in another order, or once without.
    """

    formulas: Formulas = field(default_factory=Formulas)
    balanced: bool = True
    backtracking: tuple[Band, ...] = ()
    pairs: float = 0.0
    files: tuple[str, ...] = ()
    renamings: bool = True

    def __post_init__(self) -> None:
        require_within(("pairs", self.pairs, 0, 1))
        total = sum(band.share for band in self.backtracking)
        if total > 1 + _ROUNDING:
            raise OptionError(f"the shares of backtracking sum to {total:.4g}, but may sum to 1; lower some")

    @property
    def cells(self) -> tuple[RowShare, ...]:
        """Return the parts of the rows; their shares sum to 1."""
        if not self.backtracking:
            verdicts = (True, False) if self.balanced else (None,)
            return tuple(RowShare(Band(), verdict, 1 / len(verdicts)) for verdict in verdicts)
        rest = 1 - sum(band.share for band in self.backtracking)
        found = [RowShare(Band(), None, rest)] if rest > _ROUNDING else []
        for band in self.backtracking:
            if band.satisfiable is None:
                found.append(RowShare(band, None, band.share))
            else:
                found.append(RowShare(band, True, band.share * band.satisfiable))
                found.append(RowShare(band, False, band.share * (1 - band.satisfiable)))
        return tuple(cell for cell in found if cell.share > 0)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Source:
        """Return the source whose `as_dict` has these values, which are taken out of `values`."""
        drawn = {known.name: values.pop(known.name) for known in fields(Formulas) if known.name in values}
        own = {known.name: values.pop(known.name) for known in fields(cls) if known.name in values}
        return msgspec.convert({**own, "formulas": drawn}, cls)

    def as_dict(self) -> dict[str, Any]:
        """Return all values in one mapping, as in a run file."""
        found = asdict(self)
        found |= {name: list(found[name]) for name in ("backtracking", "files")}
        drawn: dict[str, Any] = found.pop("formulas")
        return drawn | found


def quotas(cells: Sequence[RowShare], number: int) -> list[int]:
    """Return how many of `number` rows each cell has.

    >>> quotas(Source().cells, 5), quotas(Source(balanced=False).cells, 5)
    ([2, 3], [5])
    """
    ends, total = [], 0.0
    for cell in cells:
        total += cell.share
        ends.append(int(number * total + _ROUNDING))
    ends[-1] = number
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
