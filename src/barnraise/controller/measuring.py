"""Held-out loss: when a version is to be measured, and by whom."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from barnraise.controller.actions import Evaluate
from barnraise.controller.events import Evaluated, Event
from barnraise.controller.part import Context, Part, Steps
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted


class Measuring(Part):
    """Keeps whether a version is being measured: one at a time."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = context.settings
        self.busy = False

    @property
    def due(self) -> bool:
        """Whether the run has come so far since the last time that the newest version is to be measured."""
        share = len(self.state.evaluations) / self.settings.evaluations.times
        return not self.busy and self.state.version_tokens >= self.settings.tokens * share

    @property
    def done(self) -> bool:
        """Whether the newest version is measured."""
        evaluations = self.state.evaluations
        return bool(evaluations) and evaluations[-1][0] == self.state.version

    @property
    def needs_nodes(self) -> bool:
        """Whether nodes are to stay though the run is over, to measure its last version."""
        return False

    def measure(self) -> Steps:
        """Have the newest version measured."""
        self.busy = True
        yield Evaluate(self.context.epoch, self.state.version)

    def _evaluated(self, event: Evaluated) -> Steps:
        if event.epoch == self.context.epoch:
            self.busy = False
            yield self._note(event.version, event.loss)

    def _note(self, version: int, loss: float) -> Noted:
        told = loss if math.isfinite(loss) else None  # JSON knows no NaN
        return Noted(self.now, notes.Evaluated(version, told, self.state.version_tokens))

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {Evaluated: self._evaluated}
