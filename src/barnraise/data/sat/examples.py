"""Examples of a SAT dataset: formulas with the traces that the solver leaves on them, as token ids."""

from __future__ import annotations

import functools
import hashlib
from typing import NamedTuple

import numpy as np

from barnraise.core.errors import OptionError
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.dpll import DpllResult, Solver
from barnraise.data.sat.options import SatOptions
from barnraise.data.tokenizers import TokenIds


class Example(NamedTuple):
    """A formula and the solver's trace on it as token ids; the trace begins at `start`."""

    ids: TokenIds
    start: int
    satisfiable: bool
    backtracks: int
    decisions: int


class ExampleMaker:
    """Solves and encodes formulas as the options say."""

    def __init__(self, options: SatOptions) -> None:
        self.options, self.tokenizer = options, options.tokenizer()
        self._slots = options.slots
        self._solver = Solver(
            style=options.style, heuristic=options.heuristic, slots=self._slots, max_decisions=options.solver_limit
        )
        self._clause = functools.lru_cache(maxsize=1 << 16)(_clause_bytes)

    def key(self, formula: Formula) -> int:
        """Return a number that differs for formulas which differ by more than the order or repeats of clauses."""
        clauses = b"".join(sorted({self._clause(clause) for clause in formula.clauses}))
        return int.from_bytes(hashlib.blake2b(clauses, digest_size=8).digest(), "big")

    def solved(self, formula: Formula) -> DpllResult | None:
        """Solve a formula as the options say.

        None where a padded prompt does not hold its clauses, or the solver needs too many decisions.
        """
        if self._slots and len(formula.clauses) > self._slots:
            return None
        try:
            return self._solver.solve(formula)
        except OptionError:
            return None

    def encoded(self, formula: Formula, result: DpllResult) -> Example:
        """Return the example of a solved formula, however long."""
        ids = self.tokenizer.example(formula, result.trace, self._slots)
        start = len(ids) - len(result.trace) - 1
        return Example(np.array(ids, np.uint32), start, result.satisfiable, result.num_backtracks, result.num_decisions)

    def example(self, formula: Formula) -> Example | None:
        """Solve and encode a formula; None where `solved` gives none."""
        result = self.solved(formula)
        return None if result is None else self.encoded(formula, result)


def _clause_bytes(clause: tuple[int, ...]) -> bytes:
    return np.array([*sorted(set(clause)), 0], "<i4").tobytes()
