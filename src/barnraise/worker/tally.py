"""A worker's work for the run since its process began, by its controller's answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from barnraise.core.types import AnyResult, AnyTask, Masked


@dataclass(frozen=True)
class Answers:
    """Counts of answers, and the work behind them.

    `accepted` and `refused` contributions, with the `tokens` and `steps` of the accepted ones; `others` are accepted
    results of other kinds, as measurements. `reason` is that of the last refusal. `included` masked updates are proven
    to be in a version, `left_out` ones are in none, or it is not proven.
    """

    accepted: int = 0
    refused: int = 0
    others: int = 0
    tokens: int = 0
    steps: int = 0
    reason: str = ""
    included: int = 0
    left_out: int = 0

    @property
    def count(self) -> int:
        """Return the number of all answers."""
        return self.accepted + self.refused + self.others


class AnswerTally:
    """Counts the controller's answers in `answers`."""

    def __init__(self) -> None:
        self.answers = Answers()
        self._open: dict[int, tuple[bool, int, int]] = {}  # whether it trained, its tokens and steps
        self.masked: set[int] = set()  # masked updates that were not refused, and in no version yet

    @property
    def waiting(self) -> set[int]:
        """Return the tasks that have no answer yet."""
        return set(self._open)

    def done(self, task: AnyTask, result: AnyResult) -> None:
        """Record a finished task, which waits for its answer."""
        tokens = round(task.effort * result.steps / max(1, task.steps)) if task.trains else 0
        self._open[task.id] = task.trains, tokens, result.steps
        if isinstance(task, Masked):
            self.masked.add(task.id)

    def dropped(self, assignment: int) -> None:
        """Forget a task that will not be answered."""
        self._open.pop(assignment, None)
        self.masked.discard(assignment)

    def included(self, assignment: int, proven: bool) -> None:
        """Record that a version has a masked update, or that it is not `proven`."""
        if assignment in self.masked:
            self.masked.discard(assignment)
            was = self.answers
            self.answers = replace(was, included=was.included + proven, left_out=was.left_out + (not proven))

    def answered(self, assignment: int, accepted: bool, reason: str) -> None:
        """Record the controller's verdict.

        A second answer changes nothing.
        """
        found = self._open.pop(assignment, None)
        if found is None:
            return
        trains, tokens, steps = found
        was = self.answers
        if not accepted:
            self.masked.discard(assignment)
            self.answers = replace(was, refused=was.refused + 1, reason=reason)
        elif trains:
            self.answers = replace(was, accepted=was.accepted + 1, tokens=was.tokens + tokens, steps=was.steps + steps)
        else:
            self.answers = replace(was, others=was.others + 1)
