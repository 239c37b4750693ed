"""A model's scores on held-out formulas do not flatter it: trivial verdicts and lucky tokens do not count as search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from barnraise.core.errors import DataError
from barnraise.data import shards
from barnraise.data.sat import dataset as sat
from barnraise.data.sat import evaluation, traces
from barnraise.data.sat.dataset import held_out_sets
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.scores import Draws, SatScores
from barnraise.data.sat.tokenizer import SatTokenizer

SEARCH = {"name": "search", "formulas": 20, "backtracking": {"at_least": 1}}
SMALL: dict[str, Any] = {"examples": 100, "held_out": 40, "held_out_sets": [SEARCH], "clause_lengths": (2, 3)}
Prompts = list[list[int]]


def build(folder: Path, **options: Any) -> shards.Dataset:
    sat.build(folder, SatOptions.of(**(SMALL | options)))
    return shards.Dataset.open(folder, verify=True)


@pytest.fixture(scope="module", params=["restated", "trail"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> shards.Dataset:
    return build(tmp_path_factory.mktemp("sat") / "data", style=request.param, context=120)


class Solver:
    """A model that has learned everything: it knows the right rest of every held-out row."""

    def __init__(self, dataset: shards.Dataset) -> None:
        self.tokenizer = SatTokenizer.load(dataset.folder)
        self.rests = {}
        for held in held_out_sets(dataset, 1000):
            for row in held.rows:
                place = row.index(self.tokenizer.colon_id) + 1
                self.rests[tuple(row[:place])] = row[place:]

    def __call__(self, prompts: Prompts, most: int = 1000) -> Sequence[Sequence[int]]:
        return [self.rests[tuple(prompt)][:most] for prompt in prompts]


def said(dataset: shards.Dataset, word: str) -> SatScores:
    """Score a model that gives one word and nothing else."""
    tokenizer = SatTokenizer.load(dataset.folder)
    row = [*tokenizer.encode(word), tokenizer.eos_id]
    return evaluation.evaluate(dataset, lambda prompts, most: [row] * len(prompts))


def test_the_solver_itself_scores_full_marks(dataset: shards.Dataset) -> None:
    scores = evaluation.evaluate(dataset, Solver(dataset))
    for tally in (scores.searched, *(one.all for one in scores.sets)):
        assert tally.formulas == tally.verdicts == tally.traces > 0
        assert tally.steps == tally.accepted > 0
        assert tally.assignments == tally.satisfiable > 0
    assert scores.sets[0].name == "held out"
    assert scores.sets[0].all.formulas == 40
    assert scores.example.splitlines()[0].startswith("formula: (")
    assert scores.example.splitlines()[-1] == "checker: accepted"
    assert "conflict" in scores.example or "back:" in scores.example, "the example has search in it"


def test_formulas_that_need_search_are_those_whose_solver_takes_a_decision_back(dataset: shards.Dataset) -> None:
    tokenizer, style = SatTokenizer.load(dataset.folder), sat.options_of(dataset).style
    backtracks = [
        traces.backtracks(tokenizer.trace(row), style) for held in held_out_sets(dataset, 1000) for row in held.rows
    ]
    scores = evaluation.evaluate(dataset, Solver(dataset))
    assert scores.searched.formulas == sum(number > 0 for number in backtracks)
    assert scores.bands["1"].formulas == backtracks.count(1)
    assert scores.bands["0"].formulas == backtracks.count(0)


def test_on_formulas_that_need_search_no_propagation_helps(dataset: shards.Dataset) -> None:
    """Propagation meets no conflict there, so it says "satisfiable" each time."""
    searched = said(dataset, "SAT").searched
    assert searched.verdicts == searched.propagation == searched.satisfiable < searched.formulas
    assert 0 < searched.decision < searched.formulas


@pytest.mark.parametrize("word", ["SAT", "UNSAT"])
def test_one_word_for_all_proves_nothing(dataset: shards.Dataset, word: str) -> None:
    for one in said(dataset, word).sets:
        tally = one.all
        assert 0 < tally.verdicts <= tally.majority
        assert tally.traces == tally.accepted == tally.assignments == 0


def test_silence_and_rambling_score_nothing(dataset: shards.Dataset) -> None:
    silent = evaluation.evaluate(dataset, lambda prompts, most: [[] for _ in prompts]).sets[0].all
    assert (silent.verdicts, silent.traces, silent.steps) == (0, 0, 0)
    rambling = evaluation.evaluate(dataset, lambda prompts, most: [[0, 9999] for _ in prompts]).sets[0].all
    assert (rambling.accepted, rambling.verdicts) == (0, 0)


def test_a_completion_is_asked_for_each_prompt(dataset: shards.Dataset) -> None:
    with pytest.raises(DataError, match="1 completions came back"):
        evaluation.evaluate(dataset, lambda prompts, most: [[]])


def test_no_more_formulas_are_read_than_allowed(dataset: shards.Dataset) -> None:
    scores = evaluation.evaluate(dataset, Solver(dataset), limit=7)
    assert [one.all.formulas for one in scores.sets] == [7] * len(scores.sets)


def test_a_trace_may_be_twice_as_long_as_the_longest_of_its_set(dataset: shards.Dataset) -> None:
    asked = []

    def generate(prompts: Prompts, most: int) -> list[list[int]]:
        asked.append(most)
        return [[] for _ in prompts]

    evaluation.evaluate(dataset, generate)
    tokenizer = SatTokenizer.load(dataset.folder)
    longest = [max(len(tokenizer.trace(row)) for row in held.rows) for held in held_out_sets(dataset, 500)]
    assert asked == [2 * number for number in longest]


def test_the_checker_chooses_among_drawn_traces(dataset: shards.Dataset) -> None:
    """The greedy trace and the first drawn one are empty; the third is right, and no fourth is drawn."""
    solver, drawn = Solver(dataset), []

    def draw(prompts: Prompts, most: int, number: int) -> Sequence[Sequence[int]]:
        drawn.append((number, len(prompts)))
        return solver(prompts) if number == 2 else [[] for _ in prompts]

    sampler = evaluation.Sampler(Draws(4, 0.7), draw)
    scores = evaluation.evaluate(dataset, lambda prompts, most: [[] for _ in prompts], sampler=sampler)
    assert scores.draws == Draws(4, 0.7)
    for one in scores.sets:
        assert (one.all.verdicts, one.all.traces) == (0, 0)
        assert one.all.drawn_verdicts == one.all.drawn_traces == one.all.formulas
    assert drawn == [(number, one.all.formulas) for one in scores.sets for number in (1, 2)]


def test_without_a_proof_the_verdict_of_most_traces_counts(dataset: shards.Dataset) -> None:
    tokenizer = SatTokenizer.load(dataset.folder)
    words = {word: [*tokenizer.encode(word), tokenizer.eos_id] for word in ("SAT", "UNSAT")}

    def draw(prompts: Prompts, most: int, number: int) -> Sequence[Sequence[int]]:
        return [words["UNSAT"]] * len(prompts)

    sampler = evaluation.Sampler(Draws(3, 0.7), draw)
    scores = evaluation.evaluate(dataset, lambda prompts, most: [words["SAT"]] * len(prompts), sampler=sampler)
    tally = scores.searched
    assert tally.verdicts == tally.satisfiable
    assert tally.drawn_verdicts == tally.formulas - tally.satisfiable
    assert tally.drawn_traces == 0
