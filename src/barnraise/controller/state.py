"""The controller's state, and how each decision changes it. Nothing else changes it durably.

`apply` is all that a replay runs: it reads no clock, no policy and no random number. What is not decided but merely
observed (who asked for work, when a node was last heard) lives in `Soft` and starts empty after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from barnraise.controller.events import InterruptRequested
from barnraise.core.types import Contribution, LinkReport, NodeProfile, ParameterRange, RowRange, Update
from barnraise.ledger.decisions import Assigned, Decision, Judged, NodeChanged, Noted, VersionClosed, VersionMade
from barnraise.matching.base import TaskView

RATE_SMOOTHING = 0.3
"""Weight of the newest observation in the EWMAs of a node's tokens and seconds."""

MOST_OPEN = 4
"""Assignments a node may have without a verdict (a worker has one running, one waiting, two unanswered), and answers
remembered for one whose acknowledgement was lost. The residual at the run's end comes on top."""

REMEMBERED_TIMES = 8
"""Step times of a node that the literal pace looks back on."""


class Work(msgspec.Struct):
    """An assignment that has no verdict yet, or whose work was lost and waits to be done again."""

    assignment: int
    node: str
    kind: str
    base: int
    max_staleness: int
    tokens: int
    local_steps: int
    rows: tuple[RowRange, ...]
    parameters: ParameterRange
    time: float
    rung: int = 0


class NodeState(msgspec.Struct):
    """What the ledger says about one node."""

    id: str
    key: str = ""
    live: bool = False
    revoked: str = ""  # why the host wants it in the run no more
    session: int = 0
    profile: NodeProfile = NodeProfile()
    rate: float = 0.0  # tokens a second: the profile's claim until work was observed, then EWMA tokens / EWMA seconds
    rate_tokens: float = 0.0
    rate_seconds: float = 0.0
    turns: int = 0  # training tasks so far
    step_seconds: list[float] = []  # its newest contributions'
    last_verdict_time: float = 0.0
    rung: int = 0  # as tuned to its link, like the steps its tasks have at least and whose ranges take turns
    least_steps: int = 0
    partition: int = 0
    open: list[int] = []
    verdicts: dict[int, tuple[bool, str]] = {}
    accepted: int = 0
    refused: int = 0
    tokens: int = 0
    last_staleness: int = 0
    merged: int = 0  # its newest contribution that is in a version
    waited: float = 0.0  # seconds that this one then waited for the others', if it was the only one of its round


class SlotState(msgspec.Struct):
    """One node's accepted contributions in the open buffer, for one range of the parameters."""

    node: str
    parameters: ParameterRange
    contributions: list[tuple[int, float]] = []


class State(msgspec.Struct):
    """Everything the ledger says. Totals are over the whole run, across restarts."""

    nodes: dict[str, NodeState] = {}
    keys: dict[str, str] = {}
    works: dict[int, Work] = {}
    current: int = 0  # works that started from the newest version
    redo: dict[int, Work] = {}  # lost work, the longest lost first
    slots: dict[str, dict[ParameterRange, SlotState]] = {}  # the open buffer, by node
    version: int = 0
    version_time: float = 0.0
    half_time: float = math.inf  # when half of the living had contributed to the open buffer
    digest: str = ""
    closing: VersionClosed | None = None
    closing_slots: list[SlotState] = []
    last_assignment: int = 0
    cursor: int = 0
    num_live: int = 0
    buffer_size: int = 0
    buffer_tokens: int = 0
    tokens: int = 0  # in accepted contributions
    version_tokens: int = 0  # in versions
    accepted: int = 0
    refused: int = 0
    discarded: int = 0
    staleness_sum: int = 0
    evaluations: list[tuple[int, float]] = []
    checkpoint: int = -1
    checkpoint_time: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    paused: str = ""
    stopping: str = ""
    flushing: float | None = None  # since when the budget is met and nothing but residuals is wanted
    flushed: dict[str, None] = {}  # nodes whose residual has come
    final: bool = False
    finished: str = ""


class Soft:
    """What was observed since this process started, and may be forgotten with it."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}  # nodes that said Hello to this process, the longest silent first
        self.awaited: dict[str, None] = {}  # nodes that were live before it started and have not said Hello yet
        self.awaited_until = math.inf
        self.lease = self.lease_told = 0.0  # seconds of silence allowed, and when the fleet was last told so much
        self.asking: dict[str, int] = {}  # node -> version it has
        self.links: dict[str, LinkReport] = {}
        self.resting: dict[str, int] = {}  # those that wait for a version (without overlap)
        self.watching: dict[str, int] = {}  # nodes that train and want to know of a newer version than they have
        self.told: dict[str, int] = {}  # the version that such a node has once what was sent has arrived
        self.fresh: list[TaskView] = []  # as many as were ever offered at once
        self.inspecting: dict[int, tuple[Contribution, int]] = {}  # -> offer, version at its arrival
        self.evaluating = False
        self.checkpointing = False
        self.interrupted: InterruptRequested | None = None
        self.updates: dict[int, Update] = {}  # version -> the delta that leads to it, while worth sending
        self.update_bytes = 0
        self.news = 0  # joins, departures and verdicts so far: each changes a rate or who is alive
        self.median_rate = self.total_rate = 0.0  # over the living
        self.round_seconds = 0.0  # of a round at the fleet's pace; 0 while no rate is known
        self.usual_staleness = 0.0  # of the median node
        self.rates_at = self.paced_at = -1  # news when the rates and the round were computed
        self.wanted_size, self.wanted_at = 1, -1  # K if enough nodes live, likewise
        self.advised = False  # that a pinned K is too small


def apply(state: State, decision: Decision) -> None:
    """Fold one decision into the state."""
    _APPLY[type(decision)](state, decision)


def _node_changed(state: State, d: NodeChanged) -> None:
    if d.change == "enrolled":
        state.nodes[d.node] = NodeState(d.node, key=d.key, step_seconds=[], open=[], verdicts={})
        state.keys[d.key] = d.node
        return
    node = state.nodes[d.node]
    if d.change == "joined":
        state.num_live += not node.live
        node.live, node.session = True, d.session
        node.profile = d.profile or NodeProfile()
        if node.rate_seconds == 0.0:
            node.rate = node.profile.tokens_per_second
    else:
        state.num_live -= node.live
        node.live = False
        if d.change == "revoked":
            node.revoked = d.reason


def _assigned(state: State, d: Assigned) -> None:
    if d.redo:
        del state.redo[d.redo]
    state.last_assignment = d.assignment
    state.cursor = d.cursor
    state.works[d.assignment] = Work(
        d.assignment,
        d.node,
        d.kind,
        d.base,
        d.max_staleness,
        d.tokens,
        d.local_steps,
        d.rows,
        d.parameters,
        d.time,
        d.rung,
    )
    state.nodes[d.node].open.append(d.assignment)
    state.nodes[d.node].turns += d.kind == "train"
    state.current += d.base == state.version


def _judged(state: State, d: Judged) -> None:
    work = state.works.pop(d.assignment)
    state.current -= work.base == state.version
    node = state.nodes[d.node]
    node.open.remove(d.assignment)
    if work.kind == "flush":
        state.flushed[d.node] = None
    node.verdicts[d.assignment] = (d.verdict == "accepted", d.reason)
    while len(node.verdicts) > MOST_OPEN:
        del node.verdicts[next(iter(node.verdicts))]
    if work.kind == "train":
        _observe_rate(node, work, d.time)
        node.last_staleness = d.staleness
    if d.verdict == "accepted":
        slots = state.slots.setdefault(d.node, {})
        slot = slots.get(d.parameters)
        if slot is None:
            slot = slots[d.parameters] = SlotState(d.node, d.parameters, [])
        slot.contributions.append((d.assignment, d.weight))
        if state.half_time == math.inf and 2 * len(state.slots) >= state.num_live:
            state.half_time = d.time
        state.accepted += 1
        node.accepted += 1
        node.tokens += d.tokens
        state.tokens += d.tokens
        state.buffer_tokens += d.tokens
        state.staleness_sum += d.staleness
    elif d.verdict == "refused":
        state.refused += 1
        node.refused += 1
        _redo(state, work)
    else:
        state.discarded += 1


def _observe_rate(node: NodeState, work: Work, time: float) -> None:
    """Smooth tokens and seconds apart: two contributions at once after an outage are no sign of great speed."""
    elapsed = time - max(work.time, node.last_verdict_time)
    node.last_verdict_time = time
    node.rate_tokens += RATE_SMOOTHING * (work.tokens - node.rate_tokens)
    node.rate_seconds += RATE_SMOOTHING * (elapsed - node.rate_seconds)
    node.step_seconds = [*node.step_seconds[1 - REMEMBERED_TIMES :], elapsed / max(1, work.local_steps)]
    if node.rate_seconds > 0.0:
        node.rate = node.rate_tokens / node.rate_seconds


def _version_closed(state: State, d: VersionClosed) -> None:
    state.closing = d
    state.closing_slots = [slot for slots in state.slots.values() for slot in slots.values()]
    for name, slots in state.slots.items():
        node, count = state.nodes[name], sum(len(slot.contributions) for slot in slots.values())
        node.waited = d.time - node.last_verdict_time if count == 1 else 0.0
    state.slots, state.buffer_tokens, state.half_time = {}, 0, math.inf
    if d.reason == "last":
        state.final = True


def _version_made(state: State, d: VersionMade) -> None:
    assert state.closing is not None
    assert state.closing.version == d.version
    state.version, state.digest, state.version_time = d.version, d.digest, d.time
    state.current = 0
    state.version_tokens += state.closing.tokens
    for slot in state.closing_slots:
        node = state.nodes[slot.node]
        node.merged = max(node.merged, *(assignment for assignment, _ in slot.contributions))
    state.closing, state.closing_slots = None, []


def _noted(state: State, d: Noted) -> None:
    change = _NOTED.get(d.kind)
    if change is not None:
        change(state, d)


def _started(state: State, d: Noted) -> None:
    state.digest, state.version_time = d.detail["digest"], d.time
    state.checkpoint_time = d.time


def _released(state: State, d: Noted) -> None:
    work = state.works.pop(d.detail["assignment"])
    state.current -= work.base == state.version
    state.nodes[work.node].open.remove(work.assignment)
    _redo(state, work)


def _redo(state: State, work: Work) -> None:
    """Rows can be trained on by somebody else; a residual is nobody else's."""
    if work.kind == "train":
        state.redo[work.assignment] = work


def _reopened(state: State, d: Noted) -> None:
    work = state.redo.pop(d.detail["assignment"])
    state.works[work.assignment] = work
    state.current += work.base == state.version
    state.nodes[work.node].open.append(work.assignment)


def _left_over(state: State, d: Noted) -> None:
    state.accepted -= d.detail["contributions"]
    state.discarded += d.detail["contributions"]
    state.tokens -= state.buffer_tokens
    state.slots, state.buffer_tokens, state.final = {}, 0, True


def _tuned(state: State, d: Noted) -> None:
    node = state.nodes[d.node]
    node.rung, node.least_steps = d.detail["rung"], d.detail["local_steps"]
    node.partition = d.detail.get("partition", 0)


def _flushing(state: State, d: Noted) -> None:
    state.flushing = d.time


def _evaluated(state: State, d: Noted) -> None:
    loss = d.detail["loss"]
    state.evaluations.append((d.detail["version"], math.nan if loss is None else loss))


def _checkpointed(state: State, d: Noted) -> None:
    state.checkpoint, state.checkpoint_time = d.detail["version"], d.time


def _traffic(state: State, d: Noted) -> None:
    state.bytes_up, state.bytes_down = d.detail["up"], d.detail["down"]


def _set(name: str, key: str) -> Callable[[State, Noted], None]:
    def change(state: State, d: Noted) -> None:
        setattr(state, name, d.detail[key])

    return change


_NOTED = {
    "started": _started,
    "released": _released,
    "reopened": _reopened,
    "left_over": _left_over,
    "flushing": _flushing,
    "tuned": _tuned,
    "evaluated": _evaluated,
    "checkpointed": _checkpointed,
    "traffic": _traffic,
    "buffer_size": _set("buffer_size", "nodes"),
    "paused": _set("paused", "reason"),
    "continued": _set("paused", "reason"),
    "stopping": _set("stopping", "reason"),
    "finished": _set("finished", "reason"),
}
"""The kinds of `Noted` that change the state; all others are for the reader of the ledger."""

_APPLY: dict[type[Decision], Callable[[State, Any], None]] = {
    NodeChanged: _node_changed,
    Assigned: _assigned,
    Judged: _judged,
    VersionClosed: _version_closed,
    VersionMade: _version_made,
    Noted: _noted,
}
