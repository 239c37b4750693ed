"""The formulas of a SAT dataset: their sizes and the family that they are drawn from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from barnraise.core.errors import OptionError, UnknownNameError
from barnraise.data.sat import generators
from barnraise.data.sat.dimacs import Formula

FAMILIES = ("random", "skewed", "marginal", "crafted")
MAX_CRAFTED = 100  # variables
_BLOCK = 64  # formulas drawn at once: few, so that any part of the stream has all sizes


@dataclass(frozen=True)
class Formulas:
    """The distribution of formulas, uniform in each range; OptionError or UnknownNameError for invalid values.

    `variables` and `clause_lengths` are closed ranges; a formula over n variables has round(clause_ratio * n) clauses
    (for the families "marginal" and "crafted": at most that of the largest n). `skew` is the exponent of the family
    "skewed".
    """

    variables: tuple[int, int] = (4, 4)
    clause_ratio: float = 2.0
    clause_lengths: tuple[int, int] = (1, 3)
    family: str = "random"
    skew: float = 1.0

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise UnknownNameError("formula family", self.family, FAMILIES)
        for name, (low, high) in (("variables", self.variables), ("clause_lengths", self.clause_lengths)):
            if not 1 <= low <= high:
                raise OptionError(f"{name} is [{low}, {high}], but must be a range that starts at 1 or more")
        if self.family != "crafted" and self.clause_lengths[1] > self.variables[0]:
            raise OptionError(
                f"clause_lengths go to {self.clause_lengths[1]}, but formulas may have {self.variables[0]} variables; "
                "a clause names a variable once"
            )
        require_within(("clause_ratio", self.clause_ratio, 0.1, 1000), ("skew", self.skew, 0, 10))
        largest = {"marginal": generators.MAX_MARGINAL, "crafted": MAX_CRAFTED}.get(self.family)
        if largest is not None and self.variables[1] > largest:
            raise OptionError(
                f"variables go to {self.variables[1]}, but the family '{self.family}' has at most {largest}; use fewer"
            )
        if self.family == "crafted":
            _crafted(self)

    @property
    def slots(self) -> int:
        """Return the most clauses of a formula, to which prompts are padded where they are."""
        return max(1, round(self.clause_ratio * self.variables[1]))

    @property
    def fewest_clauses(self) -> int:
        """Return the fewest clauses of a formula, or 1 where the family decides."""
        return max(1, round(self.clause_ratio * self.variables[0])) if self.family in ("random", "skewed") else 1

    def draw(self, rng: np.random.Generator) -> Iterator[Formula]:
        """Draw an endless stream of formulas, repeats included."""
        if self.family == "crafted":
            suited = _crafted(self)
            while True:
                yield generators.scramble(rng, suited[rng.integers(len(suited))])
        draw = {"random": _random, "skewed": _skewed, "marginal": _marginal}[self.family]
        while True:
            yield from draw(self, rng, int(rng.integers(self.variables[0], self.variables[1] + 1)))


def require_within(*limits: tuple[str, float, float, float]) -> None:
    """Raise OptionError unless each of the named numbers is within its limits."""
    for name, number, least, most in limits:
        if not least <= number <= most:
            raise OptionError(f"{name} is {number}, but must be between {least} and {most}")


def _random(kind: Formulas, rng: np.random.Generator, num_variables: int) -> Iterator[Formula]:
    size = max(1, round(kind.clause_ratio * num_variables))
    clauses = generators.clauses_at_random(rng, num_variables, size * _BLOCK, kind.clause_lengths)
    for start in range(0, len(clauses), size):
        yield Formula(num_variables, clauses[start : start + size])


def _skewed(kind: Formulas, rng: np.random.Generator, num_variables: int) -> Iterator[Formula]:
    ratio, lengths = kind.clause_ratio, kind.clause_lengths
    yield generators.skewed(rng, num_variables, clause_ratio=ratio, lengths=lengths, exponent=kind.skew)


def _marginal(kind: Formulas, rng: np.random.Generator, num_variables: int) -> Iterator[Formula]:
    yield from generators.marginal_pair(rng, num_variables, lengths=kind.clause_lengths)


def _crafted(kind: Formulas) -> list[Formula]:
    """Return every crafted formula within the kind's variables, clause lengths and slots."""
    low, high = kind.variables
    sizes = range(2, high + 2)
    formulas = [generators.pigeonhole(p, h) for p, h in itertools.product(sizes, sizes) if low <= p * h <= high]
    formulas += [generators.parity(n) for n in sizes if low <= n * (n - 1) // 2 <= high]
    formulas += [generators.ordering(n) for n in sizes if low <= n * (n - 1) <= high]
    longest = kind.clause_lengths[1]
    suited = [f for f in formulas if len(f.clauses) <= kind.slots and max(map(len, f.clauses)) <= longest]
    if not suited:
        raise OptionError(
            f"no crafted formula has {low} to {high} variables, clauses of at most {longest} literals and at most "
            f"{kind.slots} clauses; widen variables, clause_lengths or clause_ratio"
        )
    return suited
