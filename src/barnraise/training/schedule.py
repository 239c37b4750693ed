"""Learning-rate schedules over tokens; imports no torch.

Time is counted in tokens trained on by all workers, not in steps: with unequal workers one worker's steps do not
measure the run's progress.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnraise.core.errors import OptionError, UnknownNameError

COOLDOWN = 0.2
"""Share of the tokens in which a `wsd` schedule falls, by a root: both are the best of Haegele et al. 2024."""


def _wsd(progress: float) -> float:
    """Return the multiplier of warm-up, stable, decay (arXiv 2405.18392): 1, and then 1 - sqrt of the decay's share."""
    return 1.0 - math.sqrt(max(0.0, progress - (1.0 - COOLDOWN)) / COOLDOWN)


# From 1 at progress 0 to 0 at progress 1; "constant" stays 1.
SHAPES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
    "wsd": _wsd,
}


@dataclass(frozen=True)
class Schedule:
    """The multiplier of a peak rate: a linear rise over `warmup_tokens`, then `shape` down to `final_fraction`.

    >>> schedule = Schedule("linear", warmup_tokens=100, final_fraction=0.2)
    >>> [round(schedule.rate(tokens, 1100), 3) for tokens in (50, 100, 600, 1100)]
    [0.5, 1.0, 0.6, 0.2]
    """

    shape: str = "constant"
    warmup_tokens: int = 0
    final_fraction: float = 0.1

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise UnknownNameError("schedule", self.shape, SHAPES)
        if self.warmup_tokens < 0:
            raise OptionError(f"schedule: warmup_tokens is {self.warmup_tokens}, but must be at least 0")
        if not 0 <= self.final_fraction <= 1:
            raise OptionError(f"schedule: final_fraction is {self.final_fraction}, but must be between 0 and 1")

    def rate(self, tokens_done: int, tokens_total: int) -> float:
        """Return the multiplier, 0 to 1, once `tokens_done` of `tokens_total` are done; beyond the total it stays.

        With warm-up it is 0 at token 0: for a whole task ask with the tokens done at its end.
        """
        if tokens_done < self.warmup_tokens:
            return tokens_done / self.warmup_tokens
        decaying = tokens_total - self.warmup_tokens
        progress = min(1.0, (tokens_done - self.warmup_tokens) / decaying) if decaying > 0 else 1.0
        return self.final_fraction + (1.0 - self.final_fraction) * SHAPES[self.shape](progress)
