"""A sample of the formulas that a SAT dataset will be made of: what they give, before the dataset is made."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from typing import NamedTuple

from barnraise.core.units import count_text
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

HELD_SHARE = 0.95
"""Share of the formulas that a context which is proposed holds with their traces."""


class SampledFormula(NamedTuple):
    """The tokens of a formula with its trace, the decisions taken back in it, and its verdict."""

    tokens: int
    backtracks: int
    satisfiable: bool


@dataclass
class Sample:
    """The outcome of `drawn` formulas: those that could be solved and padded, whether they fit `context` or not."""

    cells: tuple[RowShare, ...]
    context: int
    collection: Collection | None = None
    drawn: int = 0
    solved: list[SampledFormula] = field(default_factory=list)

    @cached_property
    def fitting(self) -> list[SampledFormula]:
        """Return the formulas that fit the context."""
        return [formula for formula in self.solved if formula.tokens <= self.context]

    @property
    def too_long(self) -> int:
        """Return the number of formulas without an example that fits."""
        return self.drawn - len(self.fitting)

    @property
    def mean_tokens(self) -> float:
        """Return the mean tokens of an example that fits."""
        return sum(formula.tokens for formula in self.fitting) / max(1, len(self.fitting))

    def lacking(self, number: float) -> Iterator[str]:
        """Yield why the formulas cannot give a part of `number` rows, in whichever context."""
        for cell in self.cells:
            hits = len(_held(cell, self.solved))
            if self.solved and self._is_rare(cell, hits, number):
                has = f"{hits} of {self.drawn:,} drawn are" if hits else f"none of {self.drawn:,} drawn is"
                yield f"{cell.share:.3g} of the rows are to be {cell}, but {has}; they have {self._distribution()}"

    def cut_off(self, number: float) -> Iterator[str]:
        """Yield why the context leaves too few formulas of a part of `number` rows."""
        if not self.solved:
            yield f"none of {self.drawn:,} drawn has as few clauses as a prompt, and is solved within data.solver_limit"
        elif not self.fitting:
            shortest = min(formula.tokens for formula in self.solved)
            yield (
                f"the shortest of {self.drawn:,} drawn has {shortest:,} tokens with its trace, but context is "
                f"{self.context:,}; {holding(self.solved)}"
            )
        else:
            for cell in self.cells:
                all_lengths, fit = _held(cell, self.solved), len(_held(cell, self.fitting))
                if self._is_rare(cell, fit, number) and not self._is_rare(cell, len(all_lengths), number):
                    yield (
                        f"{cell.share:.3g} of the rows are to be {cell}, but {len(all_lengths) - fit:,} of "
                        f"{len(all_lengths):,} such formulas have more than {self.context:,} tokens with their traces; "
                        f"{holding(all_lengths)}"
                    )

    def _is_rare(self, cell: RowShare, hits: int, number: float) -> bool:
        return hits * max(RAREST, FEW_DRAWS / number) < cell.share * self.drawn

    def _distribution(self) -> str:
        counts = sorted(Counter(formula.backtracks for formula in self.solved).items())
        found = [f"{count_text(number, 'backtrack')} {count / len(self.solved):.2%}" for number, count in counts[:8]]
        more = f", up to {counts[-1][0]}" if len(counts) > 8 else ""
        return f"{', '.join(found)}{more}"


def holding(formulas: list[SampledFormula]) -> str:
    """Say which context holds most of some formulas with their traces.

    >>> holding([SampledFormula(tokens, 0, True) for tokens in range(1, 101)])
    'a context of 95 holds 95% of them'
    """
    lengths = sorted(formula.tokens for formula in formulas)
    return f"a context of {lengths[math.ceil(HELD_SHARE * len(lengths)) - 1]:,} holds {HELD_SHARE:.0%} of them"


def sample(options: SatOptions, source: Source) -> Sample:
    """Draw and solve formulas of `source`; the same options give the same sample. DataError for unusable files."""
    drawing, hits = Drawing(options), [0] * len(source.cells)
    found = Sample(source.cells, options.context, drawing.collection(source) if source.files else None)
    blocks = Blocks(drawing.plan(source, (options.seed, 2)), drawing.maker)
    formulas = chain.from_iterable(map(blocks.formulas, range(-(-LAST // BLOCK))))
    for formula in islice(formulas, LAST):
        found.drawn += 1
        example = drawing.maker.example(formula)
        if example is not None:
            found.solved.append(SampledFormula(len(example.ids), example.backtracks, example.satisfiable))
            for place, cell in enumerate(source.cells):
                fits = len(example.ids) <= options.context
                hits[place] += fits and cell.holds(example.backtracks, example.satisfiable)
        if found.drawn >= FEWEST and min(hits) >= (ENOUGH if found.drawn < MOST else 1):
            break
    return found


def _held(cell: RowShare, formulas: list[SampledFormula]) -> list[SampledFormula]:
    return [formula for formula in formulas if cell.holds(formula.backtracks, formula.satisfiable)]
