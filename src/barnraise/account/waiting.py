"""The reason why a working run makes no version at present, as a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from barnraise.core.text import printable
from barnraise.core.units import count_text, duration_text

if TYPE_CHECKING:
    from barnraise.account.account import Account
    from barnraise.controller.state.part import TaskHold
    from barnraise.controller.state.state import State

PATIENCE = 30.0
"""Seconds without a version after which the reason is told."""

MOST_TOLD = 4
"""Nodes that a sentence names."""


def waiting_for(
    state: State, holds: Mapping[str, TaskHold], now: float, patience: float = PATIENCE, *, trustees: str = ""
) -> str:
    """Return what the run waits for at `now`; empty while it makes versions, or is too young to tell.

    A pause by the host does not count as time without a version. `holds` are the nodes that take part and get no tasks
    now, `trustees` is what a closed version waits for from them.
    """
    if not state.num_live:
        return "waiting for workers"
    silent = now - max(state.newest.time, state.progress.continued)
    if silent < patience or state.progress.final:
        return ""
    if state.closing is not None:
        if trustees:
            return f"version {state.closing.version} waits for {trustees}, since {duration_text(silent)}"
        return f"version {state.closing.version} is being made, since {duration_text(silent)}"
    lacking = max(0, state.buffer.size - len(state.buffer.slots))
    awaited = f"contributions of {count_text(lacking, 'more node')}" if lacking else "its closing"
    told = _no_version(silent, state.newest.version, awaited)
    working = {
        node.id: now - min(state.works[number].time for number in node.open)
        for node in state.nodes.values()
        if node.live and node.open and node.id not in state.buffer.slots
    }
    return told + _at_work(working) + _held({node: hold for node, hold in holds.items() if node not in working}, now)


def _at_work(working: Mapping[str, float]) -> str:
    """Name the nodes at work, those that take longest first."""
    order = sorted(working, key=lambda node: -working[node])
    return _listed("at work", [f"{printable(node)} for {duration_text(working[node])}" for node in order])


def _held(holds: Mapping[str, TaskHold], now: float) -> str:
    """Name the nodes without a task, and the reasons."""
    return _listed("without a task", [f"{printable(node)}, {printable(hold.reason)}" for node, hold in holds.items()])


def _listed(what: str, told: Sequence[str]) -> str:
    more = [f"{len(told) - MOST_TOLD:,} others"] if len(told) > MOST_TOLD else []
    return f"; {what}: {'; '.join([*told[:MOST_TOLD], *more])}" if told else ""


def recorded_waiting(account: Account, now: float) -> str:
    """Return the same of a run that works, from its ledger alone, at the time `now` of its clock."""
    merging = account.merging
    if account.finished or merging.pauses.told:
        return "" if account.finished else merging.pauses.told
    silent, lacking = now - max(merging.made, merging.pauses.continued), merging.buffer_size - merging.gathered
    if silent < PATIENCE or lacking <= 0:
        return ""
    return _no_version(silent, account.totals.version, f"contributions of {count_text(lacking, 'more node')}")


def _no_version(silent: float, version: int, awaited: str) -> str:
    return f"no version for {duration_text(silent)}: version {version + 1} waits for {awaited}"
