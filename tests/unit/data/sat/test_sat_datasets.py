from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barnraise.core.errors import DataError, InputError
from barnraise.data import shards
from barnraise.data.sat import dataset as sat
from barnraise.data.sat import dpll
from barnraise.data.sat.blocks import BlockPlan, Blocks
from barnraise.data.sat.drawing import Counts, Drawing
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.tokenizer import SatTokenizer

SEARCH = {"name": "search", "formulas": 30, "backtracking": {"at_least": 1}}
SMALL: dict[str, Any] = {"examples": 300, "held_out": 40}
FAMILIES: dict[str, dict[str, Any]] = {
    "random": {},
    "ranges": {"variables": (3, 5), "context": 90},
    "terse": {"style": "terse", "context": 32},
    "trail": {"style": "trail", "heuristic": "lowest", "clause_ratio": 4.0, "clause_lengths": (3, 3)},
    "trail_steps": {"style": "trail_steps", "variables": (3, 5), "context": 90},
    "literals": {"style": "trail", "prompt": "literals", "clause_lengths": (1, 4), "context": 90},
    "terse literals": {"style": "terse", "prompt": "literals", "context": 60},
    "three-sat": {"clause_ratio": 4.3, "clause_lengths": (3, 3), "context": 300, "heuristic": "two_sided"},
    "skewed": {"family": "skewed", "skew": 2.0},
    "marginal": {"family": "marginal", "clause_ratio": 3.0, "context": 80},
    "crafted": {"family": "crafted", "variables": (4, 6), "clause_ratio": 4.0, "context": 400, "balanced": False},
}


def build(folder: Path, **options: Any) -> shards.Dataset:
    sat.build(folder, SatOptions.of(**(SMALL | options)))
    return shards.Dataset.open(folder, verify=True)


def all_rows(dataset: shards.Dataset) -> tuple[np.ndarray, np.ndarray]:
    parts = [dataset.rows(index, 0, info.rows)["tokens"] for index, info in enumerate(dataset.meta.shards)]
    return np.concatenate(parts), dataset.held_out()["tokens"]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_row_is_a_right_example_and_no_formula_is_there_twice(name: str, tmp_path: Path) -> None:
    dataset = build(tmp_path / "data", **FAMILIES[name])
    options = sat.options_of(dataset)
    assert options == SatOptions.of(**(SMALL | FAMILIES[name]))
    tokenizer = SatTokenizer.load(dataset.folder)
    train, held_out = all_rows(dataset)
    assert (len(train), len(held_out)) == (300, 40)
    solver = dpll.Solver(style=options.style, heuristic=options.heuristic, slots=options.slots)
    formulas = []
    for row in np.concatenate([train, held_out]):
        formula = tokenizer.formula(row)
        assert tokenizer.trace(row) == solver.solve(formula).trace
        formulas.append(formula.canonical())
    assert len(set(formulas)) == 340


def test_formulas_are_repeats_only_when_they_are_the_same() -> None:
    options = SatOptions.of(variables=(3, 3), clause_ratio=1.0, balanced=False, **SMALL)
    drawn = list(Blocks(BlockPlan(options, options.source, (0,))).formulas(0))
    number = len({formula.canonical() for formula in drawn})
    counts = Counts()
    found = list(Drawing(options).examples(options.source, (0,), counts, number))
    assert len(found) == counts.kept == number
    assert counts.repeated > 0


def test_only_the_trace_is_learned(tmp_path: Path) -> None:
    dataset = build(tmp_path / "data")
    tokenizer = SatTokenizer.load(dataset.folder)
    rows = dataset.held_out()["tokens"]
    for row, labels in zip(rows, shards.labels(rows, dataset.meta), strict=True):
        learned = labels[labels != shards.IGNORED]
        assert tokenizer.decode_tokens(learned) == tokenizer.trace(row)
        assert learned[-1] == tokenizer.eos_id


def test_balanced_sets_have_both_verdicts_alike(tmp_path: Path) -> None:
    dataset = build(tmp_path / "data", clause_ratio=1.5)
    tokenizer = SatTokenizer.load(dataset.folder)
    for rows in all_rows(dataset):
        assert sum(tokenizer.trace(row)[-1] == "SAT" for row in rows) == len(rows) // 2


def test_the_seed_decides(tmp_path: Path) -> None:
    first, again, other = (
        all_rows(build(tmp_path / name, seed=seed))[0] for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_record_counts_omitted_formulas(tmp_path: Path) -> None:
    dataset = build(tmp_path / "data", context=42)
    record = json.loads((dataset.folder / sat.RECORD).read_text())
    assert record["sets"] == ["held out"]
    assert SatOptions.of(**record["options"]) == sat.options_of(dataset)
    assert record["options"]["clause_ratio"] == 2.0
    counts = record["counts"]
    assert (counts["held out"]["kept"], counts["training"]["kept"]) == (40, 300)
    assert (counts["held out"]["satisfiable"], counts["training"]["satisfiable"]) == (20, 150)
    assert counts["training"]["too_long"] > 0


def test_too_few_formulas_are_a_clear_error(tmp_path: Path) -> None:
    few = {"variables": (1, 1), "clause_lengths": (1, 1), "clause_ratio": 2.0, "context": 12}
    with pytest.raises(DataError, match="ask for fewer examples"):
        build(tmp_path / "data", **few)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"family": "randon"}, "did you mean 'random'"),
        ({"style": "restate"}, "did you mean 'restated'"),
        ({"heuristic": "frist"}, "did you mean 'first'"),
        ({"variables": (0, 3)}, "must be a range"),
        ({"variables": (5, 4)}, "must be a range"),
        ({"clause_lengths": (0, 3)}, "must be a range"),
        ({"variables": (2, 4)}, "a clause names a variable once"),
        ({"variables": (900, 900)}, "exceed a vocabulary"),
        ({"clause_ratio": 0.0}, "clause_ratio is 0.0"),
        ({"clause_ratio": float("nan")}, "clause_ratio is nan"),
        ({"skew": -1.0}, "skew is -1.0"),
        ({"context": 12}, "give a larger context"),
        ({"context": 12, "style": "trail"}, "a formula of 8 clauses and the shortest trace need 14 tokens"),
        ({"context": 20, "style": "trail", "prompt": "literals", "clause_lengths": (2, 3)}, "need 22 tokens"),
        ({"prompt": "literals"}, "'restated' have clauses as tokens"),
        ({"prompt": "literal"}, "did you mean 'literals'"),
        ({"examples": 0}, "examples is 0"),
        ({"held_out": 10**12}, "held_out is 1000000000000"),
        ({"family": "marginal", "variables": (17, 17)}, "has at most 16"),
        ({"family": "crafted", "variables": (5, 5)}, "no crafted formula"),
        (
            {"family": "crafted", "variables": (4, 30_000), "clause_lengths": (1, 1), "context": 2**20},
            "has at most 100",
        ),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        SatOptions.of(**options)


def test_a_damaged_record_is_a_data_error(tmp_path: Path) -> None:
    dataset = build(tmp_path / "data")
    path = dataset.folder / sat.RECORD
    for content in ("", "[]", "{}", '{"options": 3}', '{"options": {"context": "x"}}', '{"options": {"context": 1}}'):
        path.write_text(content)
        with pytest.raises(DataError, match=r"make the dataset again"):
            sat.options_of(dataset)
    path.unlink()
    with pytest.raises(DataError, match="is not a SAT dataset"):
        sat.options_of(dataset)


def test_formulas_that_need_search_are_kept_apart(tmp_path: Path) -> None:
    dataset = build(tmp_path / "data", clause_lengths=(2, 3), held_out_sets=[SEARCH])
    tokenizer = SatTokenizer.load(dataset.folder)
    natural, searched = (found.rows for found in sat.held_out_sets(dataset))
    assert (len(natural), len(searched)) == (40, 30)
    solver = dpll.Solver(style="restated", heuristic="first", slots=8)
    for row in searched:
        trace = tokenizer.trace(row)
        assert "B" in trace
        assert trace == solver.solve(tokenizer.formula(row)).trace
    assert sum(tokenizer.trace(row)[-1] == "SAT" for row in searched) == 15
    rows = [*np.concatenate(all_rows(dataset)).tolist(), *searched]
    assert len({tokenizer.formula(row).canonical() for row in rows}) == 300 + 40 + 30
    counts = json.loads((dataset.folder / sat.RECORD).read_text())["counts"]["search"]
    assert counts["kept"] == counts["with_backtracking"] == 30


def test_held_out_sets_are_named_and_their_rows_have_no_padding(tmp_path: Path) -> None:
    dataset = build(tmp_path / "data", clause_lengths=(2, 3), held_out_sets=[SEARCH])
    natural, search = sat.held_out_sets(dataset)
    assert [(found.name, len(found.rows), found.searching) for found in (natural, search)] == [
        ("held out", 40, False),
        ("search", 30, True),
    ]
    padded = [row + [dataset.meta.pad_id] * (62 - len(row)) for row in natural.rows]
    assert sorted(padded) == sorted(dataset.held_out()["tokens"].tolist())
    assert all(row[-1] == dataset.meta.eos_id for row in natural.rows + search.rows)
    assert [found.rows for found in sat.held_out_sets(dataset, 4)] == [natural.rows[:4], search.rows[:4]]


def test_prompts_of_trails_are_not_padded(tmp_path: Path) -> None:
    dataset = build(tmp_path / "data", style="trail", variables=(3, 4), clause_ratio=3.0)
    tokenizer = SatTokenizer.load(dataset.folder)
    rows = dataset.held_out()["tokens"].tolist()
    assert {row.index(tokenizer.colon_id) - 1 for row in rows} == {9, 12}


def test_a_search_that_no_formula_needs_is_a_clear_error(tmp_path: Path) -> None:
    options = {"variables": (1, 1), "clause_lengths": (1, 1), "clause_ratio": 2.0, "balanced": False}
    with pytest.raises(DataError, match="held-out set 'search': no new example"):
        build(tmp_path / "data", **options, held_out=2, held_out_sets=[SEARCH])


def test_a_cut_file_of_a_held_out_set_is_a_data_error(tmp_path: Path) -> None:
    dataset = build(tmp_path / "data", clause_lengths=(2, 3), held_out_sets=[SEARCH])
    path = dataset.folder / sat.set_file(1)
    content = path.read_bytes()
    for damaged in (content[:-2], content[:-1], b"", b"\xff" * 2 + content):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="make the dataset again"):
            sat.held_out_sets(dataset)
