"""The estimated cost of protections for a worker: alpha, the time with them over the time without (equation 9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

from barnraise.config.privacy_sections import EXAMPLE
from barnraise.config.problems import Problem
from barnraise.core.types import WARNED_OVERHEAD
from barnraise.plan.estimate import Estimate
from barnraise.plan.purpose import SIMULATE
from barnraise.plan.resolve import Plan
from barnraise.plan.speed import cpu_flops

ROUNDING, A_SEED = 8.5e-9, 0.5e-9
"""Seconds for a value of a masked update: to round and pack it, and for each seed (`benchmarks/masking.py`)."""

NOISE = 2.1e-7
"""Seconds for the noise on a value of an update (`benchmarks/differential_privacy.py`)."""

ENCRYPTION = 1.2e-6
"""Seconds for a value of an encrypted update, and of a version that is decrypted (`benchmarks/encryption.py`)."""

GRADIENTS_OF_ROWS = 1.31
"""Time of a local step with gradients of single rows over a usual one's (`benchmarks/differential_privacy.py`)."""

UNCERTAINTY = 3.0
"""Factor to which the shares are right: estimated seconds of training are."""

ROWS = "gradients of rows"
"""The name of the share of example-level differential privacy."""


LIMIT = "privacy", "overhead_limit"
"""The key of the run file that limits alpha."""


@dataclass(frozen=True)
class Overhead:
    """Alpha, the share of each protection in a worker's time without them, and the tokens of a task."""

    alpha: float
    shares: dict[str, float]
    task_tokens: int

    def __str__(self) -> str:
        told = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        text = f"alpha about {self.alpha:.2f} on a machine as this one: {told} of a task of {self.task_tokens:,} tokens"
        return f"{text}; {self.remedy}" if self.alpha > WARNED_OVERHEAD else text

    @property
    def least(self) -> float:
        """Return the least alpha that the estimate may stand for."""
        return 1.0 + (self.alpha - 1.0) / UNCERTAINTY

    @property
    def remedy(self) -> str:
        """Return how the largest share gets less."""
        if max(self.shares, key=self.shares.__getitem__) == ROWS:
            return "fewer trained values (training.adapter) make it less"
        return "longer tasks (training.local_steps) make it less"


def overhead(plan: Plan, cost: Estimate) -> Overhead | None:
    """Return the estimated cost of a run's protections for one core; None for a run without any.

    Time without protections is that of training alone; it is right to a factor of 3, as all estimates of time.
    """
    masks, private = plan.run_file.privacy.secure_aggregation, plan.private
    ciphers = plan.run_file.privacy.homomorphic_encryption
    values, tokens = cost.sizes.trained, plan.task_tokens
    operations = (4 if cost.sizes.base_bytes else 6) * cost.sizes.parameters * tokens
    shares: dict[str, float] = {}
    if masks is None and private is None and ciphers is None:
        return None
    seconds = operations / cpu_flops([])
    if masks is not None:
        seeds = comb(masks.trustees, masks.colluding)
        shares["masks"] = values * (ROUNDING + A_SEED * seeds) / seconds
    if private is not None and private.profile == EXAMPLE:
        shares[ROWS] = GRADIENTS_OF_ROWS - 1.0
    elif private is not None:
        shares["noise"] = values * NOISE / seconds
    if ciphers is not None:
        shares["encryption"] = values * ENCRYPTION / seconds
    return Overhead(1.0 + sum(shares.values()), shares, tokens)


def overhead_problems(plan: Plan, cost: Estimate) -> Iterator[Problem]:
    """Yield a problem where alpha is above its limit even if the shares are a third of their estimates."""
    found, limit = _judged(plan, cost)
    if found is not None and found.least > limit:
        yield Problem(LIMIT, f"{_told(found, limit)}; {found.remedy}, or raise the limit")


def overhead_doubts(plan: Plan, cost: Estimate) -> Iterator[Problem]:
    """Yield a warning where the estimated alpha is above its limit, and may be below it."""
    found, limit = _judged(plan, cost)
    if found is not None and found.least <= limit < found.alpha:
        yield Problem(LIMIT, f"{_told(found, limit)}, or less: the run's status shows the measured one; {found.remedy}")


def _judged(plan: Plan, cost: Estimate) -> tuple[Overhead | None, float]:
    """Return the overhead that real workers will have, and its limit."""
    found = None if plan.purpose is SIMULATE else overhead(plan, cost)
    return found, plan.run_file.privacy.overhead_limit


def _told(found: Overhead, limit: float) -> str:
    shares = ", ".join(f"{name} {share:.0%}" for name, share in found.shares.items())
    return (
        f"is {limit:g}, but protections make a worker's time about {found.alpha:.3g} times as long ({shares} of a task "
        f"of {found.task_tokens:,} tokens)"
    )
