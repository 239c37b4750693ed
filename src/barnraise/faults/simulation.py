"""A simulated run as a target of faults, and the simulator that plays a plan on it."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from barnraise.config.faults import ClockJump, FullDisk, Hang, Join, Kill, KillController, Planned, Preempt, SlowDisk
from barnraise.config.trial_sections import WorkerSection
from barnraise.controller.state import actions as ca
from barnraise.emulation.fleet import Machine
from barnraise.emulation.node import Node
from barnraise.faults.injector import FaultInjector
from barnraise.faults.links import Effect, LinkTarget
from barnraise.faults.schedule import FaultSchedule
from barnraise.faults.simulator import UnreliableSimulator
from barnraise.worker import events as we

OfNodes = Kill | Hang | Preempt | ClockJump


class SimulatedRun(LinkTarget):
    """Plays faults on the nodes, links and controller of a simulation.

    A node that joins is the machine that `machine_of` makes of its section.
    """

    def __init__(self, simulator: UnreliableSimulator, machine_of: Callable[[WorkerSection], Machine]) -> None:
        self.simulator, self.machine_of = simulator, machine_of
        self._put_off: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.simulator.at(self.simulator.now + seconds, _make, self.simulator, 0, call)

    # Nodes

    def kill(self, fault: Kill, rng: random.Random) -> None:
        for node in self._started(self.kill, fault, rng):
            self.simulator.kill(node.spec.name)

    def join(self, fault: Join, rng: random.Random) -> None:
        self.simulator.join(self.machine_of(fault.join))

    def hang(self, fault: Hang, rng: random.Random) -> None:
        for node in self._started(self.hang, fault, rng):
            if node.up:
                until = self.simulator.now + fault.seconds
                self.simulator.conditions[node.spec.name].hang(node.incarnation, until)
                node.pause(fault.seconds)
                self.simulator.awaiting(fault.seconds)

    def preempt(self, fault: Preempt, rng: random.Random) -> None:
        for node in self._started(self.preempt, fault, rng):
            if node.up:
                self.simulator.soon(Node.handle, node, node.incarnation, we.LeaveRequested("preempted"))
                self.after(fault.seconds, partial(self._end, node, node.incarnation))

    def _end(self, node: Node, incarnation: int) -> None:
        """Kill a node whose notice is over, or replace one that has left since."""
        if node.incarnation == incarnation:
            self.simulator.kill(node.spec.name)
        elif node.incarnation == incarnation + 1 and node.left == incarnation:
            self.simulator.replace(node)  # a node that was lost otherwise is replaced by then

    def _started(self, play: Callable[[Any, random.Random], None], fault: OfNodes, rng: random.Random) -> list[Node]:
        """Return the fault's nodes that have been up, and put `play` off for the others until they start."""
        found = []
        for name in fault.nodes:
            node = self.simulator.nodes.get(name)
            if node is not None and node.incarnation:
                found.append(node)
            else:
                self._put_off[name].append(partial(play, replace(fault, nodes=(name,)), rng))
        return found

    def started(self, name: str) -> None:
        """Play what was put off until the node's process lives."""
        for play in self._put_off.pop(name, ()):
            play()

    # Links

    def nodes(self) -> Sequence[str]:
        return list(self.simulator.nodes)

    def effects(self, node: str) -> list[Effect]:
        return self.simulator.conditions[node].effects

    def affect(self, nodes: Sequence[str], seconds: float, effect: Effect) -> None:
        super().affect(nodes, seconds, effect)
        self.simulator.awaiting(seconds)

    # The controller

    def slow_disk(self, fault: SlowDisk, rng: random.Random) -> None:
        self.simulator.disk.slow.append(fault.by_seconds)
        self.after(fault.seconds, partial(self.simulator.disk.slow.remove, fault.by_seconds))

    def full_disk(self, fault: FullDisk, rng: random.Random) -> None:
        disk = self.simulator.disk
        disk.full_until = max(disk.full_until, self.simulator.now + fault.seconds)

    def clock_jump(self, fault: ClockJump, rng: random.Random) -> None:
        for node in self._started(self.clock_jump, fault, rng):
            node.jump(fault.by_seconds)
        if not fault.nodes:
            self.simulator.jump(fault.by_seconds)
            self.simulator.awaiting(0.0)

    def kill_controller(self, fault: KillController, rng: random.Random) -> None:
        self.simulator.die(fault.seconds)


def _make(simulator: UnreliableSimulator, _: int, call: Callable[[], None]) -> None:
    call()


class FaultySimulator(UnreliableSimulator):
    """A simulator that plays `faults` on itself."""

    def __init__(
        self,
        *arguments: Any,
        faults: Sequence[Planned],
        machine_of: Callable[[WorkerSection], Machine],
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.schedule, self.target = FaultSchedule(faults), SimulatedRun(self, machine_of)
        self.injector = FaultInjector(self.schedule, [self.target])

    def run(self, digest: str, until: float = math.inf) -> None:
        if until < math.inf:
            self.schedule.share_of_time(until)
        for seconds in self.schedule.times:
            self.at(seconds, FaultySimulator._inject, self, 0, {"seconds": seconds})
        super().run(digest, until)

    def _inject(self, _: int, reached: dict[str, float]) -> None:
        self.injector.play(**reached)

    def _carry_out(self, actions: list[ca.Action]) -> None:
        super()._carry_out(actions)
        done = self.controller.state.totals.tokens / self.controller.settings.tokens
        if self.schedule.is_due(done):
            self.soon(FaultySimulator._inject, self, 0, {"share": done})

    def dies_at(self, decisions: int) -> float | None:
        for plan in self.schedule.due(decisions=decisions):
            if isinstance(plan.fault, KillController):
                return plan.fault.seconds
        return None

    def started(self, node: Node) -> None:
        self.target.started(node.spec.name)

    def _see_whether_to_wait(self, _: int, nothing: None) -> None:
        if not self.schedule.expects_nodes:
            super()._see_whether_to_wait(0, None)

    def give_up(self, reason: str) -> None:
        if not self.schedule.expects_nodes:
            super().give_up(reason)
