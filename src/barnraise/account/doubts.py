"""Which nodes get no tasks for a while, why, and until when."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, get_args

import msgspec

from barnraise.account.nodes import BANNED, HELD_OFF, QUARANTINED
from barnraise.account.reducer import Kinds, Reducer
from barnraise.core.text import printable
from barnraise.core.units import duration_text
from barnraise.ledger import LedgerView, Noted, notes

MOST_TOLD = 4
"""Nodes that a line of the status names."""


class Doubt(NamedTuple):
    """The state of a node that gets no tasks (`account.nodes`), until when (seconds of the run's clock), and why."""

    state: str
    until: float
    reason: str


class Doubts(Reducer):
    """Keeps the doubts by node, the newest last, without those that end no later than a newer one."""

    kinds: ClassVar[Kinds] = (notes.HeldOff, *get_args(notes.Sentence))

    found: dict[str, list[Doubt]] = msgspec.field(default_factory=dict)

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        if not isinstance(decision, Noted):
            return
        note = decision.note
        if isinstance(note, notes.HeldOff):
            doubt = Doubt(HELD_OFF, decision.time + note.seconds, note.reason)
        elif isinstance(note, notes.Sentence):
            until = math.inf if note.until is None else note.until
            state = BANNED if until == math.inf else QUARANTINED
            doubt = Doubt(state, until, "the controller found its results wrong")
        else:
            return
        earlier = [one for one in self.found.get(decision.node, ()) if one.until > doubt.until]
        self.found[decision.node] = [*earlier, doubt]

    def at(self, time: float) -> dict[str, Doubt]:
        """Return the nodes in doubt at that time of the run's clock, each with the newest doubt that still holds."""
        holding = {node: [one for one in each if one.until > time] for node, each in self.found.items()}
        return {node: each[-1] for node, each in holding.items() if each}


def states(doubts: Mapping[str, Doubt]) -> dict[str, str]:
    """Return the states of the nodes in doubt."""
    return {node: doubt.state for node, doubt in doubts.items()}


def waiting_text(doubts: Mapping[str, Doubt], time: float) -> str:
    """Return which nodes wait for the end of a hold, why, and for how long yet; empty when none does.

    >>> held = Doubt(HELD_OFF, 40.0, "on probation")
    >>> waiting_text({"ann": held, "bob": Doubt(BANNED, math.inf, "wrong")}, 10.0)
    'ann: on probation, 30 s more'
    >>> waiting_text({f"node-{number}": held for number in range(9)}, 10.0)[-33:]
    'on probation, 30 s more; 5 others'
    """
    held = [(node, doubt) for node, doubt in doubts.items() if doubt.state == HELD_OFF]
    told = [
        f"{printable(node)}: {printable(doubt.reason)}, {duration_text(doubt.until - time)} more"
        for node, doubt in held[:MOST_TOLD]
    ]
    return "; ".join([*told, *([f"{len(held) - MOST_TOLD} others"] if len(held) > MOST_TOLD else [])])
