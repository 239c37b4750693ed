"""The machines of a simulated run: how fast they are, how they are connected, when they are up.

Speeds are lognormal (sigma 1.0 by default) and clipped to 0.1 to 100 times the median. Up and down times of churning
nodes are lognormal, fitted to preemptible GPUs: up median 0.54 h (sigma 1.46), down median 0.49 h (sigma 1.28). Not
covered: links whose rate varies.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barnraise.transport.links.link import Link


@dataclass(frozen=True, slots=True)
class Machine:
    """One simulated node. `rate` is in tokens a second."""

    name: str
    rate: float
    link: Link
    memory_bytes: int = 16 << 30


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


class Churn:
    """When machines leave and come back, as drawn from `rng`."""

    UP = (math.log(0.54 * 3600), 1.46)
    DOWN = (math.log(0.49 * 3600), 1.28)

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def first_start(self) -> float:
        """Seconds until a machine is first up: 0 for as many as are up at any time in the long run."""
        up, down = (math.exp(mu + sigma**2 / 2) for mu, sigma in (self.UP, self.DOWN))
        return 0.0 if self.rng.random() < up / (up + down) else self.down()

    def up(self) -> float:
        """Seconds for which a machine that has just come stays."""
        return self.rng.lognormvariate(*self.UP)

    def down(self) -> float:
        """Seconds for which a machine that has just left is away."""
        return self.rng.lognormvariate(*self.DOWN)
