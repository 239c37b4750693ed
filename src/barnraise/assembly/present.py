"""The facts that a working controller knows beside its ledger: nodes heard, the run's waits, bytes, its standby."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnraise.account.links import LinkUse
from barnraise.account.nodes import HELD_OFF, SUSPECT, NodeRow, living
from barnraise.account.waiting import waiting_for
from barnraise.core.text import printable

if TYPE_CHECKING:
    from barnraise.assembly.hosting import Host  # it imports torch
    from barnraise.controller.machine import Snapshot
    from barnraise.controller.shell.standbys import Standbys


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


def present_of(host: Host, dismissed: Container[str] = ()) -> Present:
    """Return the present of a host's run, in the thread of its event loop.

    Nodes that are `dismissed` ended with the run.
    """
    state, server = host.machine.state, host.server
    now = server.clock()
    snapshot = host.machine.snapshot(now)
    condition, waits_for = _condition(host, snapshot, now)
    return Present(
        clock=now,
        state=condition,
        waits_for=waits_for,
        rows=living(state, snapshot.heard, now, dismissed, _doubts(snapshot)),
        holds={node: hold.reason for node, hold in snapshot.holds.items()},
        bytes_up=server.bytes_up,
        bytes_down=server.bytes_down,
        standby=_standby(server.standbys),
        links=host.links(),
    )


def _condition(host: Host, snapshot: Snapshot, now: float) -> tuple[str, str]:
    """Return the run's state, and what it waits for."""
    progress = host.machine.state.progress
    if progress.finished:
        return FINISHED, f"finished: {printable(progress.finished)}"
    if progress.final or progress.stopping:
        return FINISHING, "finishing: measuring and saving the last version"
    if progress.paused:
        return PAUSED, f"paused: {printable(progress.paused)}"
    waits = waiting_for(host.machine.state, snapshot.holds, now)
    return WAITING if waits else TRAINING, waits


def _doubts(snapshot: Snapshot) -> dict[str, str]:
    """Return nodes that take part and get no tasks now for a time, and the states that they have so."""
    return {
        node: SUSPECT if hold.until_heard else HELD_OFF
        for node, hold in snapshot.holds.items()
        if hold.until_heard or hold.until < math.inf
    }


def _standby(standbys: Standbys) -> StandbyPresent:
    lag, durability = standbys.lag, standbys.durability
    unprotected = durability.unprotected if durability.lowered else 0
    if lag is None:
        return StandbyPresent(waiting=standbys.held, unprotected=unprotected)
    return StandbyPresent(lag.name, lag.rows, lag.seconds, standbys.held, unprotected)
