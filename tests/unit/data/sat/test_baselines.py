"""The trivial verdicts beside a model's are what they are called."""

from __future__ import annotations

import numpy as np
from pysat.solvers import Solver

from barnraise.data.sat.baselines import by_one_decision, by_propagation
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.formulas import Formulas

TWO_SIDED = Formula(2, ((1, 2), (1, -2)))
"""A formula in which only one of the four literals, -1, ends in a conflict."""


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_propagation_says_unsatisfiable_exactly_at_its_own_conflict() -> None:
    """An established solver's unit propagation meets a conflict on the same formulas."""
    formulas = Formulas(variables=(5, 5), clause_ratio=3.0, clause_lengths=(1, 3)).draw(chance())
    met = set()
    for formula, _ in zip(formulas, range(300), strict=False):
        with Solver("minisat22", bootstrap_with=[list(clause) for clause in formula.clauses]) as solver:
            theirs, _ = solver.propagate()
        assert by_propagation(formula) is theirs
        met.add(theirs)
    assert met == {True, False}


def test_an_empty_clause_is_a_conflict_and_no_clause_is_none() -> None:
    assert not by_propagation(Formula(1, ((), (1,))))
    assert by_propagation(Formula(1, ()))
    assert by_one_decision(Formula(1, ()), chance())
    assert not by_one_decision(Formula(1, ((1,), (-1,))), chance())


def test_one_decision_is_drawn_from_all_literals_alike() -> None:
    drawn = chance()
    said = [by_one_decision(TWO_SIDED, drawn) for _ in range(2000)]
    assert 0.70 < sum(said) / 2000 < 0.80


def test_the_seed_decides_the_decision() -> None:
    first, again = ([by_one_decision(TWO_SIDED, chance(seed)) for seed in range(50)] for _ in range(2))
    assert first == again
    assert len(set(first)) == 2


def test_propagation_before_the_decision_counts() -> None:
    """Propagation settles the formula, so that the decision has nothing to decide."""
    assert not any(by_one_decision(Formula(2, ((1,), (-1, 2), (-2,))), chance(seed)) for seed in range(20))
