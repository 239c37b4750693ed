"""The status of a run: whether it works, its progress, its workers, and its last events."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from barnraise.account import nodes
from barnraise.account.account import Account
from barnraise.account.chronicle import Happening, plain
from barnraise.account.doubts import states, waiting_text
from barnraise.account.facts import facts
from barnraise.account.present import FINISHED, INTERRUPTED, PAUSED
from barnraise.account.waiting import recorded_waiting
from barnraise.core.errors import CorruptionError
from barnraise.core.text import printable
from barnraise.ledger import Head, LedgerView, RunDirectory, seal

RUNNING = "running"
WORKING = (RUNNING, PAUSED)
"""The states of a run that has a controller."""

MOST_EVENTS = 8
"""Events in the status."""

MOST_NODES, MOST_LOSSES = 200, 200
"""Nodes and losses in the status for an observer, at most."""

MOST_SAMPLES = 4
"""Samples of the model's text in the status for an observer, at most."""


@dataclass(frozen=True)
class Marks:
    """Marks that a host can publish, so that later changes are detected.

    The head of the ledger's chain, and the seal of a run that is over, "" while it has none (that is whole).
    """

    head: Head
    seal: str


class RunStatus(msgspec.Struct, frozen=True):
    """The status of a run for a host, or an observer.

    `told` is the same for a program.
    """

    run: str
    state: str
    finished: str
    progress: float
    budget: int
    facts: tuple[tuple[str, str], ...]
    losses: tuple[float, ...]
    nodes: tuple[nodes.NodeRow, ...]
    events: tuple[Happening, ...]
    told: dict[str, Any]


def status_of(account: Account, budget: int, pid: int | None, marks: Marks) -> RunStatus:
    """Return the status of a run whose controller is the process `pid` (None: it has none now)."""
    lines = [*facts(account), ("ledger", f"{marks.head.rows:,} rows; the chain over them ends in {marks.head.digest}")]
    if marks.seal:
        lines.append(("seal", marks.seal))
    if pid is not None and account.simulation is None:
        now = account.end + account.run.unchanged_for()
        told = recorded_waiting(account, now), waiting_text(account.dispatch.doubts, now)
        lines += [("waiting", text) for text in told if text]
    elif account.merging.pauses.host and not account.finished:
        lines.append(("paused", f"{printable(account.merging.pauses.host)}; it stays paused when it is resumed"))
    return RunStatus(
        run=account.run.path.name,
        state=state(account, pid),
        finished=account.finished,
        progress=progress(account, budget),
        budget=budget,
        facts=tuple(lines),
        losses=tuple(point.loss for point in account.losses),
        nodes=tuple(_rows(account, pid)),
        events=tuple(account.happenings[-MOST_EVENTS:]),
        told=as_json(account, budget, pid, marks),
    )


def from_afar(whole: RunStatus) -> RunStatus:
    """Return the part of the status for observers.

    It has no paths and processes, and of a large fleet the nodes of most interest.
    """
    rows = nodes.in_order_of_interest(whole.nodes, MOST_NODES)
    names = {row.name for row in rows}
    told = {key: value for key, value in whole.told.items() if key not in ("run_dir", "model_dir", "pid")}
    told["nodes"] = [node for node in told["nodes"] if node["name"] in names]
    told["run"] = whole.run
    if samples := told.get("samples"):
        told["samples"] = samples | {"texts": samples["texts"][:MOST_SAMPLES]}
    step = -(-len(whole.losses) // MOST_LOSSES) or 1
    return msgspec.structs.replace(whole, nodes=tuple(rows), told=told, losses=whole.losses[::step])


def encoded_from_afar(account: Account, budget: int) -> bytes:
    """Return the same as bytes, in the process of the controller of the account's run."""
    return msgspec.json.encode(from_afar(status_of(account, budget, os.getpid(), marks_of(account.run))))


def printable_of(heard: RunStatus) -> RunStatus:
    """Return the status without control characters, since it comes from another machine."""
    return RunStatus(
        run=printable(heard.run),
        state=plain(heard.state, 24),
        finished=printable(heard.finished),
        progress=heard.progress,
        budget=heard.budget,
        facts=tuple((plain(label, 9), printable(text, 300)) for label, text in heard.facts),
        losses=heard.losses,
        nodes=tuple(
            replace(
                row,
                name=plain(row.name, 64),
                state=plain(row.state, 24),
                device=plain(row.device, 24),
                staleness=plain(row.staleness, 24),
            )
            for row in heard.nodes
        ),
        events=tuple(
            replace(one, kind=plain(one.kind, 24), node=plain(one.node, 64), text=printable(one.text))
            for one in heard.events
        ),
        told=heard.told,
    )


def marks_of(run: RunDirectory) -> Marks:
    """Return the current marks of `run`.

    Raises StorageError.
    """
    try:
        found = seal.read(run)
    except CorruptionError:
        found = None
    with LedgerView(run.ledger) as view:
        return Marks(view.head, found.digest if found else "")


def as_json(account: Account, budget: int, pid: int | None, marks: Marks) -> dict[str, Any]:
    """Return the status for a program: the account of `train --json`, the run's state, and its marks."""
    rows = _rows(account, pid)
    last = account.happenings[-MOST_EVENTS:]
    return account.as_json() | {
        "state": state(account, pid),
        "virtual_hours": account.simulation.hours if account.simulation else None,
        "pid": pid,
        "finished": account.finished or None,
        "paused_by_host": account.merging.pauses.host or None,
        "budget": budget,
        "rows": marks.head.rows,
        "head": marks.head.digest,
        "seal": marks.seal or None,
        "progress": progress(account, budget),
        "buffer_size": account.merging.buffer_size or None,
        "version_nodes": account.merging.nodes or None,
        "f": account.merging.f,
        "liar_odds": account.merging.odds,
        "guaranteed": account.merging.guaranteed if account.merging.f is not None else None,
        "nodes": [
            {key: value for key, value in asdict(row).items() if key not in ("staleness", "seen")}
            | {"mean_staleness": node.mean_staleness, "max_staleness": node.max_staleness}
            for row, node in zip(rows, account.nodes, strict=True)
        ],
        "events": [{"seconds": it.time, "kind": it.kind, "node": it.node, "text": it.text} for it in last],
    }


def _rows(account: Account, pid: int | None) -> list[nodes.NodeRow]:
    running, doubts = pid is not None, states(account.dispatch.doubts)
    return nodes.recorded(account.nodes, running=running, finished=bool(account.finished), doubts=doubts)


def progress(account: Account, budget: int) -> float:
    """Return the share of the token budget that is done; of a simulation for some hours, of that time."""
    simulation = account.simulation
    if simulation is not None and simulation.hours is not None:
        return 1.0 if account.finished else min(1.0, account.end / (3600 * simulation.hours))
    return min(1.0, account.totals.tokens / budget)


def state(account: Account, pid: int | None) -> str:
    """Return running, paused, finished, or interrupted: then it can be resumed, unless it is a simulation."""
    if account.finished and pid is None:
        return FINISHED
    if pid is None:
        return INTERRUPTED
    return PAUSED if account.merging.pauses.told and not account.finished else RUNNING
