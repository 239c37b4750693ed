"""The stage before anything changes: what a checkpoint or a snapshot still needs of it is kept."""

from __future__ import annotations

from barnraise.compression.base import Array
from barnraise.controller.tensors.cow_snapshot import CopyOnWriteSnapshot
from barnraise.controller.tensors.stages.base import Making, Stage


class Preserve(Stage):
    """Tells whoever froze this version, or one before, what of the vectors is about to change."""

    def __init__(self) -> None:
        self._frozen: list[CopyOnWriteSnapshot] = []

    def watch(self, frozen: CopyOnWriteSnapshot) -> None:
        """The stages' vectors, as they are now, are in `frozen`."""
        self._frozen = [*(each for each in self._frozen if not each.over), frozen]

    def keep(self, start: int, stop: int) -> None:
        """Elements [start, stop) of the vectors are about to change."""
        for frozen in self._frozen:
            frozen.keep(start, stop)

    def step(self, making: Making, span: slice, values: Array) -> Array:
        self.keep(span.start, span.stop)
        return values
