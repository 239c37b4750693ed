"""A DPLL search in a fixed order, with clauses as bit masks: fast enough for millions of small formulas.

It decides the lowest variable that has no literal yet, positive first. Where several clauses are unit, the literal of
the lowest variable is next, the positive one first. The formula counts as satisfied once every variable that occurs in
it has a literal, also where all clauses hold sooner: so the next step depends on little, and models learn it early.

Literal l has bit 2(v - 1), one more when it is negative. More than 10,000 formulas of 6 variables take a second.
"""

from __future__ import annotations

from functools import lru_cache

from barnraise.data.sat.dimacs import Formula


def search(formula: Formula, max_decisions: int | None = None) -> tuple[list[str], list[int] | None] | None:
    """Return the steps of a terse trace and the literals that hold, or None in place of them: unsatisfiable.

    None for both where the formula needs more than `max_decisions`.

    >>> search(Formula(2, ((1, 2), (-1,))))
    (['U', '-1', 'U', '2', 'SAT'], [-1, 2])
    """
    rest = list({_mask(clause) for clause in formula.clauses})
    used = 0
    for mask in rest:
        used |= mask
    free = (used | used >> 1) & (4 ** used.bit_length() // 3)  # the positive bits of variables without a literal
    steps: list[str] = []
    holds: list[int] = []
    decisions: list[tuple[int, int, list[int], int]] = []  # open ones: literal; literals, clauses and variables before
    num_decisions = 0
    while True:
        if 0 in rest:
            if not decisions:
                steps.append("UNSAT")
                return steps, None
            literal, held, rest, free = decisions.pop()
            del holds[held:]
            kind, literal = "B", -literal
        elif units := [mask for mask in rest if not mask & (mask - 1)]:
            place = min(units).bit_length() - 1
            kind, literal = "U", -(place // 2) - 1 if place & 1 else place // 2 + 1
        elif free:
            num_decisions += 1
            if max_decisions is not None and num_decisions > max_decisions:
                return None
            kind, literal = "D", (free & -free).bit_length() // 2 + 1
            decisions.append((literal, len(holds), rest, free))
        else:
            steps.append("SAT")
            return steps, holds
        steps += (kind, str(literal))
        holds.append(literal)
        true, others = _bit(literal), ~_bit(-literal)
        free &= others & ~true
        rest = [mask & others for mask in rest if not mask & true]


def _bit(literal: int) -> int:
    return 1 << 2 * literal - 2 if literal > 0 else 1 << -2 * literal - 1


@lru_cache(1 << 16)
def _mask(clause: tuple[int, ...]) -> int:
    mask = 0
    for literal in clause:
        mask |= _bit(literal)
    return mask
