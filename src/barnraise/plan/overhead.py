"""The estimated cost of protections for a worker: alpha, the time with them over the time without (equation 9)."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from barnraise.config.privacy_sections import EXAMPLE
from barnraise.plan.estimate import Estimate
from barnraise.plan.resolve import Plan
from barnraise.plan.speed import cpu_flops

ROUNDING, A_SEED = 8.5e-9, 0.5e-9
"""Seconds for a value of a masked update: to round and pack it, and for each seed (`benchmarks/masking.py`)."""

NOISE = 2.1e-7
"""Seconds for the noise on a value of an update (`benchmarks/differential_privacy.py`)."""

GRADIENTS_OF_ROWS = 1.31
"""Time of a local step with gradients of single rows over a usual one's (`benchmarks/differential_privacy.py`)."""

WARNED = 1.2
"""Alpha above which `check` advises longer tasks."""


@dataclass(frozen=True)
class Overhead:
    """Alpha, the share of each protection in a worker's time without them, and the tokens of a task."""

    alpha: float
    shares: dict[str, float]
    task_tokens: int

    def __str__(self) -> str:
        told = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        text = f"alpha about {self.alpha:.2f} on a machine as this one: {told} of a task of {self.task_tokens:,} tokens"
        more = "; longer tasks (training.local_steps) make it less" if self.alpha > WARNED else ""
        return f"{text}{more}"


def overhead(plan: Plan, cost: Estimate) -> Overhead | None:
    """Return the estimated cost of a run's protections for one core; None for a run without any.

    Time without protections is that of training alone; it is right to a factor of 3, as all estimates of time.
    """
    masks, private = plan.run_file.privacy.secure_aggregation, plan.private
    values, tokens = cost.sizes.trained, plan.task_tokens
    operations = (4 if cost.sizes.base_bytes else 6) * cost.sizes.parameters * tokens
    shares: dict[str, float] = {}
    seconds = operations / cpu_flops([]) if masks is not None or private is not None else 1.0
    if masks is not None:
        seeds = comb(masks.trustees, masks.colluding)
        shares["masks"] = values * (ROUNDING + A_SEED * seeds) / seconds
    if private is not None and private.profile == EXAMPLE:
        shares["gradients of rows"] = GRADIENTS_OF_ROWS - 1.0
    elif private is not None:
        shares["noise"] = values * NOISE / seconds
    return Overhead(1.0 + sum(shares.values()), shares, tokens) if shares else None
