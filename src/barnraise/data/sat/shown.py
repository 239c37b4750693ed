"""Formulas and traces as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from barnraise.data.sat import traces
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.dpll import HOLDS
from barnraise.data.sat.styles import TRAIL_STEPS, TRAIL_STYLES
from barnraise.data.sat.trail import CONFLICT, END, TraceStep

_WORDS = {"D": "decide", "U": "unit", "B": "back:"}
_VERDICTS = {"SAT": "satisfiable", "UNSAT": "unsatisfiable"}
_WRONG = "  <- not accepted"


def show(formula: Formula, tokens: Sequence[str], score: traces.TraceScore, *, style: str, slots: int = 0) -> str:
    """Format a formula and a trace on it in full: a step a line, or in a trail style a trail a line."""
    lines = ["formula: " + " and ".join(f"({' or '.join(map(str, clause))})" for clause in formula.clauses)]
    steps = traces.steps(tokens, style)
    if style in TRAIL_STYLES:
        lines.append("trace (D: decided; a line begins with the trail up to its last decision, turned):")
        lines += _trails(steps, score.accepted, every=style == TRAIL_STEPS)
    else:
        lines += _steps(steps, score.accepted, max(0, slots - len(formula.clauses)))
    lines.append(f"checker: {'accepted' if score.valid else 'refused: ' + score.reason}")
    return "\n".join(lines)


def _steps(steps: Sequence[TraceStep], accepted: int, padding: int) -> Iterator[str]:
    for number, step in enumerate(steps):
        kind, rest = step.words[0], list(step.words[1:])
        head = f"{_WORDS[kind]} {rest.pop(0)}" if kind in _WORDS and rest else kind
        if padding and rest[-padding:] == [HOLDS] * padding:
            rest = rest[:-padding]
        mark = "" if number < accepted else _WRONG
        yield f"  {head:<10} {' '.join(rest)}{mark}".rstrip()


@dataclass
class _TrailLine:
    """A trail as it was written, its end, and whether the checker accepts all of its steps."""

    held: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    accepted: bool = True


def _trails(steps: Sequence[TraceStep], accepted: int, *, every: bool) -> Iterator[str]:
    """Yield a line for each trail; with `every` each step writes one, else a conflict ends one."""
    lines = [_TrailLine()]
    for number, step in enumerate(steps):
        words = [word for word in step.tokens if word != END]
        conflict = words[:1] == [CONFLICT]
        if conflict:
            lines[-1].ends.append("conflict")
            lines[-1].accepted &= number != accepted or bool(step.fault)  # without a fault, the conflict is not there
            words = words[1:]
        verdict = len(words) == 1 and words[0] in traces.VERDICTS
        if not verdict and (conflict or every):
            lines.append(_TrailLine())
        if verdict:
            lines[-1].ends.append(_VERDICTS[words[0]])
        else:
            lines[-1].held += words
        lines[-1].accepted &= number < accepted
    width = max(len(" ".join(line.held)) for line in lines)
    for line in lines:
        if line.held or line.ends:
            mark = "" if line.accepted else _WRONG
            yield f"  {' '.join(line.held):<{width}}   {': '.join(line.ends)}{mark}".rstrip()
