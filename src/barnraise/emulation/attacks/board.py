"""Attackers' knowledge of other nodes' updates.

In a simulation all nodes are in one process, and share one board: each honest node's newest update is on it, before
error feedback and codec. That is more than a node sees in a live run, and the usual assumption in the literature. A
live worker has a board of its own, which stays empty: it knows its own honest update and how the published parameters
moved. Attackers never wait for each other: a lie uses the updates on the board at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from barnraise.aggregation.base import Rule

    from .surface import Surface

Array = NDArray[np.float32]
T = TypeVar("T")

FEWEST = 2
"""Updates of one version below which older ones count, too: one has no spread."""

KEPT = 8
"""Versions for which the colluders' agreements are kept."""


class Board:
    """Honest nodes' newest updates, the liars, and their agreements.

    `rule` is the run's, where it is known.
    """

    def __init__(self, rule: Rule | None = None) -> None:
        self.rule = rule
        self.liars: set[str] = set()
        self._posted: dict[str, tuple[int, Array]] = {}
        self._agreed: dict[Hashable, Any] = {}

    def post(self, node: str, base: int, update: Array) -> None:
        """Record an honest node's pseudo-gradient (float32 [d]) of a task from version `base`."""
        self._posted[node] = base, update.copy()

    @property
    def posted(self) -> dict[str, Array]:
        """Return the newest update of each honest node, in the order of their names."""
        return {node: update for node, (_, update) in sorted(self._posted.items())}

    def honest(self, base: int) -> list[Array]:
        """Return the newest update of each honest node, of version `base` or later; of any, where those are too few."""
        found = [update for node, update in self.posted.items() if self._posted[node][0] >= base]
        return found if len(found) >= FEWEST else list(self.posted.values())

    @property
    def num_liars(self) -> int:
        return max(1, len(self.liars))

    def agree(self, about: Hashable, make: Callable[[], T]) -> T:
        """Return the value that the first liar that asked made; the oldest agreements are forgotten."""
        if about not in self._agreed:
            self._agreed[about] = make()
            for old in list(self._agreed)[:-KEPT]:
                del self._agreed[old]
        found: T = self._agreed[about]
        return found


@dataclass(frozen=True)
class Scene:
    """An attacker's knowledge as it makes an update.

    The node and the task as a `moment`, the task's version `base`, and the fleet's `movement` (float32 [d], a
    pseudo-gradient) up to there, None before the first. `surface` measures losses on the task's rows; None outside of a
    training task.
    """

    moment: str
    base: int = 0
    board: Board = field(default_factory=Board)
    movement: Array | None = None
    surface: Surface | None = None

    def others(self, own: Array) -> list[Array]:
        """Return the known honest updates, at least one.

        They are others', or else its `own` and the fleet's movement at the length of that.
        """
        posted = self.board.honest(self.base)
        if len(posted) >= FEWEST:
            return posted
        found = [*posted, own.copy()]
        if self.movement is not None and (length := float(np.linalg.norm(self.movement))) > 0.0:
            found.append(self.movement * np.float32(np.linalg.norm(own) / length))
        return found
