"""Measurement by the run's metrics, with samples: when the controller measures a version.

It goes beside that of the held-out loss, as often, and is the controller's own work alone. A version that comes while
another is measured is passed over, but for the last one of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnraise.controller.state.effects import Measure, Measured
from barnraise.controller.state.events import Changed, Event
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted


class Measuring(Part):
    """Keeps whether a version is being measured by the run's metrics."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.plan = context.settings.evaluations
        self.busy = False

    @property
    def awaited(self) -> bool:
        """Return whether the newest version, the last one of the run, is still to be measured."""
        return self.plan.measures and self.state.record.measured != self.state.newest.version

    @property
    def _due(self) -> bool:
        """Return whether the run has advanced far enough since the version that was measured last, or ends."""
        state, record = self.state, self.state.record
        if state.progress.final and state.closing is None:
            return self.awaited
        share = self.context.settings.tokens / self.plan.times
        return record.measured < 0 or state.totals.version_tokens >= record.measured_tokens + share

    def look(self) -> Steps:
        if self.plan.measures and not self.busy and self._due and not self.state.progress.finished:
            self.busy = True
            yield Measure(self.context.epoch, self.state.newest.version)

    def _measured(self, event: Measured) -> Steps:
        if event.epoch != self.context.epoch:
            return
        self.busy = False
        for metric, reason in event.failures.items():
            yield Noted(self.now, notes.MetricFailed(event.version, metric, reason))
        tokens = self.state.totals.version_tokens
        yield Noted(self.now, notes.Measured(event.version, tokens, event.values, event.samples))
        yield Changed()

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {Measured: self._measured}
