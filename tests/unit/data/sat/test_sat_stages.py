"""Stages of a curriculum, and pairs of formulas that differ in one literal and in verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.data.sat.test_sat_shares import TRAIL, examples, training

from barnraise.controller.work.shard_cursors import in_lanes
from barnraise.core.errors import OptionError
from barnraise.data import shards
from barnraise.data.sat import dataset as sat
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.tokenizer import SatTokenizer

STAGES = [{"after": 20_000, "variables": (5, 5)}, {"after": 30_000, "clause_ratio": 5.0, "variables": (5, 5)}]
STAGED: dict[str, Any] = TRAIL | {"examples": None, "tokens": 40_000, "packing": True, "stages": STAGES}


def test_rows_of_stages_lie_in_shards_in_their_order(tmp_path: Path) -> None:
    sat.build(tmp_path / "data", SatOptions.of(**STAGED))
    dataset = shards.Dataset.open(tmp_path / "data", verify=True)
    tokenizer = SatTokenizer.load(dataset.folder)
    assert len(dataset.meta.shards) == 3
    found = []
    for place, info in enumerate(dataset.meta.shards):
        formulas = [tokenizer.formula(row) for row in examples(dataset.rows(place, 0, info.rows), tokenizer)]
        used = {max(abs(literal) for clause in formula.clauses for literal in clause) for formula in formulas}
        found.append((max(used), {len(formula.clauses) for formula in formulas}))
    assert [most for most, _ in found] == [4, 5, 5]
    assert (found[0][1], found[1][1], found[2][1]) == (set(range(14, 21)), set(range(18, 26)), {25})
    sizes = [info.rows * 128 for info in dataset.meta.shards]
    assert sizes == pytest.approx([20_000, 10_000, 12_000], rel=0.2)
    counts = json.loads((dataset.folder / sat.RECORD).read_text())["counts"]
    assert list(counts) == ["held out", "training", "stage 1", "stage 2"]
    assert sat.options_of(dataset) == SatOptions.of(**STAGED)


def test_a_first_stage_from_the_start_takes_the_place_of_the_data_section() -> None:
    stages = [{"after": 0, "variables": (3, 3)}, STAGES[0]]
    options = SatOptions.of(**(STAGED | {"stages": stages}))
    assert {name: part.source.formulas.variables for name, part in options.parts.items()} == {
        "stage 1": (3, 3), "stage 2": (5, 5),
    }  # fmt: skip
    assert [part.tokens for part in options.parts.values()] == [20_000, 22_000]


def test_held_out_formulas_are_those_of_the_last_stage(tmp_path: Path) -> None:
    sat.build(tmp_path / "data", SatOptions.of(**STAGED))
    dataset = shards.Dataset.open(tmp_path / "data")
    tokenizer = SatTokenizer.load(dataset.folder)
    natural = sat.held_out_sets(dataset)[0]
    assert {len(tokenizer.formula(row).clauses) for row in natural.rows} == {25}


def test_staged_rows_are_trained_on_in_one_lane(tmp_path: Path) -> None:
    sat.build(tmp_path / "staged", SatOptions.of(**STAGED))
    sat.build(tmp_path / "mixed", SatOptions.of(**(STAGED | {"stages": []})))
    staged, mixed = (shards.Dataset.open(tmp_path / name).index for name in ("staged", "mixed"))
    assert (staged.ordered, mixed.ordered) == (True, False)
    assert not in_lanes(staged.sizes, 1, ordered=staged.ordered)
    assert in_lanes(mixed.sizes, 1, ordered=mixed.ordered)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"stages": [STAGES[1], STAGES[0]]}, "stage 2 begins after 20,000 tokens, but stage 1 after 30,000"),
        ({"stages": [STAGES[0], STAGES[0]]}, "do not overlap"),
        ({"stages": [{"after": 40_000}]}, "stage 1 begins after 40,000 tokens, but the run has 40,000"),
        ({"examples": 50}, "leave examples out"),
        ({"tokens": None}, "no token budget; give training.tokens"),
        ({"tokens": 2**31}, "2,147,483,648 tokens; give training.tokens, at most 1,073,741,824"),
        ({"held_out_sets": [{"name": "stage 1", "formulas": 4}]}, "has the name 'stage 1', which is taken"),
        ({"stages": [{"after": 5, "variables": (60, 60)}]}, "exceed a vocabulary"),
        ({"pairs": 1.5}, "pairs is 1.5"),
    ],
)
def test_stages_that_cannot_be_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        SatOptions.of(**(STAGED | options))


def test_pairs_differ_in_one_literal_and_in_verdict(tmp_path: Path) -> None:
    options = SatOptions.of(**(TRAIL | {"pairs": 0.5, "balanced": False}))
    sat.build(tmp_path / "data", options)
    dataset = shards.Dataset.open(tmp_path / "data")
    tokenizer = SatTokenizer.load(dataset.folder)
    rows = examples(training(dataset), tokenizer)
    assert len(rows) == 400
    found: dict[Formula, bool] = {}
    for row in rows:
        found[tokenizer.formula(row)] = tokenizer.trace(row)[-1] == "SAT"
    by_rest: dict[tuple[Any, ...], set[bool]] = {}
    for formula, satisfiable in found.items():
        for place, clause in enumerate(formula.clauses):
            for variable in map(abs, clause):
                rest = [*formula.clauses]
                rest[place] = tuple(sorted((abs(other) if abs(other) == variable else other) for other in clause))
                by_rest.setdefault((place, variable, *rest), set()).add(satisfiable)
    assert sum(len(verdicts) == 2 for verdicts in by_rest.values()) >= 95
