"""The machines of a simulated run: their speeds and links.

Speeds are lognormal (sigma 1.0 by default) and clipped to 0.1 to 100 times the median. Not covered: links whose rate
varies.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barnraise.transport.links.link import Link

USUAL_MEMORY = 16 << 30
"""Default bytes of a machine's memory."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the simulated fleet.

    `rate` is in tokens a second, `owner` the same for all nodes of one owner ("": its own).
    """

    name: str
    rate: float
    link: Link
    memory_bytes: int = USUAL_MEMORY
    owner: str = ""


@dataclass(frozen=True, slots=True)
class MachineKind:
    """A kind of machine: its speed as a share of a good laptop's GPU (`nominal_rate`), and its link's preset."""

    speed: float
    link: str


KINDS = {
    "phone": MachineKind(0.05, "cellular"),
    "laptop": MachineKind(0.2, "dsl"),
    "desktop": MachineKind(1.0, "dsl"),
    "server": MachineKind(20.0, "good"),
}
"""Kinds of machines by name; the speeds are chosen, not measured.

A phone that stays cool, a laptop's processor, a small GPU behind a home line, and a large one in a data centre.
"""


def lognormal_fleet(
    count: int,
    rate: float,
    link_of: Callable[[int], Link],
    rng: random.Random,
    *,
    sigma: float = 1.0,
    names: Sequence[str] = (),
) -> list[Machine]:
    """Create `count` machines around `rate` tokens a second; the first have `names`, the others numbers."""
    machines = []
    for index in range(count):
        factor = min(100.0, max(0.1, math.exp(rng.gauss(0.0, sigma))))
        name = names[index] if index < len(names) else numbered(index)
        machines.append(Machine(name, rate * factor, link_of(index)))
    return machines


def numbered(index: int) -> str:
    """Return the default name of a node."""
    return f"node-{index:05d}"
