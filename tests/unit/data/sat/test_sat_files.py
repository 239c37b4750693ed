"""DIMACS files as SAT data: read, compared, solved within a limit, renamed each time, split before that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.data.sat.test_sat_shares import examples, training

from barnraise.core.errors import DataError, DimacsError, OptionError
from barnraise.data import shards
from barnraise.data.sat import dataset as sat
from barnraise.data.sat import dimacs, generators
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.tokenizer import SatTokenizer

FILES: dict[str, Any] = {
    "style": "trail", "heuristic": "lowest", "prompt": "literals", "variables": (1, 8), "clause_lengths": (1, 1),
    "context": 256, "examples": 300, "held_out": 5, "balanced": False,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of 20 formulas, some of them in folders below."""
    rng = np.random.default_rng(0)
    (tmp_path / "cnf" / "more").mkdir(parents=True)
    for number in range(20):
        place = tmp_path / "cnf" / ("more" if number % 2 else "")
        dimacs.write(generators.random_ksat(rng, 6 + number % 3), place / f"f{number:02d}.cnf")
    (tmp_path / "cnf" / "notes.txt").write_text("no formula")
    return tmp_path / "cnf"


def build(folder: Path, **options: Any) -> shards.Dataset:
    sat.build(folder, SatOptions.of(**(FILES | options)))
    return shards.Dataset.open(folder, verify=True)


def shape(formula: Formula) -> tuple[int, ...]:
    """Something that renaming does not change: how often each variable occurs, in order."""
    counts = np.bincount([abs(literal) for clause in formula.clauses for literal in clause])
    return tuple(sorted(count for count in counts.tolist() if count))


def test_formulas_of_files_are_trained_on_under_new_names_each_time(folder: Path, tmp_path: Path) -> None:
    dataset = build(tmp_path / "data", files=[str(folder)])
    tokenizer = SatTokenizer.load(dataset.folder)
    originals = {shape(dimacs.read(path)) for path in folder.rglob("*.cnf")}
    trained = [tokenizer.formula(row) for row in examples(training(dataset), tokenizer)]
    assert len({formula.canonical() for formula in trained}) == 300
    (natural,) = sat.held_out_sets(dataset)
    held = [tokenizer.formula(row) for row in natural.rows]
    assert len({*map(shape, trained)}) <= 15
    assert {*map(shape, trained)} | {*map(shape, held)} <= originals
    assert not {*map(shape, trained)} & {*map(shape, held)}, "held-out formulas are not trained on under other names"
    files = {dimacs.read(path).canonical() for path in folder.rglob("*.cnf")}
    assert {formula.canonical() for formula in held} <= files
    assert sat.options_of(dataset).source.files == (str(folder),)


def test_without_renamings_each_formula_is_trained_on_as_it_is(folder: Path, tmp_path: Path) -> None:
    dataset = build(tmp_path / "data", files=[f"{folder}/**/*.cnf"], renamings=False)
    tokenizer = SatTokenizer.load(dataset.folder)
    trained = {tokenizer.formula(row).canonical() for row in examples(training(dataset), tokenizer)}
    assert len(trained) == dataset.num_rows == 15
    assert trained <= {dimacs.read(path).canonical() for path in folder.rglob("*.cnf")}


def test_equal_and_large_formulas_are_left_out_counted_and_named(folder: Path, tmp_path: Path) -> None:
    twin = dimacs.read(folder / "f00.cnf")
    dimacs.write(Formula(9, tuple(reversed(twin.clauses))), folder / "twin.cnf")
    dimacs.write(generators.random_ksat(np.random.default_rng(1), 12), folder / "large.cnf")
    dimacs.write(Formula(2, ((1, 2), ())), folder / "empty.cnf")
    told: list[str] = []
    sat.build(tmp_path / "data", SatOptions.of(**FILES, files=[str(folder)]), told.append)
    record = json.loads((tmp_path / "data" / sat.RECORD).read_text())["files"]
    assert (record["formulas"], record["equal"], record["left_out"]) == (20, 1, 2)
    named = " ".join(record["named"])
    assert "large.cnf (it has 12 variables, more than 8)" in named
    assert "empty.cnf (it has no clause, or an empty one)" in named
    line = next(text for text in told if str(folder) in text)
    assert "1 equal to another left out" in line
    assert "left out: " in line


def test_a_formula_under_other_names_is_left_out_and_not_trained_on_where_it_is_held_out(
    folder: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    (tmp_path / "twins").mkdir()
    for path in folder.rglob("*.cnf"):
        dimacs.write(generators.scramble(rng, dimacs.read(path)), tmp_path / "twins" / path.name)
    both = [str(folder), str(tmp_path / "twins")]
    build(tmp_path / "both", files=both)
    record = json.loads((tmp_path / "both" / sat.RECORD).read_text())["files"]
    assert (record["formulas"], record["equal"]) == (20, 20)
    entry = {"name": "twins", "formulas": 10, "files": both[1:]}
    dataset = build(tmp_path / "data", files=both[:1], held_out_sets=[entry])
    tokenizer = SatTokenizer.load(dataset.folder)
    held = {shape(tokenizer.formula(row)) for found in sat.held_out_sets(dataset) for row in found.rows}
    assert not held & {shape(tokenizer.formula(row)) for row in examples(training(dataset), tokenizer)}


def test_a_formula_beyond_the_solvers_limit_is_named(folder: Path, tmp_path: Path) -> None:
    for path in folder.rglob("*.cnf"):
        path.unlink()
    clauses = tuple((a, 2 * b, 3 * c) for a in (1, -1) for b in (1, -1) for c in (1, -1))
    dimacs.write(Formula(3, clauses), folder / "hard.cnf")
    with pytest.raises(DataError, match=r"hard.cnf \(it needs more than 1 decision\); raise data.variables"):
        build(tmp_path / "data", files=[str(folder)], solver_limit=1)


def test_a_held_out_set_of_files_is_not_trained_on(folder: Path, tmp_path: Path) -> None:
    entry = {"name": "own", "formulas": 10, "files": [f"{folder}/*.cnf"]}
    dataset = build(tmp_path / "data", files=[str(folder)], held_out_sets=[entry])
    tokenizer = SatTokenizer.load(dataset.folder)
    natural, own = sat.held_out_sets(dataset)
    held = {shape(tokenizer.formula(row)) for row in [*natural.rows, *own.rows]}
    trained = {shape(tokenizer.formula(row)) for row in examples(training(dataset), tokenizer)}
    assert len(natural.rows) == 5
    assert not held & trained


@pytest.mark.parametrize(
    ("files", "error", "reason"),
    [
        (["none"], DataError, "'none' names no formula: no file matches"),
        (["empty"], DataError, r"'empty' names no formula: the folder has no file that ends in .cnf or .dimacs"),
        (["bad.cnf"], DimacsError, "bad.cnf"),
        (["*.dangling"], DataError, "names no formula"),
    ],
)
def test_files_without_formulas_are_named(
    files: list[str], error: type[Exception], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.cnf").write_text("p cnf 2 1\n1 7 0\n")
    with pytest.raises(error, match=reason):
        build(tmp_path / "data", files=files)


def test_too_few_formulas_to_hold_out_are_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="give 20 formulas to hold out, but 50 are asked for"):
        build(tmp_path / "data", files=[str(folder)], held_out=50)
    with pytest.raises(DataError, match="all formulas are held out"):
        build(tmp_path / "data", files=[str(folder)], held_out=20)
    stages = [{"after": 0, "files": [str(folder)], "renamings": False}]
    with pytest.raises(OptionError, match="leave renamings: false out"):
        SatOptions.of(**(FILES | {"examples": None, "tokens": 10_000, "stages": stages}))
