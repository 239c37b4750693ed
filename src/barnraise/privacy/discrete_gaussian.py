"""The discrete Gaussian distribution, sampled exactly: integers for noise under masks, without floating-point numbers.

Canonne, Kamath and Steinke 2020, "The Discrete Gaussian for Differential Privacy", algorithms 1 to 3. All draws are of
`secrets`, and all probabilities are ratios of integers, so a sample has exactly the stated distribution. Python's
integers make it slow: some ten microseconds a value.
"""

from __future__ import annotations

import secrets
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from barnraise.core.errors import InputError


def discrete_gaussian(count: int, variance: Fraction | int) -> npt.NDArray[np.int64]:
    """Return `count` integers x with probability proportional to exp(-x^2 / (2 variance)), int64.

    Raises InputError where the variance is not positive.
    """
    variance = Fraction(variance)
    if variance <= 0:
        raise InputError(f"a discrete Gaussian: the variance is {variance}, must be above 0")
    scale = _root(variance) + 1
    return np.array([_sample(variance, scale) for _ in range(count)], np.int64)


def _sample(variance: Fraction, scale: int) -> int:
    """Return one value (algorithm 3): a discrete Laplace of this scale, accepted with the ratio of both densities."""
    while True:
        value = _laplace(scale)
        excess = abs(value) - variance / scale
        if _happens(excess * excess / (2 * variance)):
            return value


def _laplace(scale: int) -> int:
    """Return an integer x with probability proportional to exp(-|x| / scale) (algorithm 2)."""
    while True:
        rest = secrets.randbelow(scale)
        if not _happens(Fraction(rest, scale)):
            continue
        whole = 0
        while _happens(Fraction(1)):
            whole += 1
        size, negative = rest + scale * whole, secrets.randbelow(2)
        if size or not negative:
            return -size if negative else size


def _happens(exponent: Fraction) -> bool:
    """Return true with probability exp(-exponent), for an exponent of at least 0 (algorithm 1)."""
    while exponent > 1:
        if not _within_one(Fraction(1)):
            return False
        exponent -= 1
    return _within_one(exponent)


def _within_one(exponent: Fraction) -> bool:
    """Return the same for an exponent of at most 1: by the parity of the first failure of draws of exponent / k."""
    number = 1
    while secrets.randbelow(exponent.denominator * number) < exponent.numerator:
        number += 1
    return number % 2 == 1


def _root(variance: Fraction) -> int:
    """Return the square root, rounded down."""
    low, high = 0, 1
    while high * high <= variance:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle * middle <= variance else (low, middle)
    return low
