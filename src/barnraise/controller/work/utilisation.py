"""The use of the nodes' time and of offers, on the ledger once a minute.

A node is present once it has told its speed, and busy while it has a task without a verdict. Pauses by the host do not
count, nor do trustees, which are asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnraise.controller.state.part import Context, Part, Steps
from barnraise.core.types import kind_of
from barnraise.ledger.decisions import Assigned, Change, Decision, Judged, NodeChanged, Noted
from barnraise.ledger.notes import Employed, HostContinued, HostPaused, Released, Stopping
from barnraise.matching.metrics import MatchingTally

TOLD_EVERY = 60.0
"""Seconds between figures on the ledger, at least."""


class Utilisation(Part):
    """Keeps which nodes are present and busy, and sums the times.

    Empty after a restart, like all observations.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.tally = MatchingTally()
        self._there: set[str] = set()
        self._busy: set[str] = set()
        self._at = self._told_at = 0.0
        self._paused = bool(self.state.progress.host_paused)

    def until(self, time: float) -> MatchingTally:
        """Return the figures as of `time`."""
        if time > self._at:
            if not (self._paused or self.state.progress.final):
                self.tally.available += (time - self._at) * len(self._there)
                self.tally.busy += (time - self._at) * len(self._busy)
            self._at = time
        return self.tally

    def _changed(self, d: NodeChanged) -> None:
        self.until(d.time)
        if d.change == Change.JOINED and d.profile is not None and d.profile.tokens_per_second > 0.0:
            self._there.add(d.node)
        elif d.change.gone:
            self._there.discard(d.node)
        self._look_at(d.node)

    def _assigned(self, d: Assigned) -> None:
        self.until(d.time)
        if kind_of(d.kind).replica:  # no question to a trustee
            self.tally.offers += 1
            self._there.add(d.node)
            self._look_at(d.node)

    def _judged(self, d: Judged) -> None:
        self.until(d.time)
        self.tally.refused += d.verdict == "refused" and d.node in self._there
        self._look_at(d.node)

    def _noted(self, d: Noted) -> None:
        if type(d.note) is Released:
            self.until(d.time)
            self.tally.refused += self.state.nodes[d.node].live and d.node in self._there
            self._look_at(d.node)
        elif type(d.note) in (HostPaused, HostContinued, Stopping):
            self.until(d.time)
            self._paused = type(d.note) is HostPaused

    def _look_at(self, node: str) -> None:
        if node in self._there and self.state.nodes[node].open:
            self._busy.add(node)
        else:
            self._busy.discard(node)

    def look(self) -> Steps:
        if self.now >= self._told_at + TOLD_EVERY and self.tally.offers:
            self._told_at, tally = self.now, self.until(self.now)
            yield Noted(self.now, Employed(tally.idle, tally.conflicts, tally.offers, tally.refused))

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {NodeChanged: self._changed, Assigned: self._assigned, Judged: self._judged, Noted: self._noted}
