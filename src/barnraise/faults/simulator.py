"""A simulated run whose parts may fail: links, processes, clocks, the controller's disk, the controller itself.

Messages to and from a node pass `_due` at their time; there a fault may lose, duplicate or delay them, or hold them
until a hanging process continues. Events of the controller pass `_hear`, as in its shell: a message of a connection
that is not the one on which the node greeted is answered with `Identify`, and during a commit all others wait. A
controller that dies returns from its journal as another epoch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from barnraise.controller.machine import RESUME_GRACE, Controller
from barnraise.controller.state import actions as ca
from barnraise.controller.state import effects
from barnraise.controller.state import events as ce
from barnraise.core.malformed_frames import MalformedFrames
from barnraise.emulation.event_queue import Call
from barnraise.emulation.journal import DecisionJournal
from barnraise.emulation.node import Node
from barnraise.emulation.simulator import SETTLING, Simulator
from barnraise.faults.conditions import Conditions
from barnraise.faults.links import Fate
from barnraise.faults.simulated_disk import NO_ROOM, Disk
from barnraise.wire.downloads import PATIENCE
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import Hello, Identify, Offer
from barnraise.worker import events as we

OVERTAKEN = 2.0
"""Seconds by which a message is late, at most, that others overtake, or that arrives once more."""

UNREADABLE = "a frame cannot be read"

Brought = set[tuple[str, int]]


class UnreliableSimulator(Simulator):
    """A simulation with faults and their consequences.

    The arguments are a simulator's.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conditions: defaultdict[str, Conditions] = defaultdict(Conditions)
        self.disk, self.journal, self.drops = Disk(), DecisionJournal(), MalformedFrames()
        self.epoch, self.down = 1, False
        self._busy = False  # a commit is under way
        self._inbox: list[tuple[ce.Event, Brought]] = []
        self._enrolling: list[ce.Admitted] = []  # while the controller does not answer

    def run(self, digest: str, until: float = math.inf) -> None:
        self._digest = digest
        super().run(digest, until)

    def _begin(self, actions: list[ca.Action]) -> None:
        self._commit(actions, set())

    def awaiting(self, seconds: float) -> None:
        """Note that something returns after `seconds`: no node gives up before."""
        self._expected += 1
        self.at(self.now + seconds + SETTLING, UnreliableSimulator._awaited, self, 0, None)

    def _awaited(self, _: int, nothing: None) -> None:
        self._expected -= 1
        self._see_whether_to_wait(0, None)

    def _see_whether_to_wait(self, _: int, nothing: None) -> None:
        if not self.down:
            super()._see_whether_to_wait(0, None)

    # Nodes

    def at(self, time: float, call: Call, target: Any, incarnation: int, argument: Any) -> None:
        if type(target) is Node:
            super().at(time, _due, target, incarnation, (self, call, argument))
        else:
            super().at(time, call, target, incarnation, argument)

    def soon(self, call: Call, target: Any, incarnation: int, argument: Any) -> None:
        if type(target) is Node:
            super().soon(_go_on, target, incarnation, (self, call, argument))
        else:
            super().soon(call, target, incarnation, argument)

    def meet(self, node: Node, incarnation: int, call: Call, argument: Any) -> None:
        """Deliver a call planned for the node, or coming from it, unless its link decides otherwise."""
        found = self.conditions.get(node.spec.name)
        way = _way(call, argument)
        effect = found.strikes(way) if found is not None and way else None
        if effect is not None and effect.fate in (Fate.LOST, Fate.CORRUPT):
            self._lose(node, incarnation, call, argument)
            if effect.fate is Fate.LOST:
                self.break_connections(node.spec.name)
            elif way == "up" and (count := self.drops.count(node.spec.name, self.now)):
                self.handle(ce.Dropped(node.spec.name, UNREADABLE, count))
            return
        if effect is not None and call in _MESSAGES:
            late = self.now + effect.rng.uniform(0.0, OVERTAKEN)
            super().at(late, _go_on, node, incarnation, (self, call, argument))
            if effect.fate is Fate.LATE:
                return
        self.go_on(node, incarnation, call, argument)

    def go_on(self, node: Node, incarnation: int, call: Call, argument: Any) -> None:
        """Make a call now, or when a hanging process continues."""
        found = self.conditions.get(node.spec.name)
        wakes = found.wakes_at(incarnation) if found is not None else 0.0
        if wakes > self.now and call not in _CONTROLLERS:
            super().at(wakes, _go_on, node, incarnation, (self, call, argument))
        else:
            call(node, incarnation, argument)

    def _lose(self, node: Node, incarnation: int, call: Call, argument: Any) -> None:
        """Lose a message; fetched blobs are requested again."""
        if call is Node._fetched:
            bit, blob, _ = argument
            self.at(self.now + PATIENCE, Node._served, node, incarnation, (bit, blob))
        elif call is Node._served or (call is Node.handle and type(argument) is we.FetchFailed):
            self.at(self.now + PATIENCE, call, node, incarnation, argument)

    # The controller's shell

    def handle(self, event: ce.Event) -> None:
        self._hear(event, set())

    def bring(self, event: ce.Received, payload: Buffer) -> None:
        assert isinstance(event.message, Offer)
        key = event.node, event.message.result.assignment
        self.payloads[key] = payload
        self._hear(event, {key})

    def _hear(self, event: ce.Event, brought: Brought) -> None:
        if self.down:
            if isinstance(event, ce.Admitted):
                self._enrolling.append(event)  # it tries until the controller answers
            return
        if isinstance(event, ce.Received | ce.Arrived) and self._is_foreign(event):
            self.nodes[event.node].receive(Identify())
        elif self._busy:
            self._inbox.append((event, brought))
        else:
            self._turn([(event, brought)])

    def _is_foreign(self, event: ce.Received | ce.Arrived) -> bool:
        """Return whether it comes over another connection than the one on which the node greeted."""
        found = self.conditions.get(event.node)
        if found is not None and isinstance(event, ce.Received) and isinstance(event.message, Hello):
            found.broken = False
        return found is not None and found.broken

    def _turn(self, waiting: list[tuple[ce.Event, Brought]]) -> None:
        """Handle all of it as one batch."""
        actions: list[ca.Action] = []
        brought: Brought = set()
        for event, with_it in waiting:
            self.events += 1
            clock = self.now + self.skew
            if isinstance(event, ce.Tick):
                clock = max(clock, min(self.controller.deadline, clock + 1e-3))  # sums are rounded
            actions += self.controller.handle(event, clock)
            brought |= with_it
        self._settle(actions, brought)

    def _settle(self, actions: list[ca.Action], brought: Brought) -> None:
        """Carry a batch out once its decisions are durable."""
        decided = any(type(action) is ca.Journal for action in actions)
        seconds = self.disk.commit_seconds(self.now) if decided else 0.0
        if seconds is None:
            self.failed = True
            self._stop(f"{NO_ROOM}; the run can go on once there is some")
        elif seconds:
            self._busy = True
            self.at(self.now + seconds, UnreliableSimulator._durable, self, self.epoch, (actions, brought))
        else:
            self._commit(actions, brought)

    def _durable(self, epoch: int, batch: tuple[list[ca.Action], Brought]) -> None:
        if epoch != self.epoch or self.down:
            return
        self._busy = False
        self._commit(*batch)
        if self._inbox and not self.down and not self.stopped:
            waiting, self._inbox = self._inbox, []
            if self.controller.deadline <= self.now + self.skew:
                waiting.append((ce.Tick(), set()))
            self._turn(waiting)

    def _commit(self, actions: list[ca.Action], brought: Brought) -> None:
        """Finish a batch whose decisions are durable, unless the controller dies at this point."""
        decisions: list[ca.Action] = [action for action in actions if type(action) is ca.Journal]
        dies = self.dies_at(len(self.journal.decisions) + len(decisions)) if decisions else None
        if dies is not None:
            self._carry_out(decisions)
            self.die(dies)
            return
        self._brought = brought
        self._carry_out([self._checkpoint_now(action) for action in actions])
        self._brought = set()

    def _carry_out(self, actions: list[ca.Action]) -> None:
        self.journal.commit([action.decision for action in actions if type(action) is ca.Journal])
        super()._carry_out(actions)

    def _checkpoint_now(self, action: ca.Action) -> ca.Action:
        """Return a checkpoint that the disk does not take at once, and that is not carried out here."""
        if type(action) is not effects.Checkpoint or not (self.disk.slow or self.disk.full(self.now)):
            return action
        reason = NO_ROOM if self.disk.full(self.now) else ""
        event = effects.Checkpointed(action.epoch, action.version, reason)
        self.at(self.now + self.disk.checkpoint_seconds(), Simulator._deliver, self, 0, event)
        return ca.Release(())

    def dies_at(self, decisions: int) -> float | None:
        """Return for how many seconds the controller dies once this number of decisions is durable; None: it lives."""
        return None

    def break_connections(self, *names: str) -> None:
        """Break the connections of these nodes, whose messages count again once they greet."""
        for name in names:
            self.conditions[name].broken = True

    def die(self, seconds: float) -> None:
        """End the controller's process; another starts after `seconds`."""
        if self.down:
            return
        self.down, self._busy, self._inbox, self.payloads = True, False, [], {}
        for offer in self.controller.snapshot(self.controller.context.now).inspecting:
            if (number := offer.assignment) in self.controller.state.works:  # else the accepted contribution is durable
                self._payload_bytes.pop(number, None)
                self.work.discard(self.controller.state.works[number].node, number)
        self.break_connections(*self.nodes)
        self.awaiting(seconds)
        self.at(self.now + seconds, UnreliableSimulator._come_back, self, 0, None)

    def _come_back(self, _: int, nothing: None) -> None:
        """Restart the controller: its state is folded from the journal, and the run's clock continues."""
        self.down, self.epoch = False, self.epoch + 1
        self.skew = self.journal.time - self.now
        self.controller = Controller(self.controller.settings, self.journal.replay(), self.epoch)
        self._tick_at, self._decided = math.inf, True
        clock = self.now + self.skew
        if self.controller.state.newest.digest:
            self._settle(self.controller.resume(clock, RESUME_GRACE), set())
        else:
            self._settle(self.controller.start(self._digest, clock), set())
        enrolling, self._enrolling = self._enrolling, []
        for event in enrolling:
            self.handle(event)

    def jump(self, seconds: float) -> None:
        """Move the controller's clock forward by `seconds`."""
        self.skew += seconds
        if not self.down:
            self._tick_at = self.now
            self.at(self.now, Simulator._tick, self, 0, self.now)


def _due(node: Node, incarnation: int, planned: tuple[UnreliableSimulator, Call, Any]) -> None:
    simulator, call, argument = planned
    if incarnation == node.incarnation or call is Node._arrive:
        simulator.meet(node, incarnation, call, argument)


def _go_on(node: Node, incarnation: int, planned: tuple[UnreliableSimulator, Call, Any]) -> None:
    simulator, call, argument = planned
    if incarnation == node.incarnation or call is Node._arrive:
        simulator.go_on(node, incarnation, call, argument)


_UP: frozenset[Callable[..., None]] = frozenset({Node._arrive, Node._brought, Node._taken, Node._served})
_DOWN: frozenset[Callable[..., None]] = frozenset({Node._inline, Node._fetched})
_CONTROLLERS: frozenset[Callable[..., None]] = frozenset({Node._arrive, Node._bring, Node._brought, Node._served})
"""Messages that have left the node: they arrive though the process hangs."""
_MESSAGES: frozenset[Callable[..., None]] = frozenset({Node._arrive, Node._brought, Node._inline, Node.handle})
"""Messages that may come two times, or late; pieces of payloads and blobs have their places."""


def _way(call: Call, argument: Any) -> str:
    """Return the direction of a call; empty for calls within the node itself."""
    if call in _UP:
        return "up"
    if call in _DOWN or (call is Node.handle and type(argument) in (we.Received, we.FetchFailed)):
        return "down"
    return ""
