"""How early a worker asks for its next task: as it learns how long that takes, and how long its own steps do."""

from __future__ import annotations

import math

MARGIN = 1.5
"""The next task is asked for this many times earlier than getting one usually takes."""

SMOOTHING = 0.3
"""Weight of the newest wait."""


class Lead:
    """`seconds` is how long a task takes to be at hand, `step_seconds` how long a step of the last task took, which
    trained on `tokens_per_second`."""

    def __init__(self) -> None:
        self.seconds, self.step_seconds, self.tokens_per_second = 0.05, 0.0, 0.0

    def waited(self, seconds: float) -> None:
        """A task was at hand so many seconds after it was asked for."""
        self.seconds += SMOOTHING * (seconds - self.seconds)

    def trained(self, steps: int, tokens: float, seconds: float) -> None:
        """So many steps on so many tokens took so long."""
        if steps:
            self.step_seconds = seconds / steps
            self.tokens_per_second = tokens / seconds if seconds > 0.0 else 0.0

    def ask_at(self, local_steps: int) -> int:
        """The step of a task after which to ask for the next; 0 is at once."""
        if self.step_seconds <= 0.0:
            return max(0, local_steps - 1)
        return max(0, local_steps - max(1, math.ceil(MARGIN * self.seconds / self.step_seconds)))
