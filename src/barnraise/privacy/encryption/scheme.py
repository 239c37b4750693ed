"""Parameters of the encryption, and how many updates of which magnitude a sum can hold; no library is needed.

A key holder maps a value x to the integer round(w x / step), at most `levels` large, and encrypts `SLOTS` integers in
one block: a ring element of `DEGREE` coefficients modulo the prime `MODULUS`, encoded with the scale `SCALE`. Each
decrypted slot of a sum of K blocks is the exact integer sum plus noise. The noise of one block has the deviation

    sqrt(DEGREE / 2) (3.2^2 + 1/12)^(1/2) / SCALE = 0.0016

in units of `step`: 3.2 is that of an encrypted coefficient, 1/12 the variance of rounding it, and a slot is a sum
over all coefficients. A sum of more than 512 ciphertexts has a larger scale, and so fewer levels. The key holder
rounds each slot to the nearest integer, which is the exact sum while the noise stays below 1/2. The result holds
nothing of the noise: decrypted values that keep it would give the secret key to a reader who has the ciphertexts too
(Li and Micciancio 2021, eprint 2020/1533). All key holders get the same bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from barnraise.core.errors import InputError

NAME = "ckks-8192-48"
"""The name of these parameters in headers and key files. Other parameters get another name."""

DEGREE = 8192
"""Degree of the ring. With moduli of 96 bits in all it has 256 bits of security (118 bits are allowed at most).

Source: Homomorphic Encryption Standard 2018, table 1, ternary secret.
"""

SLOTS = DEGREE // 2
"""Values of a block."""

MODULUS_BITS = 48
MODULUS = 281_474_976_546_817
"""The prime of a ciphertext, the second largest below 2^48 that is 1 modulo 2 DEGREE. Six bytes hold a residue."""

SCALE_BITS = 17
SCALE: int = 2**SCALE_BITS
"""The factor of an integer before the noise is added, for a sum of at most `FEW_PARTIES` ciphertexts."""

RAW_NOISE = math.sqrt(DEGREE / 2 * (3.2**2 + 1 / 12))
"""Standard deviation of a slot of one block."""

NOISE = RAW_NOISE / SCALE
"""The same in steps of the smallest scale."""

FEW_PARTIES = 512
"""Ciphertexts whose sum has ten deviations of noise in 0.36 steps of the smallest scale; 0.5 away is the next integer.

A sum of four times as many has twice the noise, and so a scale of one bit more."""

MOST_PARTIES = 1 << 20
"""Most ciphertexts of one sum, as one of all updates of a run may have. It leaves 24 bits for its values."""

RELATIVE_ERROR = 1e-4
"""Largest relative error (2-norm) of an update's values that a key holder accepts when it encrypts."""

MOST_VALUES = 1 << 30
"""Most values of one ciphertext."""


def num_blocks(num_values: int) -> int:
    """Return the number of blocks that hold `num_values` values.

    >>> num_blocks(1), num_blocks(4096), num_blocks(4097)
    (1, 1, 2)
    """
    return -(-num_values // SLOTS)


def scale_bits(parties: int) -> int:
    """Return the binary logarithm of the scale for sums of at most `parties` ciphertexts.

    >>> scale_bits(1), scale_bits(512), scale_bits(513), scale_bits(2048), scale_bits(MOST_PARTIES)
    (17, 17, 18, 18, 23)
    """
    return SCALE_BITS + next(bits for bits in range(32) if FEW_PARTIES * 4**bits >= parties)


@dataclass(frozen=True, slots=True)
class SumBudget:
    """The bounds of one sum: at most `parties` ciphertexts, of weighted values of at most `bound` each.

    A `reach` says that no value of the sum is larger; 0: as large as all parties at their bounds make it. `error` is
    the largest relative error (2-norm) by which a key holder may round an update.

    >>> budget = SumBudget(parties=32, bound=0.5)
    >>> budget.levels, round(budget.step * budget.levels, 6)
    (32883343, 0.5)
    """

    parties: int
    bound: float
    reach: float = 0.0
    error: float = RELATIVE_ERROR

    def __post_init__(self) -> None:
        if not 1 <= self.parties <= MOST_PARTIES:
            raise InputError(
                f"{self.parties} ciphertexts in one sum, but its noise allows 1 to {MOST_PARTIES}; "
                "let fewer updates close a version"
            )
        if not (math.isfinite(self.bound) and 1e-30 <= self.bound <= 1e30):
            raise InputError(f"the bound of encrypted values is {self.bound}, must be from 1e-30 to 1e30; change it")
        if self.reach and not self.bound <= self.reach <= self.parties * self.bound:
            raise InputError(
                f"the largest value of a sum is {self.reach}, must be from {self.bound:.6g}, that of one update, to "
                f"{self.parties * self.bound:.6g}, that of all; change it"
            )

    @property
    def scale_bits(self) -> int:
        """Return the binary logarithm of the scale."""
        return scale_bits(self.parties)

    @property
    def scale(self) -> int:
        """Return the factor of an integer before the noise is added."""
        return 1 << self.scale_bits

    @property
    def levels(self) -> int:
        """Return the largest integer of one ciphertext: a full sum with its noise stays below half of the modulus."""
        return int(self.bound / self.step) if self.reach else self._most // self.parties

    @property
    def step(self) -> float:
        """Return the distance between two neighbouring values of the sum."""
        return self.reach / self._most if self.reach else self.bound / self.levels

    @property
    def _most(self) -> int:
        """Return the largest integer of a sum."""
        noise = 20 * RAW_NOISE * math.sqrt(self.parties)
        return int((MODULUS // 2 - noise) * 0.98 / self.scale)

    def largest(self, terms: int) -> int:
        """Return the largest integer of a sum of `terms` ciphertexts."""
        return min(self._most, terms * self.levels)

    def noise(self, terms: int) -> float:
        """Return the largest distance from an integer, in steps, that a sum of `terms` ciphertexts explains."""
        return largest_noise(terms) * SCALE / self.scale

    def refuse_magnitude(self, largest: float) -> None:
        """Raise InputError unless a weighted value of `largest` fits."""
        if not largest <= self.bound:
            raise InputError(
                f"a weighted value of {largest:.6g} is to be encrypted, at most {self.bound:.6g} fits in a sum of "
                f"{self.parties}; clip updates to the bound, or raise the bound for all workers"
            )

    def refuse_error(self, error: float) -> None:
        """Raise InputError when the relative error (2-norm) of the rounded values is too large."""
        if not error <= self.error:
            raise InputError(
                f"rounding to steps of {self.step:.3g} changes the update by {error:.2g} of its norm, at most "
                f"{self.error:g} is allowed; lower the bound from {self.bound:.6g} toward the largest value, or "
                f"let fewer than {self.parties} updates close a version"
            )


def largest_noise(terms: int) -> float:
    """Return the largest distance from an integer, in steps of the smallest scale, that the noise of a sum explains.

    Twelve deviations: an honest slot exceeds them with a chance of 2^-108. A slot that was decrypted with another key
    is uniform, and of 4,096 of them one exceeds it surely.

    >>> round(largest_noise(1), 4), largest_noise(FEW_PARTIES) < 0.5
    (0.0188, True)
    """
    return 12 * NOISE * math.sqrt(terms)
