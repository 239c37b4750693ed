from __future__ import annotations

import itertools

import numpy as np
import pytest
from pysat.examples.genhard import GT, PAR, PHP
from pysat.solvers import Solver

from barnraise.core.errors import OptionError
from barnraise.data.sat import generators
from barnraise.data.sat.dimacs import Formula


def satisfiable(formula: Formula) -> bool:
    """Decide satisfiability with an independent solver."""
    with Solver("minisat22", bootstrap_with=[list(clause) for clause in formula.clauses]) as solver:
        return bool(solver.solve())


def distinct_variables(formula: Formula) -> bool:
    return all(len({abs(literal) for literal in clause}) == len(clause) for clause in formula.clauses)


def test_random_ksat_has_the_size_asked_for() -> None:
    formula = generators.random_ksat(np.random.default_rng(0), 20, clause_ratio=4.26)
    assert len(formula.clauses) == 85
    assert {len(clause) for clause in formula.clauses} == {3}
    assert distinct_variables(formula)
    assert {abs(literal) for clause in formula.clauses for literal in clause} == set(range(1, 21))


def test_the_same_seed_gives_the_same_formula() -> None:
    first, again, other = (generators.random_ksat(np.random.default_rng(seed), 10) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_verdicts_turn_at_the_threshold() -> None:
    rng = np.random.default_rng(1)
    low, high = (
        sum(satisfiable(generators.random_ksat(rng, 60, clause_ratio=ratio)) for _ in range(20)) for ratio in (3.0, 6.5)
    )
    assert low == 20
    assert high == 0


def test_mixed_lengths_are_uniform() -> None:
    formula = generators.mixed(np.random.default_rng(0), 10, clause_ratio=300, lengths=(1, 3))
    counts = np.bincount([len(clause) for clause in formula.clauses], minlength=4)
    assert counts[0] == 0
    assert np.all(np.abs(counts[1:] - 1000) < 100)  # about four standard deviations


def test_skew_concentrates_on_a_few_variables() -> None:
    rng = np.random.default_rng(0)

    def share_of_commonest(exponent: float) -> float:
        formula = generators.skewed(rng, 20, clause_ratio=50, exponent=exponent)
        assert distinct_variables(formula)
        counts = np.bincount([abs(literal) for clause in formula.clauses for literal in clause])
        return float(counts.max() / counts.sum())

    assert share_of_commonest(0) < 0.07
    assert share_of_commonest(1.5) > 0.2


def test_marginal_pairs_straddle_the_line() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        good, bad = generators.marginal_pair(rng, 6, lengths=(2, 3))
        assert satisfiable(good)
        assert not satisfiable(bad)
        pairs = [
            (one, two)
            for left, right in zip(good.clauses, bad.clauses, strict=True)
            for one, two in itertools.zip_longest(left, right)
            if one != two
        ]
        assert len(pairs) == 1
        assert pairs[0][0] == -pairs[0][1]


def test_crafted_families_have_the_verdict_they_promise() -> None:
    for pigeons, holes in itertools.product(range(1, 5), repeat=2):
        assert satisfiable(generators.pigeonhole(pigeons, holes)) == (pigeons <= holes)
    for vertices in range(2, 8):
        assert satisfiable(generators.parity(vertices)) == (vertices % 2 == 0)
    for elements in range(2, 6):
        assert not satisfiable(generators.ordering(elements))


def test_crafted_families_agree_with_python_sat() -> None:
    for theirs, ours in ((PHP(4), generators.pigeonhole(5, 4)), (PAR(2), generators.parity(5))):
        assert ours.num_variables == theirs.nv
        assert ours.canonical() == Formula(theirs.nv, tuple(map(tuple, theirs.clauses))).canonical()
    with Solver("minisat22", bootstrap_with=GT(4).clauses) as solver:  # another encoding of the same principle
        assert not solver.solve()


def test_scrambling_keeps_the_verdict_and_the_shape() -> None:
    rng = np.random.default_rng(0)
    for formula in (generators.pigeonhole(3, 2), generators.pigeonhole(3, 3), generators.parity(4)):
        other = generators.scramble(rng, formula)
        assert other != formula
        assert other.num_variables == formula.num_variables
        assert sorted(map(len, other.clauses)) == sorted(map(len, formula.clauses))
        assert satisfiable(other) == satisfiable(formula)


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: generators.random_ksat(rng, 2),
        lambda rng: generators.random_ksat(rng, 10, clause_ratio=0),
        lambda rng: generators.random_ksat(rng, 10, clause_ratio=-1),
        lambda rng: generators.random_ksat(rng, 10**9, clause_ratio=10**9),
        lambda rng: generators.random_ksat(rng, 900_000, clause_ratio=1),
        lambda rng: generators.mixed(rng, 5, clause_ratio=2, lengths=(0, 2)),
        lambda rng: generators.mixed(rng, 5, clause_ratio=2, lengths=(3, 2)),
        lambda rng: generators.skewed(rng, 5, clause_ratio=2, exponent=-1),
        lambda rng: generators.marginal_pair(rng, 17),
        lambda rng: generators.pigeonhole(0, 3),
        lambda rng: generators.pigeonhole(10**6, 10**6),
        lambda rng: generators.parity(10**6),
        lambda rng: generators.ordering(10**6),
        lambda rng: generators.ordering(-1),
    ],
)
def test_impossible_sizes_are_refused(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OptionError):
        make(np.random.default_rng(0))
