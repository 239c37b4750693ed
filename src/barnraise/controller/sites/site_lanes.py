"""The source of the next rows where they stay with their nodes: one lane for each site, for that site alone.

A lane's rows are assigned in order, again and again, as often as the site's speed and the token budget take.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnraise.controller.sites.sites import Sites
from barnraise.controller.state.state import State
from barnraise.core.types import RowRange


class SiteLanes:
    """The lanes of the sites that may train from the newest version."""

    def __init__(self, sites: Sites, state: State, context: int) -> None:
        self.sites, self.state, self.context = sites, state, context
        self._drawn: frozenset[str] = frozenset()
        self._open: list[int] = []
        self._nodes: dict[int, str] = {}

    def open(self, most: int) -> list[int]:
        """Return the lanes of all of these sites: the same list while they are the same."""
        drawn = self.sites.drawn
        if drawn is not self._drawn:
            nodes = {self.state.roster.sites[node].lane: node for node in drawn}
            self._drawn = drawn
            if nodes != self._nodes:
                self._nodes, self._open = nodes, sorted(nodes)
        return self._open

    def only(self, lane: int) -> frozenset[str]:
        """Return the nodes that may have rows of a lane."""
        return frozenset({self._nodes[lane]})

    def size(self, lane: int) -> int:
        """Return the rows of a lane."""
        return self.state.roster.sites[self._nodes[lane]].rows

    def length(self, lane: int) -> int:
        """Return the tokens of a row of a lane."""
        return self.context

    def epoch(self, lane: int) -> int:
        """Return how often all rows of a lane were assigned."""
        return self.state.totals.handed.get(lane, 0) // self.size(lane)

    def went_on(self, lanes: Iterable[int]) -> None:
        """Do nothing: a lane has no end."""

    def take(self, lane: int, wanted: int, most: int) -> tuple[RowRange, ...]:
        """Assign the next `wanted` rows of a lane, in at most `most` ranges.

        Repeatedly from its start where it has few rows.
        """
        found: list[RowRange] = []
        size, place = self.size(lane), self.state.totals.handed.get(lane, 0) % self.size(lane)
        while wanted > 0 and len(found) < most:
            rows = min(wanted, size - place)
            found.append(RowRange(lane, place, place + rows))
            wanted, place = wanted - rows, (place + rows) % size
        return tuple(found)
