"""Fault plans, drawn. They are sections as a run file has them, so that one that found something can be kept."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from barnraise.config.faults import KINDS, Planned, planned
from barnraise.config.trial_sections import FaultSection

Section = dict[str, Any]

SPAN = 90.0
"""Seconds from the nodes' readiness within which faults begin."""

READY = 15.0


def draw(rng: random.Random, names: Sequence[str], spare: int) -> list[Section]:
    """Draw up to ten faults of the nodes `names`; at most `spare` nodes leave permanently."""
    found: list[Section] = []
    joined = 0
    for _ in range(rng.choice([1, 2, 4, 7, 10])):
        kind = rng.choices(list(DRAW), [weight for weight, _ in DRAW.values()])[0]
        if KINDS[kind].ends:
            if not spare:
                continue
            spare -= 1
        section = {"do": kind, **DRAW[kind][1](rng, names), "seed": rng.randrange(1000)}
        if kind == "join":
            section["join"] = {"name": f"late{joined}"}
            joined += 1
        if kind == "kill_controller" and rng.random() < 0.7:
            section["at_decisions"] = rng.randrange(1, 250)
        else:
            section["at_seconds"] = round(READY * rng.choice([0, 1]) + rng.uniform(0.0, SPAN), 2)
        found.append(section)
    return found


def as_planned(sections: Sequence[Section]) -> list[Planned]:
    return [planned(FaultSection.model_validate(section), 0) for section in sections]


def _long(rng: random.Random) -> Section:
    return {"seconds": rng.choice([0.5, 3.0, 8.0, 25.0])}


def _some(rng: random.Random, names: Sequence[str]) -> Section:
    chosen = rng.sample(list(names), rng.choice([1, 1, 2]))
    return {"nodes": chosen} if rng.random() < 0.8 else {}


def _link(rng: random.Random, names: Sequence[str]) -> Section:
    return _some(rng, names) | _long(rng) | {"share": rng.choice([0.05, 0.3, 0.9])}


DRAW: dict[str, tuple[float, Callable[[random.Random, Sequence[str]], Section]]] = {
    "kill": (1, lambda rng, names: {"node": rng.choice(names)}),
    "join": (1, lambda rng, names: {}),
    "hang": (2, lambda rng, names: {"node": rng.choice(names)} | _long(rng)),
    "preempt": (1, lambda rng, names: {"node": rng.choice(names)} | _long(rng)),
    "partition": (2, lambda rng, names: _some(rng, names) | _long(rng)),
    "one_way_loss": (2, lambda rng, names: _link(rng, names) | {"way": rng.choice(["up", "down"])}),
    "corrupt": (2, _link),
    "duplicate": (2, _link),
    "reorder": (2, _link),
    "slow_disk": (1, lambda rng, names: _long(rng) | {"by_seconds": rng.choice([0.05, 0.5, 4.0])}),
    "full_disk": (1, lambda rng, names: _long(rng)),
    "clock_jump": (
        1,
        lambda rng, names: (
            {"by_seconds": rng.choice([2.0, 30.0, 4000.0])}
            | ({"node": rng.choice(names)} if rng.random() < 0.5 else {})
        ),
    ),
    "kill_controller": (4, lambda rng, names: {"seconds": rng.choice([0.1, 2.0, 20.0])}),
}
"""The weight of each kind of fault, and its operands."""
