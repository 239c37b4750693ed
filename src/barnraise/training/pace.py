"""Local steps and learning rate of each node: equations 6 and 7, in the form that uses the node's speed.

A node is described by p_i, its seconds a local step, and c_i, its seconds of communication a round: latency d_i plus
bytes over bandwidth. The round is as long as the slowest admitted node needs for the reference number of steps, and
long enough that communication takes at most a fifth of it; "slowest" is the 90th percentile, so that one straggler does
not extend the round:

    T = P90_k max(E_ref p_k + c_k, c_k / 0.2)
    C_i = T - c_i
    E_i = clip(ceil(C_i / p_i), 1, E_max)                                                                (7)
    eta_i = eta_0 min(1, (E_ref / E_i')^b) (1 + sigma_i)^-a (batch_i / batch_ref)^g, in [0.1, 1] eta_0   (6)

with sigma_i the node's staleness, a = b = 1/2, g = 1/2 for Adam and 1 for SGD, and E_i' the steps that the node would
take if exchange took no time: with E_i, which decreases with c_i, a longer delay would be rewarded with a higher rate.
So the rate never rises with steps, staleness or delay. Read literally, equation 7 takes the largest over the mean of
the *same* node's step times, so that the node's speed cancels, but for its limit C_i; `literal` does that. All
functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

COMMUNICATION_SHARE = 0.2
ADMITTED = 0.9
LOWEST_RATE = 0.1


@dataclass(frozen=True)
class Speed:
    """The speed of one node: seconds a local step (`step`, above 0), and of communication a round (`exchange`)."""

    step: float
    exchange: float = 0.0


def round_seconds(nodes: Sequence[Speed], reference_steps: int) -> float:
    """Return T, the length of a round that `nodes` share; 0 when there are none."""
    if not nodes:
        return 0.0
    needs = sorted(
        max(reference_steps * node.step + node.exchange, node.exchange / COMMUNICATION_SHARE) for node in nodes
    )
    return needs[math.ceil(ADMITTED * len(needs)) - 1]


def local_steps(node: Speed, round_length: float, most: int) -> int:
    """Return E_i: the steps with which `node` fills a round of `round_length` seconds, from 1 to `most`."""
    wanted = math.ceil((round_length - node.exchange) / node.step - 1e-9)
    return max(1, min(wanted, most))


def hindered_steps(node: Speed, round_length: float, most: int) -> int:
    """Return E_i' - E_i: the steps that exchange keeps `node` from."""
    return local_steps(Speed(node.step), round_length, most) - local_steps(node, round_length, most)


def aligned_steps(steps: int, step_seconds: float, waited: float) -> int:
    """Return `steps` and up to as many more, for a node whose last contribution `waited` seconds for others.

    Where exchanges overlap with training nothing else aligns the nodes' rounds, and waiting contributions become stale.
    Half of the wait is compensated at a time, as that of the running task is not known yet.
    """
    return steps + min(steps, round(0.5 * waited / step_seconds))


def literal_steps(step_seconds: Sequence[float], reference_steps: int, most: int, computing: float = math.inf) -> int:
    """Return E_i by the letter of equation 7.

    `reference_steps` times the largest over the mean of this node's own times, in no more than `computing` seconds
    (C_i).
    """
    total = sum(step_seconds)
    if total <= 0.0:
        return min(reference_steps, most)
    wanted = min(reference_steps * max(step_seconds), computing) * len(step_seconds) / total
    return max(1, min(math.ceil(wanted - 1e-9), most)) if wanted < most else most


def rate_factor(steps: int, reference_steps: int, staleness: float, batch_ratio: float = 1.0, *, adam: bool) -> float:
    """Return eta_i / eta_0, from 0.1 to 1, for E_i' local `steps` at `batch_ratio` times the reference batch."""
    slowed = min(1.0, math.sqrt(reference_steps / steps)) / math.sqrt(1.0 + staleness)
    factor = slowed * (math.sqrt(batch_ratio) if adam else batch_ratio)
    return max(LOWEST_RATE, min(1.0, factor))
