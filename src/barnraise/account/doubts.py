"""Which nodes get no tasks yet, and why: they were lost and came back again and again, or were found guilty."""

from __future__ import annotations

import math
from typing import ClassVar, get_args

import msgspec

from barnraise.account.nodes import BANNED, HELD_OFF, QUARANTINED
from barnraise.account.reducer import Kinds, Reducer
from barnraise.ledger import LedgerView, Noted, notes


class Doubts(Reducer):
    """Keeps by node (why, until when), the newest last, without those that end no later than a newer one."""

    kinds: ClassVar[Kinds] = (notes.HeldOff, *get_args(notes.Sentence))

    found: dict[str, list[tuple[str, float]]] = msgspec.field(default_factory=dict)

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        if not isinstance(decision, Noted):
            return
        note = decision.note
        if isinstance(note, notes.HeldOff):
            why, until = HELD_OFF, decision.time + note.seconds
        elif isinstance(note, notes.Sentence):
            why, until = (BANNED, math.inf) if note.until is None else (QUARANTINED, note.until)
        else:
            return
        earlier = [one for one in self.found.get(decision.node, ()) if one[1] > until]
        self.found[decision.node] = [*earlier, (why, until)]

    def at(self, time: float) -> dict[str, str]:
        """The nodes in doubt at that time of the run's clock: the newest reason that still holds."""
        holding = {node: [why for why, until in each if until > time] for node, each in self.found.items()}
        return {node: reasons[-1] for node, reasons in holding.items() if reasons}
