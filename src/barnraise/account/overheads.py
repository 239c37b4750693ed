"""The cost of protections by the workers' own reports."""

from __future__ import annotations

from statistics import median
from typing import ClassVar

import msgspec

from barnraise.account.reducer import Kinds, Reducer
from barnraise.ledger import LedgerView, Noted, notes


class Overheads(Reducer):
    """Keeps each worker's newest alpha: the time of its work with protections over the time without."""

    kinds: ClassVar[Kinds] = (notes.Sampled,)

    alphas: dict[str, float] = msgspec.field(default_factory=dict)

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        note = decision.note if isinstance(decision, Noted) else None
        if isinstance(decision, Noted) and isinstance(note, notes.Sampled) and (alpha := note.said.get("overhead")):
            self.alphas[decision.node] = alpha

    @property
    def median(self) -> float | None:
        """Return the median over workers; None where no worker told any."""
        return median(self.alphas.values()) if self.alphas else None
