"""Traces that write the literals that hold, one token each, and write them again at a conflict.

The literals that hold are the trail, oldest first: `D3` was decided and its other side is open, `4` and `-4` follow by
unit propagation, or are a decision's other side. A conflict is `F`, and after it the trail is written again up to its
last open decision, which is turned; `F UNSAT` where none is open. In the style `trail_steps` the whole trail is written
again at each step, and `|` ends it:

    trail         D1 -2 3 F -1 2 F UNSAT
    trail_steps   D1 | D1 -2 | D1 -2 3 | F -1 | -1 2 | F UNSAT

Such a trace says the same as a terse one (see `dpll`): `render` makes one of the other, and `steps` reads it back, so
that one checker judges both. A copy that differs from the trail is wrong where it differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from barnraise.data.sat.styles import TRAIL_STEPS

CONFLICT, END = "F", "|"
_LITERAL = re.compile(r"(D?)(-?[1-9][0-9]{0,9})", re.ASCII)


@dataclass(frozen=True)
class TraceStep:
    """A step of a trace: its tokens as written, the words of a terse trace that say the same, and its fault ("": none).

    The words are those of `dpll`'s grammar: D, U or B with a literal, or a verdict.
    """

    tokens: tuple[str, ...]
    words: tuple[str, ...]
    fault: str = ""


def render(steps: Iterable[str], style: str) -> list[str]:
    """Return a terse trace as one of the trail styles.

    >>> " ".join(render("D 1 U -2 U 3 B -1 U 2 UNSAT".split(), "trail"))
    'D1 -2 3 F -1 2 F UNSAT'
    """
    found: list[str] = []
    trail: list[str] = []
    words, every = iter(steps), style == TRAIL_STEPS
    for kind in words:
        if kind == "SAT":
            found.append(kind)
        elif kind == "UNSAT":
            found += (CONFLICT, kind)
        elif kind == "B":
            trail = _turned(trail)
            next(words)
            found += (CONFLICT, *trail)
        else:
            trail.append(next(words) if kind == "U" else f"D{next(words)}")
            found += trail if every else trail[-1:]
        if every and kind in "DUB":
            found.append(END)
    return found


def steps(tokens: Sequence[str], style: str) -> list[TraceStep]:
    """Cut a trace of a trail style into steps; every token is in one of them.

    After a fault the reading continues as if the copy were right.
    """
    return list(_TrailReader(tokens, every=style == TRAIL_STEPS).read())


class _TrailReader:
    def __init__(self, tokens: Sequence[str], *, every: bool) -> None:
        self.tokens, self.every, self.place = tokens, every, 0
        self.trail: list[str] = []

    def read(self) -> Iterator[TraceStep]:
        while self.place < len(self.tokens):
            begin = self.place
            words, fault = self._step(self.tokens[begin])
            if fault and self.every:
                self._skip()
            yield TraceStep(tuple(self.tokens[begin : self.place]), words, fault)

    def _step(self, token: str) -> tuple[tuple[str, ...], str]:
        """Read the words of the next step, and return them with its fault."""
        if token == "SAT":
            self.place += 1
            return (token,), ""
        if token == CONFLICT:
            self.place += 1
            return self._conflict()
        fault = self._copy(self.trail) if self.every else ""
        literal = _LITERAL.fullmatch(self._peek())
        if fault or literal is None:
            self.place += not fault and self.place < len(self.tokens)
            return (), fault or _no_step(token)
        self.trail.append(literal[0])
        self.place += 1
        return ("D" if literal[1] else "U", literal[2]), self._end()

    def _conflict(self) -> tuple[tuple[str, ...], str]:
        if self._peek() == "UNSAT":
            self.place += 1
            return ("UNSAT",), ""
        trail = _turned(self.trail)
        if not trail:
            return (), "no decision is open; only UNSAT may follow"
        self.trail = trail
        return ("B", trail[-1]), self._copy(trail) or self._end()

    def _copy(self, trail: Sequence[str]) -> str:
        """Read a copy of `trail`, up to the first token that differs; return its fault."""
        for number, expected in enumerate(trail, start=1):
            if self.place == len(self.tokens):
                return f"ends where {expected} must follow"
            token = self._peek()
            self.place += 1
            if token != expected:
                return f"token {number} of the trail is {expected}, but the copy has {token[:20]}"
        return ""

    def _end(self) -> str:
        return self._copy([END]) and "does not end in |" if self.every else ""

    def _skip(self) -> None:
        """Move behind the next end of a step, or to a token that begins one."""
        while self.place and self.tokens[self.place - 1] != END and self._peek() not in ("", CONFLICT, "SAT"):
            self.place += 1

    def _peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""


def _turned(trail: Sequence[str]) -> list[str]:
    """Return the trail up to its last open decision, which is turned; empty when none is open."""
    last = next((place for place in range(len(trail) - 1, -1, -1) if trail[place][0] == "D"), None)
    if last is None:
        return []
    literal = trail[last][1:]
    return [*trail[:last], literal[1:] if literal[0] == "-" else f"-{literal}"]


def _no_step(token: str) -> str:
    return "UNSAT must follow an F" if token == "UNSAT" else "is no step"
