"""A person's own formula or text for a run's model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from barnraise.assembly.trying import FormulaTrial, TextTrial
from barnraise.core.errors import DataError
from barnraise.data import text as texts
from barnraise.data.sat import dataset as sat
from barnraise.data.sat import dimacs, formula_text, traces
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.oracle import CADICAL
from barnraise.data.shards import Dataset


def tiny(vocab_size: int, context: int):
    """Return an untrained GPT-2 of a few thousand parameters."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=vocab_size, n_positions=context, n_embd=8, n_layer=1, n_head=1)
    return GPT2LMHeadModel(config).eval()


class Oracle:
    """A model that has learned everything: it writes the solver's trace."""

    def __init__(self, dataset: Dataset) -> None:
        from barnraise.data.sat.tokenizer import SatTokenizer

        self.tokenizer, self.options = SatTokenizer.load(dataset.folder), sat.options_of(dataset)
        self.rest: list[int] = []

    def __call__(self, input_ids, attention_mask, past_key_values, use_cache):
        from types import SimpleNamespace

        from barnraise.data.sat.dpll import Solver

        if past_key_values is None:
            formula = self.tokenizer.formula(input_ids[0].tolist())
            slots = self.options.slots
            trace = Solver(style=self.options.style, heuristic=self.options.heuristic, slots=slots).solve(formula).trace
            self.rest = [*self.tokenizer.encode_tokens(trace), self.tokenizer.eos_id]
        logits = torch.zeros(1, 1, self.tokenizer.vocab_size)
        logits[0, 0, self.rest.pop(0)] = 1.0
        return SimpleNamespace(logits=logits, past_key_values=True)


@pytest.fixture(scope="module")
def formulas(tmp_path_factory) -> Dataset:
    folder = tmp_path_factory.mktemp("sat")
    search = {"name": "search", "formulas": 2, "backtracking": {"at_least": 1}}
    options = SatOptions.of(
        variables=(3, 3), clause_lengths=(1, 2), context=80, examples=50, held_out=20, held_out_sets=[search]
    )
    sat.build(folder, options)
    return Dataset.open(folder)


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("(1 or -2) and (3)", ((1, -2), (3,))),
        ("1 -2, 3", ((1, -2), (3,))),
        ("(1 | ~2) & x3", ((1, -2), (3,))),
        ("(1 v not 2)\n3", ((1, -2), (3,))),
        ("  ( 1 )and( - 2 )  ", ((1,), (-2,))),
        ("p cnf 3 2\n1 -2 0\n3 0\n", ((1, -2), (3,))),
    ],
)
def test_a_formula_reads_as_people_write_it(text: str, clauses: tuple[tuple[int, ...], ...]) -> None:
    formula = formula_text.parse(text)
    assert formula.clauses == clauses
    assert formula.num_variables == max(abs(literal) for clause in clauses for literal in clause)


@pytest.mark.parametrize("text", ["", "()", "one or two", "1 or 0", "1 & %", "1.5", "9" * 200_000, "p cnf 1 1\n2 0"])
def test_text_that_is_no_formula_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(DataError):
        formula_text.parse(text)


def test_every_formula_as_shown_is_read_back(formulas: Dataset) -> None:
    trial = FormulaTrial(None, formulas)
    for seed in range(20):
        formula = trial.held_out(seed)
        shown = " and ".join(f"({' or '.join(map(str, clause))})" for clause in formula.clauses)
        assert formula_text.parse(shown).clauses == formula.clauses
        assert dimacs.parse(dimacs.dumps(formula)) == formula


def test_a_trace_that_the_checker_accepts_is_told_so(formulas: Dataset) -> None:
    trial = FormulaTrial(Oracle(formulas), formulas)
    solved = trial.solve(formula_text.parse("(1 or -2) and 2"))
    assert solved.proved
    assert solved.claims is solved.ruling.satisfiable is True
    assert solved.ruling.solver == CADICAL
    assert solved.as_json()["satisfiable"] is True
    assert solved.as_json()["solver"] == "CaDiCaL"
    assert "checker: accepted" in solved.shown
    assert "2 clauses, those that the model was trained on have 6 to 6" in solved.unlike
    assert not trial.solve(formula_text.parse("1, -1")).ruling.satisfiable


def test_a_model_of_trails_reads_formulas_up_to_its_context(tmp_path: Path) -> None:
    options = SatOptions.of(
        variables=(3, 3), clause_lengths=(2, 2), style="trail", prompt="literals", context=40, examples=50, held_out=20
    )
    sat.build(tmp_path / "data", options)
    dataset = Dataset.open(tmp_path / "data")
    trial = FormulaTrial(Oracle(dataset), dataset)
    solved = trial.solve(formula_text.parse("1 2, -1 2, 1 -2, -1 -2"))
    assert solved.proved
    assert solved.ruling.satisfiable is solved.claims is False
    assert "conflict: unsatisfiable" in solved.shown
    assert "4 clauses, those that the model was trained on have 6 to 6" in solved.unlike
    assert "8 clauses" in trial.solve(formula_text.parse(", ".join(["1 2"] * 8))).unlike
    with pytest.raises(DataError, match="the formula takes 42 tokens, but this model reads up to 3 variables, 36 tok"):
        trial.solve(formula_text.parse(", ".join(["1 2"] * 20)))


def test_an_untrained_model_proves_nothing(formulas: Dataset) -> None:
    trial = FormulaTrial(tiny(formulas.meta.vocab_size, formulas.meta.context), formulas)
    solved = trial.solve(trial.held_out(1))
    assert not solved.proved
    assert "checker: refused" in solved.shown


def test_held_out_formulas_are_drawn_search_among_them(formulas: Dataset) -> None:
    trial = FormulaTrial(None, formulas)
    drawn = {trial.held_out(seed).canonical() for seed in range(40)}
    held = {trial.tokenizer.formula(row).canonical() for row in formulas.held_out()["tokens"].tolist()}
    searched = {
        trial.tokenizer.formula(row).canonical() for one in sat.held_out_sets(formulas, 100)[1:] for row in one.rows
    }
    assert drawn <= held | searched
    assert drawn & searched
    assert trial.held_out(5) == trial.held_out(5)


@pytest.mark.parametrize(
    "formula",
    [
        Formula(4, ((4,),)),  # a variable that the model does not know
        Formula(3, ((1, 2, 3),)),  # a clause longer than its longest
        Formula(3, ((1,),) * 7),  # more clauses than it has places for
        Formula(3, ((),)),
        Formula(3, ((1, -1),)),
    ],
)
def test_a_formula_that_the_model_cannot_read_is_refused(formulas: Dataset, formula: Formula) -> None:
    with pytest.raises(DataError, match="this model"):
        FormulaTrial(None, formulas).solve(formula)


def test_a_text_is_continued(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abc " * 500)
    texts.build(tmp_path / "data", [tmp_path / "text.txt"], context=16)
    dataset = Dataset.open(tmp_path / "data")
    trial = TextTrial(tiny(dataset.meta.vocab_size, dataset.meta.context), dataset)
    for prompt in ("", "ab", "ab" * 100):
        first = trial.complete(prompt, tokens=8, temperature=1.0, seed=3)
        assert first == trial.complete(prompt, tokens=8, temperature=1.0, seed=3)
    assert trial.complete("ab", tokens=8, temperature=0.0, seed=1) == trial.complete(
        "ab", tokens=8, temperature=0.0, seed=2
    )


def test_the_oracle_and_the_checker_agree(formulas: Dataset) -> None:
    """The stand-in above is no weaker than the solver that it quotes."""
    trial = FormulaTrial(Oracle(formulas), formulas)
    for row in formulas.held_out()["tokens"].tolist():
        formula = trial.tokenizer.formula(row)
        assert traces.check(formula, trial.tokenizer.trace(row), slots=trial.options.slots)[0]
        solved = trial.solve(formula)
        assert solved.proved
        assert not solved.unlike
