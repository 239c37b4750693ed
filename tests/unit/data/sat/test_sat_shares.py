"""Shares of rows by search, ranges, names, packing, and the number of rows of a token budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barnraise.core.errors import InputError, OptionError
from barnraise.data import shards
from barnraise.data.columns import BEGINS, TOKENS, TRAINED
from barnraise.data.sat import dataset as sat
from barnraise.data.sat import traces
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.sample import sample
from barnraise.data.sat.source import Band, Source, quotas
from barnraise.data.sat.tokenizer import SatTokenizer

TRAIL: dict[str, Any] = {
    "style": "trail", "heuristic": "lowest", "variables": (4, 4), "clause_ratio": (3.5, 5.0), "clause_lengths": (3, 3),
    "context": 128, "examples": 400, "held_out": 40,
}  # fmt: skip
THIRDS = [
    {"at_least": 0, "at_most": 0, "share": 1 / 3},
    {"at_least": 1, "share": 2 / 3, "satisfiable": 0.5},
]


def build(folder: Path, **options: Any) -> shards.Dataset:
    sat.build(folder, SatOptions.of(**(TRAIL | options)))
    return shards.Dataset.open(folder, verify=True)


def training(dataset: shards.Dataset) -> np.ndarray:
    return np.concatenate([dataset.rows(place, 0, info.rows) for place, info in enumerate(dataset.meta.shards)])


def examples(rows: np.ndarray, tokenizer: SatTokenizer) -> list[list[int]]:
    """The examples of packed or padded rows, cut at `<eos>`."""
    found: list[list[int]] = []
    for row in rows[TOKENS].tolist():
        begin = 0
        while tokenizer.eos_id in row[begin:]:
            end = row.index(tokenizer.eos_id, begin) + 1
            found.append(row[begin:end])
            begin = end
    return found


def test_rows_have_the_asked_shares_of_search_and_verdicts(tmp_path: Path) -> None:
    dataset = build(tmp_path / "data", backtracking=THIRDS)
    tokenizer = SatTokenizer.load(dataset.folder)
    found = [tokenizer.trace(row) for row in examples(training(dataset), tokenizer)]
    search = [trace for trace in found if traces.backtracks(trace, "trail")]
    assert (len(found), len(search)) == (400, 267)
    assert sum(trace[-1] == "SAT" for trace in search) == 133


def test_a_rest_of_the_shares_is_as_it_comes(tmp_path: Path) -> None:
    band = {"at_least": 2, "at_most": 3, "share": 0.25}
    dataset = build(tmp_path / "data", backtracking=[band], examples=1000)
    tokenizer = SatTokenizer.load(dataset.folder)
    found = [traces.backtracks(tokenizer.trace(row), "trail") for row in examples(training(dataset), tokenizer)]
    natural = sample(SatOptions.of(**TRAIL, balanced=False), Source(SatOptions.of(**TRAIL).formulas, balanced=False))
    share = sum(formula.backtracks in (2, 3) for formula in natural.solved) / natural.drawn
    assert sum(number in (2, 3) for number in found) == pytest.approx(250 + 750 * share, abs=60)
    assert 0 in found


def test_every_part_of_the_rows_has_nearly_the_shares() -> None:
    cells = Source(backtracking=(Band(0, 0, 0.3), Band(1, None, 0.5, 0.2))).cells
    assert [(cell.satisfiable, round(cell.share, 3)) for cell in cells] == [
        (None, 0.2), (None, 0.3), (True, 0.1), (False, 0.4),
    ]  # fmt: skip
    for number in (1, 2, 7, 10, 999):
        assert sum(quotas(cells, number)) == number
    assert quotas(cells, 10) == [2, 3, 1, 4]


def test_clause_ratios_are_drawn_from_the_range(tmp_path: Path) -> None:
    tokenizer = SatTokenizer.load(build(tmp_path / "data", balanced=False).folder)
    dataset = shards.Dataset.open(tmp_path / "data")
    sizes = [len(tokenizer.formula(row).clauses) for row in examples(training(dataset), tokenizer)]
    assert set(sizes) == set(range(14, 21))


def test_variables_are_named_at_random_up_to_names(tmp_path: Path) -> None:
    dataset = build(tmp_path / "data", names=6, held_out_sets=[{"name": "six", "formulas": 20, "variables": (6, 6)}])
    tokenizer = SatTokenizer.load(dataset.folder)
    assert tokenizer.num_variables == 6
    used = [
        {abs(literal) for clause in tokenizer.formula(row).clauses for literal in clause}
        for row in examples(training(dataset), tokenizer)
    ]
    assert max(map(len, used)) == 4
    assert set.union(*used) == set(range(1, 7))
    six = sat.held_out_sets(dataset)[1]
    assert {len({abs(v) for c in tokenizer.formula(row).clauses for v in c}) for row in six.rows} == {6}


def test_a_held_out_set_has_names_of_its_own(tmp_path: Path) -> None:
    plain = {"name": "plain", "formulas": 20, "variables": (4, 4), "names": 4}
    dataset = build(tmp_path / "data", names=6, held_out_sets=[plain, {"name": "named", "formulas": 20}])
    tokenizer = SatTokenizer.load(dataset.folder)
    used = {
        found.name: {
            abs(literal) for row in found.rows for clause in tokenizer.formula(row).clauses for literal in clause
        }
        for found in sat.held_out_sets(dataset)
    }
    assert used["plain"] == {1, 2, 3, 4}
    assert used["named"] == {1, 2, 3, 4, 5, 6}


def test_the_vocabulary_holds_all_held_out_sets() -> None:
    options = SatOptions.of(**TRAIL, held_out_sets=[{"name": "seven", "formulas": 5, "variables": (7, 7)}])
    assert options.tokenizer().num_variables == 7


def test_packed_rows_hold_the_same_examples_and_learn_traces_alone(tmp_path: Path) -> None:
    packed, alone = (build(tmp_path / str(packing), packing=packing, held_out=40) for packing in (True, False))
    tokenizer = SatTokenizer.load(packed.folder)
    rows = training(packed)
    assert len(rows) < 250
    assert sorted(examples(rows, tokenizer)) == sorted(examples(training(alone), tokenizer))
    for row in rows:
        begins = np.flatnonzero(row[BEGINS]).tolist()
        for begin, end in zip(begins, [*begins[1:], len(row[TOKENS])], strict=True):
            ids = row[TOKENS][begin:end].tolist()
            if ids[0] != tokenizer.pad_id:
                learnt = [token for token, is_learnt in zip(ids, row[TRAINED][begin:end], strict=True) if is_learnt]
                assert learnt == ids[ids.index(tokenizer.colon_id) + 1 :]
    assert [found.rows for found in sat.held_out_sets(packed)] == [found.rows for found in sat.held_out_sets(alone)]


def test_sets_beyond_training_are_not_familiar(tmp_path: Path) -> None:
    entries = {
        "search": {"backtracking": {"at_least": 1}},
        "ratio": {"clause_ratio": 4.26},
        "sparse": {"clause_ratio": 2.5},
        "five": {"variables": (5, 5)},
        "skewed": {"family": "skewed"},
    }
    sets = [{"name": name, "formulas": 5, **entry} for name, entry in entries.items()]
    dataset = build(tmp_path / "data", held_out_sets=sets)
    assert {found.name: found.familiar for found in sat.held_out_sets(dataset)} == {
        "held out": True, "search": True, "ratio": True, "sparse": False, "five": False, "skewed": False,
    }  # fmt: skip
    assert [found.searching for found in sat.held_out_sets(dataset)] == [False, True, False, False, False, False]


@pytest.mark.parametrize("packing", [True, False])
def test_without_a_number_the_rows_are_those_of_the_token_budget(packing: bool, tmp_path: Path) -> None:
    dataset = build(tmp_path / "data", examples=None, tokens=40_000, packing=packing)
    assert 40_000 <= dataset.num_rows * 128 <= 40_000 * 1.1
    tokenizer = SatTokenizer.load(dataset.folder)
    formulas = [tokenizer.formula(row).canonical() for row in examples(training(dataset), tokenizer)]
    assert len(set(formulas)) == len(formulas)


def test_packed_data_have_the_same_bytes_each_time(tmp_path: Path) -> None:
    options = {"packing": True, "backtracking": THIRDS, "names": 5}
    first, again = (build(tmp_path / name, **options) for name in ("a", "b"))
    assert first.meta == again.meta
    assert first.meta != build(tmp_path / "c", **options, seed=1).meta


def test_held_out_sets_do_not_change_the_rows_but_for_their_formulas(tmp_path: Path) -> None:
    five = {"name": "five", "formulas": 20, "variables": (5, 5)}
    tokenizer = SatTokenizer.load(build(tmp_path / "a", names=5).folder)
    build(tmp_path / "b", names=5, held_out_sets=[five])
    rows = [examples(training(shards.Dataset.open(tmp_path / name)), tokenizer) for name in ("a", "b")]
    assert len({*map(tuple, rows[0])} & {*map(tuple, rows[1])}) > 380


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clause_ratio": (5.0, 3.5)}, "a range ascends"),
        ({"clause_ratio": (0.0, 3.5)}, "clause_ratio is 0.0"),
        ({"names": 0}, "names is 0"),
        ({"backtracking": [{"share": 0.7}, {"share": 0.6}]}, r"sum to 1\.3"),
        ({"backtracking": [{"at_least": 3, "at_most": 2, "share": 0.5}]}, "swap them"),
        ({"backtracking": [{"share": 0.5, "satisfiable": 2.0}]}, "satisfiable is 2.0"),
        (
            {"held_out_sets": [{"name": "held out", "formulas": 5}]},
            "a held-out set has the name 'held out', which is taken",
        ),
        ({"held_out_sets": [{"name": "a", "formulas": 0}]}, "formulas of the held-out set 'a' is 0"),
        ({"held_out_sets": [{"name": "a", "formulas": 5, "variables": (60, 60)}]}, "exceed a vocabulary"),
        ({"held_out_sets": [{"name": "a", "formulas": 5, "clause_ratio": 40.0}]}, "give a larger context"),
        ({"held_out_sets": [{"name": str(n), "formulas": 5} for n in range(33)]}, "may be 32"),
    ],
)
def test_shares_and_sets_that_cannot_be_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        SatOptions.of(**(TRAIL | options))


def test_a_sample_tells_what_the_formulas_cannot_give() -> None:
    options = SatOptions.of(**(TRAIL | {"backtracking": [{"at_least": 12, "share": 0.5}]}))
    (text,) = sample(options, options.source).lacking(400)
    assert text.startswith("0.5 of the rows are to be 12 or more backtracks, but none of 10,000 drawn is; they have 0 ")
    options = SatOptions.of(**(TRAIL | {"backtracking": THIRDS}))
    found = sample(options, options.source)
    assert not list(found.lacking(400))
    assert 300 <= found.drawn < 3000
    assert 20 < found.mean_tokens < 60


def test_a_rare_part_can_be_had_for_a_small_set_alone() -> None:
    options = SatOptions.of(held_out_sets=[{"name": "search", "formulas": 100, "backtracking": {"at_least": 1}}])
    found = sample(options, options.sources["search"])
    assert found.drawn > 2000
    assert [*found.lacking(100), *found.cut_off(100)] == []
    assert "unsatisfiable with 1 or more backtracks" in "".join([*found.lacking(40_000), *found.cut_off(40_000)])


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(TypeError, match="held-out set has no colour"):
        SatOptions.of(held_out_sets=[{"name": "a", "formulas": 5, "colour": "red"}])
    with pytest.raises(TypeError, match="colour"):
        SatOptions.of(colour="red")
    with pytest.raises(OptionError, match="examples is 0"):
        SatOptions.of(examples=0)
