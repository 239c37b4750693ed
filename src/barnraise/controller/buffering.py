"""When the buffer closes and becomes a version, how many nodes that takes, and how a run ends.

Asynchronous mode closes at K distinct nodes. Synchronous mode closes when no node still works from the newest
version, or when the rest has kept the faster half waiting for too long. Once the accepted contributions meet the
token budget (or a stop was asked for) the next close is the last one; where error feedback holds residuals, it is the
one but last, and the last version is made of those.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from barnraise.controller.actions import Action, Aggregate, Checkpoint, Evaluate, Finish, Release, Send, SlotShare
from barnraise.controller.events import Aggregated
from barnraise.controller.pacing import median_rate, participation
from barnraise.controller.settings import EngineSettings
from barnraise.controller.state import Soft, State
from barnraise.core.ranges import covers, pieces
from barnraise.core.types import Update
from barnraise.ledger.decisions import Decision, Noted, VersionClosed, VersionMade
from barnraise.wire.messages import Stop

Steps = Iterator[Decision | Action]

LONGEST_CHAIN = 1024
"""Deltas that a worker may be sent instead of a snapshot; each is about 200 bytes of a header that has a limit."""


def size(state: State, soft: Soft, settings: EngineSettings, now: float) -> Steps:
    """Set K for the living, and pause or go on with the aggregation rule's minimum."""
    if state.final:
        return
    short = state.num_live < settings.minimum_nodes
    if short and state.num_live and not state.paused:
        reason = f"{state.num_live} live nodes, but the aggregation rule needs {settings.minimum_nodes}"
        yield Noted(now, "paused", detail={"reason": reason})
    elif not short and state.paused:
        yield Noted(now, "continued", detail={"reason": ""})
    nodes = max(settings.minimum_nodes, min(_wanted(state, soft, settings), state.num_live), 1)
    if nodes != state.buffer_size:
        why = "automatic" if settings.buffer_size is None else f"controller.buffer_size is {settings.buffer_size}"
        yield Noted(now, "buffer_size", detail={"nodes": nodes, "live": state.num_live, "why": why})
    yield from _advise(state, soft, settings, now)


def _advise(state: State, soft: Soft, settings: EngineSettings, now: float) -> Steps:
    """Say once, when a pinned K makes versions too fast for somebody's staleness bound, which one would do."""
    pinned = settings.buffer_size
    if pinned is None or not settings.asynchronous or soft.advised or state.accepted < 2 * state.num_live:
        return
    if soft.news - soft.wanted_at > state.num_live // 2:
        soft.wanted_at = soft.news
        enough = math.ceil(_automatic(state, soft, settings) / 2)  # which leaves half of each bound in hand
        if pinned < enough:
            soft.advised = True
            reason = (
                f"with speeds this far apart slow nodes' work is refused as stale; set controller.buffer_size, "
                f"which is {pinned}, to {enough} or more, or to auto"
            )
            yield Noted(now, "advice", detail={"reason": reason})


def _wanted(state: State, soft: Soft, settings: EngineSettings) -> int:
    """K if enough nodes live. An automatic one is computed anew after news of half of the living."""
    if not settings.asynchronous:
        return state.num_live
    if settings.buffer_size is not None:
        return settings.buffer_size
    if soft.wanted_at < 0 or soft.news - soft.wanted_at > state.num_live // 2:
        soft.wanted_size, soft.wanted_at = _automatic(state, soft, settings), soft.news
    return soft.wanted_size


def _automatic(state: State, soft: Soft, settings: EngineSettings) -> int:
    """The least K that keeps each node's steady staleness, sum of rates / (K * its rate), within half its bound."""
    rates = [node.rate for node in state.nodes.values() if node.live and node.rate > 0]
    if not rates:
        return 1
    bound, middle = settings.staleness.bound, median_rate(state, soft) or 1.0
    least = min(rate * bound(rate / middle) for rate in rates)
    return max(1, math.ceil(2.0 * sum(rates) / least - 1e-9)) if least > 0 else state.num_live


def close(state: State, soft: Soft, settings: EngineSettings, epoch: int, now: float) -> Steps:
    """Close the buffer if it is time."""
    if state.closing is not None or state.final or soft.interrupted is not None:
        return
    reason = _why(state, soft, settings, now)
    if not reason:
        return
    nodes = len(state.slots)
    if nodes < settings.minimum_nodes or not nodes:
        if reason == "last" and (state.stopping or state.flushing is not None) and not soft.inspecting:
            count = sum(len(s.contributions) for slots in state.slots.values() for s in slots.values())
            why = state.stopping or "too few residuals came for a version"
            yield Noted(now, "left_over", detail={"contributions": count, "reason": why})
            yield from end(state, soft, epoch, now)
        return
    if reason == "flush":
        yield Noted(now, "flushing", detail={"nodes": state.num_live})
    shares = tuple(
        SlotShare(slot.node, slot.parameters, tuple(slot.contributions))
        for slots in state.slots.values()
        for slot in slots.values()
    )
    contributions = tuple(assignment for share in shares for assignment, _ in share.contributions)
    rate, scales = _rates(state, soft, settings, shares)
    yield VersionClosed(now, state.version + 1, contributions, nodes, state.buffer_tokens, reason, rate, scales)
    yield Aggregate(epoch, state.version + 1, shares, rate, scales)
    if state.final:
        for node in list(soft.seen):
            yield Send(node, Stop(state.stopping or "the run's token budget is met"))


def _rates(
    state: State, soft: Soft, settings: EngineSettings, shares: tuple[SlotShare, ...]
) -> tuple[float, tuple[float, ...]]:
    """How far the version moves, and what of that each piece of the parameters does when there are several."""
    if not (settings.asynchronous and settings.participation):
        return 1.0, ()
    weights = [participation(state, soft, state.nodes[slot.node]) for slot in shares]
    rates = [
        min(1.0, sum(weight for slot, weight in zip(shares, weights, strict=True) if covers(slot.parameters, piece)))
        for piece in pieces(slot.parameters for slot in shares)
    ]
    rate = max(rates)
    return rate, tuple(each / rate for each in rates) if len(rates) > 1 else ()


def _why(state: State, soft: Soft, settings: EngineSettings, now: float) -> str:
    """Why the buffer closes now; empty while it does not. After `flush` it holds residuals alone, `last` is next."""
    if state.stopping:
        return "last"
    if state.tokens >= settings.tokens:
        if state.flushing is None:
            return "flush" if settings.flush else "last"
        awaited = soft.inspecting or any(node.live and node.id not in state.flushed for node in state.nodes.values())
        return "" if awaited and now < state.flushing + settings.flush_patience else "last"
    if settings.asynchronous:
        return "full" if len(state.slots) >= state.buffer_size else ""
    return _round_over(state, soft, settings, now)


def _round_over(state: State, soft: Soft, settings: EngineSettings, now: float) -> str:
    """Why the synchronous round is over; empty while it is worth waiting (what has arrived still belongs to it)."""
    if state.current == 0:
        return "all"
    if soft.inspecting:
        return ""
    if now >= state.version_time + settings.sync_longest_wait:
        return "longest wait"
    if now >= state.half_time + settings.sync_window:
        return "window"
    return ""


def deadline(state: State, soft: Soft, settings: EngineSettings) -> float:
    """When a synchronous round, or the wait for residuals, ends at the latest, in the machine's time."""
    if soft.interrupted is not None:
        return math.inf
    if state.flushing is not None and not state.final:
        return state.flushing + settings.flush_patience
    if settings.asynchronous or state.closing is not None or soft.inspecting:
        return math.inf
    if not state.slots or len(state.slots) < settings.minimum_nodes:
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
        yield Noted(now, "finished", detail={"reason": reason})
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
