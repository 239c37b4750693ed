"""What is wrong with one node's link and process at a time: chance decides, from each fault's own seed."""

from __future__ import annotations

import random
from enum import Enum
from typing import NamedTuple


class Fate(Enum):
    """What becomes of a message, the worst first."""

    LOST = "lost"  # with the connection
    CORRUPT = "corrupt"  # it arrives, and cannot be read
    LATE = "late"  # others overtake it
    TWICE = "twice"


_WORST = list(Fate)


class Effect(NamedTuple):
    """A fault in force: of the messages of one `way` ("": both), a `share` has this fate."""

    fate: Fate
    way: str
    share: float
    rng: random.Random


class Conditions:
    """Of one node. `broken`: the connection is another than the one on which the node greeted."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.broken = False
        self._hanging = 0, 0.0  # which incarnation, until when

    def strikes(self, way: str) -> Effect | None:
        """The fault that befalls a message of that way which arrives now: of several the worst."""
        found = [
            effect
            for effect in self.effects
            if effect.way in ("", way) and (effect.share >= 1.0 or effect.rng.random() < effect.share)
        ]
        return min(found, key=lambda effect: _WORST.index(effect.fate), default=None)

    def hang(self, incarnation: int, until: float) -> None:
        """The process stands still."""
        _, before = self._hanging if self._hanging[0] == incarnation else (0, 0.0)
        self._hanging = incarnation, max(until, before)

    def wakes_at(self, incarnation: int) -> float:
        """When that process goes on that stands still; a time that is over when it does not."""
        return self._hanging[1] if self._hanging[0] == incarnation else 0.0
