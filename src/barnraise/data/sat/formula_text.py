"""Reads formulas as people type them: `(1 or -2) and 3`, `1 -2, 3`, or the text of a DIMACS file.

A literal is a variable's number, negated by `-`, `~` or `not`. Literals of one clause stand side by side, or between
`or`, `|` and `v`. Clauses are set apart by parentheses, commas, semicolons, lines, or `and` and `&`.
"""

from __future__ import annotations

import re

from barnraise.core.errors import DataError
from barnraise.core.text import printable
from barnraise.data.sat import dimacs
from barnraise.data.sat.dimacs import Formula

MAX_LETTERS = 100_000
_LITERAL, _OR, _END = r"(?P<literal>(?:-|~|not\b)?\s*x?[0-9]{1,6})", r"or\b|\|\|?|v\b", r"(?P<end>and\b|&&?|[();,])"
_WORD = re.compile(rf"\s*(?:{_LITERAL}|{_OR}|{_END})")


def parse(text: str, source: str = "<text>") -> Formula:
    """Parse a formula as users type it; its variables are those up to the largest that it names.

    `source` names a DIMACS text in messages.

    Raises DataError with the place that cannot be read, DimacsError for a damaged DIMACS text.

    >>> parse("(1 or -2) and 3").clauses, parse("1 -2, 3").clauses
    (((1, -2), (3,)), ((1, -2), (3,)))
    """
    if re.search(r"^p\s+cnf\b", text, re.MULTILINE):
        return dimacs.parse(text, source=source)
    if len(text) > MAX_LETTERS:
        raise DataError(
            f"the formula has {len(text):,} letters, but may have {MAX_LETTERS:,}; give it in a DIMACS file"
        )
    clauses: list[tuple[int, ...]] = []
    for line in text.splitlines():
        clauses += _clauses(line)
    if not clauses:
        raise DataError("the formula has no clause; type one as in: (1 or -2) and (2 or 3)")
    return Formula(max(abs(literal) for clause in clauses for literal in clause), tuple(clauses))


def _clauses(line: str) -> list[tuple[int, ...]]:
    """Yield the clauses of one line."""
    found: list[tuple[int, ...]] = []
    clause: list[int] = []
    place = 0
    while place < len(line.rstrip()):
        word = _WORD.match(line, place)
        if word is None:
            raise DataError(
                f"'{printable(line[place:].strip(), 20)}' is no part of a formula: use variables' numbers, '-' or "
                "'not', 'or', 'and' and parentheses, as in: (1 or -2) and (2 or 3)"
            )
        if word["literal"]:
            clause.append(_literal(word["literal"]))
        elif word["end"] and clause:
            found.append(tuple(clause))
            clause = []
        place = word.end()
    return [*found, tuple(clause)] if clause else found


def _literal(word: str) -> int:
    number = int(re.sub(r"[^0-9]", "", word))
    if number == 0:
        raise DataError("variables are numbered from 1; 0 ends a clause in DIMACS files alone, behind 'p cnf ...'")
    return -number if word.startswith(("-", "~", "not")) else number
