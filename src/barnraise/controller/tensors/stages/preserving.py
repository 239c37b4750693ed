"""The stage before any change: data that a checkpoint or a snapshot still needs is saved."""

from __future__ import annotations

from barnraise.compression.base import Array
from barnraise.controller.tensors.cow_snapshot import CopyOnWriteSnapshot
from barnraise.controller.tensors.stages.base import Making, Stage


class Preserve(Stage):
    """Tells the snapshots of this version, or earlier ones, which part of the vectors is about to change."""

    def __init__(self) -> None:
        self._frozen: list[CopyOnWriteSnapshot] = []

    def watch(self, frozen: CopyOnWriteSnapshot) -> None:
        """Register the snapshot `frozen` of the stages' vectors."""
        self._frozen = [*(each for each in self._frozen if not each.over), frozen]

    def keep(self, start: int, stop: int) -> None:
        """Save elements [start, stop) of the vectors, which are about to change."""
        for frozen in self._frozen:
            frozen.keep(start, stop)

    def step(self, making: Making, span: slice, values: Array) -> Array:
        for here, _ in making.parts(span):
            self.keep(here.start, here.stop)
        return values
