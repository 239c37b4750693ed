from __future__ import annotations

import numpy as np
import pytest
from pysat.solvers import Solver

from barnraise.core.errors import OptionError
from barnraise.data.sat import dpll, generators, lowest, traces
from barnraise.data.sat.dimacs import Formula

SEARCHED = Formula(3, ((1, 2, 3), (1, 2, -3), (-1, 2, 3), (-1, -2, 3), (-1, -3)))


def test_a_search_in_full() -> None:
    """Both sides of 1 are tried; with -1 and 2 all clauses hold, and 3 gets a literal even so."""
    steps = "D 1 U -3 U 2 B -1 D 2 D 3 SAT"
    assert lowest.search(SEARCHED) == (steps.split(), [-1, 2, 3])


def test_the_lowest_of_several_units_is_next() -> None:
    steps, literals = lowest.search(Formula(3, ((3,), (-2,), (1, 2)))) or ([], None)
    assert " ".join(steps) == "U -2 U 1 U 3 SAT", "1 is unit only once -2 holds"
    assert literals == [-2, 1, 3]


def test_variables_that_do_not_occur_get_no_literal() -> None:
    assert lowest.search(Formula(5, ((2, 4),))) == (["D", "2", "D", "4", "SAT"], [2, 4])
    assert dpll.solve(Formula(5, ((2, 4),)), heuristic="lowest").model == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("formula", "steps"),
    [
        (Formula(0, ()), "SAT"),
        (Formula(1, ((1,), ())), "UNSAT"),
        (Formula(1, ((1, 1),)), "U 1 SAT"),
        (Formula(1, ((1, -1),)), "D 1 SAT"),
        (Formula(1, ((1,), (-1,))), "U 1 UNSAT"),
    ],
)
def test_degenerate_formulas(formula: Formula, steps: str) -> None:
    found = lowest.search(formula)
    assert found is not None
    assert found[0] == steps.split()


def test_the_search_ends_at_its_limit_of_decisions() -> None:
    assert lowest.search(SEARCHED, max_decisions=2) is None
    assert lowest.search(SEARCHED, max_decisions=3) is not None
    with pytest.raises(OptionError, match="needs more than 2 decisions"):
        dpll.solve(SEARCHED, heuristic="lowest", max_decisions=2)


def test_depth_is_not_bounded_by_recursion() -> None:
    chain = Formula(1100, tuple((v, v + 1) for v in range(1, 1100, 2)))
    result = dpll.solve(chain, heuristic="lowest")
    assert (result.num_decisions, result.num_backtracks) == (1100, 0)


@pytest.mark.parametrize("num_variables", [4, 6, 8, 12])
def test_verdicts_are_those_of_cadical_near_the_threshold(num_variables: int) -> None:
    rng = np.random.default_rng(num_variables)
    solver = dpll.Solver(style="trail", heuristic="lowest")
    verdicts, backtracks = set(), 0
    for _ in range(100):
        formula = generators.random_ksat(rng, num_variables)
        result = solver.solve(formula)
        with Solver("cadical195", bootstrap_with=[list(clause) for clause in formula.clauses]) as cadical:
            assert result.satisfiable == cadical.solve()
        assert traces.check(formula, result.trace, style="trail") == (True, "")
        verdicts.add(result.satisfiable)
        backtracks += result.num_backtracks
    assert verdicts == {True, False}
    assert backtracks > 30
