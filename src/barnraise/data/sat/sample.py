"""A sample of the formulas that a SAT dataset will be made of: what they give, before the dataset is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from barnraise.data.sat.blocks import BLOCK, Blocks
from barnraise.data.sat.collection import Collection
from barnraise.data.sat.drawing import Drawing
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.source import RowShare, Source

FEWEST, MOST, LAST = 300, 3000, 10_000
"""Formulas of a sample: more are drawn until each part of the rows has ENOUGH, or after MOST at least one."""

ENOUGH = 20
RAREST, FEW_DRAWS = 300, 300_000
"""Formulas to draw for each one that is kept, or in all, above which a share is more than the family can give."""

NOTABLE = 0.05
"""Share of formulas that are too long, from which on a warning tells."""


@dataclass
class Sample:
    """The outcome of `drawn` formulas: `too_long` for the context or not; those that fit by decisions taken back.

    `hits` counts those of each cell. `tokens` are the tokens of all that fit, `longest` is the longest example.
    """

    cells: tuple[RowShare, ...]
    hits: list[int]
    collection: Collection | None = None
    drawn: int = 0
    too_long: int = 0
    longest: int = 0
    shortest: int = 0
    tokens: int = 0
    backtracks: Counter[int] = field(default_factory=Counter)

    def lacking(self, number: float) -> Iterator[str]:
        """Yield why a part of `number` rows cannot be had."""
        if self.drawn and self.too_long == self.drawn:
            return
        for cell, hits in zip(self.cells, self.hits, strict=True):
            if hits * max(RAREST, FEW_DRAWS / number) < cell.share * self.drawn:
                has = f"{hits} of {self.drawn:,} drawn are" if hits else f"none of {self.drawn:,} drawn is"
                yield f"{cell.share:.3g} of the rows are to be {cell}, but {has}; they have {self._distribution()}"

    def _distribution(self) -> str:
        fit = self.drawn - self.too_long
        found = [f"{number} backtracks {count / fit:.2%}" for number, count in sorted(self.backtracks.items())[:8]]
        more = f", up to {max(self.backtracks)}" if len(self.backtracks) > 8 else ""
        return f"{', '.join(found)}{more}"

    @property
    def mean_tokens(self) -> float:
        """Return the mean tokens of an example."""
        return self.tokens / max(1, self.drawn - self.too_long)


def sample(options: SatOptions, source: Source) -> Sample:
    """Draw and solve formulas of `source`; the same options give the same sample. DataError for unusable files."""
    drawing, cells = Drawing(options), source.cells
    collection = drawing.collection(source) if source.files else None
    found = Sample(cells, [0] * len(cells), collection)
    blocks = Blocks(drawing.plan(source, (options.seed, 2)), drawing.maker)
    formulas = chain.from_iterable(map(blocks.formulas, range(-(-LAST // BLOCK))))
    for formula in islice(formulas, LAST):
        found.drawn += 1
        example = drawing.maker.example(formula)
        length = options.context + 1 if example is None else len(example.ids)
        found.longest = max(found.longest, length)
        found.shortest = min(found.shortest or length, length)
        if example is None or length > options.context:
            found.too_long += 1
        else:
            found.tokens += length
            found.backtracks[example.backtracks] += 1
            for place, cell in enumerate(cells):
                found.hits[place] += cell.holds(example.backtracks, example.satisfiable)
        if found.drawn >= FEWEST and min(found.hits) >= (ENOUGH if found.drawn < MOST else 1):
            break
    return found
