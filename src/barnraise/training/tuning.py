"""How much a node sends, and how often, so that exchanges hide behind computation: a pure policy.

A task of H steps leaves H p seconds in which the contribution before it goes up and the next version comes down. The
policy takes the densest of the allowed payloads (rungs, in ascending bytes) that fits into `SHARE` of that time; when
not even the smallest fits, H grows until it does, up to a limit. To climb a rung takes a margin, to descend none, so
that a link that wavers does not make the choice waver. Everything follows from what is measured now: the choice goes
back when the link does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SHARE = 0.8
"""Of a task's time, how much an exchange may take in each direction."""

CLIMB_SHARE = 0.5
"""The same for a denser payload than the present one."""


@dataclass(frozen=True)
class Measured:
    """One node: seconds a local step, seconds of a round trip, bytes a second up and down (0: not known yet)."""

    step: float
    round_trip: float
    up: float
    down: float


@dataclass(frozen=True)
class Tuned:
    """What a node's tasks are like: the payload's rung, and the local steps they have at least."""

    rung: int
    steps: int


def tune(measured: Measured, now: Tuned, rungs: Sequence[int], update_bytes: int, steps: int, most: int) -> Tuned:
    """The next choice for a node that is at `now`.

    `rungs` are payloads in bytes, ascending; `update_bytes` what one version brings down; `steps` and `most` the least
    and the largest H. Nothing changes while the node's speed or uplink is not known.
    """
    if measured.step <= 0.0 or measured.up <= 0.0:
        return now

    def seconds(rung: int) -> float:
        return measured.round_trip + rungs[rung] / measured.up

    available = steps * measured.step
    fitting = [
        rung for rung in range(len(rungs)) if seconds(rung) <= available * (CLIMB_SHARE if rung > now.rung else SHARE)
    ]
    rung = max(fitting, default=0)
    down = measured.round_trip + (update_bytes / measured.down if measured.down > 0.0 else 0.0)
    needed = math.ceil(min(float(most), max(seconds(rung), down) / (SHARE * measured.step) - 1e-9))
    return Tuned(rung, max(steps, needed))
