"""A whole cluster under virtual time: the same state machines, another shell.

Every message takes its link's latency and its bytes' time; every piece of work takes what `Work` says it costs, and
yields what `Work` makes of it: nothing but sizes (cost-only) or real tensors. One seed, one history: the ledger's
hash over all decisions is the proof.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from barnraise.controller import actions as ca
from barnraise.controller import events as ce
from barnraise.controller.machine import Controller
from barnraise.core.types import Blob, Contribution, NodeProfile, Task, Update
from barnraise.emulation.fleet import Churn, Machine
from barnraise.ledger.decisions import Decision, Judged
from barnraise.wire.messages import Offer
from barnraise.worker import actions as wa
from barnraise.worker import events as we
from barnraise.worker.machine import Worker

MESSAGE_BYTES = 200
"""What a small message weighs on the simulated link, headers included."""

PREPARE_SECONDS = 15.0
"""Starting a worker process and building its model."""


class Work(Protocol):
    """What work yields and costs. Seconds are virtual."""

    def shards(self) -> tuple[Blob, ...]: ...
    def train(self, node: str, task: Task) -> tuple[Blob, float]: ...
    def update(self, node: str, updates: tuple[Update, ...]) -> int: ...
    def settle(self, node: str, assignment: int, accepted: bool) -> None: ...
    def inspect(self, node: str, contribution: Contribution) -> tuple[float, str]: ...
    def accept(self, node: str, assignment: int) -> None: ...
    def aggregate(self, version: int, slots: tuple[ca.SlotShare, ...]) -> tuple[str, Blob]: ...
    def evaluate(self, version: int) -> float: ...
    def aggregate_seconds(self, slots: int) -> float: ...


@dataclass
class Report:
    """What a simulation found. Utilisation: seconds of training that entered the model over seconds nodes were up."""

    virtual_seconds: float
    events: int
    utilisation: float
    bytes_up: int
    bytes_down: int


class _Node:
    """One simulated worker process and its machine."""

    __slots__ = ("busy_seconds", "down_free", "incarnation", "machine", "spec", "tick_at", "up", "up_free", "up_seconds", "up_since")

    def __init__(self, spec: Machine) -> None:
        self.spec, self.machine = spec, Worker(0)
        self.incarnation, self.up = 0, False
        self.up_free = self.down_free = self.busy_seconds = self.up_seconds = self.up_since = 0.0
        self.tick_at = math.inf


class Simulator:
    """Drives `controller` and a fleet until the run finishes or `until` virtual seconds have passed."""

    def __init__(
        self,
        controller: Controller,
        fleet: list[Machine],
        work: Work,
        *,
        seed: int,
        journal: Callable[[Decision], None],
        churn: bool = False,
    ) -> None:
        self.controller, self.work, self.journal = controller, work, journal
        self.rng = random.Random(seed)
        self.nodes = {spec.name: _Node(spec) for spec in fleet}
        self.churn = Churn(self.rng) if churn else None
        self.now, self.events, self.finished = 0.0, 0, False
        self.bytes_up = self.bytes_down = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._tick_at = math.inf

    def run(self, until: float, digest: str) -> Report:
        """Play the run from its start, whose parameters hash to `digest`."""
        self._controller_does(self.controller.start(digest, 0.0))
        for node in self.nodes.values():
            self._controller(ce.Admitted(node.spec.name, f"key of {node.spec.name}"))
            self._at(self.rng.uniform(0.0, 1.0), self._start, node)
        heap = self._heap
        while heap and not self.finished:
            time, _, call, arguments = heapq.heappop(heap)
            if time > until:
                self.now = until
                break
            self.now = time
            call(*arguments)
        up = sum(n.up_seconds + (self.now - n.up_since if n.up else 0.0) for n in self.nodes.values())
        busy = sum(n.busy_seconds for n in self.nodes.values())
        return Report(self.now, self.events, busy / up if up else 0.0, self.bytes_up, self.bytes_down)

    def _at(self, time: float, call: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (time, self._count, call, arguments))

    # Nodes

    def _start(self, node: _Node) -> None:
        node.incarnation += 1
        node.up, node.up_since = True, self.now
        node.up_free = node.down_free = self.now
        node.machine = Worker(self.rng.getrandbits(53), NodeProfile())
        node.tick_at = math.inf
        self._worker_does(node, node.machine.start(self.now))
        if self.churn:
            self._at(self.now + self.churn.next_down(), self._stop, node, node.incarnation)

    def _stop(self, node: _Node, incarnation: int) -> None:
        if node.up and node.incarnation == incarnation:
            node.up = False
            node.up_seconds += self.now - node.up_since
            if self.churn:
                self._at(self.now + self.churn.next_up(), self._start, node)

    def kill(self, name: str) -> None:
        """Take a node away without a word, now."""
        self._stop(self.nodes[name], self.nodes[name].incarnation)

    def _worker(self, node: _Node, incarnation: int, event: we.Event) -> None:
        if node.up and node.incarnation == incarnation:
            self.events += 1
            self._worker_does(node, node.machine.handle(event, self.now))

    def _worker_does(self, node: _Node, actions: list[wa.Action]) -> None:
        for action in actions:
            _WORKER[type(action)](self, node, action)
        if node.machine.deadline < node.tick_at:
            node.tick_at = node.machine.deadline
            self._at(node.tick_at, self._worker_tick, node, node.incarnation)

    def _worker_tick(self, node: _Node, incarnation: int) -> None:
        if not node.up or node.incarnation != incarnation:
            return
        node.tick_at = math.inf
        if node.machine.deadline <= self.now:
            self._worker(node, incarnation, we.Tick())
        elif node.machine.deadline < math.inf:
            node.tick_at = node.machine.deadline
            self._at(node.tick_at, self._worker_tick, node, incarnation)

    def _sends(self, node: _Node, action: wa.Send) -> None:
        self._up(node, MESSAGE_BYTES, ce.Received(node.spec.name, action.message))

    def _up(self, node: _Node, num_bytes: int, event: ce.Event) -> None:
        link = node.spec.link
        node.up_free = max(self.now, node.up_free) + num_bytes / link.up
        self.bytes_up += num_bytes
        self._at(node.up_free + link.latency, self._arrives, node, node.incarnation, event)

    def _arrives(self, node: _Node, incarnation: int, event: ce.Event) -> None:
        if node.incarnation == incarnation:
            self._controller(event)

    def _fetches(self, node: _Node, action: wa.Fetch) -> None:
        link = node.spec.link
        self.bytes_up += MESSAGE_BYTES
        node.down_free = max(self.now + link.latency, node.down_free) + action.blob.num_bytes / link.down
        self.bytes_down += action.blob.num_bytes
        self._at(
            node.down_free + link.latency, self._worker, node, node.incarnation, we.Fetched(action.blob.digest)
        )

    def _prepares(self, node: _Node, action: wa.Prepare) -> None:
        link = node.spec.link
        profile = NodeProfile(node.spec.rate, 1 << 34, 1, "simulated", link.up, link.down, link.latency)
        event = we.Prepared(self.work.shards(), profile)
        self._at(self.now + PREPARE_SECONDS, self._worker, node, node.incarnation, event)

    def _applies(self, node: _Node, action: wa.ApplyUpdates) -> None:
        version = self.work.update(node.spec.name, action.updates)
        self._at(self.now, self._worker, node, node.incarnation, we.Updated(version))

    def _trains(self, node: _Node, action: wa.StartTask) -> None:
        task, incarnation = action.task, node.incarnation
        step = task.tokens / task.local_steps / node.spec.rate
        payload, loss = self.work.train(node.spec.name, task)
        if action.ask_at <= task.local_steps:
            self._at(self.now + step * action.ask_at, self._worker, node, incarnation, we.Nearly(task.id))
        seconds = step * task.local_steps
        done = we.TaskDone(task.id, payload, task.local_steps, loss, seconds)
        self._at(self.now + seconds, self._worker, node, incarnation, done)

    def _uploads(self, node: _Node, action: wa.Upload) -> None:
        size = MESSAGE_BYTES + action.contribution.payload.num_bytes
        self._up(node, size, ce.Received(node.spec.name, Offer(action.contribution)))

    def _settles(self, node: _Node, action: wa.Settle) -> None:
        self.work.settle(node.spec.name, action.assignment, action.accepted)

    def _quits(self, node: _Node, action: wa.Quit) -> None:
        self._stop(node, node.incarnation)

    def _cuts_short(self, node: _Node, action: wa.CutShort) -> None:
        """A simulated task always runs to its end."""

    # The controller

    def _controller(self, event: ce.Event) -> None:
        self.events += 1
        self._controller_does(self.controller.handle(event, self.now))

    def _controller_does(self, actions: list[ca.Action]) -> None:
        for action in actions:
            _CONTROLLER[type(action)](self, action)
        deadline = self.controller.deadline
        if deadline < self._tick_at:
            self._tick_at = deadline
            self._at(deadline, self._controller_tick)

    def _controller_tick(self) -> None:
        self._tick_at = math.inf
        if self.controller.deadline <= self.now:
            self._controller(ce.Tick())
        elif self.controller.deadline < math.inf:
            self._tick_at = self.controller.deadline
            self._at(self._tick_at, self._controller_tick)

    def _journals(self, action: ca.Journal) -> None:
        self.journal(action.decision)
        decision = action.decision
        if type(decision) is Judged and decision.verdict == "accepted":
            self.work.accept(decision.node, decision.assignment)
            self.nodes[decision.node].busy_seconds += decision.seconds

    def _answers(self, action: ca.Send) -> None:
        node = self.nodes[action.node]
        self.bytes_down += MESSAGE_BYTES
        event = we.Received(action.message)
        self._at(self.now + node.spec.link.latency, self._worker, node, node.incarnation, event)

    def _inspects(self, action: ca.Inspect) -> None:
        norm, reason = self.work.inspect(action.node, action.contribution)
        self._at(
            self.now, self._controller, ce.Inspected(action.epoch, action.contribution.assignment, norm, reason)
        )

    def _aggregates(self, action: ca.Aggregate) -> None:
        digest, delta = self.work.aggregate(action.version, action.slots)
        event = ce.Aggregated(action.epoch, action.version, digest, delta)
        self._at(self.now + self.work.aggregate_seconds(len(action.slots)), self._controller, event)

    def _evaluates(self, action: ca.Evaluate) -> None:
        event = ce.Evaluated(action.epoch, action.version, self.work.evaluate(action.version))
        self._at(self.now, self._controller, event)

    def _checkpoints(self, action: ca.Checkpoint) -> None:
        self._at(self.now, self._controller, ce.Checkpointed(action.epoch, action.version))

    def _finishes(self, action: ca.Finish) -> None:
        self.finished = True

    def _ignores(self, action: ca.Action) -> None:
        """Nothing to do for what is neither kept nor sent here."""


_WORKER: dict[type[wa.Action], Callable[[Simulator, _Node, Any], None]] = {
    wa.Send: Simulator._sends,
    wa.Fetch: Simulator._fetches,
    wa.Prepare: Simulator._prepares,
    wa.ApplyUpdates: Simulator._applies,
    wa.StartTask: Simulator._trains,
    wa.CutShort: Simulator._cuts_short,
    wa.Upload: Simulator._uploads,
    wa.Settle: Simulator._settles,
    wa.Quit: Simulator._quits,
}

_CONTROLLER: dict[type[ca.Action], Callable[[Simulator, Any], None]] = {
    ca.Journal: Simulator._journals,
    ca.Send: Simulator._answers,
    ca.Inspect: Simulator._inspects,
    ca.Discard: Simulator._ignores,
    ca.Aggregate: Simulator._aggregates,
    ca.Evaluate: Simulator._evaluates,
    ca.Checkpoint: Simulator._checkpoints,
    ca.Release: Simulator._ignores,
    ca.Finish: Simulator._finishes,
}
