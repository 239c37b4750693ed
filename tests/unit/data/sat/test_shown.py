"""Traces of every style read well, and the first wrong step is marked."""

from __future__ import annotations

import pytest

from barnraise.data.sat import dpll, traces
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.shown import show
from barnraise.data.sat.styles import STYLES
from barnraise.data.sat.trail import render

FORMULA = Formula(3, ((1, 2), (1, -2), (-1, 3), (-1, -3)))
TERSE = ["D", "1", "U", "3", "B", "-1", "U", "2", "UNSAT"]


def shown(tokens: list[str], style: str) -> list[str]:
    score = traces.score(FORMULA, tokens, style=style)
    return show(FORMULA, tokens, score, style=style).splitlines()


def test_a_step_is_a_line() -> None:
    assert shown(TERSE, "terse") == [
        "formula: (1 or 2) and (1 or -2) and (-1 or 3) and (-1 or -3)",
        "  decide 1",
        "  unit 3",
        "  back: -1",
        "  unit 2",
        "  UNSAT",
        "checker: accepted",
    ]


@pytest.mark.parametrize(
    ("style", "lines"),
    [
        ("trail", ["  D1 3   conflict", "  -1 2   conflict: unsatisfiable"]),
        ("trail_steps", ["  D1", "  D1 3   conflict", "  -1", "  -1 2   conflict: unsatisfiable"]),
    ],
)
def test_a_trail_is_a_line_that_ends_in_its_conflict(style: str, lines: list[str]) -> None:
    formula, trace, *rest, checker = shown(render(TERSE, style), style)
    assert formula.startswith("formula: (1 or 2) and")
    assert "turned" in trace
    assert rest == lines
    assert checker == "checker: accepted"


def test_a_model_that_satisfies_is_named() -> None:
    formula = Formula(2, ((1, 2),))
    trace = ["D1", "D2", "SAT"]
    text = show(formula, trace, traces.score(formula, trace, style="trail"), style="trail")
    assert "  D1 D2   satisfiable" in text.splitlines()


@pytest.mark.parametrize(
    ("style", "trace", "wrong"),
    [
        ("trail", "D1 3 F 1 2 F UNSAT", "  1 2    conflict: unsatisfiable  <- not accepted"),
        ("trail", "D1 F -1 2 F UNSAT", "  D1     conflict  <- not accepted"),
        ("trail", "D1 3 F 1 2 F UNSAT", "  D1 3   conflict\n"),
        ("trail", "D1 -2 F -1 2 F UNSAT", "  D1 -2   conflict  <- not accepted"),
        ("trail_steps", "D1 | 3 | F -1 | -1 2 | F UNSAT", "  3      conflict  <- not accepted"),
        ("trail", "", "checker: refused: the trace ends without a verdict"),
        ("trail", "<pad> SAT", "<- not accepted"),
        ("terse", "D 1 U 2", "  unit 2       <- not accepted"),
    ],
)
def test_a_wrong_step_is_marked(style: str, trace: str, wrong: str) -> None:
    assert wrong in "\n".join(shown(trace.split(), style))


@pytest.mark.parametrize("style", STYLES)
def test_every_token_that_a_solver_writes_is_shown(style: str) -> None:
    trace = dpll.Solver(style=style, heuristic="first").solve(FORMULA).trace
    text = "\n".join(shown(trace, style))
    assert "not accepted" not in text
    assert all(token.strip("D|F") in text for token in trace if token not in ("UNSAT", "U", "B", "T"))
