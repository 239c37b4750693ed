"""Boolean formulas in conjunctive normal form, and the DIMACS files they are kept in.

The format (DIMACS challenge, 1993): comment lines start with `c`; one header `p cnf VARIABLES CLAUSES`; then the
clauses as signed integers, each ended by 0, free to span lines or to share one. Files in the wild bend it, and these
bends are read: comments anywhere, the SATLIB trailer (a `%` line, after which nothing counts), and a last clause whose
final 0 is missing. Everything else is refused with file, line and reason; nothing is sized by what a header claims.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from barnraise.core.errors import DataError, DimacsError

MAX_BYTES = 256 * 2**20
MAX_VARIABLES = 10_000_000
MAX_CLAUSES = 50_000_000
MAX_DIGITS = 10  # digits of a number in a file; also keeps int() cheap


@dataclass(frozen=True)
class Formula:
    """A CNF formula: a conjunction of clauses, each a disjunction of literals (+v or -v, 1 <= v <= num_variables)."""

    num_variables: int
    clauses: tuple[tuple[int, ...], ...]

    def canonical(self) -> tuple[tuple[int, ...], ...]:
        """Return a form that is equal for formulas that differ in order or repeats of clauses and literals."""
        return tuple(sorted({tuple(sorted(set(clause))) for clause in self.clauses}))

    def satisfied_by(self, model: Iterable[int]) -> bool:
        """Return whether every clause holds a literal of `model`."""
        true = set(model)
        return all(not true.isdisjoint(clause) for clause in self.clauses)


def read(path: str | os.PathLike[str]) -> Formula:
    """Read the formula in the file at `path`; DimacsError (file, line, reason) for a bad one, DataError for no file."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise DimacsError(str(path), 1, f"the file has {size} bytes, more than the limit of {MAX_BYTES}")
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    return parse(content, source=str(path))


def parse(text: str | bytes, *, source: str = "<text>") -> Formula:
    """Parse a formula from DIMACS text; DimacsError has `source`, the line and the reason."""
    return _Parser(source).parse(_decode(text, source) if isinstance(text, bytes) else text)


def dumps(formula: Formula, *, comment: str = "") -> str:
    """Write `formula` as DIMACS text, one clause a line, behind `comment` (any number of lines)."""
    lines = [f"c {line}" for line in comment.splitlines()]
    lines.append(f"p cnf {formula.num_variables} {len(formula.clauses)}")
    lines.extend(" ".join(map(str, (*clause, 0))) for clause in formula.clauses)
    return "\n".join(lines) + "\n"


def write(formula: Formula, path: str | os.PathLike[str], *, comment: str = "") -> None:
    """Write `formula` to the file at `path`, replacing it."""
    Path(path).write_text(dumps(formula, comment=comment), encoding="utf-8")


def _decode(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        reason = f"byte 0x{content[error.start]:02x} is not text; a DIMACS file is plain text, not compressed"
        raise DimacsError(source, line, reason) from error


class _Parser:
    """Reads one file; `line` is the current line, for messages."""

    def __init__(self, source: str) -> None:
        self.source, self.line = source, 0
        self.num_variables = self.num_clauses = -1
        self.clauses: list[tuple[int, ...]] = []

    def parse(self, text: str) -> Formula:
        open_clause: list[int] = []
        for literal in self._literals(text):
            if literal:
                open_clause.append(literal)
            else:
                self._close(open_clause)
                open_clause = []
        if self.num_variables < 0:
            raise self._error("there is no header; expected 'p cnf VARIABLES CLAUSES' before the clauses")
        if open_clause:  # the final 0 is missing, as in many files
            self._close(open_clause)
        if len(self.clauses) != self.num_clauses:
            raise self._error(f"the header promises {self.num_clauses} clauses, but there are {len(self.clauses)}")
        return Formula(self.num_variables, tuple(self.clauses))

    def _literals(self, text: str) -> Iterator[int]:
        """Yield each number in the body, 0 included; reads the header on the way."""
        for self.line, line in enumerate(text.split("\n"), start=1):
            words = line.split()
            if not words or words[0].startswith("c"):
                continue
            if words[0] == "%":
                return
            if words[0] == "p":
                self._header(words)
                continue
            if self.num_variables < 0:
                raise self._error(f"{_shown(words[0])} comes before the header 'p cnf VARIABLES CLAUSES'")
            for word in words:
                yield self._literal(word)

    def _header(self, words: list[str]) -> None:
        if self.num_variables >= 0:
            raise self._error("a second header; a file holds one formula")
        if len(words) != 4 or words[1] != "cnf":
            raise self._error(f"the header is {_shown(' '.join(words))}, but must be 'p cnf VARIABLES CLAUSES'")
        self.num_variables = self._count(words[2], "variables", MAX_VARIABLES)
        self.num_clauses = self._count(words[3], "clauses", MAX_CLAUSES)

    def _count(self, word: str, what: str, limit: int) -> int:
        value = self._integer(word)
        if not 0 <= value <= limit:
            raise self._error(f"the header says {value} {what}, but must say between 0 and {limit}")
        return value

    def _literal(self, word: str) -> int:
        value = self._integer(word)
        if abs(value) > self.num_variables:
            raise self._error(f"literal {value} is out of range; the header says {self.num_variables} variables")
        return value

    def _integer(self, word: str) -> int:
        digits = word[1:] if word[0] == "-" else word
        if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS):
            raise self._error(f"{_shown(word)} is not an integer of at most {MAX_DIGITS} digits")
        return int(word)

    def _close(self, clause: list[int]) -> None:
        if len(self.clauses) == self.num_clauses:
            raise self._error(f"the header promises {self.num_clauses} clauses, but there are more")
        self.clauses.append(tuple(clause))

    def _error(self, reason: str) -> DimacsError:
        return DimacsError(self.source, max(self.line, 1), reason)


def _shown(text: str) -> str:
    """Return `text` for a message: quoted, escaped and short."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
