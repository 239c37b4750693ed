"""Blocks of drawn formulas: the same for a part of the data and a number, in whichever process they are drawn.

A block has a random generator of its own. A process draws, solves and encodes its formulas, and finds partners of the
other verdict for some of them. It knows no other block, so the choice among the formulas is left to the reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from barnraise.data.sat import generators
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.examples import Example, ExampleMaker
from barnraise.data.sat.formulas import named
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.source import Source

BLOCK = 1024
"""Formulas of a block."""

TRIES = 24
"""Literals that are turned to find a partner of the other verdict for a formula."""

MORE_PAIRS = 1.1
"""Partners to find, over those that the shares ask for: some go with formulas that are not kept."""

_BLOCKS, _PARTNERS, _ORDERS = 1, 2, 3  # parts of seeds


class DrawnOutcome(IntEnum):
    """The outcome of a drawn formula: an example, or the reason why there is none.

    REPEATED: drawn before in the same block. TOO_LONG: longer than the context or than a padded prompt, or of too many
    decisions. SURPLUS: of no part of the rows.
    """

    EXAMPLE = 0
    REPEATED = 1
    TOO_LONG = 2
    SURPLUS = 3


class DrawnFormula(NamedTuple):
    """A drawn formula: its key, its example, the parts of the rows that may have it as bits, and its partner."""

    outcome: DrawnOutcome
    key: int
    example: Example | None = None
    cells: int = 0
    partner: DrawnFormula | None = None


@dataclass(frozen=True)
class BlockPlan:
    """The plan of a part of the data, on which alone its blocks depend.

    `files` are the formulas of files, or None where formulas are drawn from a family; they are drawn endlessly where
    they are `renamed`, else each once.
    """

    options: SatOptions
    source: Source
    seed: tuple[int, ...]
    files: tuple[Formula, ...] | None = None
    renamed: bool = False

    def encode(self) -> bytes:
        """Return the plan as one line of JSON."""
        line = _PlanLine(self.options.as_dict(), self.source.as_dict(), self.seed, self.files, self.renamed)
        return msgspec.json.encode(line)

    @classmethod
    def decode(cls, line: bytes) -> BlockPlan:
        """Return the plan that `encode` wrote."""
        read = msgspec.json.decode(line, type=_PlanLine)
        options, source = SatOptions.of(**read.options), Source.of(read.source)
        return cls(options, source, read.seed, read.files, read.renamed)


class _PlanLine(msgspec.Struct):
    options: dict[str, Any]
    source: dict[str, Any]
    seed: tuple[int, ...]
    files: tuple[Formula, ...] | None
    renamed: bool


class Blocks:
    """The blocks of a part of the data, by number."""

    def __init__(self, plan: BlockPlan, maker: ExampleMaker | None = None) -> None:
        self.plan, self._maker = plan, maker or ExampleMaker(plan.options)
        self._cells = plan.source.cells
        share = plan.source.pairs / 2
        self._pairs = min(1.0, MORE_PAIRS * share / (1 - share))  # formulas with a partner, of those without
        self._order: tuple[int, list[int]] = (-1, [])

    def block(self, number: int) -> Iterator[DrawnFormula]:
        """Draw the formulas of a block; it is empty behind the last formula of files."""
        chance = np.random.default_rng((*self.plan.seed, _PARTNERS, number))
        keys: set[int] = set()
        due: dict[int, float] = {}  # partners to find, by the parts that may have a formula
        for formula in self.formulas(number):
            key = self._maker.key(formula)
            if key in keys:
                yield DrawnFormula(DrawnOutcome.REPEATED, key)
                continue
            keys.add(key)
            drawn = self._drawn(formula, key)
            if drawn.example is not None and self._pairs:
                due[drawn.cells] = due.get(drawn.cells, chance.random()) + self._pairs
                if due[drawn.cells] >= 1:
                    partner = self._partner(formula, drawn.example, chance, keys)
                    due[drawn.cells] -= partner is not None
                    drawn = drawn._replace(partner=partner)
            yield drawn

    def formulas(self, number: int) -> Iterator[Formula]:
        """Yield the formulas of a block."""
        plan, files = self.plan, self.plan.files
        chance = np.random.default_rng((*plan.seed, _BLOCKS, number))
        if files is None:
            yield from islice(plan.source.formulas.draw(chance), BLOCK)
            return
        names = plan.source.formulas.num_names if plan.source.formulas.names is not None else 0
        first = number * BLOCK
        for place in range(first, first + BLOCK if plan.renamed else min(first + BLOCK, len(files))):
            formula = generators.scramble(chance, files[self._at(place)]) if plan.renamed else files[place]
            yield named(chance, formula, names)

    def _at(self, place: int) -> int:
        """Return the number of the formula at a place of the endless order: all are there before any again."""
        assert self.plan.files is not None
        size = len(self.plan.files)
        turn, rest = divmod(place, size)
        if self._order[0] != turn:
            chance = np.random.default_rng((*self.plan.seed, _ORDERS, turn))
            self._order = turn, chance.permutation(size).tolist()
        return self._order[1][rest]

    def _drawn(self, formula: Formula, key: int) -> DrawnFormula:
        result = self._maker.solved(formula)
        if result is None:
            return DrawnFormula(DrawnOutcome.TOO_LONG, key)
        bits = sum(
            1 << place
            for place, cell in enumerate(self._cells)
            if cell.holds(result.num_backtracks, result.satisfiable)
        )
        if not bits:
            return DrawnFormula(DrawnOutcome.SURPLUS, key)
        example = self._maker.encoded(formula, result)
        if len(example.ids) > self.plan.options.context:
            return DrawnFormula(DrawnOutcome.TOO_LONG, key)
        return DrawnFormula(DrawnOutcome.EXAMPLE, key, example, bits)

    def _partner(
        self, formula: Formula, example: Example, chance: np.random.Generator, keys: set[int]
    ) -> DrawnFormula | None:
        """Return a new formula that differs from `formula` in one literal and in its verdict.

        None where the first TRIES of the formula's literals, in random order, give none.
        """
        places = [(row, at) for row, clause in enumerate(formula.clauses) for at in range(len(clause))]
        for number in chance.permutation(len(places))[:TRIES].tolist():
            row, at = places[number]
            clause = formula.clauses[row]
            turned = (*clause[:at], -clause[at], *clause[at + 1 :])
            other = Formula(formula.num_variables, (*formula.clauses[:row], turned, *formula.clauses[row + 1 :]))
            if -clause[at] in clause or (key := self._maker.key(other)) in keys:
                continue
            result = self._maker.solved(other)
            if result is None or result.satisfiable is example.satisfiable:
                continue
            partner = self._maker.encoded(other, result)
            if len(partner.ids) <= self.plan.options.context:
                return DrawnFormula(DrawnOutcome.EXAMPLE, key, partner)
        return None
