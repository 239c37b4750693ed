"""The verdict of an established SAT solver, where it is installed, and of barnraise's own elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from barnraise.core.errors import OptionError
from barnraise.data.sat import dpll
from barnraise.data.sat.dimacs import Formula

CADICAL, OWN = "CaDiCaL", "barnraise's solver (pip install 'barnraise[sat]' adds CaDiCaL)"

MAX_DECISIONS = 100_000


@dataclass(frozen=True)
class Ruling:
    """A solver's verdict; `satisfiable` is None where it gave up."""

    satisfiable: bool | None
    solver: str


def rule(formula: Formula) -> Ruling:
    """Return CaDiCaL's verdict on `formula`, or that of barnraise's solver where python-sat is not installed."""
    try:
        from pysat.solvers import Solver
    except ImportError:
        return by_own_solver(formula)
    if not all(formula.clauses):
        return Ruling(False, CADICAL)
    with Solver(name="cadical195", bootstrap_with=[list(clause) for clause in formula.clauses]) as solver:
        return Ruling(bool(solver.solve()), CADICAL)


def by_own_solver(formula: Formula, most: int = MAX_DECISIONS) -> Ruling:
    """Return the verdict of barnraise's solver, which gives up after `most` decisions."""
    try:
        return Ruling(dpll.solve(formula, max_decisions=most).satisfiable, OWN)
    except OptionError:
        return Ruling(None, OWN)
