"""A member's share of the noise of a masked sum, so that no machine knows the whole noise of what is released.

With an update x of L2 norm at most C, a weight w of at most W, steps of c / L, and h honest members of a sum:

    q = round(x w / W), with |q| <= C L / c       the bound holds for the rounded numbers themselves
    y = q + N_Z(0, (noise C L / c)^2 / h)         N_Z is the discrete Gaussian

The sum of the h shares is all but a discrete Gaussian of variance (noise C L / c)^2, with which a release of integers
that one unit changes by C L / c has concentrated differential privacy of rho = 1 / (2 noise^2) (Kairouz, Liu and
Steinke 2021, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation", theorem 1).
"All but" adds 10 h exp(-(pi s)^2) for each of d values, where s is a share's standard deviation in steps. From
`LEAST_STEPS` on that is below 1e-60, and nothing is added for it. Continuous noise would not do: rounded shares do not
add up to rounded noise.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from barnraise.core.errors import InputError
from barnraise.privacy.discrete_gaussian import DiscreteGaussian

from .ring import Ring

Array: TypeAlias = NDArray[Any]

LEAST_STEPS = 4.0
"""Standard deviation of a share, in steps of the ring, from which on sums of shares are as good as one Gaussian."""

TAIL = 8.0
"""Standard deviations of a sum's noise for which a ring leaves room: a value is beyond them with probability 1e-15."""

MOST_TRIES = 30
MARGIN = 1.0 - 2.0**-10


class NoiseShare:
    """Rounds updates of L2 norm at most `clip` to the ring without making them longer, and adds the member's noise.

    Raises InputError for a ring whose steps are too coarse for its noise.
    """

    def __init__(self, ring: Ring, clip: float) -> None:
        self.ring, self.bound = ring, clip / ring.step  # the bound is in steps
        if (deviation := ring.deviation / ring.step) < LEAST_STEPS:
            raise InputError(
                f"masks: a share of noise is {deviation:.3g} steps of the ring, must be {LEAST_STEPS:g} or more; raise "
                "privacy.secure_aggregation.value_bits"
            )
        self._gaussian = DiscreteGaussian(deviation**2)

    def bounded(self, values: Array, weight: int) -> Array:
        """Return the words [1 + d] of float32 `values` [d] with this weight, of an L2 norm within the bound.

        Rounding lengthens an update of many small values: it is scaled down until the rounded one fits, and is 0 where
        it never does. PayloadError for values that are not finite.
        """
        scale = 1.0
        for _ in range(MOST_TRIES):
            words = self.ring.quantise(values if scale == 1.0 else values * np.float32(scale), weight)
            length = math.sqrt(float(np.square(self.ring.signed(words[1:])).sum()))
            if length <= self.bound:
                return words
            scale *= MARGIN * self.bound / length
        return self.ring.quantise(np.zeros_like(values), weight)

    def add(self, words: Array) -> None:
        """Add the member's noise to the values of `words` [1 + d], in place."""
        noise = self._gaussian.draw(words.size - 1)
        self.ring.add(words[1:], noise.astype(self.ring.dtype))  # modulo a multiple of 2**b
