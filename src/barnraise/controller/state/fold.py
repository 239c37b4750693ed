"""The effect of each decision on the controller's state; nothing else changes it durably.

`apply` is all that a replay runs: it reads no clock, no policy and no random number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from barnraise.controller.state import folding, gathering
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.state.node_estimates import learn, observe_rate, observe_travel
from barnraise.controller.state.state import (
    Badge,
    KeptFinding,
    NodeState,
    Session,
    State,
    Status,
    Tuning,
    Work,
)
from barnraise.core.types import Flush, NodeProfile
from barnraise.ledger import notes
from barnraise.ledger.decisions import (
    Assigned,
    Change,
    Decision,
    Judged,
    NodeChanged,
    Noted,
    VersionClosed,
    VersionMade,
)
from barnraise.trust.reputation import Reputation
from barnraise.trust.roles import WORKER

MOST_OPEN = 4
"""Assignments a node may have without a verdict (a worker has one running, one waiting, two unanswered), and answers
remembered for one whose acknowledgement was lost. The residual at the run's end is additional."""


def apply(state: State, decision: Decision) -> None:
    """Fold one decision into the state."""
    _APPLY[type(decision)](state, decision)


def _node_changed(state: State, d: NodeChanged) -> None:
    if d.change == Change.ENROLLED:
        state.nodes[d.node] = NodeState(d.node, Badge(d.key, d.signer, d.role or WORKER, d.owner))
        state.roster.keys[d.key] = d.node
        return
    node = state.nodes[d.node]
    if d.change in (Change.REKEYED, Change.REVOKED) and not node.works:
        state.roster.unseated = state.totals.assigned  # the committee may be another from here on
    if d.change == Change.REKEYED:
        del state.roster.keys[node.badge.key]
        node.badge = Badge(d.key, d.signer, node.badge.role, node.badge.owner)
        state.roster.keys[d.key] = d.node
        return
    if d.change == Change.JOINED:
        state.roster.live += node.works and not node.live
        presence = node.session.presence
        if not node.session.id:
            presence.first = presence.since = d.time
        elif not node.live:
            presence.since = d.time
        node.live, node.session = True, Session(d.session, d.time, d.profile or NodeProfile(), presence)
    else:
        if node.live:
            node.session.presence.before += max(0.0, d.time - node.session.presence.since)
        state.roster.live -= node.works and node.live
        node.live = False
        if d.change == Change.REVOKED:
            node.revoked = d.reason or "revoked"
            folding.drop_lost(state, d.node)


def _assigned(state: State, d: Assigned) -> None:
    lost = state.redo.pop(d.redo, None) if d.redo else None
    twin = state.works[d.redo] if d.redo and lost is None else None
    again = lost or twin
    state.totals.assigned = d.assignment
    state.totals.rows = d.cursor
    root, done = (again.root, again.done) if again is not None else (d.assignment, 0)
    work = Work(**msgspec.structs.asdict(d), root=root, done=done)
    cohorts = gathering.join(state, d, work, twin)
    if cohorts:
        work = msgspec.structs.replace(work, cohorts=cohorts)
    if twin is not None:
        state.totals.copies += 1
        state.works[d.redo] = msgspec.structs.replace(twin, cohorts=(*twin.cohorts, cohorts[-1]))
    state.works[d.assignment] = work
    if work.task.summed_only:
        state.record.digests[work.base] = state.newest.digest
    state.nodes[d.node].open.append(d.assignment)
    state.nodes[d.node].tally.turns += work.task.trains
    if work.task.trains and state.progress.spending is not None:
        state.progress.spending.assigned(d.node, d.rows, d.local_steps)
    if work.task.trains and again is None:
        for rows in d.rows:
            state.totals.handed[rows.shard] = state.totals.handed.get(rows.shard, 0) + rows.stop - rows.start
    if lost is not None and d.local_steps < lost.local_steps:
        state.redo[d.assignment] = _rest(lost, d.local_steps, d.tokens, d.assignment)


def _judged(state: State, d: Judged) -> None:
    work = state.works.pop(d.assignment)
    node = state.nodes[d.node]
    node.open.remove(d.assignment)
    elsewhere = gathering.done_elsewhere(state, work)
    if work.task is Flush:
        state.progress.flushed[d.node] = None
    node.verdicts[d.assignment] = (d.verdict == "accepted", d.reason)
    while len(node.verdicts) > MOST_OPEN:
        del node.verdicts[next(iter(node.verdicts))]
    learn(node, work, d)
    if work.task.trains:
        observe_rate(node, work, d)
        node.updates.staleness = d.staleness
    elif not (work.task.measures or work.task.contributes):
        node.speed.verdict_time = d.time  # the next task cannot have started earlier
    if d.verdict == "accepted" and work.task.measures:
        state.record.findings[d.assignment] = KeptFinding(work.at(Status.FOUND), d.claim.loss, d.weighing.weight)
    elif d.verdict == "accepted" and work.task.contributes:
        state.totals.accepted += 1
        node.tally.accepted += 1
        _contributed(state, node, work, d)
    elif d.verdict == "refused":
        state.totals.refused += 1
        node.tally.refused += 1
        if not elsewhere:
            _redo(state, work.at(Status.REFUSED))
    elif d.verdict == "discarded":
        state.totals.discarded += 1
    gathering.settle(state, work, d.verdict == "accepted", d.time)


def _contributed(state: State, node: NodeState, work: Work, d: Judged) -> None:
    """Fold an update that enters the buffer."""
    buffer, totals = state.buffer, state.totals
    slots = buffer.slots.setdefault(d.node, {})
    weight, scale, trust = msgspec.structs.astuple(d.weighing)
    trust = node.tally.reputation.weight() if trust is None else trust
    held = Held(d.assignment, weight, d.claim.codec, d.staleness, trust, scale)
    slot = slots.get(d.parameters, Slot(d.node, d.parameters))
    slots[d.parameters] = slot.plus(held, trust * d.tokens if work.task.trains else weight)
    state.merging[d.assignment] = work.at(Status.ACCEPTED, tokens=d.tokens, local_steps=d.claim.steps)
    if d.tokens < work.tokens:
        _redo(state, _rest(work, d.claim.steps, d.tokens, d.assignment))
    buffer.time = min(buffer.time, d.time)
    observe_travel(node, work)
    node.tally.tokens += d.tokens
    totals.tokens += d.tokens
    buffer.tokens += d.tokens
    totals.staleness += d.staleness


def _noted(state: State, d: Noted) -> None:
    if (change := _NOTED.get(type(d.note))) is not None:
        change(state, d, d.note)


def _started(state: State, d: Noted, note: notes.Started) -> None:
    state.newest.digest, state.newest.time = note.digest, d.time
    state.record.checkpoint_time = d.time


def _released(state: State, d: Noted, note: notes.Released) -> None:
    work = state.works.pop(note.assignment)
    state.nodes[work.node].open.remove(work.assignment)
    elsewhere = gathering.done_elsewhere(state, work)
    gathering.settle(state, work, False, d.time)
    if not elsewhere:
        _redo(state, work.at(Status.RELEASED))


def _redo(state: State, work: Work) -> None:
    """Queue work on rows to be done again; residuals and known findings are not."""
    if (
        not work.task.redone
        or state.is_lost(work)
        or (work.task.measures and state.record.evaluations and work.base <= state.record.evaluations[-1][0])
    ):
        return
    rest = state.redo.get(work.assignment)
    if rest is not None:  # the steps after it are to be done by any node
        steps, tokens = work.local_steps + rest.local_steps, work.tokens + rest.tokens
        work = work.at(Status.UNDONE, local_steps=steps, tokens=tokens)
    state.redo[work.assignment] = work


def _rest(work: Work, steps: int, tokens: int, assignment: int) -> Work:
    """Return the rest of the work after `steps` steps, which `assignment` takes."""
    left = {"local_steps": work.local_steps - steps, "tokens": work.tokens - tokens, "done": work.done + steps}
    return work.at(Status.UNDONE, assignment=assignment, **left)


def _reopened(state: State, d: Noted, note: notes.Reopened) -> None:
    work = state.redo.pop(note.assignment).at(Status.OPEN)
    state.works[work.assignment] = work
    gathering.rejoin(state, work)
    state.nodes[work.node].open.append(work.assignment)


def _voided(state: State, d: Noted, note: notes.Voided) -> None:
    """Take an unusable accepted contribution back out of its buffer and all totals, and queue its rows.

    Its node holds it no longer and was told that it counts, so to that node it is as if it were merged. A released list
    is given up with its first contribution.
    """
    work, node, closing = state.merging.pop(note.assignment), state.nodes[d.node], state.closing
    gathering.settle(state, work, False, d.time)
    if closing is not None and closing.version == note.version:
        closing.released, closing.masks, closing.endorsements = "", (), ()
        closing.tokens -= work.tokens
        closing.slots = [slot.without(work.assignment, work.tokens, work.task.trains) for slot in closing.slots]
    else:
        state.buffer.take_out(node.id, work.assignment, work.tokens, work.task.trains)
    node.updates.merged = max(node.updates.merged, work.assignment)
    state.totals.accepted -= 1
    node.tally.accepted -= 1
    state.totals.tokens -= work.tokens
    node.tally.tokens -= work.tokens
    if note.judged:
        state.totals.refused += 1
        node.tally.refused += 1
    else:
        state.totals.discarded += 1
    _redo(state, work.at(Status.VOIDED))


def _audited(state: State, d: Noted, note: notes.Audited) -> None:
    if note.sound:
        node = state.nodes[d.node]
        node.tally.reputation = node.tally.reputation.after_audit()


def _scored(state: State, d: Noted, note: notes.Scored) -> None:
    node = state.nodes[d.node]
    node.tally.reputation = node.tally.reputation.after_score(note.passed, note.suspicion)


def _convicted(state: State, d: Noted, note: notes.Sentence) -> None:
    node = state.nodes[d.node]
    node.tally.reputation = Reputation(
        node.tally.reputation.convicted + 1, math.inf if note.until is None else note.until
    )


def _left_over(state: State, d: Noted, note: notes.LeftOver) -> None:
    state.totals.accepted -= note.contributions
    state.totals.discarded += note.contributions
    state.totals.tokens -= state.buffer.tokens
    state.buffer.empty()
    state.merging, state.progress.final = {}, True
    gathering.tidy(state, list(state.cohorts))


def _tuned(state: State, d: Noted, note: notes.Tuned) -> None:
    node = state.nodes[d.node]
    node.tuning = Tuning(note.rung, note.local_steps, note.partition)


def _flushing(state: State, d: Noted, note: notes.Flushing) -> None:
    state.progress.flushing = d.time


def _evaluated(state: State, d: Noted, note: notes.Evaluated) -> None:
    """Drop the findings of the version, and lost findings of it and of earlier versions."""
    state.record.evaluations.append((note.version, math.nan if note.loss is None else note.loss))
    for number, finding in list(state.record.findings.items()):
        if finding.work.base <= note.version:
            del state.record.findings[number]
    for number, work in list(state.redo.items()):
        if work.task.measures and work.base <= note.version:
            del state.redo[number]
    gathering.tidy(state, list(state.cohorts))


_NOTED: dict[type[notes.Note], Callable[[State, Noted, Any], None]] = {
    notes.Started: _started,
    notes.SiteDeclared: folding.site_declared,
    notes.Audited: _audited,
    notes.Convicted: _convicted,
    notes.Scored: _scored,
    notes.Discredited: _convicted,
    notes.Offended: _convicted,
    notes.Released: _released,
    notes.Reopened: _reopened,
    notes.Voided: _voided,
    notes.Excluded: folding.excluded,
    notes.VersionReleased: folding.version_released,
    notes.VersionUnmasked: folding.version_unmasked,
    notes.LeftOver: _left_over,
    notes.Flushing: _flushing,
    notes.Tuned: _tuned,
    notes.Evaluated: _evaluated,
    notes.Measured: folding.measured,
    notes.Disputed: folding.disputed,
    notes.Checkpointed: folding.checkpointed,
    notes.Traffic: folding.traffic,
    notes.BufferSize: folding.buffer_size,
    notes.PrivacyBudget: folding.privacy_budget,
    notes.PrivacySpent: folding.privacy_spent,
    notes.Paused: folding.paused,
    notes.Continued: folding.paused,
    notes.HostPaused: folding.host_paused,
    notes.HostContinued: folding.host_continued,
    notes.Stopping: folding.stopping,
    notes.Finished: folding.finished,
}
"""The notes that change the state; all others are for the reader of the ledger."""

_APPLY: dict[type[Decision], Callable[[State, Any], None]] = {
    NodeChanged: _node_changed,
    Assigned: _assigned,
    Judged: _judged,
    VersionClosed: folding.version_closed,
    VersionMade: folding.version_made,
    Noted: _noted,
}
