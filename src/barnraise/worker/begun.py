"""The tasks that a worker has begun: one that runs, and those whose update is encoded meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from barnraise.core.types import AnyTask


@dataclass
class Running:
    """A task that the executor runs.

    `near`: it is time to ask for the next. `dropped`: another node has it now. `follows`: it began before the failure
    of another task was known, and may fail for the same reason.
    """

    task: AnyTask
    near: bool
    dropped: bool = False
    follows: bool = False


class Begun:
    """The tasks that were begun, and have no result yet."""

    def __init__(self) -> None:
        self.running: Running | None = None
        self.encoding: dict[int, Running] = {}  # the steps of these are taken

    @property
    def num_begun(self) -> int:
        return len(self.encoding) + (self.running is not None)

    @property
    def begun(self) -> tuple[int, ...]:
        """Return the assignments that it works on."""
        every = [*self.encoding.values(), *([self.running] if self.running is not None else [])]
        return tuple(begun.task.id for begun in every if not begun.dropped)

    def drop_encoding(self) -> None:
        """Let the results of steps that are taken go into the residual."""
        for encoding in self.encoding.values():
            encoding.dropped = True

    def mark_following(self) -> None:
        """Record that another task has failed."""
        for each in (*self.encoding.values(), *([self.running] if self.running is not None else [])):
            each.follows = True

    def encode(self, assignment: int) -> bool:
        """Record that the steps of the running task are taken; False when it is another, or has its result already."""
        if self.running is None or self.running.task.id != assignment:
            return False
        self.encoding[assignment], self.running = self.running, None
        return True

    def end(self, assignment: int) -> Running:
        """Return the task, whose result is there, or will not be."""
        if assignment in self.encoding:
            return self.encoding.pop(assignment)
        running, self.running = self.running, None
        assert running is not None
        assert running.task.id == assignment
        return running
