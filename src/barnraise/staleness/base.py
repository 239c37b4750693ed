"""The interface of staleness policies: a task's bound at its assignment, and its contribution's weight."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from barnraise.core.errors import UnknownNameError

# FedBuff (Nguyen et al., 2022, section 5) scales by 1 / sqrt(1 + tau), which decreases alike.
WEIGHTINGS: Mapping[str, Callable[[int], float]] = {
    "constant": lambda staleness: 1.0,
    "inverse_sqrt": lambda staleness: 1.0 / (1.0 + math.sqrt(staleness)),
}


class StalenessPolicy(ABC):
    """Base class of policies; staleness is the version on arrival minus the base version, never negative.

    `weighting`: "constant", or "inverse_sqrt" for 1 / (1 + sqrt(staleness)).
    """

    def __init__(self, weighting: str) -> None:
        if weighting not in WEIGHTINGS:
            raise UnknownNameError("staleness weighting", weighting, WEIGHTINGS)
        self._weight = WEIGHTINGS[weighting]

    @abstractmethod
    def bound(self, speed: float) -> int:
        """Return the largest staleness accepted from a node whose observed rate is `speed` times the median's.

        Called once a task, at its assignment: a later change of speed does not change it.
        """

    def weight(self, staleness: int) -> float:
        """Return the factor (0 to 1] by which a contribution of that staleness counts; 1 for a fresh one."""
        assert staleness >= 0
        return self._weight(staleness)
