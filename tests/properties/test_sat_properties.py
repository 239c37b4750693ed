from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pysat.solvers import Solver

from barnraise.core.errors import DataError, DimacsError
from barnraise.data.sat import dimacs, dpll, lowest, traces, trail
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.styles import PROMPTS, STYLES, TRAIL_STYLES, is_padded
from barnraise.data.sat.tokenizer import SatTokenizer

TOKENS = ["D", "U", "B", "SAT", "UNSAT", "T", "F", "1", "-1", "2", "-2", "3", "1,2", "-1,3", "<pad>", "0", "1,"]
TOKENS += ["D1", "D-1", "D2", "D-2", "D3", "|", "-3", ""]


def literals(num_variables: int) -> st.SearchStrategy[int]:
    return st.integers(1, num_variables).flatmap(lambda variable: st.sampled_from([variable, -variable]))


@st.composite
def formulas(draw: st.DrawFn, most: int = 6) -> Formula:
    num_variables = draw(st.integers(1, most))
    clause = st.lists(literals(num_variables), max_size=4).map(tuple)
    return Formula(num_variables, tuple(draw(st.lists(clause, max_size=14))))


@st.composite
def proper_formulas(draw: st.DrawFn) -> Formula:
    """Clauses as datasets have them: 1 to 3 different variables, in order."""
    clause = st.lists(literals(5), min_size=1, max_size=3, unique_by=abs).map(lambda c: tuple(sorted(c, key=abs)))
    return Formula(5, tuple(draw(st.lists(clause, max_size=10))))


# The parts of a DIMACS file, so that the fuzzer gets past the header.
PIECES = st.sampled_from(
    ["p cnf 3 2", "p cnf 0 0", "p", "cnf", "c", "%", "\n", " ", "0", "1", "-3", "4", "-", "9" * 30]
)


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200), st.lists(PIECES).map(" ".join)))
def test_anything_is_a_formula_or_a_dimacs_error(content: str | bytes) -> None:
    with contextlib.suppress(DimacsError):
        formula = dimacs.parse(content)
        assert all(1 <= abs(literal) <= formula.num_variables for clause in formula.clauses for literal in clause)


@given(formulas(), st.text(max_size=40))
def test_dimacs_round_trip(formula: Formula, comment: str) -> None:
    assert dimacs.parse(dimacs.dumps(formula, comment=comment)) == formula


@given(formulas(), st.sampled_from(STYLES), st.sampled_from(dpll.HEURISTICS), st.integers(0, 16))
def test_the_solver_is_right_and_proves_it(formula: Formula, style: str, heuristic: str, slots: int) -> None:
    result = dpll.solve(formula, style=style, heuristic=heuristic, slots=slots)
    for name in ("minisat22", "cadical195"):
        with Solver(name, bootstrap_with=[list(clause) for clause in formula.clauses]) as independent:
            assert result.satisfiable == independent.solve()
    assert (result.model is not None) == result.satisfiable
    if result.model is not None:
        assert [abs(literal) for literal in result.model] == list(range(1, formula.num_variables + 1))
        assert formula.satisfied_by(result.model)
    assert traces.check(formula, result.trace, style=style, slots=slots) == (True, "")
    assert traces.parse(" ".join(result.trace)) == result.trace
    assert dpll.solve(formula, style=style, heuristic=heuristic, slots=slots) == result


@given(formulas(), st.sampled_from(dpll.HEURISTICS), st.sampled_from(TRAIL_STYLES))
def test_a_trail_says_the_same_as_the_terse_trace(formula: Formula, heuristic: str, style: str) -> None:
    terse = dpll.solve(formula, heuristic=heuristic)
    result = dpll.solve(formula, heuristic=heuristic, style=style)
    assert result.trace == trail.render(terse.trace, style)
    assert [word for step in trail.steps(result.trace, style) for word in step.words] == terse.trace
    assert traces.backtracks(result.trace, style) == traces.backtracks(terse.trace, "terse") == result.num_backtracks


@given(st.lists(st.sampled_from(TOKENS), max_size=20), st.sampled_from(TRAIL_STYLES))
def test_any_tokens_are_cut_into_steps_of_a_trail(tokens: list[str], style: str) -> None:
    steps = trail.steps(tokens, style)
    assert [token for step in steps for token in step.tokens] == tokens
    assert all(step.tokens and (step.words or step.fault) for step in steps)


@given(formulas())
def test_the_lowest_search_takes_steps_in_its_order(formula: Formula) -> None:
    """Each unit literal and each decision is the first in order, by sets and not by masks."""
    steps, _ = lowest.search(formula) or ([], None)
    held: list[int] = []
    decided: list[int] = []  # places in `held`
    for kind, word in zip(steps[:-1:2], steps[1:-1:2], strict=True):
        left = [{x for x in clause if -x not in held} for clause in formula.clauses if not set(clause) & set(held)]
        free = {abs(x) for clause in formula.clauses for x in clause} - set(map(abs, held))
        units = sorted((x for clause in left if len(clause) == 1 for x in clause), key=lambda x: (abs(x), -x))
        assert (kind == "B") == (set() in left)
        if kind == "U":
            assert int(word) == units[0]
        elif kind == "D":
            assert not units
            assert int(word) == min(free)
            decided.append(len(held))
        else:
            del held[decided.pop() :]
        held.append(int(word))
    if steps[-1] == "SAT":
        assert set(map(abs, held)) == {abs(x) for clause in formula.clauses for x in clause}


@given(formulas(most=3), st.lists(st.sampled_from(TOKENS), max_size=12), st.sampled_from([None, *STYLES]))
def test_no_trace_proves_a_wrong_verdict(formula: Formula, tokens: list[str], style: str | None) -> None:
    score = traces.score(formula, tokens, style=style)
    assert 0 <= score.accepted <= score.total <= len(tokens)
    assert score.valid == (score.reason == "")
    if score.valid:
        assert score.verdict == dpll.solve(formula).satisfiable


@given(formulas(), st.sampled_from(STYLES), st.data())
def test_a_damaged_trace_never_proves_the_other_verdict(formula: Formula, style: str, data: st.DataObject) -> None:
    """One token replaced, dropped or doubled: what still passes must still be right."""
    result = dpll.solve(formula, style=style)
    place = data.draw(st.integers(0, len(result.trace) - 1))
    swap = data.draw(st.lists(st.sampled_from([*TOKENS, result.trace[place]]), max_size=2))
    score = traces.score(formula, [*result.trace[:place], *swap, *result.trace[place + 1 :]], style=style)
    assert score.verdict == result.satisfiable if score.valid else score.reason


@given(proper_formulas(), st.integers(0, 12), st.sampled_from(STYLES), st.sampled_from(PROMPTS))
def test_the_tokenizer_gives_back_what_it_took(formula: Formula, slots: int, style: str, prompt: str) -> None:
    if (style, prompt) == ("restated", "literals"):
        return
    slots = slots if is_padded(style, prompt) else 0
    tokenizer = SatTokenizer(5, 3, style=style, prompt=prompt)
    trace = dpll.solve(formula, style=style, slots=slots).trace
    ids = tokenizer.example(formula, trace, slots)
    assert tokenizer.formula(ids) == formula
    assert tokenizer.trace(ids) == trace
    assert tokenizer.completion(ids[len(tokenizer.prompt(formula, slots)) :]) == trace
    assert tokenizer.encode(tokenizer.decode(ids)) == ids[1:-1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["model", "vocab", "1", "1,2", ""]), inner),
)


@given(JSON, st.binary(max_size=50))
def test_a_damaged_tokenizer_file_is_a_data_error(tmp_path_factory: pytest.TempPathFactory, value, raw) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    for content in (json.dumps(value).encode(), raw, json.dumps({"model": {"vocab": value}}).encode()):
        path.write_bytes(content)
        with pytest.raises(DataError):
            SatTokenizer.load(path)
