"""The machines of a simulated run: how fast they are, and how they are connected.

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
"""Bytes of a machine of which nobody says how many it has."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One simulated node. `rate` is in tokens a second, `owner` the same for all that are one's ("": nobody else's)."""

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
    """`count` machines around `rate` tokens a second; the first have `names`, the others numbers."""
    machines = []
    for index in range(count):
        factor = min(100.0, max(0.1, math.exp(rng.gauss(0.0, sigma))))
        name = names[index] if index < len(names) else numbered(index)
        machines.append(Machine(name, rate * factor, link_of(index)))
    return machines


def numbered(index: int) -> str:
    """What a node is called that nobody named."""
    return f"node-{index:05d}"
