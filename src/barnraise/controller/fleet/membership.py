"""Membership: nodes that join, return, leave, or fall silent.

A live node holds a lease, which ends when the node is silent for too long (`leases`). Then, or when the node leaves,
its open work is released for others. If it returns before another node takes that work, the work is its own again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from msgspec import structs

from barnraise.controller.fleet.backoff import Backoff
from barnraise.controller.fleet.leases import Leases
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.fleet.uploads import Uploads
from barnraise.controller.state.actions import Send
from barnraise.controller.state.events import (
    Admitted,
    Arrived,
    Changed,
    Event,
    Forgotten,
    Heard,
    Lost,
    Rekeyed,
    Reported,
    RevokeRequested,
)
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.state import NodeState, Status
from barnraise.core.token_bucket import TokenBucket
from barnraise.ledger.decisions import Change, NodeChanged, Noted
from barnraise.ledger.notes import NOT_HELD, Released, Reopened
from barnraise.trust.roles import tasks_of
from barnraise.wire.messages import (
    FOR_GOOD,
    PROTOCOL_VERSION,
    Ack,
    Enrolled,
    Heartbeat,
    Hello,
    Leave,
    Message,
    Pulse,
    Stop,
    Term,
    Welcome,
)

MOST_DECLINED = 3
"""Audits that a node may give back in a row: after that it gets no more of them, and no measurements."""


class Membership(Part):
    """Decides which nodes take part, and releases the open work of lost ones."""

    def __init__(
        self, context: Context, records: NodeRecords, leases: Leases, uploads: Uploads, backoff: Backoff
    ) -> None:
        super().__init__(context)
        self.settings = context.settings
        self.records, self.leases, self.uploads, self.backoff = records, leases, uploads, backoff
        self.awaited: dict[str, None] = {}  # nodes that were live before it started and have not said Hello yet
        self.awaited_until = math.inf
        self.joins = TokenBucket(burst=20.0, rate=0.1)  # rows that a node's greetings may cost

    def is_unwilling(self, node: str) -> bool:
        """Return whether a node gives back audits.

        It is for the life of this controller: else it would be asked for each case again, until none of the nodes that
        a case may be given to is left.
        """
        return self.records[node].conduct.declined >= MOST_DECLINED

    # Arrivals and departures

    def admit(self, event: Admitted) -> Steps:
        """Put a proven key on the ledger.

        A name stays with the first key that proved itself for it.
        """
        if event.key not in self.state.roster.keys and event.node not in self.state.nodes:
            reason = f"invite {event.invite}" if event.invite else ""
            made = NodeChanged(self.now, event.node, Change.ENROLLED, reason, key=event.key, signer=event.signer)
            yield structs.replace(made, role=event.role, owner=event.owner)
            yield Send(event.node, Enrolled(event.node))

    def rekey(self, event: Rekeyed) -> Steps:
        """Give the node new keys; the old ones are free."""
        known = self.state.nodes.get(event.node)
        if known is not None and not known.revoked and event.key not in self.state.roster.keys:
            yield NodeChanged(self.now, event.node, Change.REKEYED, key=event.key, signer=event.signer)
            yield Send(event.node, Enrolled(event.node))

    def hello(self, node: str, message: Hello, over: bool) -> Steps:
        """Handle a worker's greeting: agree with it on open, answered and forgotten work.

        A worker of a run that is `over` for it is told so.
        """
        if message.protocol != PROTOCOL_VERSION:
            yield Send(node, Stop(_foreign(message.protocol), refusal=FOR_GOOD))
            return
        if over:
            yield from self._answer_pending(node, message)
            yield Send(node, Stop(self.state.progress.finished or "the run's token budget is met"))
            return
        known = self.state.nodes[node]
        restarted = message.session != known.session.id
        if restarted or not known.live or message.profile != known.session.profile:
            if not self.joins.take(node, self.now):
                return  # it comes and goes too often: it will ask again
            self.leases.listen()
            if self.records[node].frames.excused:
                self.backoff.pardon(node)
            reason = "came back" if known.session.id else ""
            yield NodeChanged(
                self.now, node, Change.JOINED, reason, session=message.session, profile=message.profile
            )  # fmt: skip
        record = self.records[node]
        self.leases.greeted(record, restarted)
        yield Forgotten(node)
        record.frames.seen, self.records.present[node] = self.now, record
        record.session.kinds = tasks_of(known.badge.role, message.kinds)
        if message.lent > 0.0:
            record.session.lent_until = self.now + message.lent
        yield from self._agree(known, message)

    def _agree(self, known: NodeState, message: Hello) -> Steps:
        """Release work that it does not hold, return work that no node took, and tell it of work that others have."""
        node, held = known.id, set(message.pending) | set(message.working)
        for assignment in list(known.open):
            if assignment not in held and assignment not in self.uploads.inspecting:
                yield from self.release(node, assignment, NOT_HELD)
        forget = []
        for assignment in sorted(held):
            if assignment in self.state.works:
                continue
            lost = self.state.redo.get(assignment)
            own = lost is not None and lost.node == node and lost.stage is Status.RELEASED
            if own and assignment not in known.verdicts:
                yield Noted(self.now, Reopened(assignment), node)
            elif assignment not in known.verdicts:
                forget.append(assignment)
        yield from self._answer_pending(node, message)  # before the Welcome: answered results are not uploaded again
        settings, intervals = self.settings, self.leases.intervals(node)
        yield Send(
            node,
            Welcome(
                settings.run.name,
                node,
                message.greeting,
                settings.worker,
                settings.manifest,
                *intervals,
                forget=tuple(forget),
                term=Term(self.context.epoch),
                version=self.state.newest.version,
                digest=self.state.newest.digest or None,
                assigned=self.state.totals.assigned,
            ),
        )

    def _answer_pending(self, node: str, message: Hello) -> Steps:
        verdicts = self.state.nodes[node].verdicts
        for assignment in message.pending:
            if assignment in verdicts:
                yield Send(node, Ack(assignment, *verdicts[assignment]))

    def leave(self, node: str, message: Leave) -> Steps:
        yield from self.gone(node, message.reason or "left", Change.LEFT)
        yield Changed()

    def lost(self, event: Lost) -> Steps:
        if event.node in self.state.nodes:
            yield from self.gone(event.node, event.reason, event.how)
            yield Changed()

    def gone(self, node: str, reason: str, how: Change) -> Steps:
        """Remove a node, and release its open work for others."""
        yield Forgotten(node)
        if self.state.nodes[node].live:
            yield NodeChanged(self.now, node, how, reason)
            yield from self._release_all(node, reason)

    def revoke(self, event: RevokeRequested) -> Steps:
        """Exclude the node permanently: its key and its name are not admitted again.

        Its earlier work stays.
        """
        known = self.state.nodes.get(event.node)
        if known is not None and not known.revoked:
            yield Forgotten(event.node)
            yield NodeChanged(self.now, event.node, Change.REVOKED, event.reason)
            yield from self._release_all(event.node, "revoked")
            yield turned_away(known)
        yield Changed()

    def can(self, node: str, kind: str) -> bool:
        """Whether the node takes part and takes tasks of that kind on."""
        record = self.records.present.get(node)
        return record is not None and kind in record.session.kinds

    def left(self, node: str) -> float:
        """Return the seconds for which the node is still lent, by its claim; infinite without one."""
        record = self.records.present.get(node)
        if record is None or record.session.lent_until == math.inf:
            return math.inf
        left = record.session.lent_until - self.now
        return left if left > 0.0 else math.inf

    def has_time(self, node: NodeState, effort: float) -> bool:
        """Return whether a node can do `effort` before its owner wants it back, at its observed speed."""
        return effort <= self.left(node.id) * (node.speed.rate or math.inf)

    def _release_all(self, node: str, reason: str) -> Steps:
        """Release the node's open work, but for results that have arrived and are being inspected."""
        for assignment in list(self.state.nodes[node].open):
            if assignment not in self.uploads.inspecting:
                yield from self.release(node, assignment, reason)

    def release(self, node: str, assignment: int, reason: str) -> Steps:
        """Release open work from its node."""
        yield from self.uploads.drop(node, assignment)
        yield Noted(self.now, Released(assignment, reason), node)

    def await_back(self, grace: float) -> Steps:
        """Wait after a restart: nodes that were live have `grace` seconds beyond a lease to say Hello.

        Others have no open work.
        """
        self.awaited_until = self.now + self.settings.leases.intervals(self.state.num_live)[1] + grace
        for node in self.state.nodes.values():
            if node.live:
                self.awaited[node.id] = None
            else:
                yield from self._release_all(node.id, "the node has left")

    def forget(self, node: str) -> None:
        self.awaited.pop(node, None)

    def excuse(self, seconds: float) -> None:
        self.awaited_until += seconds

    def deadline(self) -> float:
        """Return when to check next for leases that have ended."""
        return min(self.leases.next_look, self.awaited_until if self.awaited else math.inf)

    def expire(self) -> Steps:
        """Let go of every node whose lease has ended, or that did not come back after a restart."""
        while self.awaited and self.awaited_until <= self.now:
            yield from self.gone(next(iter(self.awaited)), "did not come back after the restart", Change.MISSING)
        for node, silence in self.leases.ended():
            yield from self.gone(node, f"silent for {silence:.1f} s", Change.SILENT)

    def _heard(self, event: Heard | Arrived) -> Steps:
        if self.leases.heard(self.records.present.get(event.node)):
            yield Changed()

    def _heartbeat(self, node: str, message: Heartbeat) -> Steps:
        yield Send(node, Pulse(message.sent, *self.leases.intervals(node)))
        if message.telemetry is not None:
            yield Reported(node, message.telemetry)

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {
            Admitted: self.admit,
            Rekeyed: self.rekey,
            Lost: self.lost,
            RevokeRequested: self.revoke,
            Heard: self._heard,
            Arrived: self._heard,
        }

    def messages(self) -> dict[type[Message], Callable[[str, Any], Steps]]:
        return {Leave: self.leave, Heartbeat: self._heartbeat}


def turned_away(node: NodeState) -> Send:
    """Return the answer to any message of a revoked node."""
    reason = f"the host revoked this machine's membership: {node.revoked}"
    return Send(node.id, Stop(reason, final=False, refusal=FOR_GOOD))


def _foreign(protocol: int) -> str:
    return (
        f"protocol version {protocol} is not spoken here, only {PROTOCOL_VERSION}: "
        "install the barnraise version of the controller"
    )
