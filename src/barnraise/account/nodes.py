"""One line for each node for its host, from the engine's state while it works or from the ledger."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from barnraise.account.chronicle import plain
from barnraise.ledger import NodeTotals
from barnraise.ledger.decisions import Change
from barnraise.trust.roles import TRUSTEE

if TYPE_CHECKING:
    from barnraise.controller.state.state import NodeState, State
    from barnraise.trust.reputation import Reputation


@dataclass(frozen=True)
class NodeRow:
    """A node's line of the status.

    `speed` is `rate` (tokens a second) over the living's median, `share` that of the run's tokens.

    `staleness` is ready to be shown: of the last contribution beside its bound, or mean and maximum. `seen` are seconds
    since the node's last message, None when that is not known.
    """

    name: str
    state: str
    device: str
    speed: float
    rate: float
    tokens: int
    share: float
    staleness: str
    accepted: int
    refused: int
    lost: int | None = None
    seen: float | None = None


STARTING, TRAINING, IDLE, LEFT, KILLED, REVOKED = "starting", "training", "idle", "left", "killed", "revoked"
SUSPECT, HELD_OFF = "suspect", "held off"
PROBATION, QUARANTINED, BANNED = "probation", "quarantined", "banned"
NEVER, STAYED, CUT_OFF = "never came", "stayed", "cut off"
_STATES = dict.fromkeys((change for change in Change if change.gone), LEFT) | {
    Change.ENDED: STAYED,
    Change.KILLED: KILLED,
    Change.REVOKED: REVOKED,
}
GONE = (LEFT, KILLED, REVOKED, NEVER, QUARANTINED, BANNED)
PRESENT = (STARTING, TRAINING, IDLE, SUSPECT, HELD_OFF, PROBATION, TRUSTEE)


def living(
    state: State,
    seen: Mapping[str, float],
    now: float,
    dismissed: Container[str] = (),
    doubts: Mapping[str, str] = {},
) -> list[NodeRow]:
    """Return the nodes of a working controller, with the time since each was `seen` last.

    Those `dismissed` ended with the run. `doubts` are SUSPECT or HELD_OFF, of nodes that take part and get no tasks
    now.
    """
    rates = [node.speed.rate for node in state.nodes.values() if node.live and node.speed.rate > 0]
    middle = median(rates) if rates else 0.0
    return [
        _living(node, state, middle, seen.get(node.id), now, _state(node, state, now, dismissed, doubts))
        for node in state.nodes.values()
    ]


def judged(reputation: Reputation, now: float) -> str:
    """Return the consequence of a node's verdicts; empty where it gets tasks."""
    if reputation.until == math.inf:
        return BANNED
    return QUARANTINED if reputation.until > now else ""


def _state(node: NodeState, state: State, now: float, dismissed: Container[str], doubts: Mapping[str, str]) -> str:
    if node.revoked:
        return REVOKED
    if not node.live:
        guilty = judged(node.tally.reputation, now)
        return guilty or (STAYED if node.id in dismissed else LEFT if node.session.id else STARTING)
    if state.progress.finished:
        return STAYED
    if node.id in doubts:
        return doubts[node.id]
    if node.badge.role == TRUSTEE:
        return TRUSTEE
    if node.open:
        return PROBATION if node.tally.reputation.on_probation else TRAINING
    return IDLE if node.tally.accepted + node.tally.refused else STARTING  # it measures itself first


def _living(node: NodeState, state: State, middle: float, seen: float | None, now: float, condition: str) -> NodeRow:
    bound = max((state.works[assignment].terms.max_staleness for assignment in node.open), default=None)
    staleness = f"{node.updates.staleness}" if node.tally.accepted + node.tally.refused else "-"
    return NodeRow(
        name=node.id,
        state=condition,
        device=plain(node.session.profile.device, 24) if node.session.id else "",
        speed=node.speed.rate / middle if middle else 0.0,
        rate=node.speed.rate,
        tokens=node.tally.tokens,
        share=node.tally.tokens / max(1, state.totals.tokens),
        staleness=staleness if bound is None else f"{staleness} of {bound}",
        accepted=node.tally.accepted,
        refused=node.tally.refused,
        seen=None if seen is None else max(0.0, now - seen),
    )


def recorded(
    nodes: Sequence[NodeTotals], *, running: bool, finished: bool, doubts: Mapping[str, str] = {}
) -> list[NodeRow]:
    """Return the nodes of a ledger whose run works, is finished, or neither.

    Rates are over the seconds that nodes report. `doubts` are HELD_OFF, QUARANTINED or BANNED, of nodes that get no
    tasks now.
    """
    rates = {node.node: (node.tokens / node.seconds if node.seconds > 0 else 0.0) for node in nodes}
    known = [rate for rate in rates.values() if rate > 0]
    middle, total = (median(known) if known else 0.0), max(1, sum(node.tokens for node in nodes))
    return [_recorded(node, rates[node.node], middle, total, _stood(node, running, finished, doubts)) for node in nodes]


def _stood(node: NodeTotals, running: bool, finished: bool, doubts: Mapping[str, str]) -> str:
    doubt = doubts.get(node.node, "")
    if node.change in _STATES:
        return doubt if doubt in (QUARANTINED, BANNED) else _STATES[node.change]
    if running:
        if doubt:
            return doubt
        if node.role == TRUSTEE:
            return TRUSTEE
        return TRAINING if node.outcomes.open else IDLE if node.outcomes.judged else STARTING
    if node.change == Change.ENROLLED:
        return NEVER
    return STAYED if finished else CUT_OFF


def _recorded(node: NodeTotals, rate: float, middle: float, total: int, state: str) -> NodeRow:
    outcomes = node.outcomes
    return NodeRow(
        name=node.node,
        state=state,
        device=plain(node.device, 24),
        speed=rate / middle if middle else 0.0,
        rate=rate,
        tokens=node.tokens,
        share=node.tokens / total,
        staleness=f"{node.mean_staleness:.1f}, {node.max_staleness}" if outcomes.judged else "-",
        accepted=outcomes.accepted,
        refused=outcomes.refused,
        lost=outcomes.lost,
    )


def in_order_of_interest(rows: Sequence[NodeRow], most: int) -> list[NodeRow]:
    """Return at most `most` rows, in order: present ones first, then by tokens."""
    if len(rows) <= most:
        return list(rows)
    chosen = sorted(rows, key=lambda row: (row.state in GONE, -row.tokens))[:most]
    kept = {row.name for row in chosen}
    return [row for row in rows if row.name in kept]
