"""How a run stands: whether it works, how far it is, its workers, what happened last."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from barnraise.account import nodes
from barnraise.account.account import Account
from barnraise.core.errors import CorruptionError
from barnraise.ledger import Head, LedgerView, RunDirectory, seal

MOST_EVENTS = 8
"""Happenings that are told of."""


@dataclass(frozen=True)
class Marks:
    """What a host can make known, so that a change of what was before is found: the head of the ledger's chain, and the
    seal of a run that is over, "" while it has none (that is whole)."""

    head: Head
    seal: str


def marks_of(run: RunDirectory) -> Marks:
    """Those of `run` as it is. Raises StorageError."""
    try:
        found = seal.read(run)
    except CorruptionError:
        found = None
    with LedgerView(run.ledger) as view:
        return Marks(view.head, found.digest if found else "")


def as_json(account: Account, budget: int, pid: int | None, marks: Marks) -> dict[str, Any]:
    """The status for a program: what `train --json` tells, how the run stands, and its marks."""
    running, held = pid is not None, account.dispatch.held
    rows = nodes.recorded(account.nodes, running=running, finished=bool(account.finished), held=held)
    last = account.happenings[-MOST_EVENTS:]
    return account.as_json() | {
        "state": state(account, pid),
        "pid": pid,
        "finished": account.finished or None,
        "budget": budget,
        "rows": marks.head.rows,
        "head": marks.head.digest,
        "seal": marks.seal or None,
        "progress": min(1.0, account.totals.tokens / budget),
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


def state(account: Account, pid: int | None) -> str:
    """running, finished, or interrupted: then it can be resumed."""
    if pid is not None:
        return "running"
    return "finished" if account.finished else "interrupted"
