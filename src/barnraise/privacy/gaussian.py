"""Gaussian noise from a cryptographic generator: no seed of the run, and no output, tells any other output.

The stream is AES-256 in counter mode under a fresh key of `os.urandom`. Generators such as Mersenne Twister, Philox or
PCG64 are no choice: their later output can be computed from earlier output or from a short seed, so a reader of some
noise could subtract the rest. `box_muller` turns the stream into float64 numbers.

Floating-point numbers are no real numbers: the bound of a Gaussian mechanism holds for the continuous distribution, and
the set of floats that a sampler reaches depends on the value below it (Mironov 2012, for Laplace). The noise is made
and added in float64 and the sum is rounded once, to float32, which hides the low bits on which known attacks rest, but
no proof covers it. `discrete_gaussian` has none of this: use it where values are integers, as under masks.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

Array = np.ndarray[Any, np.dtype[Any]]

CHUNK = 1 << 16
"""Values that are drawn at a time, even: a core's cache holds them."""


class SecretStream:
    """A stream of random words that nothing outside this process can know or repeat."""

    def __init__(self) -> None:
        self._stream = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()

    def words(self, count: int) -> Array:
        """Return `count` random words, uint64."""
        return np.frombuffer(self._stream.update(bytes(8 * count)), np.uint64)

    def uniform(self, count: int) -> Array:
        """Return `count` numbers in (0, 1], float64: multiples of 2^-53."""
        return ((self.words(count) >> np.uint64(11)) + np.uint64(1)) * 2.0**-53

    def normal(self, count: int) -> Array:
        """Return `count` standard normal numbers, float64."""
        pairs = -(-count // 2)
        return box_muller(self.uniform(pairs), self.uniform(pairs))[:count]

    def chosen(self, count: int, rate: float) -> Array:
        """Return the places, ascending int64, of a Poisson sample: each of `count` is in with probability `rate`."""
        return np.flatnonzero(self.uniform(count) <= rate)


def box_muller(first: Array, second: Array) -> Array:
    """Return two standard normal numbers for each pair of uniform ones in (0, 1] (Box and Muller 1958)."""
    radius, angle = np.sqrt(-2.0 * np.log(first)), 2.0 * np.pi * second
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])


def add_noise(values: Array, deviation: float, stream: SecretStream) -> None:
    """Add Gaussian noise of this standard deviation to each of `values` (float32 [d]), in place."""
    if not deviation:
        return
    for begin in range(0, values.size, CHUNK):
        some = values[begin : begin + CHUNK]
        some[:] = some + deviation * stream.normal(some.size)  # in float64; rounded once
