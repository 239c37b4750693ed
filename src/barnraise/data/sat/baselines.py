"""Trivial verdicts on formulas, beside which a model's verdicts are shown.

They share no code with the solver. Formulas that need search are those on which they do not help: a formula is easy
where unit propagation alone meets the conflict.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from barnraise.data.sat.dimacs import Formula


def by_propagation(formula: Formula) -> bool:
    """Return the verdict "unsatisfiable" exactly where unit propagation alone meets a conflict."""
    return _propagated(formula.clauses) is not None


def by_one_decision(formula: Formula, chance: np.random.Generator) -> bool:
    """Return the same after one more literal, drawn from the variables that propagation leaves."""
    left = _propagated(formula.clauses)
    if not left:
        return left is not None
    variables = sorted({abs(literal) for clause in left for literal in clause})
    literal = int(chance.choice(variables)) * (1 if chance.random() < 0.5 else -1)
    return _propagated([*left, (literal,)]) is not None


def _propagated(clauses: Iterable[Iterable[int]]) -> list[frozenset[int]] | None:
    """Return the clauses that unit propagation leaves; None where one has no literal left."""
    left = [frozenset(clause) for clause in clauses]
    while all(left):
        unit = next((next(iter(clause)) for clause in left if len(clause) == 1), 0)
        if not unit:
            return left
        left = [clause - {-unit} for clause in left if unit not in clause]
    return None
