"""A checker of `dpll`'s traces, step by step, which trusts nothing the solver computed.

The checker keeps only which literals hold and which decisions are open, and judges each step by the clauses of the
formula as given. It accepts any sound DPLL reasoning: which literal to decide, which unit clause comes first and when
to stop propagating are the solver's choice, not part of soundness. The grammar of a trace is in `dpll`; one of a trail
style is read by `trail`, which judges its copies, and then checked like the others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from barnraise.core.errors import DataError, UnknownNameError
from barnraise.data.sat import trail
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.styles import RESTATED, STYLES, TRAIL_STYLES
from barnraise.data.sat.trail import TraceStep

VERDICTS = {"SAT": True, "UNSAT": False}
_ASSIGNS = ("D", "U", "B")
_LITERAL = re.compile(r"-?[1-9][0-9]{0,9}", re.ASCII)
_TOKEN = re.compile(r"[TF|]|D-?[1-9][0-9]{0,9}|-?[1-9][0-9]{0,9}(,-?[1-9][0-9]{0,9})*", re.ASCII)


@dataclass(frozen=True)
class TraceScore:
    """The score of a trace: its first `accepted` of `total` steps hold.

    `reason` says why it is not `valid`. `verdict` is the trace's claim (None: no claim), whether or not the steps
    justify it.
    """

    accepted: int
    total: int
    valid: bool
    reason: str
    verdict: bool | None


def parse(text: str) -> list[str]:
    """Split a trace written as text into tokens; DataError for a word that is no token of any trace."""
    tokens = text.split()
    for place, token in enumerate(tokens, start=1):
        if token not in _ASSIGNS and token not in VERDICTS and not _TOKEN.fullmatch(token):
            raise DataError(f"word {place} of the trace is {token[:40]!r}, but must be a token such as D, -3 or SAT")
    return tokens


def steps(tokens: Sequence[str], style: str | None = None) -> list[TraceStep]:
    """Cut `tokens` into steps; `style` None stands for terse or restated.

    A step of these is an assignment with its restated clauses, or a verdict.
    """
    if style in TRAIL_STYLES:
        return trail.steps(tokens, style)
    found: list[list[str]] = []
    for token in tokens:
        if not found or token in _ASSIGNS or token in VERDICTS:
            found.append([token])
        else:
            found[-1].append(token)
    return [TraceStep(tuple(words), tuple(words)) for words in found]


def backtracks(tokens: Sequence[str], style: str) -> int:
    """Return how many decisions a trace takes back.

    >>> backtracks("D1 -2 3 F -1 2 F UNSAT".split(), "trail"), backtracks("D 1 U -2 B -1".split(), "terse")
    (1, 1)
    """
    if style not in TRAIL_STYLES:
        return tokens.count("B")
    return tokens.count(trail.CONFLICT) - (list(tokens[-2:]) == [trail.CONFLICT, "UNSAT"])


def verdict(tokens: Sequence[str]) -> bool | None:
    """Return the trace's claim: satisfiable, unsatisfiable, or None when it does not end in a verdict."""
    return VERDICTS.get(tokens[-1]) if tokens else None


def check(formula: Formula, tokens: Sequence[str], *, style: str | None = None, slots: int = 0) -> tuple[bool, str]:
    """Return whether `tokens` prove their verdict on `formula`, and the first reason why not ("": they do).

    With `style` None the trace is terse or restated, and one that restates clauses anywhere must restate them, rightly,
    at every assignment; `slots` as it was given to the solver.
    """
    outcome = score(formula, tokens, style=style, slots=slots)
    return outcome.valid, outcome.reason


def score(formula: Formula, tokens: Sequence[str], *, style: str | None = None, slots: int = 0) -> TraceScore:
    """Count the valid leading steps of a (perhaps generated) trace, and return whether all of it holds."""
    if style not in (None, *STYLES):
        raise UnknownNameError("trace style", str(style), STYLES)
    found, claim = steps(tokens, style), verdict(tokens)
    if style is None and any(step.words[0] in _ASSIGNS and len(step.words) > 2 for step in found):
        style = RESTATED
    checker = _Checker(formula, max(slots, len(formula.clauses)) if style == RESTATED else 0)
    for accepted, step in enumerate(found):
        reason = step.fault or checker.step(step.words)
        if reason:
            reason = f"step {accepted + 1} ({_shown(step.tokens)}): {reason}"
            return TraceScore(accepted, len(found), False, reason, claim)
    reason = "" if checker.finished else "the trace ends without a verdict"
    return TraceScore(len(found), len(found), checker.finished, reason, claim)


class _Checker:
    """The checker's state; `step` says why a step is wrong, or takes it and returns "".

    `slots` 0: clauses are not restated.
    """

    def __init__(self, formula: Formula, slots: int) -> None:
        self.formula, self.slots = formula, slots
        self.holds: set[int] = set()
        self.order: list[int] = []
        self.open: list[int] = []  # positions in `order` of decisions with an untried side
        self.clauses_with: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
        for clause in formula.clauses:
            for literal in set(clause):
                self.clauses_with[literal].append(clause)
        self.conflict = not all(formula.clauses)  # some clause has no literal left
        self.finished = False

    def step(self, words: Sequence[str]) -> str:
        if self.finished:
            return "comes after the verdict"
        if words[0] in VERDICTS:
            return self._verdict(words)
        if words[0] not in _ASSIGNS or len(words) < 2 or not _LITERAL.fullmatch(words[1]):
            return "is no step"
        literal = int(words[1])
        if abs(literal) > self.formula.num_variables:
            return f"the formula has {self.formula.num_variables} variables"
        reason = {"D": self._decide, "U": self._propagate, "B": self._back}[words[0]](literal)
        return reason or self._restatement(words[2:])

    def _decide(self, literal: int) -> str:
        reason = self._cannot_assign(literal)
        if not reason:
            self.open.append(len(self.order))
            self._hold(literal)
        return reason

    def _propagate(self, literal: int) -> str:
        reason = self._cannot_assign(literal)
        if reason:
            return reason
        for clause in self.clauses_with[literal]:
            if all(-other in self.holds for other in clause if other != literal):
                self._hold(literal)
                return ""
        return "no clause is unit with this literal"

    def _back(self, literal: int) -> str:
        if not self.conflict:
            return "goes back without a conflict"
        if not self.open:
            return "no decision is open"
        if self.order[self.open[-1]] != -literal:
            return f"the last open decision is {self.order[self.open[-1]]}"
        position = self.open.pop()
        self.holds.difference_update(self.order[position:])
        del self.order[position:]
        self.conflict = False
        self._hold(literal)
        return ""

    def _verdict(self, words: Sequence[str]) -> str:
        if len(words) != 1:
            return "is no step"
        if VERDICTS[words[0]]:
            for number, clause in enumerate(self.formula.clauses, start=1):
                if self.holds.isdisjoint(clause):
                    return f"clause {number} does not hold yet"
        elif not self.conflict:
            return "there is no conflict"
        elif self.open:
            return f"decision {self.order[self.open[-1]]} is still open"
        self.finished = True
        return ""

    def _restatement(self, stated: Sequence[str]) -> str:
        if not self.slots:
            return "a terse trace does not restate clauses" if stated else ""
        expected = [self._left(clause) for clause in self.formula.clauses]
        expected += ["T"] * (self.slots - len(expected))
        return "" if list(stated) == expected else f"what is left is '{' '.join(expected)}'"

    def _left(self, clause: tuple[int, ...]) -> str:
        """Return the remaining literals of a clause as a token."""
        if not self.holds.isdisjoint(clause):
            return "T"
        rest = sorted(sorted({literal for literal in clause if -literal not in self.holds}), key=abs)
        return ",".join(map(str, rest)) or "F"

    def _cannot_assign(self, literal: int) -> str:
        if literal in self.holds or -literal in self.holds:
            return f"variable {abs(literal)} is assigned already"
        return "a clause has no literal left: that is a conflict" if self.conflict else ""

    def _hold(self, literal: int) -> None:
        self.holds.add(literal)
        self.order.append(literal)
        if any(all(-other in self.holds for other in clause) for clause in self.clauses_with[-literal]):
            self.conflict = True


def _shown(words: Sequence[str]) -> str:
    return " ".join(words[:12])[:60] + (" ..." if len(words) > 12 else "")
