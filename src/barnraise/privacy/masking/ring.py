"""Fixed-point numbers modulo a power of two, whose sum over all members of a list is exact.

A masked update of d values is a vector of d + 1 words modulo 2**b, [w, q_1 ... q_d]: the weight w is an integer from 1
to W = 2**v - 1, and q_j is x_j * w / W in steps of clip / L, L = 2**(v - 1) - 1, where v is `value_bits`. Values
beyond the clip saturate at L. The mean over members i is

    mean_j = clip / L * W * (sum_i q_ij) / (sum_i w_i)

The step follows from the run's terms and never from data, so all members use the same step and the step tells nothing.
Multiplying by w / W <= 1 before rounding keeps the weight out of the ring's width: b = v + ceil(log2(n)) bits hold the
sum of n members, since n * L < 2**(b - 1) and n * W < 2**b.

Rounding is stochastic: a value is rounded up with a probability equal to its fraction, drawn from a private AES stream,
so E[q] is the value itself. The drawn numbers have 16 bits, so the bias is below 2**-16 of a step. Rounding to nearest
would add the same error in each version for a value that stays below half a step.

With a `deviation` each member adds noise of that standard deviation to its values behind the rounding (`noise_share`).
Noise has no bound, so the clip leaves room for that of a sum, and a sum is refused only beyond n * L.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from barnraise.core.errors import InputError, PayloadError
from barnraise.core.threads import spans

from .expand import SEED_BYTES, Stream, fresh_seed

Array: TypeAlias = NDArray[Any]

FEWEST_BITS, MOST_BITS = 2, 16
"""Bits of a value."""

WIDEST = 32
"""Bits of the widest ring."""

LEAST_CLIP, MOST_CLIP = 1e-20, 1e20

SPAN = 1 << 15
_FRACTION = np.float32(1 << 16)


@dataclass(frozen=True)
class Ring:
    """The ring of a run: bits of a value, most members of a sum, and the magnitude at which a value saturates.

    `deviation` is the standard deviation of each member's noise, in the unit of `clip`; 0: members add none here.
    Raises InputError for terms whose sums could wrap or do not fit 32 bits.
    """

    value_bits: int
    most_members: int
    clip: float
    deviation: float = 0.0

    def __post_init__(self) -> None:
        if not FEWEST_BITS <= self.value_bits <= MOST_BITS:
            raise InputError(
                f"masks: a value has {self.value_bits} bits, must have {FEWEST_BITS} to {MOST_BITS}; "
                "10 bits suit most runs"
            )
        if self.most_members < 1:
            raise InputError(f"masks: a sum has at most {self.most_members} members; set it to 1 or more")
        if not LEAST_CLIP <= self.clip <= MOST_CLIP:
            raise InputError(f"masks: values saturate at {self.clip}; set a number from {LEAST_CLIP} to {MOST_CLIP}")
        if not 0 <= self.deviation <= self.clip:
            raise InputError(f"masks: noise of {self.deviation} in a value, must be 0 to {self.clip}")
        if self.bits > WIDEST:
            raise InputError(
                f"masks: sums of {self.most_members} values of {self.value_bits} bits need {self.bits} bits and could "
                f"wrap in {WIDEST}; use at most {WIDEST - (self.most_members - 1).bit_length()} bits a value, or at "
                f"most {1 << (WIDEST - self.value_bits)} members"
            )

    @property
    def bits(self) -> int:
        """Return b, the bits of a word: those of a value, and those that a sum of all members needs above them."""
        return self.value_bits + (self.most_members - 1).bit_length()

    @property
    def limit(self) -> int:
        """Return L, the largest magnitude of a quantised value."""
        return (1 << (self.value_bits - 1)) - 1

    @property
    def step(self) -> float:
        """Return the distance of two neighbouring values."""
        return self.clip / self.limit

    @property
    def most_weight(self) -> int:
        """Return W, the largest weight."""
        return (1 << self.value_bits) - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of a word in memory: little-endian, 16 or 32 bits."""
        return np.dtype("<u2" if self.bits <= 16 else "<u4")

    @property
    def mask(self) -> int:
        """Return 2**b - 1."""
        return (1 << self.bits) - 1

    def weight(self, share: float) -> int:
        """Return the integer weight for a share of the largest weight, from 0 (exclusive) to 1.

        >>> Ring(8, 4, 1.0).weight(0.5)
        128
        """
        return min(self.most_weight, max(1, round(share * self.most_weight)))

    def quantise(self, values: Array, weight: int, seed: bytes | None = None) -> Array:
        """Return the words [1 + d] of float32 `values` [d] with this weight.

        `seed` draws the rounding; it must be private and fresh, and is by default. PayloadError for values that are not
        finite, InputError for a weight outside 1 to W.
        """
        if not 1 <= weight <= self.most_weight:
            raise InputError(f"masks: weight {weight}, must be 1 to {self.most_weight}; scale it with Ring.weight")
        seed = fresh_seed() if seed is None else seed
        assert len(seed) == SEED_BYTES
        words = np.empty(1 + values.size, self.dtype)
        words[0] = weight
        factor = np.float32(weight / self.most_weight * self.limit / self.clip * float(_FRACTION))
        exact = self.limit * weight / self.most_weight * float(_FRACTION)  # a value saturates there
        most = np.float32(exact)
        if float(most) > exact:
            most = np.nextafter(most, np.float32(0.0))
        dice = Stream(seed, np.dtype("<u2"))
        for span in spans(values.size, SPAN):
            with np.errstate(over="ignore"):  # it saturates
                scaled = values[span] * factor
            if not np.isfinite(values[span]).all():
                raise PayloadError("masks: the update has values that are not finite")
            np.clip(scaled, -most, most, out=scaled)
            fixed = scaled.astype(np.int32)
            fixed += dice.words(fixed.size)
            fixed >>= 16
            words[1:][span] = fixed.astype(self.dtype)  # modulo 2**16 or 2**32, of which 2**b is a divisor
        self.reduce(words)
        return words

    def reduce(self, words: Array) -> None:
        """Reduce words modulo 2**b, in place."""
        if self.bits != 8 * self.dtype.itemsize:
            words &= self.dtype.type(self.mask)

    def add(self, total: Array, words: Array) -> None:
        """Compute total += words modulo 2**b, in place."""
        total += words
        self.reduce(total)

    def subtract(self, total: Array, words: Array) -> None:
        """Compute total -= words modulo 2**b, in place."""
        total -= words
        self.reduce(total)

    def decode(self, total: Array, members: int) -> tuple[Array, float]:
        """Return the weighted mean (float32 [d]) of a sum of `members` updates, and the sum of weights as shares.

        Shares are w / W. PayloadError for a sum that honest members cannot have: see `refusal`.
        """
        if reason := self.refusal(total, members):
            raise PayloadError(f"masks: {reason}")
        weights = int(total[0])
        mean = np.empty(total.size - 1, np.float32)
        scale = self.clip / self.limit * self.most_weight / weights
        for span in spans(mean.size, SPAN):
            mean[span] = self.signed(total[1:][span]) * scale
        return mean, weights / self.most_weight

    def refusal(self, total: Array, members: int) -> str:
        """Say why `total` is no sum of `members` honest updates, or return "".

        An honest member has 1 <= w <= W and |q_j| <= L * w / W + 1. The magnitudes of their sum follow.
        """
        weights = int(total[0])
        if not members <= weights <= members * self.most_weight:
            return f"weights sum to {weights}, those of {members} members to {members} to {members * self.most_weight}"
        most = members * self.limit
        if not self.deviation:  # noise is not weighted
            most = min(most, self.limit * weights // self.most_weight + members)
        for span in spans(total.size - 1, SPAN):
            largest = int(np.abs(self.signed(total[1:][span])).max(initial=0))
            if largest > most:
                return f"a value sums to {largest} steps, that of {members} members to at most {most}"
        return ""

    def signed(self, words: Array) -> NDArray[np.int64]:
        """Return words as the integers from -2**(b - 1) to 2**(b - 1) - 1 that they stand for."""
        half = 1 << (self.bits - 1)
        return ((words.astype(np.int64) + half) & self.mask) - half
