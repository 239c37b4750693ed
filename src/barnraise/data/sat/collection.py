"""The formulas of DIMACS files: read, compared, solved, and those left out with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from barnraise.core.errors import DataError, OptionError
from barnraise.core.units import count_text
from barnraise.data.paths import dangling, files_of
from barnraise.data.sat import dimacs, dpll
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.isomorphism import DistinctFormulas

SUFFIXES = (".cnf", ".dimacs")
"""The ends of the names of formulas in a folder."""

MOST_NAMED = 20
"""Files left out that are named in a dataset's record."""


@dataclass(frozen=True)
class FormulaLimits:
    """The largest formulas of a collection; `clauses` is None where any number may be.

    `decisions` are those that the solver may take on a formula as its file has it.
    """

    variables: int
    longest: int
    clauses: int | None
    decisions: int
    heuristic: str


@dataclass(frozen=True)
class Collection:
    """Distinct formulas of files, in the order of the files; `left_out` says of others which and why."""

    formulas: tuple[Formula, ...]
    left_out: tuple[str, ...] = ()
    equal: int = 0

    def __str__(self) -> str:
        equal = f"; {self.equal:,} equal to another left out" if self.equal else ""
        others = f"; {len(self.left_out):,} left out: {', '.join(self.left_out[:3])}" if self.left_out else ""
        more = ", ..." if len(self.left_out) > 3 else ""
        return f"{count_text(len(self.formulas), 'formula')}{equal}{others}{more}"


def collect(patterns: tuple[str, ...], limits: FormulaLimits) -> Collection:
    """Read the formulas that files, folders or glob patterns name, those of `limits` alone.

    Variables are numbered without gaps, and clauses that hold always are dropped. Several formulas that are the same
    up to the names and signs of variables, and order, count once (see `isomorphism`). Raises DataError where a pattern
    names no formula, where no formula is within the limits, and DimacsError for a damaged file.
    """
    found = DistinctFormulas()
    left_out, equal = list[str](), 0
    for path in _paths(patterns):
        formula = _compact(dimacs.read(path))
        why = _why_not(formula, limits)
        if why:
            left_out.append(f"{path} ({why})")
        elif not found.add(formula):
            equal += 1
    if not found.formulas:
        raise DataError(
            f"no formula of {', '.join(patterns)} can be used: {', '.join(left_out[:3])}; raise data.variables, "
            "data.clause_lengths or data.solver_limit, or give smaller formulas"
        )
    return Collection(tuple(found.formulas), tuple(left_out), equal)


def _paths(patterns: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of formulas, each once; DataError where a pattern names none."""
    seen: set[Path] = set()
    for pattern in patterns:
        is_folder = Path(pattern).expanduser().is_dir()
        paths = sorted(path for path in files_of(pattern) if not is_folder or path.suffix.lower() in SUFFIXES)
        if not paths and dangling(pattern):
            raise DataError(f"'{pattern}' is a link that leads nowhere or back to itself; name a file")
        if not paths:
            looked = f"the folder has no file that ends in {' or '.join(SUFFIXES)}" if is_folder else "no file matches"
            raise DataError(f"'{pattern}' names no formula: {looked} (looked in {Path.cwd()}); check the path")
        for path in paths:
            if (place := path.resolve()) not in seen:
                seen.add(place)
                yield path


def _compact(formula: Formula) -> Formula:
    """Return `formula` with its variables numbered without gaps, each literal of a clause once."""
    kept = [dict.fromkeys(clause) for clause in formula.clauses if not any(-literal in clause for literal in clause)]
    names = {name: place for place, name in enumerate(sorted({abs(v) for clause in kept for v in clause}), start=1)}
    clauses = (tuple(names[abs(literal)] * (1 if literal > 0 else -1) for literal in clause) for clause in kept)
    return Formula(len(names), tuple(clauses))


def _why_not(formula: Formula, limits: FormulaLimits) -> str:
    """Return why a formula is left out; empty where it is not."""
    longest = max(map(len, formula.clauses), default=0)
    for number, most, what in (
        (formula.num_variables, limits.variables, "variables"),
        (longest, limits.longest, "literals in a clause"),
        (len(formula.clauses), limits.clauses, "clauses"),
    ):
        if most is not None and number > most:
            return f"it has {number:,} {what}, more than {most:,}"
    if not longest or not all(formula.clauses):
        return "it has no clause, or an empty one"
    try:
        dpll.solve(formula, heuristic=limits.heuristic, max_decisions=limits.decisions)
    except OptionError:
        return f"it needs more than {count_text(limits.decisions, 'decision')}"
    return ""


def counted(collections: list[Collection]) -> dict[str, object]:
    """Return the counts of collections for a dataset's record."""
    left_out = [text for collection in collections for text in collection.left_out]
    total: Counter[str] = Counter()
    for collection in collections:
        total.update(formulas=len(collection.formulas), equal=collection.equal, left_out=len(collection.left_out))
    return {**total, "named": left_out[:MOST_NAMED]}
