"""Generators of formulas for training and tests: random families, and crafted ones with a known verdict.

Random families take a `numpy.random.Generator` first; the same state gives the same formula. A clause never repeats a
variable, so none is a tautology. Crafted families are textbook formulas that are hard for resolution; each docstring
says when they are unsatisfiable, and `scramble` hides their regularity.

Not covered: industrial instances, planted solutions.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from barnraise.core.errors import OptionError
from barnraise.data.sat.dimacs import Formula

MAX_CLAUSES = 1_000_000  # clauses of a generated formula
MAX_MARGINAL = 16  # variables, whose truth table is kept
Clause = tuple[int, ...]


def random_ksat(
    rng: np.random.Generator, num_variables: int, *, clause_ratio: float = 4.26, length: int = 3
) -> Formula:
    """Draw uniform random k-SAT: round(clause_ratio * num_variables) clauses of `length` distinct variables.

    Signs are fair coins. For length 3 the threshold between satisfiable and not is near a ratio of 4.26 (Mertens,
    Mézard, Zecchina, 2006).
    """
    return mixed(rng, num_variables, clause_ratio=clause_ratio, lengths=(length, length))


def mixed(
    rng: np.random.Generator, num_variables: int, *, clause_ratio: float, lengths: tuple[int, int] = (1, 3)
) -> Formula:
    """Draw as `random_ksat` does, but with each clause's length uniform on lengths[0] .. lengths[1]."""
    return Formula(num_variables, clauses_at_random(rng, num_variables, _count(num_variables, clause_ratio), lengths))


def skewed(
    rng: np.random.Generator,
    num_variables: int,
    *,
    clause_ratio: float,
    lengths: tuple[int, int] = (3, 3),
    exponent: float = 1.0,
) -> Formula:
    """Draw as `mixed` does, but with variables of weight rank^-exponent, ranks shuffled: a few are in most clauses.

    Industrial formulas are scale-free like this (Ansótegui, Bonet and Levy, 2009).
    """
    if not 0 <= exponent <= 10:
        raise OptionError(f"the skew's exponent is {exponent}, but must be between 0 and 10")
    weights = rng.permutation(np.arange(1, num_variables + 1) ** -float(exponent))
    return Formula(
        num_variables, clauses_at_random(rng, num_variables, _count(num_variables, clause_ratio), lengths, weights)
    )


def marginal_pair(
    rng: np.random.Generator, num_variables: int, *, lengths: tuple[int, int] = (3, 3)
) -> tuple[Formula, Formula]:
    """Draw two formulas one literal apart: the first is satisfiable, the second not (SR(n) of Selsam et al., 2019).

    Random clauses are added until no model is left; negating one literal of the last clause restores models. Clauses
    are shuffled alike in both. Models are tracked as a truth table, hence at most MAX_MARGINAL variables.
    """
    if num_variables > MAX_MARGINAL:
        raise OptionError(f"marginal pairs have {num_variables} variables, but may have {MAX_MARGINAL}; use fewer")
    _check(num_variables, 1, lengths)
    models = np.ones(2**num_variables, dtype=bool)  # which assignments satisfy all clauses so far
    assignments = np.arange(2**num_variables)
    clauses: list[Clause] = []
    while True:
        clause = clauses_at_random(rng, num_variables, 1, lengths)[0]
        left = models & _satisfying(clause, assignments)
        if not left.any():
            break
        clauses.append(clause)
        models = left
    place = int(rng.integers(len(clause)))
    turned = (*clause[:place], -clause[place], *clause[place + 1 :])
    order = rng.permutation(len(clauses) + 1).tolist()
    satisfiable, unsatisfiable = (
        Formula(num_variables, tuple([*clauses, last][index] for index in order)) for last in (turned, clause)
    )
    return satisfiable, unsatisfiable


def pigeonhole(pigeons: int, holes: int) -> Formula:
    """Build the pigeonhole formula, which is unsatisfiable exactly when pigeons > holes (Haken, 1985).

    Every pigeon is in a hole, no two in one. Variable p * holes + h + 1: pigeon p sits in hole h.
    """
    _check_size(pigeons, holes, pigeons + holes * pigeons * (pigeons - 1) // 2)
    sits = np.arange(1, pigeons * holes + 1).reshape(pigeons, holes).tolist()
    clauses: list[Clause] = [tuple(row) for row in sits]
    for hole in range(holes):
        clauses += [(-sits[p][hole], -sits[q][hole]) for p, q in itertools.combinations(range(pigeons), 2)]
    return Formula(pigeons * holes, tuple(clauses))


def parity(vertices: int) -> Formula:
    """Build a perfect matching of the complete graph: unsatisfiable exactly when `vertices` is odd (Ajtai, 1990).

    One variable an edge, in the order of itertools.combinations.
    """
    _check_size(vertices, 2, vertices + vertices * vertices * vertices // 2)
    edge = {pair: index for index, pair in enumerate(itertools.combinations(range(vertices), 2), start=1)}
    clauses: list[Clause] = []
    for vertex in range(vertices):
        around = [edge[min(vertex, other), max(vertex, other)] for other in range(vertices) if other != vertex]
        clauses.append(tuple(around))
        clauses += [(-first, -second) for first, second in itertools.combinations(around, 2)]
    return Formula(len(edge), tuple(clauses))


def ordering(elements: int) -> Formula:
    """Build a total order without a least element, which is always unsatisfiable (Krishnamurthy, 1985).

    Variable of the pair (i, j), i != j, in the order of itertools.permutations: i comes before j.
    """
    _check_size(elements, 2, elements**3)
    before = {pair: index for index, pair in enumerate(itertools.permutations(range(elements), 2), start=1)}
    clauses: list[Clause] = []
    for i, j in itertools.combinations(range(elements), 2):
        clauses += [(before[i, j], before[j, i]), (-before[i, j], -before[j, i])]
    for i, j, k in itertools.permutations(range(elements), 3):
        clauses.append((-before[i, j], -before[j, k], before[i, k]))
    for j in range(elements):
        clauses.append(tuple(before[i, j] for i in range(elements) if i != j))
    return Formula(len(before), tuple(clauses))


def scramble(rng: np.random.Generator, formula: Formula) -> Formula:
    """Return an isomorphic formula: variables renamed, signs turned, clauses and literals reordered at random."""
    names = np.concatenate([[0], rng.permutation(formula.num_variables) + 1])
    signs = rng.choice([-1, 1], formula.num_variables + 1)
    clauses: list[Clause] = []
    for index in rng.permutation(len(formula.clauses)).tolist():
        literals = rng.permutation(np.array(formula.clauses[index], dtype=np.int64))
        variables = np.abs(literals)
        clauses.append(tuple((np.sign(literals) * signs[variables] * names[variables]).tolist()))
    return Formula(formula.num_variables, tuple(clauses))


def clauses_at_random(
    rng: np.random.Generator,
    num_variables: int,
    count: int,
    lengths: tuple[int, int],
    weights: NDArray[np.float64] | None = None,
) -> tuple[Clause, ...]:
    """Draw `count` clauses; variables without replacement by Gumbel keys (Efraimidis and Spirakis, 2006)."""
    _check(num_variables, count, lengths)
    shortest, longest = lengths
    sizes = rng.integers(shortest, longest + 1, count).tolist()
    keys = rng.exponential(size=(count, num_variables))
    if weights is not None:
        keys = keys / weights
    variables = np.argsort(keys, axis=1)[:, :longest] + 1
    literals = np.where(rng.random((count, longest)) < 0.5, variables, -variables).tolist()
    return tuple(tuple(row[:size]) for row, size in zip(literals, sizes, strict=True))


def _satisfying(clause: Clause, assignments: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which assignments (bit v - 1 is variable v) satisfy `clause`."""
    holds = np.zeros(len(assignments), dtype=bool)
    for literal in clause:
        holds |= ((assignments >> (abs(literal) - 1)) & 1) == (literal > 0)
    return holds


def _count(num_variables: int, clause_ratio: float) -> int:
    if not 0 < clause_ratio * num_variables <= MAX_CLAUSES:
        raise OptionError(
            f"{num_variables} variables at a clause ratio of {clause_ratio} is not between 1 and {MAX_CLAUSES} clauses"
        )
    return max(1, round(clause_ratio * num_variables))


def _check(num_variables: int, count: int, lengths: tuple[int, int]) -> None:
    shortest, longest = lengths
    if not 1 <= shortest <= longest:
        raise OptionError(f"clause lengths are {shortest} to {longest}, but must rise from at least 1")
    if longest > num_variables:
        raise OptionError(f"clauses of {longest} literals need as many variables, but there are {num_variables}")
    if num_variables * count > 100 * MAX_CLAUSES:
        raise OptionError(f"{count} clauses over {num_variables} variables are too many; make fewer or smaller ones")


def _check_size(first: int, second: int, clauses: int) -> None:
    if first < 1 or second < 1:
        raise OptionError(f"a crafted formula of size {first} x {second} is empty; sizes start at 1")
    if clauses > MAX_CLAUSES:
        raise OptionError(f"a crafted formula of about {clauses} clauses is above the limit of {MAX_CLAUSES}")
