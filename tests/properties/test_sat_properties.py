from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pysat.solvers import Solver

from barnraise.core.errors import DataError, DimacsError
from barnraise.data.sat import dimacs, dpll, traces
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.tokenizer import SatTokenizer

TOKENS = ["D", "U", "B", "SAT", "UNSAT", "T", "F", "1", "-1", "2", "-2", "3", "1,2", "-1,3", "<pad>", "0", "1,"]


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


@given(formulas(), st.sampled_from(dpll.STYLES), st.sampled_from(sorted(dpll.HEURISTICS)), st.integers(0, 16))
def test_the_solver_is_right_and_proves_it(formula: Formula, style: str, heuristic: str, slots: int) -> None:
    result = dpll.solve(formula, style=style, heuristic=heuristic, slots=slots)
    with Solver("minisat22", bootstrap_with=[list(clause) for clause in formula.clauses]) as independent:
        assert result.satisfiable == independent.solve()
    assert (result.model is not None) == result.satisfiable
    if result.model is not None:
        assert [abs(literal) for literal in result.model] == list(range(1, formula.num_variables + 1))
        assert formula.satisfied_by(result.model)
    assert traces.check(formula, result.trace, style=style, slots=slots) == (True, "")
    assert traces.parse(" ".join(result.trace)) == result.trace
    assert dpll.solve(formula, style=style, heuristic=heuristic, slots=slots) == result


@given(formulas(most=3), st.lists(st.sampled_from(TOKENS), max_size=12), st.sampled_from([None, *dpll.STYLES]))
def test_no_trace_proves_a_wrong_verdict(formula: Formula, tokens: list[str], style: str | None) -> None:
    score = traces.score(formula, tokens, style=style)
    assert 0 <= score.accepted <= score.total <= len(tokens)
    assert score.valid == (score.reason == "")
    if score.valid:
        assert score.verdict == dpll.solve(formula).satisfiable


@given(formulas(), st.sampled_from(dpll.STYLES), st.data())
def test_a_damaged_trace_never_proves_the_other_verdict(formula: Formula, style: str, data: st.DataObject) -> None:
    """One token replaced, dropped or doubled: what still passes must still be right."""
    result = dpll.solve(formula, style=style)
    place = data.draw(st.integers(0, len(result.trace) - 1))
    swap = data.draw(st.lists(st.sampled_from([*TOKENS, result.trace[place]]), max_size=2))
    score = traces.score(formula, [*result.trace[:place], *swap, *result.trace[place + 1 :]], style=style)
    assert score.verdict == result.satisfiable if score.valid else score.reason


@given(proper_formulas(), st.integers(0, 12))
def test_the_tokenizer_gives_back_what_it_took(formula: Formula, slots: int) -> None:
    tokenizer = SatTokenizer(5, 3)
    trace = dpll.solve(formula, style="restated", slots=slots).trace
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
