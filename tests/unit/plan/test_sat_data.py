"""Satisfiability data of a run file: what its formulas can give, before anything starts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barnraise.config import load
from barnraise.config.document import parse
from barnraise.config.schema import RunFile
from barnraise.core.errors import RunFileError
from barnraise.data.sat import dimacs, generators
from barnraise.plan.data_files import dataset_bytes
from barnraise.plan.dataset import data_problems, sat_options
from barnraise.plan.purpose import Purpose
from barnraise.plan.resolve import examine
from barnraise.plan.sat import rows_text, sat_problems, sat_rows
from barnraise.plan.verify import verify

from ...campaigns import campaign

TRAIL = {
    "kind": "sat", "style": "trail", "heuristic": "lowest", "clause_ratio": [3.5, 5], "clause_lengths": [3, 3],
    "context": 128,
}  # fmt: skip


def run_file(data: dict[str, Any], *, tokens: int = 1_000_000, architecture: str = "gpt_neo") -> RunFile:
    return load(
        {
            "model": {"architecture": architecture},
            "data": TRAIL | data,
            "training": {"tokens": tokens, "local_steps": 2},
        }
    )


def test_trails_are_packed_where_the_model_keeps_examples_apart() -> None:
    assert sat_options(run_file({})).packing
    assert not sat_options(run_file({}, architecture="bloom")).packing
    assert not sat_options(run_file({"packing": False})).packing
    assert not sat_options(run_file({"style": "restated"})).packing
    assert sat_options(run_file({"style": "restated", "packing": True})).packing


def test_packing_is_refused_where_the_model_cannot_keep_examples_apart() -> None:
    (problem,) = data_problems(run_file({"packing": True}, architecture="bloom"))
    assert problem.path == ("data", "packing")
    assert "set it to false" in problem.message


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        ({}, 7812),
        ({"packing": False}, 7812),
        ({"packing": False, "examples": 300}, 300),
        ({"examples": 4000}, pytest.approx(1100, rel=0.3)),
    ],
)
def test_rows_follow_from_the_token_budget_or_the_examples(data: dict[str, Any], rows: object) -> None:
    assert sat_rows(run_file(data)) == rows


def test_fresh_formulas_are_limited_and_that_is_told() -> None:
    assert sat_rows(run_file({}, tokens=10**12)) == 2**28 // 128
    text = rows_text(run_file({}, tokens=2**30))
    assert text == ("about 2,097,152 rows of 128 tokens, several formulas in each; each formula is trained on 4 times")
    assert rows_text(run_file({"packing": False})).endswith("rows of 128 tokens; each formula is trained on once")


def test_packed_rows_take_the_bytes_of_their_masks() -> None:
    assert dataset_bytes(run_file({"packing": False, "examples": 10_000})) == 10_500 * 128 * 2
    assert dataset_bytes(run_file({})) == pytest.approx(7_900 * 128 * 2.25, rel=0.1)


def test_sound_data_has_no_problem() -> None:
    bands = [{"at_most": 0, "share": 0.3}, {"at_least": 1, "share": 0.7, "satisfiable": 0.5}]
    sets = [{"name": "search", "formulas": 50, "backtracking": {"at_least": 1}}, {"name": "easy", "clause_ratio": 3}]
    assert sat_problems(run_file({"backtracking": bands, "held_out_sets": sets})) == ([], [])


@pytest.mark.parametrize(
    ("data", "place", "reason"),
    [
        (
            {"backtracking": [{"at_least": 15, "share": 0.2}]},
            ("data",),
            "but none of 10,000 drawn is; they have 0 backtr",
        ),
        (
            {"held_out_sets": [{"name": "hard", "backtracking": {"at_least": 15}}]},
            ("data", "held_out_sets", 0),
            "15 or more backtracks",
        ),
        campaign({"variables": [12, 12], "context": 52}, ("data",), "the shortest of 10,000 drawn has"),
        campaign(
            {"held_out_sets": [{"name": "large", "variables": [9, 9], "clause_ratio": 6}], "context": 64},
            ("data", "held_out_sets", 0),
            "raise context",
        ),
    ],
)
def test_formulas_that_the_family_cannot_give_are_an_error(
    data: dict[str, Any], place: tuple[str | int, ...], reason: str
) -> None:
    errors, _ = sat_problems(run_file(data))
    assert errors[0].path == place
    assert reason in errors[0].message


def test_a_context_that_holds_too_few_formulas_with_search_is_not_a_share_that_cannot_be_had() -> None:
    bands = [{"at_most": 0, "share": 0.3}, {"at_least": 3, "share": 0.7}]
    sets = [{"name": "hard", "backtracking": {"at_least": 3}}, {"name": "six", "variables": [6, 6]}]
    data = {"variables": [5, 5], "clause_ratio": 4.2, "context": 40, "backtracking": bands, "held_out_sets": sets}
    errors, _ = sat_problems(run_file(data))
    assert [*dict.fromkeys(problem.path for problem in errors)] == [
        ("data",),
        ("data", "held_out_sets", 0),
        ("data", "held_out_sets", 1),
    ]
    for problem in errors:
        assert problem.message.startswith("has traces longer than the context: ")
    assert "0.7 of the rows are to be 3 or more backtracks, but " in errors[0].message
    assert (
        found := re.search(r"but ([\d,]+) of ([\d,]+) such formulas .* a context of (\d+) holds 95%", errors[0].message)
    )
    assert found[1] <= found[2]
    assert sat_problems(run_file(data | {"context": int(found[3]), "held_out_sets": sets[:1]}))[0] == []


def test_traces_longer_than_the_context_are_counted_by_set() -> None:
    sets = [{"name": "six", "variables": [6, 6]}]
    errors, warnings = sat_problems(run_file({"context": 56, "held_out_sets": sets}))
    assert not errors
    assert [problem.path for problem in warnings] == [("data", "held_out_sets", 0)]
    assert "have more than 56 tokens with their traces" in warnings[0].message
    assert re.search(r"a context of \d+ holds 95% of them: raise context", warnings[0].message)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"clause_ratio": [3]}, "data.clause_ratio[1]: is missing; give a number from 0.1 to 1000"),
        ({"clause_ratio": [5, 3]}, "data: clause_ratio is [5.0, 3.0], but a range ascends"),
        ({"backtracking": [{"at_least": 1}]}, "data.backtracking[0].share: is missing"),
        ({"backtracking": [{"share": 0}]}, "data.backtracking[0].share: is 0, but must be"),
        ({"held_out_sets": [{"formulas": 3}]}, "data.held_out_sets[0].name: is missing"),
        ({"held_out_backtracking": 5}, "data.held_out_backtracking: unknown key"),
        ({"packing": "yes"}, "data.packing: is 'yes' (text), but must be true or false"),
    ],
)
def test_keys_of_search_that_cannot_be_are_named(data: dict[str, Any], reason: str) -> None:
    try:
        told = [str(problem) for problem in examine(run_file(data))[1]]
    except RunFileError as error:
        told = str(error).splitlines()
    assert any(reason in line for line in told), told


def test_files_are_read_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = {"variables": [3, 8], "files": ["cnf"], "balanced": False, "held_out": 2}
    ((problem,), _) = sat_problems(run_file(data))
    assert problem.path == ("data", "files")
    assert "'cnf' names no formula" in problem.message
    (tmp_path / "cnf").mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        dimacs.write(generators.random_ksat(rng, 8), tmp_path / "cnf" / f"{number}.cnf")
    assert sat_problems(run_file(data)) == ([], [])
    dimacs.write(generators.random_ksat(rng, 9), tmp_path / "cnf" / "nine.cnf")
    ((problem,), (warning,)) = sat_problems(run_file(data | {"held_out": 3}))
    assert problem.message.startswith("give 3 formulas, of which 3 are to be held out")
    assert "nine.cnf (it has 9 variables, more than 8)" in warning.message
    sets = [{"name": "own", "formulas": 4, "files": ["cnf"]}]
    ((_, problem), _) = sat_problems(run_file(data | {"held_out_sets": sets}))
    assert (problem.path, problem.message[:16]) == (("data", "held_out_sets", 0, "files"), "give 3 formulas,")
    sets = [{"name": "own", "formulas": 1, "files": ["cnf"]}]
    ((problem,), _) = sat_problems(run_file(data | {"held_out_sets": sets}))
    assert problem.path == ("data", "files")
    assert problem.message.startswith("give 3 formulas, of which 3 are to be held out; give more files, or lower data.")


@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        ([{"after": 500_000}, {"after": 400_000}], "stage 2 begins after 400,000 tokens, but stage 1 after 500,000"),
        ([{"after": 1_000_000}], "stage 1 begins after 1,000,000 tokens, but the run has 1,000,000"),
        ([{"variables": [5, 5]}], "data.stages[0].after: is missing"),
        ([{"after": 0, "backtracking": [{"at_least": 15, "share": 0.5}]}], "data.stages[0]: asks for what"),
    ],
)
def test_stages_that_cannot_be_are_named(stages: list[dict[str, Any]], reason: str) -> None:
    try:
        found = run_file({"stages": stages})
        told = [str(problem) for problem in [*examine(found)[1], *sat_problems(found)[0]]]
    except RunFileError as error:
        told = str(error).splitlines()
    assert any(reason in line for line in told), told


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"backtracking": [{"share": 0.6}, {"at_least": 1, "share": 0.6}]}, "sum to 1.2"),
        ({"stages": [{"after": 2_000_000}]}, "stage 1 begins after 2,000,000 tokens"),
        ({"context": 16}, "context is 16"),
    ],
    ids=["shares", "stages", "context"],
)
def test_a_problem_of_the_data_is_told_with_its_line(data: dict[str, Any], words: str) -> None:
    content = {"model": {"architecture": "gpt_neo"}, "data": TRAIL | data, "training": {"tokens": 1_000_000}}
    with pytest.raises(RunFileError, match=words) as found:
        verify(parse(json.dumps(content, indent=1).encode(), "run.yaml"), purpose=Purpose.SERVE)
    assert "run.yaml:" in str(found.value)
