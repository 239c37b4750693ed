"""Formulas up to the names and signs of variables: as all renamings tell, and within a bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from barnraise.data.sat import generators
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.isomorphism import DistinctFormulas


def renamings(formula: Formula) -> set[frozenset[frozenset[int]]]:
    """All formulas over the same variables that are the same up to names, signs and order."""
    size = formula.num_variables
    found = set()
    for names in itertools.permutations(range(1, size + 1)):
        for signs in itertools.product((1, -1), repeat=size):
            to = {v * s: names[v - 1] * signs[v - 1] * s for v in range(1, size + 1) for s in (1, -1)}
            found.add(frozenset(frozenset(to[literal] for literal in clause) for clause in formula.clauses))
    return found


def test_small_formulas_are_the_same_exactly_where_a_renaming_makes_one_of_the_other() -> None:
    rng = np.random.default_rng(0)
    drawn = [generators.mixed(rng, 3, clause_ratio=1.0, lengths=(2, 3)) for _ in range(300)]
    drawn = [formula for formula in drawn if len({abs(v) for clause in formula.clauses for v in clause}) == 3]
    found = DistinctFormulas()
    kept: set[frozenset[frozenset[int]]] = set()
    for formula in drawn:
        clauses = frozenset(map(frozenset, formula.clauses))
        assert (formula in found) == (clauses in kept)
        assert found.add(formula) == (clauses not in kept)
        kept |= renamings(formula)
    assert 10 < len(found.formulas) < len(drawn) / 2


@pytest.mark.parametrize(
    "formula",
    [
        generators.random_ksat(np.random.default_rng(1), 20),
        generators.pigeonhole(5, 4),
        generators.parity(5),
        generators.ordering(4),
        Formula(40, tuple((2 * v - 1, 2 * v) for v in range(1, 21))),
    ],
    ids=["random", "pigeonhole", "parity", "ordering", "apart"],
)
def test_a_formula_is_found_again_under_other_names(formula: Formula) -> None:
    found, rng = DistinctFormulas(), np.random.default_rng(2)
    assert found.add(formula)
    for _ in range(3):
        other = generators.scramble(rng, formula)
        assert other in found
        assert not found.add(other)
    assert found.formulas == [formula]


def ring(start: int, size: int) -> list[tuple[int, ...]]:
    """Clauses of two variables each, along a ring."""
    return [(start + place, start + (place + 1) % size) for place in range(size)]


def test_formulas_whose_literals_occur_alike_may_differ() -> None:
    found = DistinctFormulas()
    assert found.add(Formula(6, tuple(ring(1, 6))))
    assert found.add(Formula(6, (*ring(1, 3), *ring(4, 3))))
    assert not found.add(Formula(6, (*ring(4, 3), *ring(1, 3))))


def test_the_comparison_of_large_regular_formulas_ends() -> None:
    triangles = [clause for place in range(60) for clause in ring(1 + 3 * place, 3)]
    hexagons = [clause for place in range(30) for clause in ring(1 + 6 * place, 6)]
    found = DistinctFormulas()
    assert found.add(Formula(180, tuple(triangles)))
    assert found.add(Formula(180, tuple(hexagons)))


def test_one_turned_literal_makes_another_formula() -> None:
    formula = generators.random_ksat(np.random.default_rng(3), 20)
    first, *others = formula.clauses
    found = DistinctFormulas()
    found.add(formula)
    assert found.add(Formula(20, ((-first[0], *first[1:]), *others)))
