"""The time at which a worker asks for its next task, from the measured wait and step times."""

from __future__ import annotations

import math

MARGIN = 1.5
"""Factor by which the next task is requested earlier than the usual wait requires."""

SMOOTHING = 0.3
"""Weight of the newest wait."""


class Lead:
    """Measured times: `seconds` from request to task, `step_seconds` a step of the last task.

    That task trained on `tokens_per_second`.
    """

    def __init__(self) -> None:
        self.seconds, self.step_seconds, self.tokens_per_second = 0.05, 0.0, 0.0

    def waited(self, seconds: float) -> None:
        """Record that a task was ready `seconds` after its request."""
        self.seconds += SMOOTHING * (seconds - self.seconds)

    def trained(self, steps: int, tokens: float, seconds: float) -> None:
        """Record that `steps` steps on `tokens` tokens took `seconds`."""
        if steps:
            self.step_seconds = seconds / steps
            self.tokens_per_second = tokens / seconds if seconds > 0.0 else 0.0

    def ask_at(self, local_steps: int) -> int:
        """Return the step of a task after which to ask for the next; 0 is at once."""
        if self.step_seconds <= 0.0:
            return max(0, local_steps - 1)
        return max(0, local_steps - max(1, math.ceil(MARGIN * self.seconds / self.step_seconds)))
