"""How well tasks were foreseen: what the ledger says they were expected to take, beside what they took.

Of the seconds from when a node could begin (it had the task, and its last result had come) to its result. The first ten
tasks of a node do not count: by them it becomes known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from barnraise.controller.state.state import Work
from barnraise.core.types import kind_of
from barnraise.ledger.decisions import Assigned, Decision, Judged, Noted
from barnraise.ledger.notes import Released

LEARNING = 10
"""Tasks of a node before those that count."""


@dataclass
class Hindsight:
    """Is told of assignments and verdicts in their order. `errors` are shares of what tasks took, `off` the same in
    standard deviations as they were told; `early` are errors of the first tasks of a node."""

    errors: list[float] = field(default_factory=list)
    early: list[float] = field(default_factory=list)
    off: list[float] = field(default_factory=list)
    _open: dict[int, Assigned] = field(default_factory=dict)
    _ahead: dict[str, dict[int, None]] = field(default_factory=dict)  # by node
    _free: dict[str, float] = field(default_factory=dict)
    _tasks: dict[str, int] = field(default_factory=dict)

    @property
    def error(self) -> float | None:
        """The median absolute error, as a share of what tasks took; None where no node had more than ten."""
        return median(self.errors) if self.errors else None

    @property
    def within(self) -> float | None:
        """The share of tasks that were within the standard deviation that was told: 68% where it says what it should;
        None where none was told."""
        return sum(off <= 1.0 for off in self.off) / len(self.off) if self.off else None

    def add(self, decision: Decision) -> None:
        """The next decision of a run; most say nothing of it."""
        if type(decision) is Assigned:
            self._open[decision.assignment] = decision
            self._ahead.setdefault(decision.node, {})[decision.assignment] = None
        elif type(decision) is Noted and type(decision.note) is Released:
            self._open.pop(decision.note.assignment, None)
            self._ahead.get(decision.node, {}).pop(decision.note.assignment, None)
        elif type(decision) is Judged:
            self._judged(decision)

    def _judged(self, d: Judged) -> None:
        given = self._open.pop(d.assignment, None)
        if given is None:
            return
        ahead = self._ahead.setdefault(d.node, {})
        ahead.pop(d.assignment, None)
        kind = kind_of(given.kind)
        if not kind.contributes and ahead and min(ahead) < d.assignment:
            return  # it has overtaken a payload: nobody knows when it was begun
        free = self._free.get(d.node, 0.0)
        work = Work(**{name: getattr(given, name) for name in given.__struct_fields__})
        self._free[d.node] = d.time - work.expected.send
        if d.verdict != "accepted" or not (kind.contributes or kind.measures):
            return
        took = d.time - max(given.time, free)
        if work.expected.compute > 0.0 and took > 0.0 and d.claim.steps == given.local_steps:
            number = self._tasks[d.node] = self._tasks.get(d.node, 0) + 1
            error = abs(work.expected.end(given.time, free) - d.time)
            (self.errors if number > LEARNING else self.early).append(error / took)
            if number > LEARNING and (deviation := work.expected.deviation(given.time, free)) > 0.0:
                self.off.append(error / deviation)
