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
MAX_NAMES = 10_000
_BLOCK = 64  # formulas drawn at once: few, so that any part of the stream has all sizes


@dataclass(frozen=True)
class Formulas:
    """The distribution of formulas, uniform in each range; OptionError or UnknownNameError for invalid values.

    `variables` and `clause_lengths` are closed ranges, and so may be `clause_ratio`; a formula over n variables has
    round(clause_ratio * n) clauses (for the families "marginal" and "crafted": at most that of the largest n). `skew`
    is the exponent of the family "skewed". With `names` variables are named at random from 1 to that number, or to the
    most variables where that is more.
    """

    variables: tuple[int, int] = (4, 4)
    clause_ratio: float | tuple[float, float] = 2.0
    clause_lengths: tuple[int, int] = (1, 3)
    family: str = "random"
    skew: float = 1.0
    names: int | None = None

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
        if self.names is not None:
            require_within(("names", self.names, 1, MAX_NAMES))
        least, most = self.ratios
        require_within(
            ("clause_ratio", least, 0.1, 1000), ("clause_ratio", most, 0.1, 1000), ("skew", self.skew, 0, 10)
        )
        if least > most:
            raise OptionError(f"clause_ratio is [{least}, {most}], but a range ascends; write [{most}, {least}]")
        largest = {"marginal": generators.MAX_MARGINAL, "crafted": MAX_CRAFTED}.get(self.family)
        if largest is not None and self.variables[1] > largest:
            raise OptionError(
                f"variables go to {self.variables[1]}, but the family '{self.family}' has at most {largest}; use fewer"
            )
        if self.family == "crafted":
            _crafted(self)

    @property
    def ratios(self) -> tuple[float, float]:
        """Return the least and the largest clause ratio."""
        return self.clause_ratio if isinstance(self.clause_ratio, tuple) else (self.clause_ratio, self.clause_ratio)

    @property
    def slots(self) -> int:
        """Return the most clauses of a formula, to which prompts are padded where they are."""
        return max(1, round(self.ratios[1] * self.variables[1]))

    @property
    def fewest_clauses(self) -> int:
        """Return the fewest clauses of a formula, or 1 where the family decides."""
        return max(1, round(self.ratios[0] * self.variables[0])) if self.family in ("random", "skewed") else 1

    @property
    def num_names(self) -> int:
        """Return the largest number of a variable."""
        return max(self.names or 0, self.variables[1])

    @property
    def longest(self) -> int:
        """Return the most literals of a clause."""
        return min(self.clause_lengths[1], self.variables[1])

    def contains(self, other: Formulas) -> bool:
        """Return whether all formulas of `other` are of the family and within the ranges of this one."""
        same = (self.family, self.skew) == (other.family, other.skew)
        ranges = ("variables", "ratios", "clause_lengths")
        pairs = [(getattr(self, name), getattr(other, name)) for name in ranges]
        return same and all(low <= inner[0] and inner[1] <= high for (low, high), inner in pairs)

    def draw(self, rng: np.random.Generator) -> Iterator[Formula]:
        """Draw an endless stream of formulas, repeats included."""
        drawn = self._drawn(rng)
        return drawn if self.names is None else (named(rng, formula, self.num_names) for formula in drawn)

    def ratio(self, rng: np.random.Generator) -> float:
        """Draw the clause ratio of a formula."""
        low, high = self.ratios
        return low if low == high else float(rng.uniform(low, high))

    def _drawn(self, rng: np.random.Generator) -> Iterator[Formula]:
        if self.family == "crafted":
            suited = _crafted(self)
            while True:
                yield generators.scramble(rng, suited[rng.integers(len(suited))])
        draw = {"random": _random, "skewed": _skewed, "marginal": _marginal}[self.family]
        while True:
            yield from draw(self, rng, int(rng.integers(self.variables[0], self.variables[1] + 1)))


def named(rng: np.random.Generator, formula: Formula, names: int) -> Formula:
    """Return `formula` with its variables named at random from 1 to `names`; as it is where it has no fewer."""
    if formula.num_variables >= names:
        return formula
    to = [0, *(rng.permutation(names)[: formula.num_variables] + 1).tolist()]
    clauses = (tuple(to[literal] if literal > 0 else -to[-literal] for literal in clause) for clause in formula.clauses)
    return Formula(names, tuple(clauses))


def require_within(*limits: tuple[str, float, float, float]) -> None:
    """Raise OptionError unless each of the named numbers is within its limits."""
    for name, number, least, most in limits:
        if not least <= number <= most:
            raise OptionError(f"{name} is {number}, but must be between {least} and {most}")


def _random(kind: Formulas, rng: np.random.Generator, num_variables: int) -> Iterator[Formula]:
    sizes = [max(1, round(kind.ratio(rng) * num_variables)) for _ in range(_BLOCK)]
    clauses = generators.clauses_at_random(rng, num_variables, sum(sizes), kind.clause_lengths)
    for size, end in zip(sizes, itertools.accumulate(sizes), strict=True):
        yield Formula(num_variables, clauses[end - size : end])


def _skewed(kind: Formulas, rng: np.random.Generator, num_variables: int) -> Iterator[Formula]:
    ratio, lengths = kind.ratio(rng), kind.clause_lengths
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
