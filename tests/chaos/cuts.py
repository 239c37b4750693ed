"""Faults of a controller that has a standby: cuts of the network into groups, and the controller's death."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .cluster import VARIED, Case, case_of

CONTROLLER, STANDBY = "controller", "standby"

FAILING = "s"
"""How the seed of a case begins that has a standby."""

TOKENS = 2400
"""Tokens of a run that does not end before the faults of its controller."""

KEPT = {"partition", "one_way_loss", "corrupt", "kill", "preempt", "slow_disk", "kill_controller"}
"""Other faults that occur beside these.

A message that overtakes or comes twice would cross from one connection to the next.
"""


@dataclass(frozen=True)
class Cut:
    """From `at` on, for `seconds`, only the members of one of the `groups` reach each other."""

    at: float
    seconds: float
    groups: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Plan:
    """Faults of a controller with a standby.

    Acknowledgements `wait` for the copy, which is `lag` seconds behind. `dies` is the time at which the controller
    dies, without a restart.
    """

    wait: bool
    lag: float
    cuts: tuple[Cut, ...]
    dies: float | None

    def __str__(self) -> str:
        cuts = "".join(
            f", cut into {' | '.join(' '.join(group) for group in cut.groups)} from {cut.at:g} s for {cut.seconds:g} s"
            for cut in self.cuts
        )
        dies = "" if self.dies is None else f", the controller dies at {self.dies:g} s"
        return f"durability {'standby' if self.wait else 'local'}, a copy {self.lag:g} s behind{cuts}{dies}"


def plan_of(rng: random.Random, nodes: Sequence[str]) -> Plan:
    """Draw the faults of the controller of these nodes."""
    at = round(rng.uniform(30.0, 70.0), 2)
    half = rng.sample(list(nodes), len(nodes) // 2)
    rest = [name for name in nodes if name not in half]
    few = rng.sample(list(nodes), max(0, (len(nodes) - 1) // 2))
    most = [name for name in nodes if name not in few]
    seconds = round(rng.choice([2.0, 5.0, 12.0, 40.0, 90.0]) * rng.uniform(0.7, 1.3), 2)
    ways = {
        "dies": (),
        "half": ([CONTROLLER, *half], [STANDBY, *rest]),
        "few": ([CONTROLLER, *few], [STANDBY, *most]),
        "most": ([CONTROLLER, *most], [STANDBY, *few]),
        "alone": ([CONTROLLER, *nodes], [STANDBY]),
        "all": ([CONTROLLER], [STANDBY, *nodes]),
        "each": ([CONTROLLER], [STANDBY], list(nodes)),
    }
    way = rng.choice(list(ways))
    cuts = (Cut(at, seconds, tuple(tuple(group) for group in ways[way])),) if ways[way] else ()
    dies = None
    if way == "dies" or rng.random() < 0.2:
        dies = round(at + rng.choice([0.0, 1.0, 10.0, seconds]) * rng.uniform(0.5, 1.5), 2)
    return Plan(rng.random() < 0.5, rng.choice([0.0, 0.3, 1.0, 4.0]), cuts, dies)


def case_with_standby(number: int) -> tuple[Case, Plan]:
    """The case of that number, or one that varies, with a standby, more to do, and other faults of few kinds."""
    case = case_of(f"{VARIED if number % 2 else ''}{number}")
    rng = random.Random(f"standby {number}")
    plan = plan_of(rng, [machine.name for machine in case.machines])
    faults = [fault for fault in case.faults if fault["do"] in KEPT] if rng.random() < 0.5 else []
    changes = case.changes | {"tokens": TOKENS}
    label = f"{case.label}, {plan}"
    return replace(case, seed=f"{FAILING}{number}", label=label, faults=faults, churn=None, changes=changes), plan
