"""A member that lies within the protocol: an executor like any other, but for one stage of its updates' way."""

from __future__ import annotations

from typing import Any

from barnraise.worker.executor import WorkerExecutor
from barnraise.worker.stages import Draft, Stage

FACTOR = -10.0


class Lie(Stage):
    """What is sent leads the other way, and ten times as far."""

    def forward(self, update: Draft) -> None:
        update.scale *= FACTOR


class Liar(WorkerExecutor):
    """Trains as it is told, and hands in FACTOR times its update. A `MakeExecutor`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.path.stages.insert(0, Lie())
