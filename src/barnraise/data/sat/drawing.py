"""Draws the examples of a SAT dataset: distinct formulas with their traces, in the shares that the options ask for."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from barnraise.core.errors import DataError, OptionError
from barnraise.data.sat.collection import Collection, FormulaLimits, collect, renamed
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.dpll import DpllResult, Solver
from barnraise.data.sat.formulas import named
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.source import RowShare, Source, quotas

CHUNK = 1000
"""Examples that have the wanted shares together, in random order: any part of a set is nearly as the whole."""

TRIES = 24
"""Literals that are turned to find a partner of the other verdict for a formula."""

PATIENCE = 30_000
"""Formulas drawn in a row without a new example before the search ends."""


@dataclass
class Counts:
    """Counts of the formulas drawn for a set, by outcome.

    `too_long`: longer than the context or than a padded prompt, or of too many decisions. `surplus`: of a part of the
    rows that was full. `tokens` are those of the examples.
    """

    kept: int = 0
    repeated: int = 0
    too_long: int = 0
    surplus: int = 0
    satisfiable: int = 0
    with_decisions: int = 0
    with_backtracking: int = 0
    tokens: int = 0

    def __str__(self) -> str:
        left_out = {"too long for the context": self.too_long, "repeats": self.repeated}
        told = "".join(f", {count:,} {why} left out" for why, count in left_out.items() if count)
        searched = self.with_backtracking / max(1, self.kept)
        return (
            f"{self.kept:,} formulas, {self.satisfiable / max(1, self.kept):.0%} satisfiable, {searched:.0%} with "
            f"backtracks{told}"
        )


class Example(NamedTuple):
    """A formula and the solver's trace on it as token ids; the trace begins at `start`."""

    formula: Formula
    ids: list[int]
    start: int
    satisfiable: bool
    backtracks: int
    decisions: int


class Drawing:
    """Draws examples for all sets of a dataset; none of them has a formula that another one has.

    The same options and order of calls give the same examples. Formulas of files that are held out are not trained on
    under other names either.
    """

    def __init__(self, options: SatOptions) -> None:
        self.options, self.tokenizer = options, options.tokenizer()
        self._slots = options.slots
        self._solver = Solver(
            style=options.style, heuristic=options.heuristic, slots=self._slots, max_decisions=options.solver_limit
        )
        self._seen: set[int] = set()  # digests of formulas
        self._held_out: set[Formula] = set()  # those of files
        self.collections: dict[tuple[tuple[str, ...], FormulaLimits], Collection] = {}
        self._clause = functools.lru_cache(maxsize=1 << 16)(_clause_bytes)

    def examples(
        self, source: Source, chance: np.random.Generator, counts: Counts, number: int | None = None
    ) -> Iterator[Example]:
        """Yield `number` more examples of `source`, or as many as it has, and count them.

        DataError when too many formulas in a row yield none.
        """
        yield from self._chosen(self.formulas(source, chance), source, chance, counts, number)

    def held_out(self, source: Source, chance: np.random.Generator, counts: Counts, number: int) -> Iterator[Example]:
        """Yield `number` examples of `source` that are not trained on; those of files are as the files have them.

        DataError where there are too few.
        """
        formulas, left = self.formulas(source, chance, held_out=True), number
        for example in self._chosen(formulas, source, chance, counts, number):
            left -= 1
            self._held_out.add(example.formula)
            yield example
        if left:
            raise DataError(
                f"{', '.join(source.files)} give {number - left} formulas to hold out, but {number} are asked for "
                f"({counts}); give more files, or ask for fewer"
            )

    def collection(self, source: Source) -> Collection:
        """Return the formulas of the files of `source`; DataError where there are none."""
        key = source.files, self.options.limits(source)
        if key not in self.collections:
            self.collections[key] = collect(*key)
        return self.collections[key]

    def formulas(self, source: Source, chance: np.random.Generator, *, held_out: bool = False) -> Iterator[Formula]:
        """Yield the formulas of `source`; they end where files give each formula once."""
        if not source.files:
            yield from source.formulas.draw(chance)
            return
        found = self.collection(source).formulas
        if held_out:
            yield from (found[place] for place in chance.permutation(len(found)).tolist())
            return
        found = tuple(formula for formula in found if formula not in self._held_out)
        if not found:
            raise DataError(f"{', '.join(source.files)}: all formulas are held out; give more files, or hold out fewer")
        drawn = renamed(chance, found) if source.renamings else iter(found)
        names = source.formulas.num_names if source.formulas.names is not None else 0
        yield from (named(chance, formula, names) for formula in drawn)

    def _chosen(
        self,
        formulas: Iterator[Formula],
        source: Source,
        chance: np.random.Generator,
        counts: Counts,
        number: int | None,
    ) -> Iterator[Example]:
        left = number
        while left != 0:
            size = CHUNK if left is None else min(CHUNK, left)
            chunk = list(self._chunk(formulas, source, chance, size, counts))
            if not chunk:
                return
            for place in chance.permutation(len(chunk)).tolist():
                yield chunk[place]
            left = None if left is None else left - len(chunk)

    def _pair(self, formula: Formula, example: Example, chance: np.random.Generator) -> Example | None:
        """Return the example of a new formula that differs from `formula` in one literal and in its verdict.

        None where the first TRIES of the formula's literals, in random order, give none.
        """
        places = [(row, at) for row, clause in enumerate(formula.clauses) for at in range(len(clause))]
        for number in chance.permutation(len(places))[:TRIES].tolist():
            row, at = places[number]
            clause = formula.clauses[row]
            turned = (*clause[:at], -clause[at], *clause[at + 1 :])
            other = Formula(formula.num_variables, (*formula.clauses[:row], turned, *formula.clauses[row + 1 :]))
            if -clause[at] in clause or self._key(other) in self._seen:
                continue
            partner = self.solved(other)
            if partner and partner.satisfiable is not example.satisfiable and len(partner.ids) <= self.options.context:
                self._seen.add(self._key(other))
                return partner
        return None

    def _chunk(
        self, formulas: Iterator[Formula], source: Source, chance: np.random.Generator, size: int, counts: Counts
    ) -> Iterator[Example]:
        """Yield at most `size` examples in the shares of `source`: fewer where formulas end or have no partner."""
        cells, pairs = source.cells, int(size * source.pairs / 2)
        left, fruitless = size - pairs, 0
        wanted = quotas(cells, left)
        for formula in formulas:
            example, cell = self._wanted(formula, cells, wanted, counts)
            if example is not None:
                wanted[cell] -= 1
                left, fruitless = left - 1, 0
                _count(example, counts)
                yield example
                if pairs and (partner := self._pair(formula, example, chance)):
                    pairs -= 1
                    _count(partner, counts)
                    yield partner
                if not left:
                    return
                continue
            fruitless += 1
            if fruitless >= PATIENCE:
                wanting = [cell for cell, number in zip(cells, wanted, strict=True) if number]
                raise DataError(_nothing_new(counts, wanting, self.options))

    def _wanted(
        self, formula: Formula, cells: tuple[RowShare, ...], wanted: list[int], counts: Counts
    ) -> tuple[Example | None, int]:
        """Return the example of a formula that is new, fits and is wanted, and the place of its cell."""
        key = self._key(formula)
        if key in self._seen:
            counts.repeated += 1
            return None, 0
        self._seen.add(key)
        result = self._solved(formula)
        if result is None:
            counts.too_long += 1
            return None, 0
        for place, cell in enumerate(cells):
            if wanted[place] and cell.holds(result.num_backtracks, result.satisfiable):
                example = self._encoded(formula, result)
                if len(example.ids) > self.options.context:
                    counts.too_long += 1
                    return None, 0
                return example, place
        counts.surplus += 1
        return None, 0

    def solved(self, formula: Formula) -> Example | None:
        """Return the example of a formula, however long.

        None where a padded prompt does not hold its clauses, or the solver needs too many decisions.
        """
        result = self._solved(formula)
        return None if result is None else self._encoded(formula, result)

    def _solved(self, formula: Formula) -> DpllResult | None:
        if self._slots and len(formula.clauses) > self._slots:
            return None
        try:
            return self._solver.solve(formula)
        except OptionError:
            return None

    def _encoded(self, formula: Formula, result: DpllResult) -> Example:
        ids = self.tokenizer.example(formula, result.trace, self._slots)
        start = len(ids) - len(result.trace) - 1
        return Example(formula, ids, start, result.satisfiable, result.num_backtracks, result.num_decisions)

    def _key(self, formula: Formula) -> int:
        """Return a number that differs for formulas which differ by more than the order or repeats of clauses."""
        clauses = b"".join(sorted({self._clause(clause) for clause in formula.clauses}))
        return int.from_bytes(hashlib.blake2b(clauses, digest_size=8).digest(), "big")


def _clause_bytes(clause: tuple[int, ...]) -> bytes:
    return np.array([*sorted(set(clause)), 0], "<i4").tobytes()


def _count(example: Example, counts: Counts) -> None:
    counts.kept += 1
    counts.satisfiable += example.satisfiable
    counts.with_decisions += example.decisions > 0
    counts.with_backtracking += example.backtracks > 0
    counts.tokens += len(example.ids)


def _nothing_new(counts: Counts, wanting: list[RowShare], options: SatOptions) -> str:
    wanted = " or ".join(map(str, wanting))
    return (
        f"no new example in {PATIENCE} formulas after {counts.kept} ({counts.repeated} were repeats, {counts.too_long} "
        f"too long for a context of {options.context}, {counts.surplus} of a part that was full; wanted were more with "
        f"{wanted}); ask for fewer examples, more variables, a larger context, a smaller share, or balanced: false"
    )


def padded(examples: list[Example], context: int, pad: int) -> npt.NDArray[np.uint16]:
    """Return rows of `context` tokens with one example each."""
    rows = np.full((len(examples), context), pad, dtype=np.uint16)
    for row, example in zip(rows, examples, strict=True):
        row[: len(example.ids)] = example.ids
    return rows
