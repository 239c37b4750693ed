"""The literals that hold at the end of a trace, read without judging its steps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from barnraise.data.sat import traces
from barnraise.data.sat.styles import TRAIL_STYLES
from barnraise.data.sat.trail import CONFLICT, END

_LITERAL = re.compile(r"D?(-?[1-9][0-9]{0,9})", re.ASCII)


def assignment(tokens: Sequence[str], style: str) -> set[int]:
    """Return the literals that a trace with the verdict SAT claims to hold; empty where they contradict each other.

    Copies and reasons may be wrong: the literals are those of the trail as it was last written.
    """
    if not tokens or tokens[-1] != "SAT":
        return set()
    held = _last_trail(tokens[:-1]) if style in TRAIL_STYLES else _replayed(tokens[:-1])
    found = set(held)
    return set() if any(-literal in found for literal in found) else found


def _last_trail(tokens: Sequence[str]) -> list[int]:
    written = list(tokens[:-1] if tokens and tokens[-1] == END else tokens)
    begin = next((place for place in range(len(written), 0, -1) if written[place - 1] in (CONFLICT, END)), 0)
    return _literals(written[begin:])


def _replayed(tokens: Sequence[str]) -> list[int]:
    """Replay assignments (D, U) and returns to a decision (B)."""
    held: list[int] = []
    for step in traces.steps(tokens):
        for literal in _literals(step.words[1:2]):
            if step.words[0] == "B" and -literal in held:
                del held[held.index(-literal) :]
            held.append(literal)
    return held


def _literals(words: Sequence[str]) -> list[int]:
    return [int(found[1]) for word in words if (found := _LITERAL.fullmatch(word))]
