"""The verdict beside a model's comes from CaDiCaL, and from barnraise's solver where it is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from barnraise.data.sat import oracle
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.formulas import Formulas


def test_both_solvers_agree_and_say_their_names() -> None:
    kind = Formulas(variables=(5, 5), clause_ratio=4.3, clause_lengths=(3, 3))
    found = set()
    for formula, _ in zip(kind.draw(np.random.default_rng(0)), range(100), strict=False):
        first, second = oracle.rule(formula), oracle.by_own_solver(formula)
        assert first.satisfiable is second.satisfiable
        assert (first.solver, second.solver) == (oracle.CADICAL, oracle.OWN)
        found.add(first.satisfiable)
    assert found == {True, False}


def test_an_empty_clause_cannot_hold_and_no_clause_must() -> None:
    assert oracle.rule(Formula(2, ((1,), ()))).satisfiable is False
    assert oracle.rule(Formula(2, ())).satisfiable is True


def test_without_python_sat_the_own_solver_rules_and_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pysat.solvers", None)
    ruling = oracle.rule(Formula(2, ((1, 2), (-1,))))
    assert ruling == oracle.Ruling(True, oracle.OWN)
    assert "pip install 'barnraise[sat]'" in ruling.solver


def test_a_formula_beyond_the_limit_has_no_verdict() -> None:
    assert oracle.by_own_solver(Formula(2, ((1, 2),)), most=0).satisfiable is None
