"""The facts that a working controller tells beside its ledger: nodes heard, the run's waits, bytes, its standby."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barnraise.account.links import LinkUse
from barnraise.account.nodes import NodeRow

TRAINING, WAITING, PAUSED, FINISHING, FINISHED, INTERRUPTED = (
    "training", "waiting", "paused", "finishing", "finished", "interrupted"
)  # fmt: skip
STATES = (TRAINING, WAITING, PAUSED, FINISHING, FINISHED, INTERRUPTED)
"""The states of a run, one word each; an interrupted one has no controller."""


@dataclass(frozen=True)
class StandbyPresent:
    """The standby that follows: how far it is behind, and how many acknowledgements wait for one.

    `name` is empty while none follows; `unprotected` contributions were acknowledged without one.
    """

    name: str = ""
    rows: int = 0
    seconds: float = 0.0
    waiting: int = 0
    unprotected: int = 0

    @property
    def text(self) -> str:
        """Return the same for readers; empty where there is neither a standby nor work that waits for one."""
        waiting = f"{self.waiting} acknowledgements wait" if self.waiting else ""
        if self.unprotected:
            waiting = f"{self.unprotected:,} acknowledged without one"
        if not self.name:
            return f"gone, {waiting}" if waiting else ""
        behind = f"{self.rows:,} rows ({self.seconds:.1f} s) behind" if self.rows else "has all"
        return f"{behind}, {waiting}" if waiting else behind


@dataclass(frozen=True)
class Present:
    """The present of a run at `clock` seconds of its clock; `state` is one of STATES.

    `waits_for` is why it does not train, or makes no version; empty when all is well. `holds` are the reasons why nodes
    that take part get no tasks.
    """

    clock: float
    state: str
    waits_for: str
    rows: Sequence[NodeRow]
    holds: Mapping[str, str]
    bytes_up: int
    bytes_down: int
    standby: StandbyPresent
    links: Sequence[LinkUse] = ()
