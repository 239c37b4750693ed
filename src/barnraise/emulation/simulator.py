"""A whole cluster under virtual time: the same state machines in another shell.

Every message takes its link's latency and its bytes' time; all work takes the time of the machine's rate or of the work
itself (`work.NodeWork`, `work.ControllerWork`), and yields sizes alone (cost-only) or real tensors. One seed, one
history: the ledger's hash over all decisions proves it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from barnraise.controller.machine import Controller
from barnraise.controller.state import actions as ca
from barnraise.controller.state import effects
from barnraise.controller.state import events as ce
from barnraise.core.types import Contribution
from barnraise.emulation.access import Access
from barnraise.emulation.chances import Chances
from barnraise.emulation.churn import MakeChurn
from barnraise.emulation.effects import EFFECTS
from barnraise.emulation.event_queue import EventQueue
from barnraise.emulation.fleet import Machine
from barnraise.emulation.node import MESSAGE_BYTES, Node
from barnraise.emulation.work import ControllerWork, MakeNodeWork
from barnraise.ledger import notes
from barnraise.ledger.decisions import Decision, Judged, Noted, VersionMade
from barnraise.ledger.rows import LedgerHash
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import Assign, Newer, Offer, SendPayload

ARRIVALS = 1.0
"""Seconds over which the fleet starts."""

SETTLING = 120.0
"""Seconds in which a node's first message has to arrive, while a run waits for it."""


Observer = Callable[[float, Decision], None]


class Point(NamedTuple):
    """A version that was evaluated: virtual seconds when it was the newest, tokens, loss, bytes on all links.

    The loss is the held-out one (None: not finite), the others are as of then.
    """

    seconds: float
    tokens: int
    loss: float | None
    bytes_up: int
    bytes_down: int


class Simulator(EventQueue):
    """Drives `controller` and a fleet until the run finishes.

    `node_work` makes a node's work, by its name. With `churn` nodes leave without notice and return. `access` is the
    controller's own line, up and down, in bytes a second. Each of the `observers` gets the time and the decision, for
    every decision in order.
    """

    def __init__(
        self,
        controller: Controller,
        fleet: Sequence[Machine],
        work: ControllerWork,
        node_work: MakeNodeWork,
        *,
        seed: int,
        access: tuple[float, float] = (math.inf, math.inf),
        churn: MakeChurn | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        super().__init__()
        self.controller, self.work, self.node_work = controller, work, node_work
        self.outbound, self.inbound = map(Access, access)
        self.chances = Chances(seed)
        self.nodes = {spec.name: Node(spec, self, node_work(spec.name)) for spec in fleet}
        self.churn = churn(self.chances) if churn else None
        self.files = work.files()
        self.file_bits = {blob.digest: 1 << index for index, blob in enumerate(self.files)}
        self.ledger_hash, self.observers = LedgerHash(), list(observers)
        self.events, self.end, self.failed = 0, "", False
        self.bytes_up = self.bytes_down = self.max_staleness = 0
        self.curve: list[Point] = []
        self.first_task = math.inf, 0
        self.skew = 0.0  # seconds by which the controller's clock is ahead
        self._tick_at, self._decided = math.inf, True
        self._inspector_free = 0.0
        self.payloads: dict[tuple[str, int], Buffer] = {}
        self._brought: set[tuple[str, int]] = set()  # offers in hand with their payloads attached
        self._payload_bytes: dict[int, int] = {}  # sizes of contributions that are in no version yet
        self._newest: tuple[float, effects.Aggregated] | None = None  # version, and the seconds that it takes
        self._made: dict[int, Point] = {}  # versions that may still be evaluated, with their times
        self._expected = 0  # nodes that have yet to start
        self._coming: set[str] = set()  # nodes that are planned to return
        self._until = math.inf

    def run(self, digest: str, until: float = math.inf) -> None:
        """Play the run from its start, whose parameters hash to `digest`, for `until` seconds at most."""
        self._begin(self.controller.start(digest, 0.0))
        for node in self.nodes.values():
            self._expect(node)
        self._until = until
        self.advance(until)
        if not self.stopped:
            self._stop("the time is up" if until < math.inf else "no node is left")
            self.now = until if until < math.inf else self.now

    def _begin(self, actions: list[ca.Action]) -> None:
        """Carry out the controller's first actions."""
        self._carry_out(actions)

    def progress(self) -> float:
        """Return the share of the time, or of the token budget, that is done.

        Any thread may call it.
        """
        state = self.controller.state
        return (
            self.now / self._until if self._until < math.inf else state.totals.tokens / self.controller.settings.tokens
        )

    def utilisation(self) -> float:
        """Return the seconds of training that entered the model over the seconds that nodes were up."""
        up = sum(node.uptime(self.now) for node in self.nodes.values())
        return sum(node.busy_seconds for node in self.nodes.values()) / up if up else 0.0

    # Arrivals and departures of nodes

    def _expect(self, node: Node) -> None:
        """Enrol a node now and plan its start."""
        self.handle(ce.Admitted(node.spec.name, f"key of {node.spec.name}", owner=node.spec.owner))
        delay = self.churn.first_start(node.spec.name) if self.churn else 0.0
        delay += self.chances.of(node.spec.name, "start").uniform(0.0, ARRIVALS)
        if delay < math.inf:
            self._expected += 1
            self.at(self.now + delay, Simulator._start, self, 0, node)

    def _start(self, _: int, node: Node) -> None:
        self._expected -= 1
        self._coming.discard(node.spec.name)
        node.start()
        stays = self.churn.up(node.spec.name, self.now) if self.churn else math.inf
        if stays < math.inf:
            self.at(self.now + stays, Simulator._leave, self, node.incarnation, node)
        self.started(node)  # which may end it at once

    def started(self, node: Node) -> None:
        """Handle the start of a node's process."""

    def _leave(self, incarnation: int, node: Node) -> None:
        if node.incarnation == incarnation:
            node.stop()
            self.replace(node)

    def kill(self, name: str) -> None:
        """End a node without notice, permanently unless there is churn."""
        node = self.nodes[name]
        if not node.up:
            return
        if self.churn:
            self._leave(node.incarnation, node)
        else:
            node.stop()

    def replace(self, node: Node) -> None:
        """Plan the return of a lost node if there is churn."""
        away = self.churn.down(node.spec.name, self.now) if self.churn else math.inf
        if away < math.inf and node.spec.name not in self._coming:
            self._expected += 1
            self._coming.add(node.spec.name)
            self.at(self.now + away, Simulator._start, self, 0, node)

    def _see_whether_to_wait(self, _: int, nothing: None) -> None:
        """End a run that waits for nodes when none will come; one that has started may have to settle first."""
        state = self.controller.state
        if not state.progress.paused or self._expected:
            return
        if state.num_live < sum(node.up for node in self.nodes.values()):
            self.at(self.now + SETTLING, Simulator._see_whether_to_wait, self, 0, None)
        else:
            self._stop(state.progress.paused)

    def give_up(self, reason: str) -> None:
        """Remove a node that has stopped permanently; without the last one the run has failed."""
        if not self._expected and not any(node.up for node in self.nodes.values()):
            self.failed = True
            self._stop(reason)

    def join(self, spec: Machine) -> None:
        """Add a new node to the run."""
        assert spec.name not in self.nodes
        self.nodes[spec.name] = node = Node(spec, self, self.node_work(spec.name))
        self._expect(node)

    # The controller

    def handle(self, event: ce.Event) -> None:
        """Handle an event of the controller."""
        self.events += 1
        self._carry_out(self.controller.handle(event, self.now + self.skew))

    def bring(self, event: ce.Received, payload: Buffer) -> None:
        """Deliver an offer, and its payload with it."""
        assert isinstance(event.message, Offer)
        self._brought = {(event.node, event.message.result.assignment)}
        self.payloads.update(dict.fromkeys(self._brought, payload))
        self.handle(event)
        self._brought = set()

    def _deliver(self, _: int, event: ce.Event) -> None:
        self.handle(event)

    def _carry_out(self, actions: list[ca.Action]) -> None:
        for action in actions:
            _ACTIONS[type(action)](self, action)
        if not self._decided and self._tick_at < math.inf:
            return  # without a decision no deadline comes nearer
        self._decided = False
        deadline = self.controller.deadline - self.skew
        if deadline < self._tick_at:
            self._tick_at = deadline
            self.at(deadline, Simulator._tick, self, 0, deadline)

    def _tick(self, _: int, planned: float) -> None:
        if planned != self._tick_at:
            return
        self._tick_at = math.inf
        deadline = self.controller.deadline - self.skew
        if deadline <= self.now:
            self.handle(ce.Tick())
        elif deadline < math.inf:
            self._tick_at = deadline
            self.at(deadline, Simulator._tick, self, 0, deadline)

    def _journal(self, action: ca.Journal) -> None:
        decision, self._decided = action.decision, True
        self.ledger_hash.update(decision)
        for observe in self.observers:
            observe(self.now, decision)
        if type(decision) is Judged:
            self.payloads.pop((decision.node, decision.assignment), None)
            if decision.contributes:
                self.work.accept(decision.node, decision.assignment)
            if decision.verdict == "accepted":
                self.nodes[decision.node].busy_seconds += decision.claim.seconds
                self.max_staleness = max(self.max_staleness, decision.staleness)
        elif type(decision) is VersionMade:
            self._keep(decision.version)
        elif type(decision) is Noted:
            self._noted(decision.note)

    def _keep(self, version: int) -> None:
        """Record when a version was made, and the progress by then."""
        tokens = self.controller.state.totals.version_tokens
        self._made[version] = Point(self.now, tokens, None, self.bytes_up, self.bytes_down)

    def _noted(self, note: notes.Note) -> None:
        if type(note) is notes.Started:
            self._keep(0)
        elif type(note) is notes.Evaluated:
            self.curve.append(self._made[note.version]._replace(loss=note.loss))
            self._made = {version: point for version, point in self._made.items() if version > note.version}
        elif type(note) is notes.Paused:
            self.soon(Simulator._see_whether_to_wait, self, 0, None)

    def _send(self, action: ca.Send) -> None:
        message = action.message
        self.bytes_down += MESSAGE_BYTES
        if type(message) is Assign or type(message) is Newer:
            self.work.hold(action.node, message)
        self.nodes[action.node].receive(message)

    def _receive(self, action: ca.Receive) -> None:
        number = action.result.assignment
        if (action.node, number) in self._brought:
            event = ce.Arrived(action.node, number, action.result.payload.num_bytes)
            self.soon(Simulator._deliver, self, 0, event)
        else:
            self._send(ca.Send(action.node, SendPayload(number, 0)))

    def _inspect(self, action: effects.Inspect) -> None:
        result, depth = action.result, action.depth
        payload, sketch = self.payloads[action.node, result.assignment], b""
        norm, reason = self.work.inspect(action.node, result, payload, depth)
        seconds = self.work.costs.inspect(result, depth, sketched=action.seed > 0)
        self._inspector_free = free = max(self.now, self._inspector_free) + seconds
        self._payload_bytes[result.assignment] = result.payload.num_bytes
        if isinstance(result, Contribution) and action.seed and not reason:
            sketch = self.work.sketch(result, payload, action.seed)
        event = effects.Inspected(action.epoch, result.assignment, norm, reason, sketch)
        self.at(free, Simulator._deliver, self, 0, event)

    def _effect(self, action: effects.ControllerEffect) -> tuple[float, ce.Event]:
        """Carry out an effect on tensors at once; its answer comes after the seconds that it takes."""
        answer = self.work.carry_out(action)
        seconds = EFFECTS[type(action)].seconds(self.work.costs, action, answer, self._payload_bytes)
        self.at(self.now + seconds, Simulator._deliver, self, 0, answer)
        return seconds, answer

    def _aggregate(self, action: effects.Aggregate) -> None:
        if self._newest is not None and self._newest[1].version == action.version:  # a controller that died had made it
            seconds, made = self._newest
            event = msgspec.structs.replace(made, epoch=action.epoch)
            self.at(self.now + seconds, Simulator._deliver, self, 0, event)
            return
        seconds, answer = self._effect(action)
        if isinstance(answer, effects.Aggregated):
            self._newest = seconds, answer
            for assignment in [held.assignment for slot in action.slots for held in slot.contributions]:
                del self._payload_bytes[assignment]

    def _checkpoint(self, action: effects.Checkpoint) -> None:
        self.soon(Simulator._deliver, self, 0, effects.Checkpointed(action.epoch, action.version))

    def _release(self, action: ca.Release) -> None:
        self.work.release(action.digests)

    def _finish(self, action: ca.Finish) -> None:
        self._stop(action.reason)

    def _stop(self, why: str) -> None:
        self.stopped, self.end = True, why

    def _discard(self, action: ca.Discard) -> None:
        self._payload_bytes.pop(action.assignment, None)
        self.work.discard(action.node, action.assignment)


_ACTIONS: dict[type[ca.Action], Callable[[Simulator, Any], object]] = {
    ca.Journal: Simulator._journal,
    ca.Send: Simulator._send,
    ca.Receive: Simulator._receive,
    effects.Inspect: Simulator._inspect,
    ca.Discard: Simulator._discard,
    **dict.fromkeys(EFFECTS, Simulator._effect),
    effects.Aggregate: Simulator._aggregate,
    effects.Checkpoint: Simulator._checkpoint,
    ca.Release: Simulator._release,
    ca.Finish: Simulator._finish,
}
