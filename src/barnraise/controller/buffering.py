"""When the buffer closes and becomes a version, how many nodes that takes, and how a run ends.

Asynchronous mode closes at K distinct nodes. Synchronous mode closes when no node still works from the newest
version, or when the rest has kept the faster half waiting for too long. Once the accepted contributions meet the
token budget (or a stop was asked for) the next close is the last one; where error feedback holds residuals, it is the
one but last, and the last version is made of those.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from barnraise.controller import speeds
from barnraise.controller.actions import Action, Aggregate, Checkpoint, Evaluate, Finish, Release, Send, SlotShare
from barnraise.controller.events import Aggregated, Unmade
from barnraise.controller.pacing import participation
from barnraise.controller.settings import EngineSettings
from barnraise.controller.soft import Soft
from barnraise.controller.state import SlotState, State
from barnraise.core.ranges import covers, pieces
from barnraise.core.types import Update
from barnraise.ledger import notes
from barnraise.ledger.decisions import Decision, Noted, VersionClosed, VersionMade
from barnraise.staleness.buffer import OVERLAPPING, least_buffer
from barnraise.wire.messages import Stop

Steps = Iterator[Decision | Action]

LONGEST_CHAIN = 1024
"""Deltas that a worker may be sent instead of a snapshot; each is about 200 bytes of a header that has a limit."""

HYSTERESIS = 0.1
"""Share by which an automatic K must be wrong to be changed."""


def size(state: State, soft: Soft, settings: EngineSettings, now: float) -> Steps:
    """Set K for the living, and pause or go on with the aggregation rule's minimum."""
    if state.final:
        return
    short = state.num_live < settings.minimum_nodes
    if short and state.num_live and not state.paused:
        reason = f"{state.num_live} live nodes, but the aggregation rule needs {settings.minimum_nodes}"
        yield Noted(now, notes.Paused(reason=reason))
    elif not short and state.paused:
        yield Noted(now, notes.Continued(reason=""))
    _measure(state, soft, settings)
    wanted = state.num_live if not settings.asynchronous else settings.buffer_size or soft.automatic_size
    there = len(soft.speeds.counted) if settings.asynchronous else state.num_live
    nodes = max(settings.minimum_nodes, min(wanted, there), 1)
    if nodes != state.buffer_size:
        why = "automatic" if settings.buffer_size is None else f"controller.buffer_size is {settings.buffer_size}"
        yield Noted(now, notes.BufferSize(nodes=nodes, live=state.num_live, why=why))
    yield from _advise(state, soft, settings, now)


def _measure(state: State, soft: Soft, settings: EngineSettings) -> None:
    """The automatic K, and how long an open buffer waits for K nodes, anew with the fleet's figures.

    K stays while it is about right. The wait is several times what the slowest of the K fastest nodes takes.
    """
    speeds.refresh(state, soft)
    if not settings.asynchronous or soft.speeds.count == soft.sized_at:
        return
    counted, soft.sized_at = soft.speeds.counted, soft.speeds.count
    first = OVERLAPPING if settings.worker.overlap else 1.0
    rates, delays = [speeds.known(soft, node) for node in counted], [speeds.delay(node, first) for node in counted]
    automatic = least_buffer(rates, settings.staleness.bound, delays)
    if abs(automatic - soft.automatic_size) > HYSTERESIS * soft.automatic_size:
        soft.automatic_size = automatic
    periods = sorted(speeds.period(soft, node) for node in counted)
    wanted = settings.buffer_size or soft.automatic_size
    slowest = periods[min(len(periods), wanted) - 1] if periods else 0.0
    soft.patience = max(speeds.LEAST_PATIENCE, speeds.OVERDUE * slowest)


def _advise(state: State, soft: Soft, settings: EngineSettings, now: float) -> Steps:
    """Say once, when a pinned K makes versions too fast for somebody's staleness bound, which one would do."""
    pinned = settings.buffer_size
    if pinned is None or not settings.asynchronous or soft.advised or state.accepted < 2 * state.num_live:
        return
    enough = math.ceil(soft.automatic_size / 2)  # which leaves half of each bound in hand
    if pinned < enough:
        soft.advised = True
        reason = (
            f"with speeds this far apart slow nodes' work is refused as stale; set controller.buffer_size, "
            f"which is {pinned}, to {enough} or more, or to auto"
        )
        yield Noted(now, notes.Advice(reason=reason))


def close(state: State, soft: Soft, settings: EngineSettings, epoch: int, now: float) -> Steps:
    """Close the buffer if it is time."""
    if state.closing is not None or state.final or soft.interrupted is not None:
        return
    reason = _why(state, soft, settings, now)
    if not reason:
        return
    nodes = len(state.slots)
    if nodes < settings.minimum_nodes or not nodes:
        if reason == "last" and (state.stopping or state.flushing is not None) and not soft.custody.inspecting:
            count = sum(len(s.contributions) for slots in state.slots.values() for s in slots.values())
            why = state.stopping or "too few residuals came for a version"
            yield Noted(now, notes.LeftOver(contributions=count, reason=why))
            yield from end(state, soft, epoch, now)
        return
    if reason == "flush":
        yield Noted(now, notes.Flushing(nodes=state.num_live))
    held = shares(slot for slots in state.slots.values() for slot in slots.values())
    contributions = tuple(assignment for share in held for assignment, _ in share.contributions)
    rate, scales = _rates(state, soft, settings, held)
    yield VersionClosed(now, state.version + 1, contributions, nodes, state.buffer_tokens, reason, rate, scales)
    yield from aggregate(state, epoch)
    if state.final:
        for node in list(soft.seen):
            yield Send(node, Stop(state.stopping or "the run's token budget is met"))


def shares(slots: Iterable[SlotState]) -> tuple[SlotShare, ...]:
    """What a version is made of, in the order of reduction."""
    return tuple(slot.share() for slot in slots)


def aggregate(state: State, epoch: int) -> Steps:
    """Have the closed buffer made into its version."""
    assert state.closing is not None
    yield Aggregate(epoch, state.closing.version, shares(state.closing_slots), state.closing.rate, state.closing.scales)


def unmade(state: State, settings: EngineSettings, epoch: int, event: Unmade, now: float) -> Steps:
    """The version cannot be made of all that its buffer holds: void what cannot be used, and make it of the rest.

    Where numbers are at fault, or too few nodes are left for the aggregation rule, that is everything: the version is
    then the one before, and its rows are done again. A node is judged by what it sent, not by what our disk lost.
    """
    faults = event.void | event.lost
    used = {slot.node for slot in state.closing_slots if any(i not in faults for i, _ in slot.contributions)}
    reason = event.reason
    if not reason and len(used) < max(1, settings.minimum_nodes):
        reason = (
            f"{len(used)} nodes' contributions can be used, but the aggregation rule needs {settings.minimum_nodes}"
        )
    if reason:
        contributions = [assignment for slot in state.closing_slots for assignment, _ in slot.contributions]
        yield Noted(now, notes.VersionRefused(event.version, reason, tuple(contributions)))
    for slot in list(state.closing_slots):
        for assignment, _ in list(slot.contributions):
            why = faults.get(assignment, reason and f"version {event.version} was refused: {reason}")
            if why:
                judged = assignment in event.void or bool(event.reason)
                yield Noted(now, notes.Voided(assignment, event.version, why, judged), slot.node)
    yield from aggregate(state, epoch)


def _rates(
    state: State, soft: Soft, settings: EngineSettings, shares: tuple[SlotShare, ...]
) -> tuple[float, tuple[float, ...]]:
    """How far the version moves, and what of that each piece of the parameters does when there are several.

    By its nodes' share of all work, in asynchronous mode, and by what staleness has left of their weights: a mean sees
    how these compare, so that of one node alone they would count for nothing.
    """
    alike, rates = bool(settings.worker.normalize_steps), []
    for piece in pieces(slot.parameters for slot in shares):
        there = [slot for slot in shares if covers(slot.parameters, piece)]
        rate = _freshness(there, alike)
        if settings.asynchronous and settings.participation:
            rate *= min(1.0, sum(participation(state, soft, state.nodes[slot.node], alike) for slot in there))
        rates.append(rate)
    most = max(rates)
    return most, tuple(rate / most for rate in rates) if len(rates) > 1 else ()


def _freshness(slots: list[SlotShare], alike: bool) -> float:
    """What staleness has left of the slots' weights in all, or of one each."""
    if alike:
        return sum(slot.freshness for slot in slots) / len(slots)
    weights = [sum(weight for _, weight in slot.contributions) for slot in slots]
    fresh = sum(weight / slot.freshness for weight, slot in zip(weights, slots, strict=True))
    return sum(weights) / fresh if fresh else 1.0


def _why(state: State, soft: Soft, settings: EngineSettings, now: float) -> str:
    """Why the buffer closes now; empty while it does not. After `flush` it holds residuals alone, `last` is next."""
    if state.stopping:
        return "last"
    if state.tokens >= settings.tokens or state.flushing is not None:  # which voided contributions do not undo
        if state.flushing is None:
            return "flush" if settings.flush else "last"
        awaited = soft.custody.inspecting or any(
            node.live and node.id not in state.flushed for node in state.nodes.values()
        )
        return "" if awaited and now < state.flushing + settings.flush_patience else "last"
    if settings.asynchronous:
        if len(state.slots) >= state.buffer_size:
            return "full"
        return "time" if now >= state.buffer_time + soft.patience else ""
    return _round_over(state, soft, settings, now)


def _round_over(state: State, soft: Soft, settings: EngineSettings, now: float) -> str:
    """Why the synchronous round is over; empty while it is worth waiting (what has arrived still belongs to it)."""
    if state.current == 0:
        return "all"
    if soft.custody.inspecting:
        return ""
    if now >= state.version_time + settings.sync_longest_wait:
        return "longest wait"
    if now >= state.half_time + settings.sync_window:
        return "window"
    return ""


def deadline(state: State, soft: Soft, settings: EngineSettings) -> float:
    """When a synchronous round, or the wait for residuals, ends at the latest, in the machine's time."""
    if soft.interrupted is not None or state.closing is not None:
        return math.inf
    enough = len(state.slots) >= max(1, settings.minimum_nodes)
    if state.flushing is not None and not state.final:
        looked_at = soft.custody.inspecting and not enough  # what it shows is waited for
        return math.inf if looked_at else state.flushing + settings.flush_patience
    if not enough:
        return math.inf
    if settings.asynchronous:
        return state.buffer_time + soft.patience
    if soft.custody.inspecting:
        return math.inf
    return min(state.version_time + settings.sync_longest_wait, state.half_time + settings.sync_window)


def arrival_version(state: State, settings: EngineSettings) -> int:
    """The version that a contribution arriving now is compared with: the newest published, but a synchronous round
    that is closed takes no more."""
    closed = state.closing is not None and not settings.asynchronous
    return state.version + closed


def made(state: State, soft: Soft, settings: EngineSettings, epoch: int, event: Aggregated, now: float) -> Steps:
    """A version exists: publish it, measure it and make it durable when due."""
    yield VersionMade(now, event.version, event.digest, event.delta.num_bytes)
    soft.updates[event.version] = Update("delta", event.version, event.delta, event.digest, event.parameters)
    soft.update_bytes += event.delta.num_bytes
    stale = set()
    while len(soft.updates) > 1 and (soft.update_bytes > settings.snapshot_bytes or len(soft.updates) > LONGEST_CHAIN):
        old = soft.updates.pop(next(iter(soft.updates)))
        soft.update_bytes -= old.blob.num_bytes
        stale.add(old.blob.digest)
    stale -= {update.blob.digest for update in soft.updates.values()}  # equal deltas are one blob
    if stale:
        yield Release(tuple(sorted(stale)))
    if state.final:
        yield from end(state, soft, epoch, now)
        return
    due = settings.tokens * len(state.evaluations) / settings.evaluations
    if state.version_tokens >= due and not soft.evaluating:
        soft.evaluating = True
        yield Evaluate(epoch, state.version)
    if now - state.checkpoint_time >= settings.checkpoint_seconds and not soft.checkpointing:
        soft.checkpointing = True
        yield Checkpoint(epoch, state.version)


def end(state: State, soft: Soft, epoch: int, now: float) -> Steps:
    """Nothing more enters the model: measure it, make it durable; `settled` finishes when both are done."""
    for node in list(soft.seen):
        yield Send(node, Stop(state.stopping or "the run's token budget is met"))
    measured = bool(state.evaluations) and state.evaluations[-1][0] == state.version
    if not soft.evaluating and not measured:
        soft.evaluating = True
        yield Evaluate(epoch, state.version)
    if not soft.checkpointing and state.checkpoint != state.version:
        soft.checkpointing = True
        yield Checkpoint(epoch, state.version)
    yield from settled(state, soft, epoch, now)


def settled(state: State, soft: Soft, epoch: int, now: float) -> Steps:
    """Finish once the last version is measured and durable."""
    if not state.final or state.closing is not None or state.finished or soft.evaluating or soft.checkpointing:
        return
    if not state.evaluations or state.evaluations[-1][0] != state.version:
        soft.evaluating = True
        yield Evaluate(epoch, state.version)
    elif state.checkpoint != state.version:
        soft.checkpointing = True
        yield Checkpoint(epoch, state.version)
    else:
        reason = state.stopping or "the token budget is met"
        yield Noted(now, notes.Finished(reason=reason))
        yield Finish(reason)


def rest(state: State, soft: Soft, epoch: int) -> Steps:
    """Once the process shall end: make the newest version durable, so that a resume has nothing to make again."""
    if soft.interrupted is None or state.closing is not None or state.finished or soft.checkpointing:
        return
    if state.checkpoint != state.version:
        soft.checkpointing = True
        yield Checkpoint(epoch, state.version)
    else:
        yield Finish(soft.interrupted.reason, failed=soft.interrupted.failed, interrupted=not soft.interrupted.failed)


def give_up(reason: str) -> Steps:
    """The last version could not be made durable: end without the mark of a finished run, so that it can be resumed."""
    yield Finish(reason, failed=True)
