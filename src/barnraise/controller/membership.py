"""Who takes part: joining, coming back, leaving, falling silent.

A live node holds a lease that any frame of its renews. When the lease ends, or the node leaves, its open work is
released for others; should the node come back before anybody took it, the work is its own again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from barnraise.controller import custody
from barnraise.controller.actions import Action, Send
from barnraise.controller.settings import EngineSettings
from barnraise.controller.soft import Soft
from barnraise.controller.state import NodeState, State
from barnraise.core.errors import DIVERGED
from barnraise.ledger import notes
from barnraise.ledger.decisions import Change, Decision, NodeChanged, Noted
from barnraise.wire.messages import PROTOCOL_VERSION, Ack, Enrolled, Hello, Stop, Welcome

Steps = Iterator[Decision | Action]

MOST_INSANE = 10
"""Updates in a row that cannot be taken, after which a node is not asked for more."""

ROUND_TRIPS = 4.0
"""By how many round trips a lease outlasts the fleet's."""

CAUTION = 2.0
"""And by how many times what the node's frames were late."""

FORGETTING = 0.99
"""What is left of that with each frame in time."""

LOOKS = 16
"""How often leases are looked at while one lasts: many nodes' at a time, as each look at the fleet has its price."""


def admit(state: State, node: str, key: str, invite: str, now: float) -> Steps:
    """Put a proven key on the ledger. A name stays with the first key that proved itself for it."""
    if key not in state.keys and node not in state.nodes:
        yield NodeChanged(now, node, "enrolled", f"invite {invite}" if invite else "", key=key)
        yield Send(node, Enrolled(node))


def hello(state: State, soft: Soft, settings: EngineSettings, node: str, message: Hello, now: float) -> Steps:
    """A worker says who it is and what it holds: agree with it on what is open, answered and forgotten."""
    if message.protocol != PROTOCOL_VERSION:
        yield Send(
            node,
            Stop(
                f"protocol version {message.protocol} is not spoken here, only {PROTOCOL_VERSION}: "
                "install the barnraise version of the controller"
            ),
        )
        return
    if state.final or state.finished:
        yield from _answer_pending(state, node, message)
        yield Send(node, Stop(state.finished or "the run's token budget is met"))
        return
    known = state.nodes[node]
    restarted = message.session != known.session
    if restarted or not known.live or message.profile != known.profile:
        if not soft.joins.take(node, now):
            return  # it comes and goes too often: it will ask again
        reason = "came back" if known.session else ""
        yield NodeChanged(now, node, "joined", reason, session=message.session, profile=message.profile)
        soft.news += 1
    if node not in soft.seen:
        _look_at(soft, node, now + intervals(state, soft, settings, now)[1])
        if not restarted and node in soft.silent:  # it was there all the time: its frames were late
            _learn(soft, node, now - soft.silent[node])
    _forget(soft, node)
    soft.seen[node] = now
    held = set(message.pending) | set(message.working)
    for assignment in list(known.open):
        if assignment not in held and assignment not in soft.custody.inspecting:
            soft.wasted.take(node, now)
            yield from _release(soft, node, assignment, "the worker does not hold it", now)
    forget = []
    for assignment in sorted(held):
        if assignment in state.works:
            continue
        lost = state.redo.get(assignment)
        if lost is not None and lost.node == node and not lost.rest and assignment not in known.verdicts:
            yield Noted(now, notes.Reopened(assignment=assignment), node)
        elif assignment not in known.verdicts:
            forget.append(assignment)
    yield from _answer_pending(state, node, message)  # before the Welcome: what is answered is not uploaded again
    yield Send(
        node,
        Welcome(
            settings.run,
            node,
            message.greeting,
            settings.worker,
            settings.manifest,
            *intervals(state, soft, settings, now, node),
            tuple(forget),
        ),
    )


def _answer_pending(state: State, node: str, message: Hello) -> Steps:
    verdicts = state.nodes[node].verdicts
    for assignment in message.pending:
        if assignment in verdicts:
            yield Send(node, Ack(assignment, *verdicts[assignment]))


def dismiss(state: State, soft: Soft, node: str, wrong: str, now: float) -> Steps:
    """Part with a node whose updates are all `wrong` (empty: this one was not): what it sends leads nowhere."""
    soft.insane[node] = soft.insane.get(node, 0) + 1 if wrong else 0
    if soft.insane[node] >= MOST_INSANE:
        reason = (
            f"{DIVERGED}: {MOST_INSANE} updates in a row could not be taken (the last: {wrong}); "
            "lower the learning rate, or raise warmup_tokens"
        )
        del soft.insane[node]
        yield Send(node, Stop(reason, final=False))
        yield from part(state, soft, node, reason, now)


def part(state: State, soft: Soft, node: str, reason: str, now: float, how: Change = "left") -> Steps:
    """The node is gone: its open work is for others."""
    _forget(soft, node)
    if state.nodes[node].live:
        yield NodeChanged(now, node, how, reason)
        soft.news += 1
        yield from release(state, soft, node, reason, now)


def revoke(state: State, soft: Soft, node: str, reason: str, now: float) -> Steps:
    """The node is out for good: its key and its name are let in no more. What it did before stays as it is."""
    known = state.nodes.get(node)
    if known is None or known.revoked:
        return
    _forget(soft, node)
    yield NodeChanged(now, node, "revoked", reason)
    soft.news += 1
    yield from release(state, soft, node, "revoked", now)
    yield turned_away(known)


def turned_away(node: NodeState) -> Send:
    """The answer to whatever a revoked node says."""
    return Send(node.id, Stop(f"the host revoked this machine's membership: {node.revoked}", final=False))


def release(state: State, soft: Soft, node: str, reason: str, now: float) -> Steps:
    """Let others do the node's open work, but for what has arrived and is being inspected."""
    for assignment in list(state.nodes[node].open):
        if assignment not in soft.custody.inspecting:
            yield from _release(soft, node, assignment, reason, now)


def _release(soft: Soft, node: str, assignment: int, reason: str, now: float) -> Steps:
    yield from custody.drop(soft.custody, node, assignment)
    yield Noted(now, notes.Released(assignment=assignment, reason=reason), node)


def _forget(soft: Soft, node: str) -> None:
    """What was observed of the node is no longer so."""
    for observed in (soft.seen, soft.awaited, soft.asking, soft.resting, soft.watching, soft.told):
        observed.pop(node, None)


def heard(soft: Soft, node: str, now: float) -> None:
    """A frame of the node renews its lease, and says how late its frames come."""
    seen = soft.seen.pop(node, None)
    if seen is not None:
        soft.seen[node] = now
        _learn(soft, node, now - seen)


def excuse(soft: Soft, seconds: float) -> None:
    """For so long nobody could be heard."""
    soft.seen = {node: seen + seconds for node, seen in soft.seen.items()}
    soft.awaited_until += seconds


def _learn(soft: Soft, node: str, gap: float) -> None:
    late, known = gap - soft.heartbeat, soft.lateness.get(node, 0.0)
    if late > 0.0 or known:
        soft.lateness[node] = max(late, FORGETTING * known)


def intervals(
    state: State, soft: Soft, settings: EngineSettings, now: float, node: str | None = None
) -> tuple[float, float]:
    """Heartbeat and lease of the fleet, or the lease of a node. When the fleet shrinks, the longer lease holds on for
    as long as it is: nodes that were told of it must not seem silent."""
    heartbeat, lease = settings.intervals(state.num_live)
    if lease >= soft.lease or now >= soft.lease_told + soft.lease:
        soft.lease, soft.lease_told, soft.heartbeat = lease, now, heartbeat
    return heartbeat, lease if node is None else _lease(soft, settings, node, lease)


def _lease(soft: Soft, settings: EngineSettings, node: str, lease: float) -> float:
    """The fleet's, and more for a link that is slow or uneven, within the run file's bounds. What the node says of its
    link moves its own lease alone."""
    link = soft.links.get(node)
    slow = ROUND_TRIPS * link.round_trip if link is not None else 0.0
    return max(lease, min(lease + slow + CAUTION * soft.lateness.get(node, 0.0), settings.longest_lease))


def await_back(state: State, soft: Soft, settings: EngineSettings, grace: float, now: float) -> Steps:
    """After a restart: who was live has `grace` seconds beyond a lease to say Hello, who was not has nothing open."""
    soft.awaited_until = now + settings.intervals(state.num_live)[1] + grace
    for node in state.nodes.values():
        if node.live:
            soft.awaited[node.id] = None
        else:
            yield from release(state, soft, node.id, "the node has left", now)


def _look_at(soft: Soft, node: str, time: float) -> None:
    """Look then, or a little later, whether the node's lease has ended, if that is not planned already."""
    if node not in soft.leased:
        step = soft.lease / LOOKS
        soft.leased.add(node)
        heapq.heappush(soft.leases, (max(time, math.ceil(time / step) * step), node))


def deadline(soft: Soft) -> float:
    """When to look next for leases that have ended."""
    return min(soft.leases[0][0] if soft.leases else math.inf, soft.awaited_until if soft.awaited else math.inf)


def expire(state: State, soft: Soft, settings: EngineSettings, now: float) -> Steps:
    """Part with every node whose lease has ended."""
    intervals(state, soft, settings, now)
    while deadline(soft) <= now:
        if now >= soft.awaited_until and soft.awaited:
            yield from part(state, soft, next(iter(soft.awaited)), "did not come back after the restart", now)
            continue
        _, node = heapq.heappop(soft.leases)
        soft.leased.remove(node)
        seen = soft.seen.get(node)
        if seen is None:
            continue
        ends = seen + _lease(soft, settings, node, soft.lease)
        if ends > now:
            _look_at(soft, node, ends)
        else:
            soft.silent[node] = seen
            yield from part(state, soft, node, f"silent for {now - seen:.1f} s", now)
