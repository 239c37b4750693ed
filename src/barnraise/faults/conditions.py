"""The faults in force on one node's link and process in a simulation."""

from __future__ import annotations

from barnraise.faults.links import Effect, Fate

_WORST = list(Fate)


class Conditions:
    """The faults in force on one node.

    `broken`: its connection is not the one on which it greeted.
    """

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.broken = False
        self._hanging = 0, 0.0  # which incarnation, until when

    def strikes(self, way: str) -> Effect | None:
        """Return the worst fault that strikes a message which arrives now by that way, drawn from each fault's seed."""
        found = [
            effect
            for effect in self.effects
            if effect.way in ("", way) and (effect.share >= 1.0 or effect.rng.random() < effect.share)
        ]
        return min(found, key=lambda effect: _WORST.index(effect.fate), default=None)

    def hang(self, incarnation: int, until: float) -> None:
        """Let the process of that incarnation stand still until a time."""
        _, before = self._hanging if self._hanging[0] == incarnation else (0, 0.0)
        self._hanging = incarnation, max(until, before)

    def wakes_at(self, incarnation: int) -> float:
        """Return when a process that stands still continues; a time that is over when it does not stand still."""
        return self._hanging[1] if self._hanging[0] == incarnation else 0.0
