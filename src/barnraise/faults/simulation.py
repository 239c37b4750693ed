"""What each kind of planned fault does to a simulated run."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from barnraise.config import faults as kinds
from barnraise.config.trial_sections import WorkerSection
from barnraise.controller.state import actions as ca
from barnraise.emulation.fleet import Machine
from barnraise.emulation.node import Node
from barnraise.faults.conditions import Effect, Fate
from barnraise.faults.simulator import TroubledSimulator
from barnraise.worker import events as we

OfNodes = kinds.Kill | kinds.Hang | kinds.Preempt | kinds.ClockJump


class FaultySimulator(TroubledSimulator):
    """Plays `faults`; a node that joins is the machine that `machine_of` makes of its section."""

    def __init__(
        self,
        *arguments: Any,
        faults: Sequence[kinds.Planned],
        machine_of: Callable[[WorkerSection], Machine],
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.faults, self.machine_of = faults, machine_of
        self._by_tokens: list[kinds.Planned] = []
        self._put_off: defaultdict[str, list[tuple[OfNodes, random.Random]]] = defaultdict(list)

    def run(self, digest: str, until: float = math.inf) -> None:
        for plan in sorted(self.faults, key=lambda plan: plan.when.share or 0.0):
            self._expect_fault(plan, until)
        super().run(digest, until)

    def _expect_fault(self, plan: kinds.Planned, until: float) -> None:
        when, fault = plan.when, plan.fault
        if when.decisions is not None and isinstance(fault, kinds.KillController):
            self.dying = sorted([*self.dying, (when.decisions, fault.seconds)])
        elif when.seconds is not None or until < math.inf:
            self._expected += isinstance(fault, kinds.Join)
            time = when.seconds if when.seconds is not None else (when.share or 0.0) * until
            self.at(time, FaultySimulator._play_at, self, 0, plan)
        else:
            self._by_tokens.append(plan)

    def _play_at(self, _: int, plan: kinds.Planned) -> None:
        self._expected -= isinstance(plan.fault, kinds.Join)
        self._play(0, plan)

    def _play(self, _: int, plan: kinds.Planned) -> None:
        _PLAY[type(plan.fault)](self, plan.fault, random.Random(f"fault {plan.seed}"))

    def _carry_out(self, actions: list[ca.Action]) -> None:
        super()._carry_out(actions)
        done = self.controller.state.totals.tokens / self.controller.settings.tokens
        while self._by_tokens and (self._by_tokens[0].when.share or 0.0) <= done:
            self.soon(FaultySimulator._play, self, 0, self._by_tokens.pop(0))

    # One method a kind

    def _kill_nodes(self, fault: kinds.Kill, rng: random.Random) -> None:
        for node in self._started(fault, rng):
            self.kill(node.spec.name)

    def _let_join(self, fault: kinds.Join, rng: random.Random) -> None:
        self.join(self.machine_of(fault.join))

    def _hang(self, fault: kinds.Hang, rng: random.Random) -> None:
        for node in self._live(fault, rng):
            self.conditions[node.spec.name].hang(node.incarnation, self.now + fault.seconds)
            node.pause(fault.seconds)
            self.awaiting(fault.seconds)

    def _preempt(self, fault: kinds.Preempt, rng: random.Random) -> None:
        for node in self._live(fault, rng):
            self.soon(Node.handle, node, node.incarnation, we.LeaveRequested("preempted"))
            self.at(self.now + fault.seconds, FaultySimulator._notice_is_over, self, node.incarnation, node)

    def _notice_is_over(self, incarnation: int, node: Node) -> None:
        if node.incarnation == incarnation:
            self.kill(node.spec.name)
        elif node.incarnation == incarnation + 1 and node.left == incarnation:
            self.replace(node)  # it has left meanwhile; who was lost otherwise is replaced by then

    def _partition(self, fault: kinds.Partition, rng: random.Random) -> None:
        self._affect(fault.nodes, Effect(Fate.LOST, "", 1.0, rng), fault.seconds)

    def _one_way_loss(self, fault: kinds.OneWayLoss, rng: random.Random) -> None:
        self._affect(fault.nodes, Effect(Fate.LOST, fault.way, fault.share, rng), fault.seconds)

    def _corrupt(self, fault: kinds.Corrupt, rng: random.Random) -> None:
        self._affect(fault.nodes, Effect(Fate.CORRUPT, "", fault.share, rng), fault.seconds)

    def _duplicate(self, fault: kinds.Duplicate, rng: random.Random) -> None:
        self._affect(fault.nodes, Effect(Fate.TWICE, "", fault.share, rng), fault.seconds)

    def _reorder(self, fault: kinds.Reorder, rng: random.Random) -> None:
        self._affect(fault.nodes, Effect(Fate.LATE, "", fault.share, rng), fault.seconds)

    def _affect(self, names: Sequence[str], effect: Effect, seconds: float) -> None:
        """Put an effect in force on the links of these nodes (of all), for so long."""
        for name in names or list(self.nodes):
            self.conditions[name].effects.append(effect)
            self.at(self.now + seconds, FaultySimulator._heal, self, 0, (name, effect))
        self.awaiting(seconds)

    def _heal(self, _: int, healed: tuple[str, Effect]) -> None:
        name, effect = healed
        self.conditions[name].effects.remove(effect)

    def _slow_disk(self, fault: kinds.SlowDisk, rng: random.Random) -> None:
        self.disk.slow.append(fault.by_seconds)
        self.at(self.now + fault.seconds, FaultySimulator._speed_up, self, 0, fault.by_seconds)

    def _speed_up(self, _: int, seconds: float) -> None:
        self.disk.slow.remove(seconds)

    def _full_disk(self, fault: kinds.FullDisk, rng: random.Random) -> None:
        self.disk.full_until = max(self.disk.full_until, self.now + fault.seconds)

    def _clock_jump(self, fault: kinds.ClockJump, rng: random.Random) -> None:
        for node in self._started(fault, rng):
            node.jump(fault.by_seconds)
        if not fault.nodes:
            self.jump(fault.by_seconds)
            self.awaiting(0.0)

    def _kill_controller(self, fault: kinds.KillController, rng: random.Random) -> None:
        self.die(fault.seconds)

    def _live(self, fault: OfNodes, rng: random.Random) -> list[Node]:
        return [node for node in self._started(fault, rng) if node.up]

    def _started(self, fault: OfNodes, rng: random.Random) -> list[Node]:
        """The fault's nodes that have been up; it befalls the others as they start."""
        found = []
        for name in fault.nodes:
            node = self.nodes.get(name)
            if node is not None and node.incarnation:
                found.append(node)
            else:
                self._put_off[name].append((replace(fault, nodes=(name,)), rng))
        return found

    def started(self, node: Node) -> None:
        for fault, rng in self._put_off.pop(node.spec.name, ()):
            _PLAY[type(fault)](self, fault, rng)


_PLAY: dict[type[kinds.Fault], Callable[[FaultySimulator, Any, random.Random], None]] = {
    kinds.Kill: FaultySimulator._kill_nodes,
    kinds.Join: FaultySimulator._let_join,
    kinds.Hang: FaultySimulator._hang,
    kinds.Preempt: FaultySimulator._preempt,
    kinds.Partition: FaultySimulator._partition,
    kinds.OneWayLoss: FaultySimulator._one_way_loss,
    kinds.Corrupt: FaultySimulator._corrupt,
    kinds.Duplicate: FaultySimulator._duplicate,
    kinds.Reorder: FaultySimulator._reorder,
    kinds.SlowDisk: FaultySimulator._slow_disk,
    kinds.FullDisk: FaultySimulator._full_disk,
    kinds.ClockJump: FaultySimulator._clock_jump,
    kinds.KillController: FaultySimulator._kill_controller,
}
