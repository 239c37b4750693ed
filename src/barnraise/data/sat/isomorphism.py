"""Formulas that are the same up to the names and signs of variables, and the order of clauses and literals.

Literals have colours. Refinement gives each the colours of its negation and of the clauses that have it, again and
again (Weisfeiler and Leman, 1968). Formulas whose refined colours differ are not the same. Others are compared: those
are the same for which a renaming is found that makes one of the other, literal by literal. The search for it is
bounded; where it does not suffice, as it may not for large regular formulas, they count as different.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from barnraise.data.sat.dimacs import Formula

MOST_COLOURINGS = 200
"""Pairs of colourings that are tried to find a renaming, at most."""

ROUNDS = 16
"""Rounds of refinement, at most: a literal's colour depends on clauses so far away."""

Clauses = frozenset[frozenset[int]]
Colours = Mapping[int, int]


class DistinctFormulas:
    """A set of formulas without two that are the same up to names, signs and order.

    >>> found = DistinctFormulas()
    >>> found.add(Formula(2, ((1, 2), (-1, 2)))), found.add(Formula(3, ((3, -1), (-3, -1)))), len(found.formulas)
    (True, False, 1)
    """

    def __init__(self) -> None:
        self.formulas: list[Formula] = []
        self._by_colours: defaultdict[int, list[Clauses]] = defaultdict(list)

    def add(self, formula: Formula) -> bool:
        """Add a formula unless one like it is there; return whether it was added."""
        clauses, alike = self._alike(formula)
        if _is_like_any(clauses, alike):
            return False
        alike.append(clauses)
        self.formulas.append(formula)
        return True

    def __contains__(self, formula: Formula) -> bool:
        return _is_like_any(*self._alike(formula))

    def _alike(self, formula: Formula) -> tuple[Clauses, list[Clauses]]:
        """Return the clauses of a formula, and those of the formulas here whose refined colours are the same."""
        clauses = frozenset(map(frozenset, formula.clauses))
        return clauses, self._by_colours[_certificate(_refined(clauses, {}))]


def _is_like_any(clauses: Clauses, others: list[Clauses]) -> bool:
    return any(_Search(clauses, other).finds({}, {}) for other in others)


class _Search:
    """The search for a renaming that makes the first clauses of the second."""

    def __init__(self, first: Clauses, second: Clauses) -> None:
        self.first, self.second, self.left = first, second, MOST_COLOURINGS

    def finds(self, fixed: Colours, other_fixed: Colours) -> bool:
        """Return whether it finds one that keeps the colours of fixed literals."""
        self.left -= 1
        colours, others = _refined(self.first, fixed), _refined(self.second, other_fixed)
        if self.left < 0 or _certificate(colours) != _certificate(others):
            return False
        classes, other_classes = _classes(colours), _classes(others)
        shared = [found for found in classes.values() if len(found) > 1]
        if not shared:
            return self._makes({literal: other_classes[colour][0] for literal, colour in colours.items()})
        literal, mark = min(shared, key=len)[0], len(fixed) + 1
        candidates = other_classes[colours[literal]]
        return any(self.finds({**fixed, literal: mark}, {**other_fixed, other: mark}) for other in candidates)

    def _makes(self, names: Mapping[int, int]) -> bool:
        """Return whether names of literals are a renaming that makes the first clauses of the second."""
        renamed = frozenset(frozenset(names[literal] for literal in clause) for clause in self.first)
        return renamed == self.second and all(names[-literal] == -name for literal, name in names.items())


def _refined(clauses: Clauses, fixed: Colours) -> dict[int, int]:
    """Refine the colours of literals until no more of them come apart; those of `fixed` begin apart."""
    variables = {abs(literal) for clause in clauses for literal in clause}
    colours = {literal: fixed.get(literal, 0) for variable in variables for literal in (variable, -variable)}
    number = len(set(colours.values()))
    for _ in range(ROUNDS):
        around: defaultdict[int, list[int]] = defaultdict(list)
        for clause in clauses:
            colour = hash(tuple(sorted(colours[literal] for literal in clause)))
            for literal in clause:
                around[literal].append(colour)
        colours = {
            literal: hash((colour, colours[-literal], *sorted(around[literal]))) for literal, colour in colours.items()
        }
        before, number = number, len(set(colours.values()))
        if number == before:
            break
    return colours


def _certificate(colours: Colours) -> int:
    return hash(tuple(sorted(colours.values())))


def _classes(colours: Colours) -> dict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for literal, colour in colours.items():
        found[colour].append(literal)
    return found
