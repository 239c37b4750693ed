"""The present of a run, from its controller in this process."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import TYPE_CHECKING

from barnraise.account.nodes import HELD_OFF, SUSPECT, living
from barnraise.account.pauses import Pauses
from barnraise.account.present import FINISHED, FINISHING, PAUSED, TRAINING, WAITING, Present, StandbyPresent
from barnraise.account.waiting import waiting_for
from barnraise.core.text import printable

if TYPE_CHECKING:
    from barnraise.assembly.hosting import Host  # it imports torch
    from barnraise.controller.machine import Snapshot
    from barnraise.controller.shell.standbys import Standbys


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
    if paused := Pauses(progress.paused, progress.host_paused).told:
        return PAUSED, paused
    waits = waiting_for(host.machine.state, snapshot.holds, now, trustees=snapshot.trustees)
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
