"""The decisions of a simulated run, which survive its controller, in the ledger's form."""

from __future__ import annotations

from collections.abc import Sequence

from barnraise.controller.state.fold import apply
from barnraise.controller.state.state import State
from barnraise.ledger.decisions import Decision, VersionMade
from barnraise.ledger.rows import FORMATS


class DecisionJournal:
    """All decisions of a run, in order."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    def commit(self, decisions: Sequence[Decision]) -> None:
        """Store decisions as durable ones."""
        self.decisions += decisions

    @property
    def time(self) -> float:
        """Return the time of the last decision, on the run's clock."""
        return self.decisions[-1].time if self.decisions else 0.0

    def replay(self) -> State:
        """Fold the decisions from the start, each as it comes back from its row."""
        state = State()
        for decision in self.decisions:
            apply(state, stored(decision))
        return state


def stored(decision: Decision) -> Decision:
    """Return the ledger's form of `decision`."""
    if isinstance(decision, VersionMade):
        return decision  # half a row, of plain values
    form = FORMATS[type(decision)]
    row_id, _, *values = form.to_row(1, 1, decision)
    return form.from_row((row_id, *values))
