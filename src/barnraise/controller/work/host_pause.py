"""The host's pause: until it is over no node gets a task, whatever its kind.

All else continues. Results of open tasks are judged, and a version is made of them as usual; the controller measures a
version that workers would measure, after the usual patience. A run whose last contributions arrive meanwhile ends. A
request to finish ends the pause.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from barnraise.controller.state.events import Changed, ContinueRequested, Event, PauseRequested
from barnraise.controller.state.part import Part, Steps, TaskHold
from barnraise.controller.state.state import NodeState
from barnraise.ledger.decisions import Noted
from barnraise.ledger.notes import HostContinued, HostPaused


class HostPause(Part):
    """Decides on the host's requests to pause the run and to continue it, and holds all nodes meanwhile."""

    def hold(self, node: NodeState, now: float) -> TaskHold | None:
        progress = self.state.progress
        if not progress.host_paused or progress.final:
            return None
        return TaskHold(math.inf, progress.host_paused)

    def _pause(self, event: PauseRequested) -> Steps:
        progress = self.state.progress
        if not (progress.host_paused or progress.stopping or progress.final):
            yield Noted(self.now, HostPaused(event.reason))
            yield Changed()

    def _continue(self, event: ContinueRequested) -> Steps:
        if self.state.progress.host_paused:
            yield Noted(self.now, HostContinued())
            yield Changed()

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {PauseRequested: self._pause, ContinueRequested: self._continue}
