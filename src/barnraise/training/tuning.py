"""Payload and task size of a node, so that exchanges hide behind computation: a pure policy.

A task of H steps leaves H p seconds in which the contribution before it goes up and the next version comes down. The
policy takes the densest of the allowed payloads (rungs, in ascending bytes) that fits into `SHARE` of that time. When
not even the smallest fits, it is sent in alternating fragments; when the smallest does not fit either, H grows until it
does, up to a limit. Sending more takes a margin, sending less none, so that a fluctuating link does not make the choice
fluctuate. Everything follows from current measurements: the choice recovers when the link does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

SHARE = 0.8
"""Share of a task's time that an exchange may take in each direction."""

CLIMB_SHARE = 0.5
"""The same for a denser payload than the present one."""


class MeasuredNode(NamedTuple):
    """The measurements of a node: seconds a local step and a round trip, bytes a second up and down (0: unknown)."""

    step: float
    round_trip: float
    up: float
    down: float


class TunedTask(NamedTuple):
    """The shape of a node's tasks: the payload's rung, the least local steps, and the partition of the parameters."""

    rung: int
    steps: int
    partition: int = 0


@dataclass(frozen=True)
class TuningChoices:
    """The choices that the run allows.

    Payloads in bytes (`rungs`, ascending), the factor by which each partition divides a payload (`divisors`, from 1
    on), the least and the largest H.
    """

    rungs: Sequence[int]
    divisors: Sequence[int]
    steps: int
    most: int


def tune(measured: MeasuredNode, now: TunedTask, choices: TuningChoices, down_bytes: int) -> TunedTask:
    """Return the next choice for a node that is at `now`; `down_bytes` are the versions' bytes during a task.

    Nothing changes while the node's speed or uplink is not known. Versions are as large as other nodes make them:
    fragments are for the uplink alone.
    """
    if measured.step <= 0.0 or measured.up <= 0.0:
        return now
    rungs, divisors, steps = choices.rungs, choices.divisors, choices.steps
    down = measured.round_trip + (down_bytes / measured.down if measured.down > 0.0 else 0.0)

    def up(rung: int, partition: int) -> float:
        return measured.round_trip + rungs[rung] / divisors[partition] / measured.up

    def fits(rung: int, partition: int) -> bool:
        denser = rung > now.rung or partition < now.partition
        return up(rung, partition) <= available * (CLIMB_SHARE if denser else SHARE)

    longest = max(up(0, len(divisors) - 1), down)
    needed = math.ceil(min(float(choices.most), longest / (SHARE * measured.step) - 1e-9))
    available = max(steps, needed) * measured.step
    partition = next((at for at in range(len(divisors)) if fits(0, at)), len(divisors) - 1)
    rung = 0 if partition else max((rung for rung in range(len(rungs)) if fits(rung, 0)), default=0)
    return TunedTask(rung, max(steps, needed), partition)
