"""The planned faults of a lab: those of any local worker, and what befalls the packets on its emulated link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnraise.config.faults import Corrupt, Duplicate, Fault, OneWayLoss, Partition, Planned, Reorder
from barnraise.emulation.tun_hub import Disturbance
from barnraise.faults.processes import LocalFaults, Workers

Shares = tuple[float, float]
"""Of the packets from a worker, and of those to it."""


class Effect(NamedTuple):
    """What a fault in force does to packets."""

    lost: Shares = (0.0, 0.0)
    twice: Shares = (0.0, 0.0)
    late: Shares = (0.0, 0.0)
    spoiled: Shares = (0.0, 0.0)


class LabFaults(LocalFaults):
    """`namespaces` are those of the workers by name; `disturb` tells the emulator."""

    def __init__(
        self,
        planned: Sequence[Planned],
        workers: Workers,
        note: Callable[[str], None],
        namespaces: dict[str, str],
        disturb: Callable[[Disturbance], None],
    ) -> None:
        super().__init__(planned, workers, note)
        self.namespaces, self.disturb = namespaces, disturb
        self._effects: dict[str, list[Effect]] = {name: [] for name in namespaces}

    def play_one(self, plan: Planned) -> None:
        effect = effect_of(plan.fault)
        if effect is None:
            super().play_one(plan)
            return
        for name in plan.nodes or list(self.namespaces):
            self._effects[name].append(effect)
            self._tell(name)
            asyncio.get_running_loop().call_later(plan.fault.seconds, self._heal, name, effect)  # type: ignore[attr-defined]

    def _heal(self, name: str, effect: Effect) -> None:
        self._effects[name].remove(effect)
        self._tell(name)

    def _tell(self, name: str) -> None:
        """Of several faults of one link the worst counts."""
        effects = [Effect(), *self._effects[name]]
        shares = [
            (max(shares[0] for shares in kind), max(shares[1] for shares in kind))
            for kind in zip(*effects, strict=True)
        ]
        self.disturb(Disturbance(self.namespaces[name], *shares))


def effect_of(fault: Fault) -> Effect | None:
    """What a fault does to packets; None when that is not what it is about.

    >>> effect_of(OneWayLoss(seconds=3.0, way="down", share=0.5))
    Effect(lost=(0.0, 0.5), twice=(0.0, 0.0), late=(0.0, 0.0), spoiled=(0.0, 0.0))
    """
    match fault:
        case Partition():
            return Effect(lost=(1.0, 1.0))
        case OneWayLoss():
            return Effect(lost=(fault.share, 0.0) if fault.way == "up" else (0.0, fault.share))
        case Duplicate():
            return Effect(twice=(fault.share, fault.share))
        case Reorder():
            return Effect(late=(fault.share, fault.share))
        case Corrupt():
            return Effect(spoiled=(fault.share, fault.share))
    return None
