"""Epsilon that noised releases spend, by the privacy loss distribution (PLD) of dp-accounting.

A mechanism adds Gaussian noise of standard deviation `noise` times the largest change that one unit can make. With a
`rate` below 1 each step takes each row with that probability, by itself (Poisson sampling), and the worker tells
no other machine which. Two data sets are neighbours when one has one unit more. `epsilon` is an upper bound: the
distribution is discretised pessimistically (Doroshenko et al. 2022, "Connect the Dots"), in intervals of `INTERVAL`.

With `discrete` the noise is integers that members share (`masking.noise_share`). Their bound is that of concentrated
differential privacy: rho = 1 / (2 noise^2) a step, without sampling. Its epsilon is somewhat larger.

The library is imported at the first use: it is in the extra `privacy`.
"""

from __future__ import annotations

import math
from functools import lru_cache

from barnraise.core.errors import InputError

INTERVAL = 1e-3
"""Interval of the discretised privacy loss: ten times finer ones lower epsilon by less than a thousandth."""

LEAST_NOISE, MOST_NOISE = 0.2, 1e4
"""Multipliers between which the smallest that fits is looked for."""

GRAIN = 1.005
"""Factor between two multipliers that are tried."""


@lru_cache(maxsize=1024)
def epsilon(noise: float, rate: float, steps: int, delta: float, discrete: bool = False) -> float:
    """Return an upper bound of epsilon at `delta` after `steps` steps; InputError where dp-accounting is missing."""
    if steps <= 0:
        return 0.0
    try:
        import dp_accounting as dp
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.rdp import RdpAccountant
    except ImportError:
        raise InputError(
            "a budget of differential privacy needs dp-accounting; run `pip install 'barnraise[privacy]'`"
        ) from None
    if discrete:
        assert rate == 1.0
        concentrated = RdpAccountant(neighboring_relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
        concentrated.compose(dp.ZCDpEvent(0.5 / noise**2), steps)
        return float(concentrated.get_epsilon(delta))
    accountant = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=INTERVAL)
    step = dp.GaussianDpEvent(noise)
    accountant.compose(dp.PoissonSampledDpEvent(rate, step) if rate < 1.0 else step, steps)
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=64)
def smallest_noise(budget: float, rate: float, steps: int, delta: float, discrete: bool = False) -> float:
    """Return the smallest noise multiplier, to half a percent, whose epsilon after `steps` steps is within `budget`.

    Raises InputError where `MOST_NOISE` does not suffice.
    """
    most = math.ceil(math.log(MOST_NOISE / LEAST_NOISE, GRAIN))
    if not epsilon(_tried(most), rate, steps, delta, discrete) <= budget:
        raise InputError(
            f"a budget of epsilon {budget:g} at delta {delta:g} cannot be met in {steps:,} steps: not even noise of "
            f"{MOST_NOISE:g} times the clip suffices; raise epsilon, or lower uses"
        )
    low, high = -1, most
    while high - low > 1:
        middle = (low + high) // 2
        fits = epsilon(_tried(middle), rate, steps, delta, discrete) <= budget
        low, high = (low, middle) if fits else (middle, high)
    return _tried(high)


def most_steps(noise: float, rate: float, budget: float, delta: float, limit: int) -> int:
    """Return how many steps, `limit` at most, keep epsilon within `budget`."""
    if epsilon(noise, rate, limit, delta) <= budget:
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon(noise, rate, middle, delta) <= budget else (low, middle)
    return low


def _tried(number: int) -> float:
    """Return the multiplier of this number, with four significant digits, rounded up."""
    value = LEAST_NOISE * GRAIN**number
    digits = 3 - math.floor(math.log10(value))
    return math.ceil(value * 10.0**digits) / 10.0**digits


def gaussian_epsilon(noise: float, steps: int, delta: float) -> float:
    """Return the exact epsilon of `steps` Gaussian releases without sampling (Balle and Wang 2018, theorem 8).

    With mu = sqrt(steps) / noise: delta = Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu), solved for eps.
    """
    mu = math.sqrt(steps) / noise
    low, high = 0.0, 1.0
    while _gaussian_delta(mu, high) > delta:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _gaussian_delta(mu, middle) > delta else (low, middle)
    return high


def _gaussian_delta(mu: float, eps: float) -> float:
    from scipy.special import log_ndtr

    return math.exp(float(log_ndtr(mu / 2 - eps / mu))) - math.exp(eps + float(log_ndtr(-mu / 2 - eps / mu)))


def noise_share(noise: float, members: int) -> float:
    """Return the multiplier of each member's noise so that the sum of `members` honest ones has `noise`.

    Sums of Gaussian numbers are Gaussian: variances add up. Only where nothing but the sum is seen, and `members` is
    the least number of honest members of a sum: fewer have less noise than was accounted for.
    """
    return noise / math.sqrt(members)
