"""The machines of a simulated run: how fast they are, how they are connected, when they are up.

Speeds are lognormal (sigma 1.0 by default) and clipped to 0.1 to 100 times the median. Up and down times of churning
nodes are lognormal, fitted to preemptible GPUs: up median 0.54 h (sigma 1.46), down median 0.49 h (sigma 1.28).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from barnraise.core.errors import nearest, OptionError


@dataclass(frozen=True)
class Link:
    """One node's connection: bytes a second each way, and seconds one way."""

    up: float
    down: float
    latency: float


LINKS = {
    "none": Link(1.25e9, 1.25e9, 0.0001),
    "good": Link(12.5e6, 12.5e6, 0.010),
    "dsl": Link(1.25e6, 6.25e6, 0.020),
    "cellular": Link(1.25e6, 3.75e6, 0.050),
    "satellite": Link(0.625e6, 6.25e6, 0.300),
}


def link(profile: str) -> Link:
    """The link preset called `profile`."""
    if profile not in LINKS:
        close = nearest(profile, LINKS)
        hint = f"; did you mean '{close}'?" if close else ""
        raise OptionError(f"network.profile '{profile}' is unknown{hint} (known: {', '.join(LINKS)})")
    return LINKS[profile]


@dataclass(frozen=True)
class Machine:
    """One simulated node. `rate` is in tokens a second."""

    name: str
    rate: float
    link: Link


def lognormal_fleet(count: int, rate: float, sigma: float, connection: Link, rng: random.Random) -> list[Machine]:
    """`count` machines around `rate` tokens a second."""
    machines = []
    for index in range(count):
        factor = min(100.0, max(0.1, math.exp(rng.gauss(0.0, sigma))))
        machines.append(Machine(f"node-{index:05d}", rate * factor, connection))
    return machines


class Churn:
    """When machines leave and come back. `next_down` and `next_up` draw how long the present state lasts."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def next_down(self) -> float:
        """Seconds until a machine that is up leaves."""
        return self.rng.lognormvariate(math.log(0.54 * 3600), 1.46)

    def next_up(self) -> float:
        """Seconds until a machine that is down comes back."""
        return self.rng.lognormvariate(math.log(0.49 * 3600), 1.28)
