"""Draws the examples of a SAT dataset: distinct formulas with their traces, in the shares that the options ask for.

Formulas come in blocks, which several processes draw and solve; this one alone chooses among them. So the examples do
not depend on the number of processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from barnraise.core.errors import DataError
from barnraise.core.processes import usable_cores
from barnraise.core.units import count_text
from barnraise.data.sat.blocks import BlockPlan, Blocks, DrawnFormula, DrawnOutcome
from barnraise.data.sat.collection import Collection, FormulaLimits, collect
from barnraise.data.sat.drawing_pool import ProcessLostError, drawn_blocks
from barnraise.data.sat.examples import Example, ExampleMaker
from barnraise.data.sat.isomorphism import DistinctFormulas
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.source import RowShare, Source, quotas

CHUNK = 1000
"""Examples that have the wanted shares together, in random order: any part of a set is nearly as the whole."""

PATIENCE = 30_000
"""Formulas drawn in a row without a new example before the search ends."""

ALONE_SECONDS = 1.0
"""Seconds that this process draws a part of the data by itself: less time is not worth the start of others."""


@dataclass
class Counts:
    """Counts of the formulas drawn for a set, by outcome.

    `repeated`: drawn before. `too_long`: longer than the context or than a padded prompt, or of too many
    decisions. `surplus`: of a part of the rows that was full. `tokens` are those of the examples.
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
        left_out = [f"{self.too_long:,} too long for the context"] if self.too_long else []
        left_out += [count_text(self.repeated, "repeat")] if self.repeated else []
        told = "".join(f", {text} left out" for text in left_out)
        satisfiable, searched = (number / max(1, self.kept) for number in (self.satisfiable, self.with_backtracking))
        kept = count_text(self.kept, "formula")
        return f"{kept}, {satisfiable:.0%} satisfiable, {searched:.0%} with backtracks{told}"


class Drawing:
    """Draws examples for all sets of a dataset; none of them has a formula that another one has.

    The same options and order of calls give the same examples. Formulas of files that are held out are not trained on
    under other names either. Parts of the data that take long are drawn by `processes` others, from their first block
    on; where it is None by one for each core, once this process has drawn for ALONE_SECONDS. `say` is told where one of
    them was lost.
    """

    def __init__(
        self, options: SatOptions, processes: int | None = None, say: Callable[[str], None] = lambda text: None
    ) -> None:
        self.options, self.maker, self._say = options, ExampleMaker(options), say
        self._processes = usable_cores() if processes is None else processes
        self._alone_seconds = ALONE_SECONDS if processes is None else 0.0
        self._seen: set[int] = set()  # keys of the examples' formulas
        self._held_out = DistinctFormulas()  # those of files
        self.collections: dict[tuple[tuple[str, ...], FormulaLimits], Collection] = {}

    def examples(
        self, source: Source, seed: tuple[int, ...], counts: Counts, number: int | None = None
    ) -> Generator[Example, None, None]:
        """Yield `number` more examples of `source`, or as many as it has, and count them.

        DataError when too many formulas in a row yield none.
        """
        with closing(self._chosen(self.plan(source, seed), counts, number)) as chosen:
            for _, example in chosen:
                yield example

    def held_out(self, source: Source, seed: tuple[int, ...], counts: Counts, number: int) -> Iterator[Example]:
        """Yield `number` examples of `source` that are not trained on; those of files are as the files have them.

        DataError where there are too few.
        """
        plan, left = self.plan(source, seed, held_out=True), number
        files = {self.maker.key(formula): formula for formula in plan.files or ()}
        with closing(self._chosen(plan, counts, number)) as chosen:
            for key, example in chosen:
                left -= 1
                if key in files:
                    self._held_out.add(files[key])
                yield example
        if left:
            raise DataError(
                f"{', '.join(source.files)} give {count_text(number - left, 'formula')} to hold out, but {number} are "
                f"asked for ({counts}); give more files, or ask for fewer"
            )

    def collection(self, source: Source) -> Collection:
        """Return the formulas of the files of `source`; DataError where there are none."""
        key = source.files, self.options.limits(source)
        if key not in self.collections:
            self.collections[key] = collect(*key)
        return self.collections[key]

    def plan(self, source: Source, seed: tuple[int, ...], *, held_out: bool = False) -> BlockPlan:
        """Return the blocks of `source`: with files, those of the formulas to train on or to hold out."""
        if not source.files:
            return BlockPlan(self.options, source, seed)
        found = self.collection(source).formulas
        if held_out:
            order = np.random.default_rng(seed).permutation(len(found)).tolist()
            unnamed = replace(source, formulas=replace(source.formulas, names=None))
            return BlockPlan(self.options, unnamed, seed, tuple(found[place] for place in order))
        found = tuple(formula for formula in found if formula not in self._held_out)
        if not found:
            raise DataError(f"{', '.join(source.files)}: all formulas are held out; give more files, or hold out fewer")
        return BlockPlan(self.options, source, seed, found, renamed=source.renamings)

    def _chosen(
        self, plan: BlockPlan, counts: Counts, number: int | None
    ) -> Generator[tuple[int, Example], None, None]:
        """Yield the keys and examples to keep of a part of the data."""
        chance, left = np.random.default_rng(plan.seed), number
        with closing(self._drawn(plan)) as stream:
            while left != 0:
                size = CHUNK if left is None else min(CHUNK, left)
                chunk = self._chunk(stream, plan.source, size, counts)
                if not chunk:
                    return
                for place in chance.permutation(len(chunk)).tolist():
                    yield chunk[place]
                left = None if left is None else left - len(chunk)

    def _drawn(self, plan: BlockPlan) -> Generator[DrawnFormula, None, None]:
        """Yield the formulas of all blocks in order, drawn here or by other processes."""
        blocks, processes = Blocks(plan, self.maker), self._processes
        number, began = 0, time.monotonic()
        while True:
            if processes > 1 and time.monotonic() - began >= self._alone_seconds:
                try:
                    with closing(drawn_blocks(plan, processes, number)) as packed:
                        for block in packed:
                            if (yield from _counted(blocks.block(number) if block is None else block.unpacked())) == 0:
                                return
                            number += 1
                except ProcessLostError:
                    lost, processes = processes, processes // 2
                    self._say(
                        "a process that draws formulas was lost, perhaps for want of memory; no formula is lost, and "
                        f"the number of processes is now {max(1, processes)}, not {lost}"
                    )
            elif (yield from _counted(blocks.block(number))) == 0:
                return
            else:
                number += 1

    def _chunk(
        self, stream: Iterator[DrawnFormula], source: Source, size: int, counts: Counts
    ) -> list[tuple[int, Example]]:
        """Take at most `size` examples in the shares of `source`: fewer where formulas end or have no partner."""
        cells, pairs = source.cells, int(size * source.pairs / 2)
        left, fruitless = size - pairs, 0
        wanted = quotas(cells, left)
        found: list[tuple[int, Example]] = []
        for drawn in stream:
            place = self._place(drawn, wanted, counts)
            if place is None or drawn.example is None:
                fruitless += 1
                if fruitless >= PATIENCE:
                    wanting = [cell for cell, number in zip(cells, wanted, strict=True) if number]
                    raise DataError(_nothing_new(counts, wanting, self.options))
                continue
            wanted[place] -= 1
            left, fruitless = left - 1, 0
            found.append(self._kept(drawn.key, drawn.example, counts))
            partner = drawn.partner
            if pairs and partner and partner.example and partner.key not in self._seen:
                pairs -= 1
                found.append(self._kept(partner.key, partner.example, counts))
            if not left:
                break
        return found

    def _place(self, drawn: DrawnFormula, wanted: list[int], counts: Counts) -> int | None:
        """Return the place of the part of the rows that wants a formula; None where none does."""
        if drawn.outcome == DrawnOutcome.REPEATED or drawn.key in self._seen:
            counts.repeated += 1
        elif drawn.outcome == DrawnOutcome.TOO_LONG:
            counts.too_long += 1
        else:
            for place, number in enumerate(wanted):
                if number and drawn.cells >> place & 1:
                    return place
            counts.surplus += 1
        return None

    def _kept(self, key: int, example: Example, counts: Counts) -> tuple[int, Example]:
        self._seen.add(key)
        counts.kept += 1
        counts.satisfiable += example.satisfiable
        counts.with_decisions += example.decisions > 0
        counts.with_backtracking += example.backtracks > 0
        counts.tokens += len(example.ids)
        return key, example


def _counted(block: Iterator[DrawnFormula]) -> Generator[DrawnFormula, None, int]:
    """Yield the formulas of a block, and return how many there were."""
    number = 0
    for number, drawn in enumerate(block, start=1):  # noqa: B007
        yield drawn
    return number


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
