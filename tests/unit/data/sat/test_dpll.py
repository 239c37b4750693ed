from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.core.errors import OptionError, UnknownNameError
from barnraise.data.sat import dimacs, dpll, traces
from barnraise.data.sat.dimacs import Formula

SATLIB = Path(__file__).parents[5] / "shared" / "data" / "satlib"

# 1 must be decided; each side of 2 then conflicts, so it goes back twice.
UNSATISFIABLE = Formula(2, ((1, 2), (1, -2), (-1, 2), (-1, -2)))


def test_a_trace_in_full_terse() -> None:
    result = dpll.solve(UNSATISFIABLE, heuristic="first")
    assert result.trace == ["D", "1", "U", "2", "B", "-1", "U", "2", "UNSAT"]
    assert (result.satisfiable, result.model, result.num_decisions) == (False, None, 1)


def test_a_trace_in_full_restated() -> None:
    result = dpll.solve(UNSATISFIABLE, heuristic="first", style="restated", slots=5)
    expected = "D 1 T T 2 -2 T U 2 T T T F T B -1 2 -2 T T T U 2 T F T T T UNSAT"
    assert result.trace == expected.split()


def test_free_variables_get_a_literal_in_the_model() -> None:
    result = dpll.solve(Formula(3, ((-2,),)))
    assert result.model == [1, -2, 3]


@pytest.mark.parametrize(
    ("formula", "trace"),
    [
        (Formula(0, ()), ["SAT"]),
        (Formula(1, ((1,), ())), ["UNSAT"]),
        (Formula(1, ((1, 1),)), ["U", "1", "SAT"]),
        (Formula(1, ((1, -1),)), ["D", "1", "SAT"]),
        (Formula(1, ((1,), (-1,))), ["U", "1", "UNSAT"]),
    ],
)
def test_degenerate_formulas(formula: Formula, trace: list[str]) -> None:
    assert dpll.solve(formula).trace == trace
    assert traces.check(formula, trace) == (True, "")


def test_depth_is_not_bounded_by_recursion() -> None:
    chain = Formula(1100, tuple((-v, v + 1) for v in range(1, 1100)))
    result = dpll.solve(chain, heuristic="first")
    assert result.num_decisions == 1099
    assert result.model is not None
    assert chain.satisfied_by(result.model)


def test_work_can_be_bounded() -> None:
    with pytest.raises(OptionError, match="more than 0 decisions"):
        dpll.solve(UNSATISFIABLE, max_decisions=0)


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'terse'"):
        dpll.solve(UNSATISFIABLE, style="tersed")
    with pytest.raises(UnknownNameError, match="decision heuristic"):
        dpll.solve(UNSATISFIABLE, heuristic="vsids")


@pytest.mark.skipif(not SATLIB.is_dir(), reason=f"the SATLIB sample is not at {SATLIB}")
@pytest.mark.parametrize("name", ["uf20-01", "uf50-01", "uuf50-01", "uf75-01", "uuf75-01", "uf100-01", "uuf100-09"])
def test_satlib_verdicts_models_and_traces(name: str) -> None:
    formula = dimacs.read(SATLIB / f"{name}.cnf")
    result = dpll.solve(formula)
    assert result.satisfiable == (not name.startswith("uuf"))
    assert result.model is None or formula.satisfied_by(result.model)
    assert traces.check(formula, result.trace) == (True, "")


@pytest.mark.skipif(not SATLIB.is_dir(), reason=f"the SATLIB sample is not at {SATLIB}")
@pytest.mark.parametrize("style", ["trail", "trail_steps"])
@pytest.mark.parametrize("name", ["uf20-01", "uuf50-01", "uf75-01"])
def test_satlib_trails(name: str, style: str) -> None:
    formula = dimacs.read(SATLIB / f"{name}.cnf")
    result = dpll.solve(formula, style=style, heuristic="lowest")
    assert result.satisfiable == (not name.startswith("uuf"))
    assert result.num_backtracks > 10
    assert traces.check(formula, result.trace, style=style) == (True, "")
