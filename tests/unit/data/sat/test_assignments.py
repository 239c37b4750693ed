"""The assignment that a trace ends with is read in every style, without its steps being judged."""

from __future__ import annotations

import numpy as np
import pytest

from barnraise.data.sat import dpll
from barnraise.data.sat.assignments import assignment
from barnraise.data.sat.formulas import Formulas
from barnraise.data.sat.styles import STYLES


@pytest.mark.parametrize("style", STYLES)
def test_the_solvers_traces_end_with_a_satisfying_assignment(style: str) -> None:
    kind = Formulas(variables=(5, 5), clause_ratio=4.0, clause_lengths=(3, 3))
    solver = dpll.Solver(style=style, heuristic="first")
    ends = set()
    for formula, _ in zip(kind.draw(np.random.default_rng(0)), range(200), strict=False):
        result = solver.solve(formula)
        ends.add(result.satisfiable)
        assert formula.satisfied_by(assignment(result.trace, style)) is result.satisfiable
    assert ends == {True, False}


@pytest.mark.parametrize(
    ("style", "trace", "literals"),
    [
        ("terse", "D 1 U 2 B -1 U 3 SAT", {-1, 3}),
        ("terse", "D 1 D 2 U 3 B -2 SAT", {1, -2}),
        ("terse", "D 1 U -1 SAT", set()),
        ("terse", "D 1 U 2", set()),
        ("terse", "D 1 U 2 UNSAT", set()),
        ("terse", "SAT", set()),
        ("terse", "U x B U SAT", set()),
        ("trail", "D1 D2 4 F D1 -2 3 SAT", {1, -2, 3}),
        ("trail", "D1 2 SAT", {1, 2}),
        ("trail", "D1 -1 SAT", set()),
        ("trail", "D1 2 F UNSAT", set()),
        ("trail", "F SAT", set()),
        ("trail_steps", "D1 | D1 2 | SAT", {1, 2}),
        ("trail_steps", "D1 | D1 2 | F -1 | SAT", {-1}),
        ("trail_steps", "D1 | D1 2 SAT", {1, 2}),
    ],
)
def test_the_last_trail_is_the_assignment(style: str, trace: str, literals: set[int]) -> None:
    assert assignment(trace.split(), style) == literals


def test_wrong_reasons_do_not_hide_a_right_assignment() -> None:
    assert assignment(["U", "3", "U", "2", "SAT"], "terse") == {2, 3}
    assert assignment(["D1", "F", "D9", "3", "2", "SAT"], "trail") == {2, 3, 9}
