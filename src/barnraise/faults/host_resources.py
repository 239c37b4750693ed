"""What a controller stands on: its disk and its clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from barnraise.ledger import Checkpoints, Ledger, RunDirectory


class HostResources:
    """This machine's own. Planned faults shake another (`faults.host`)."""

    def ledger(self, run: RunDirectory) -> Ledger:
        """The run's ledger, opened."""
        return Ledger(run.ledger, run.segments, run=run.path.name)

    def checkpoints(self, run: RunDirectory) -> Checkpoints:
        """The run's checkpoints."""
        return Checkpoints(run.checkpoints)

    def clock(self, start: float) -> Callable[[], float]:
        """The run's seconds, from `start` on."""
        began = time.monotonic()
        return lambda: start + time.monotonic() - began
