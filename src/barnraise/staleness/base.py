"""What every staleness policy answers: the bound of a task when it is assigned, the weight of what comes of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from barnraise.core.errors import UnknownNameError

# FedBuff (Nguyen et al., 2022, section 5) scales by 1 / sqrt(1 + tau), which falls alike.
WEIGHTINGS: Mapping[str, Callable[[int], float]] = {
    "constant": lambda staleness: 1.0,
    "inverse_sqrt": lambda staleness: 1.0 / (1.0 + math.sqrt(staleness)),
}


class StalenessPolicy(ABC):
    """Staleness is the version on arrival minus the base version, in versions, never negative.

    `weighting`: "constant", or "inverse_sqrt" for 1 / (1 + sqrt(staleness)).
    """

    def __init__(self, weighting: str) -> None:
        if weighting not in WEIGHTINGS:
            raise UnknownNameError("staleness weighting", weighting, WEIGHTINGS)
        self._weight = WEIGHTINGS[weighting]

    @abstractmethod
    def bound(self, speed: float) -> int:
        """The largest staleness accepted from a node whose observed rate is `speed` times the median's.

        Asked once a task, when it is assigned: a later change of speed does not move it.
        """

    def weight(self, staleness: int) -> float:
        """The factor (0 to 1] by which a contribution of that staleness counts; 1 for a fresh one."""
        assert staleness >= 0
        return self._weight(staleness)
