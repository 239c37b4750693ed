"""Who takes part: joining, coming back, leaving, falling silent.

A live node holds a lease that any frame of its renews. When the lease ends, or the node leaves, its open work is
released for others; should the node come back before anybody took it, the work is its own again.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnraise.controller.actions import Action, Send
from barnraise.controller.settings import EngineSettings
from barnraise.controller.state import Soft, State
from barnraise.ledger.decisions import Decision, NodeChanged, Noted
from barnraise.wire.messages import PROTOCOL_VERSION, Ack, Hello, Stop, Welcome

Steps = Iterator[Decision | Action]


def admit(state: State, node: str, key: str, now: float) -> Steps:
    """Put a proven key on the ledger."""
    if key not in state.keys:
        yield NodeChanged(now, node, "enrolled", key=key)


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
        reason = "came back" if known.session else ""
        yield NodeChanged(now, node, "joined", reason, session=message.session, profile=message.profile)
        soft.news += 1
    soft.seen.pop(node, None)
    soft.seen[node] = now
    _forget_request(soft, node)
    held = set(message.pending) | set(message.working)
    for assignment in list(known.open):
        if assignment not in held and assignment not in soft.inspecting:
            yield Noted(now, "released", node, {"assignment": assignment, "reason": "the worker does not hold it"})
    forget = []
    for assignment in held:
        if assignment in state.works:
            continue
        lost = state.redo.get(assignment)
        if lost is not None and lost.node == node and assignment not in known.verdicts:
            yield Noted(now, "reopened", node, {"assignment": assignment})
        elif assignment not in known.verdicts:
            forget.append(assignment)
    heartbeat, lease = settings.intervals(state.num_live)
    yield Send(
        node,
        Welcome(
            settings.run,
            node,
            message.greeting,
            settings.worker,
            settings.manifest,
            heartbeat,
            lease,
            tuple(sorted(forget)),
        ),
    )
    yield from _answer_pending(state, node, message)


def _answer_pending(state: State, node: str, message: Hello) -> Steps:
    verdicts = state.nodes[node].verdicts
    for assignment in message.pending:
        if assignment in verdicts:
            yield Send(node, Ack(assignment, *verdicts[assignment]))


def part(state: State, soft: Soft, node: str, reason: str, now: float) -> Steps:
    """The node is gone: its open work is for others."""
    soft.seen.pop(node, None)
    _forget_request(soft, node)
    known = state.nodes[node]
    if not known.live:
        return
    yield NodeChanged(now, node, "left", reason)
    soft.news += 1
    for assignment in list(known.open):
        if assignment not in soft.inspecting:
            yield Noted(now, "released", node, {"assignment": assignment, "reason": reason})


def _forget_request(soft: Soft, node: str) -> None:
    soft.asking.pop(node, None)
    soft.resting.pop(node, None)


def expire(state: State, soft: Soft, settings: EngineSettings, now: float) -> Steps:
    """Part with every node whose lease has ended."""
    _, lease = settings.intervals(state.num_live)
    while soft.seen:
        node, seen = next(iter(soft.seen.items()))
        if now - seen <= lease:
            break
        yield from part(state, soft, node, f"silent for {now - seen:.1f} s", now)
