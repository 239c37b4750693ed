from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from barnraise.data.sat import generators, traces
from barnraise.data.sat.blocks import BLOCK, BlockPlan, Blocks, DrawnOutcome
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.examples import ExampleMaker
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.packed_blocks import PackedBlock

TRAIL: dict[str, Any] = {
    "style": "trail", "heuristic": "lowest", "clause_ratio": 4.0, "clause_lengths": (3, 3), "context": 64,
}  # fmt: skip
BANDS = [{"at_least": 1, "share": 0.5}, {"at_most": 0, "share": 0.5}]
FORMULAS = tuple(generators.random_ksat(np.random.default_rng(0), 4, clause_ratio=3.0) for _ in range(1500))


def plan(files: tuple[Formula, ...] | None = None, *, renamed: bool = False, **values: Any) -> BlockPlan:
    options = SatOptions.of(**(TRAIL | values))
    return BlockPlan(options, options.source, (7, 3, 0), files, renamed)


@pytest.mark.parametrize(
    "made",
    [
        plan(),
        plan(pairs=0.4, backtracking=BANDS),
        plan(context=24),
        plan(FORMULAS),
        plan(FORMULAS, renamed=True, names=6),
        plan(style="restated", variables=(3, 4), clause_ratio=2.0, context=90),
    ],
)
def test_a_block_is_the_same_in_another_process(made: BlockPlan) -> None:
    """As there, the plan is read from a line, and the formulas come back packed."""
    again = BlockPlan.decode(made.encode())
    assert again == made
    for number in (0, 1):
        drawn = list(Blocks(made).block(number))
        unpacked = list(PackedBlock.of(Blocks(again).block(number)).unpacked())
        assert len(drawn) == len(unpacked) > 0
        for one, other in zip(drawn, unpacked, strict=True):
            pairs = [(one, other), *([(one.partner, other.partner)] if one.partner and other.partner else [])]
            assert (one.partner is None) == (other.partner is None)
            for left, right in pairs:
                assert (left.outcome, left.key, left.cells) == (right.outcome, right.key, right.cells)
                assert (left.example is None) == (right.example is None)
                if left.example and right.example:
                    assert left.example[1:] == right.example[1:]
                    assert np.array_equal(left.example.ids, right.example.ids)


def test_blocks_differ() -> None:
    first, second = ({drawn.key for drawn in Blocks(plan()).block(number)} for number in (0, 1))
    assert len(first & second) < BLOCK / 10


def test_files_give_each_formula_once_where_they_are_not_renamed() -> None:
    blocks = Blocks(plan(FORMULAS))
    assert [*blocks.formulas(0), *blocks.formulas(1)] == list(FORMULAS)
    assert list(blocks.block(2)) == []


def test_all_renamed_formulas_come_before_any_comes_again() -> None:
    sizes = range(1, 71)
    files = tuple(Formula(4, ((1, 2, 3),) * size) for size in sizes)
    blocks = Blocks(plan(files, renamed=True))
    found = [len(formula.clauses) for number in range(2) for formula in blocks.formulas(number)]
    for turn in range(29):  # that of number 14 lies in two blocks
        assert sorted(found[turn * 70 : turn * 70 + 70]) == list(sizes)
    assert found[:70] != found[70:140]


def test_formulas_that_a_part_of_the_rows_may_have_are_told_by_bits() -> None:
    made = plan(backtracking=[{"at_least": 1, "at_most": 1, "share": 0.5}, {"at_least": 1, "share": 0.5}])
    found = {drawn.outcome: drawn for drawn in Blocks(made).block(0)}
    assert DrawnOutcome.SURPLUS in found
    maker = ExampleMaker(made.options)
    for drawn in islice(Blocks(made).block(0), 200):
        if drawn.example is not None:
            trace = maker.tokenizer.trace(drawn.example.ids)
            assert drawn.cells == {0: 0, 1: 3}.get(traces.backtracks(trace, "trail"), 2)


def test_the_asked_share_of_each_part_has_partners() -> None:
    drawn = [one for one in Blocks(plan(pairs=0.4, backtracking=BANDS)).block(0) if one.example]
    for cells in (1, 2):
        part = [one for one in drawn if one.cells == cells]
        paired = [one for one in part if one.partner]
        assert len(paired) / len(part) == pytest.approx(1.1 * 0.2 / 0.8, abs=0.06)
        for one in paired:
            assert one.example
            assert one.partner
            assert one.partner.example
            assert one.partner.example.satisfiable is not one.example.satisfiable
