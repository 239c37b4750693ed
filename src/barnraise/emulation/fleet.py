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
