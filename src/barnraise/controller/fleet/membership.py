"""Who takes part: joining, coming back, leaving, falling silent.

A live node holds a lease that any frame of its renews. How long it is follows from the node's own frames: one that is
silent for longer than they make likely is a suspect, which gets no more work until it is heard again, and at the end of
its lease it is gone (`detector`). Then, or when it leaves, its open work is released for others; should the node come
back before anybody took it, the work is its own again.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import structs

from barnraise.controller.fleet import role_permissions
from barnraise.controller.fleet.backoff import Backoff
from barnraise.controller.fleet.failure_detector import UNKNOWN_ROUND_TRIP, FailureDetector
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.fleet.token_bucket import TokenBucket
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
from barnraise.ledger.decisions import Change, NodeChanged, Noted
from barnraise.ledger.notes import NOT_HELD, Released, Reopened
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

LOOKS = 16
"""How often leases are looked at while one lasts: many nodes' at a time, as each look at the fleet has its price."""


MOST_DECLINED = 3
"""Work to be done anew that a node may give back in a row: after that it gets no more of it, and no measurements."""

COMMON = 3
"""Nodes that are never silent at once but by our own fault: for two heartbeats we, or our line, heard nobody. That says
nothing of their links, unless it went on until leases ended: then so much is to be expected again."""


class Membership(Part):
    """Keeps when each node was last heard, and when to look next whether its lease has ended."""

    def __init__(self, context: Context, uploads: Uploads, backoff: Backoff, speeds: Speeds) -> None:
        super().__init__(context)
        self.settings, self.leases = context.settings, context.settings.leases
        self.uploads, self.backoff, self.speeds = uploads, backoff, speeds
        self.seen: dict[str, float] = {}  # nodes that said Hello to this process, the longest silent first
        self.awaited: dict[str, None] = {}  # nodes that were live before it started and have not said Hello yet
        self.awaited_until = math.inf
        self.lease = self.lease_told = 0.0  # seconds of silence allowed, and when the fleet was last told so much
        self.heartbeat = 0.0  # seconds between frames that the fleet was told of
        self.kinds: dict[str, frozenset[str]] = {}  # of task, that a node says it can do
        self.ends: dict[str, float] = {}  # when owners want nodes back, as they say
        self.silent: dict[str, float] = {}  # when nodes were last heard whose lease then ended
        self.detectors: dict[str, FailureDetector] = {}  # what is known of nodes' frames, also while they are gone
        self.suspects: set[str] = set()  # who was passed over for work, and is to be asked about when it is heard
        self.excused: dict[str, float] = {}  # seconds of a node's silence in which nobody else was heard either
        self._heard_at = math.inf  # when anybody was
        self.joins = TokenBucket(burst=20.0, rate=0.1)  # rows that a node's greetings may cost
        self.declined: Counter[str] = Counter()  # work to be done anew that a node gave back since it last did any
        self._looks: list[tuple[float, str]] = []  # a heap: when to look next at a node's lease
        self._looked_at: set[str] = set()  # the nodes in it

    def is_unwilling(self, node: str) -> bool:
        """Whether a node gives back what others' work is judged by. It is for the life of this controller: else it
        would be asked for each case anew, until none of the nodes that a case may be given to is left."""
        return self.declined[node] >= MOST_DECLINED

    # Coming and going

    def admit(self, event: Admitted) -> Steps:
        """Put a proven key on the ledger. A name stays with the first key that proved itself for it."""
        if event.key not in self.state.keys and event.node not in self.state.nodes:
            reason = f"invite {event.invite}" if event.invite else ""
            made = NodeChanged(self.now, event.node, Change.ENROLLED, reason, key=event.key, signer=event.signer)
            yield structs.replace(made, role=event.role, owner=event.owner)
            yield Send(event.node, Enrolled(event.node))

    def rekey(self, event: Rekeyed) -> Steps:
        """The node goes on under new keys; the old ones are nobody's any more."""
        known = self.state.nodes.get(event.node)
        if known is not None and not known.revoked and event.key not in self.state.keys:
            yield NodeChanged(self.now, event.node, Change.REKEYED, key=event.key, signer=event.signer)
            yield Send(event.node, Enrolled(event.node))

    def hello(self, node: str, message: Hello, over: bool) -> Steps:
        """A worker says who it is and what it holds: agree with it on what is open, answered and forgotten.

        A worker of a run that is `over` for it is told so."""
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
            self._listen()
            if node in self.excused:
                self.backoff.pardon(node)
            reason = "came back" if known.session.id else ""
            yield NodeChanged(
                self.now, node, Change.JOINED, reason, session=message.session, profile=message.profile
            )  # fmt: skip
            yield from self.backoff.told(node)
        self._listen()
        self.excused.pop(node, None)
        detector = self.detectors.setdefault(node, FailureDetector(self.leases.longest))
        silent = self.silent.pop(node, None)
        if node not in self.seen:
            self._look_at(node, self.now + self.intervals()[1])
            if silent is not None and not restarted:  # it was there all the time: its frames were late
                detector.learn(self.now, self.now - silent - self.heartbeat)
        yield Forgotten(node)
        self.seen[node], self.kinds[node] = self.now, role_permissions.tasks(known.badge.role, message.kinds)
        if message.lent > 0.0:
            self.ends[node] = self.now + message.lent
        yield from self._agree(known, message)

    def _agree(self, known: NodeState, message: Hello) -> Steps:
        """Let go what it does not hold, give back what nobody took, tell it what is not its own any more."""
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
        yield from self._answer_pending(node, message)  # before the Welcome: what is answered is not uploaded again
        settings, intervals = self.settings, self.intervals(node)
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
        """The node is gone: its open work is for others."""
        yield Forgotten(node)
        if self.state.nodes[node].live:
            yield NodeChanged(self.now, node, how, reason)
            yield from self._release_all(node, reason)

    def revoke(self, event: RevokeRequested) -> Steps:
        """The node is out for good: its key and its name are let in no more. What it did before stays as it is."""
        known = self.state.nodes.get(event.node)
        if known is not None and not known.revoked:
            yield Forgotten(event.node)
            yield NodeChanged(self.now, event.node, Change.REVOKED, event.reason)
            yield from self._release_all(event.node, "revoked")
            yield turned_away(known)
        yield Changed()

    def can(self, node: str, kind: str) -> bool:
        """Whether the node takes tasks of that kind on."""
        return kind in self.kinds.get(node, ())

    def left(self, node: str) -> float:
        """Seconds for which the node is lent yet, as it says: infinite where it says nothing, or says so no more."""
        ends = self.ends.get(node, math.inf)
        return ends - self.now if ends > self.now else math.inf

    def has_time(self, node: NodeState, effort: float) -> bool:
        """Whether a node can do so much before its owner wants it back, as far as its speed was seen."""
        return effort <= self.left(node.id) * (node.speed.rate or math.inf)

    def _release_all(self, node: str, reason: str) -> Steps:
        """Let others do the node's open work, but for what has arrived and is being inspected."""
        for assignment in list(self.state.nodes[node].open):
            if assignment not in self.uploads.inspecting:
                yield from self.release(node, assignment, reason)

    def release(self, node: str, assignment: int, reason: str) -> Steps:
        """Open work is not the node's any more."""
        yield from self.uploads.drop(node, assignment)
        yield Noted(self.now, Released(assignment, reason), node)

    def await_back(self, grace: float) -> Steps:
        """After a restart: who was live has `grace` seconds beyond a lease to say Hello, who was not has nothing
        open."""
        self.awaited_until = self.now + self.leases.intervals(self.state.num_live)[1] + grace
        for node in self.state.nodes.values():
            if node.live:
                self.awaited[node.id] = None
            else:
                yield from self._release_all(node.id, "the node has left")

    def forget(self, node: str) -> None:
        self.seen.pop(node, None)
        self.kinds.pop(node, None)
        self.ends.pop(node, None)
        self.awaited.pop(node, None)
        self.suspects.discard(node)

    # Leases

    def heard(self, node: str) -> bool:
        """A frame of the node renews its lease, and says how late its frames come. Whether it was passed over as a
        suspect: then it may get work now."""
        now = self.context.now
        if now - self._heard_at > 2.0 * self.heartbeat:
            self._listen()
        else:
            self._heard_at = now
        seen = self.seen.pop(node, None)
        if seen is not None:
            self.seen[node] = now
            if self.excused:
                seen += self.excused.pop(node, 0.0)
            self.detectors[node].heard(now, now - seen, self.heartbeat)
        if self.suspects and node in self.suspects:
            self.suspects.remove(node)
            return True
        return False

    def _heard(self, event: Heard | Arrived) -> Steps:
        if self.heard(event.node):
            yield Changed()

    def _heartbeat(self, node: str, message: Heartbeat) -> Steps:
        yield Send(node, Pulse(message.sent, *self.intervals(node)))
        if message.telemetry is not None:
            yield Reported(node, message.telemetry)

    def _listen(self) -> None:
        """Somebody is heard again, perhaps after a time in which nobody was: that says nothing of anybody's link."""
        since, self._heard_at = self._heard_at, self.context.now
        if self.context.now - since > 2.0 * self.heartbeat:
            quiet = [*self.seen, *(node for node, seen in self.silent.items() if seen > since - self.lease)]
            if len(quiet) >= COMMON:
                for node in quiet:
                    self.excused[node] = self.excused.get(node, 0.0) + self.context.now - since

    def excuse(self, seconds: float) -> None:
        self.seen = {node: seen + seconds for node, seen in self.seen.items()}
        self.awaited_until += seconds

    def suspected(self, node: str) -> bool:
        """Whether a node that takes part is silent for longer than its frames so far make likely."""
        return self._silent_too_long(node, self.context.now)

    def suspected_at(self, now: float) -> list[str]:
        """All such nodes, at a time that may be later than that of the event in hand."""
        return [node for node in self.seen if self._silent_too_long(node, now)]

    def _silent_too_long(self, node: str, now: float) -> bool:
        silence = now - self.seen[node]
        return silence > self.heartbeat and silence > self.detectors[node].suspicion(
            self.heartbeat, self._round_trip(node)
        )

    def passed_over(self, node: str) -> bool:
        """Whether the node, which asks for work, gets none since it is suspected: until it is heard."""
        if self.suspected(node):
            self.suspects.add(node)
            return True
        return False

    def intervals(self, node: str | None = None) -> tuple[float, float]:
        """Heartbeat and lease of the fleet, or the lease of a node, which waits as long for us. When the fleet shrinks,
        the longer lease holds on for as long as it is: nodes that were told of it must not seem silent."""
        now, (heartbeat, lease) = self.context.now, self.leases.intervals(self.state.num_live)
        if lease >= self.lease or now >= self.lease_told + self.lease:
            self.lease, self.lease_told, self.heartbeat = lease, now, heartbeat
        if node is None or node not in self.speeds.links:  # what is not known of its link is no reason for it to wait
            return heartbeat, lease
        return heartbeat, self._lease(node, lease)

    def _lease(self, node: str, lease: float) -> float:
        """The fleet's, and more for a link that is slow or uneven, within the run file's bounds. What the node says of
        its link moves its own lease alone."""
        if lease >= self.leases.longest:
            return lease
        return self.detectors[node].patience(self.context.now, self.heartbeat, lease, self._round_trip(node))

    def _round_trip(self, node: str) -> float:
        link = self.speeds.links.get(node)
        return UNKNOWN_ROUND_TRIP if link is None else link.round_trip

    def _look_at(self, node: str, time: float) -> None:
        """Look then, or a little later, whether the node's lease has ended, if that is not planned already."""
        if node not in self._looked_at:
            step = self.lease / LOOKS
            self._looked_at.add(node)
            heapq.heappush(self._looks, (max(time, math.ceil(time / step) * step), node))

    def deadline(self) -> float:
        """When to look next for leases that have ended."""
        return min(self._looks[0][0] if self._looks else math.inf, self.awaited_until if self.awaited else math.inf)

    def expire(self) -> Steps:
        """Let go of every node whose lease has ended."""
        self.intervals()
        while self.deadline() <= self.now:
            if self.now >= self.awaited_until and self.awaited:
                yield from self.gone(next(iter(self.awaited)), "did not come back after the restart", Change.MISSING)
                continue
            _, node = heapq.heappop(self._looks)
            self._looked_at.remove(node)
            seen = self.seen.get(node)
            if seen is None:
                continue
            ends = seen + self._lease(node, self.lease)
            if ends > self.now:
                self._look_at(node, ends)
            else:
                self.silent[node] = seen
                yield from self.gone(node, f"silent for {self.now - seen:.1f} s", Change.SILENT)

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
    """The answer to whatever a revoked node says."""
    reason = f"the host revoked this machine's membership: {node.revoked}"
    return Send(node.id, Stop(reason, final=False, refusal=FOR_GOOD))


def _foreign(protocol: int) -> str:
    return (
        f"protocol version {protocol} is not spoken here, only {PROTOCOL_VERSION}: "
        "install the barnraise version of the controller"
    )
