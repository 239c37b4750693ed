"""The discrete Gaussian distribution: integers for noise under masks, drawn from a table of cumulative probabilities.

    P(x) = exp(-x^2 / (2 variance)) / sum over all integers y of exp(-y^2 / (2 variance))

as in Canonne, Kamath and Steinke 2020, "The Discrete Gaussian for Differential Privacy". A value is the place of a
secret number of 128 bits in the table, whose entries are rounded to 2**-128 and end where less than 2**-128 is left. So
the distribution of a value differs from the stated one by less than 2**-100 in total variation, which a run of 2**40
values changes to 2**-60: far below any delta. All numbers of a draw are integers.
"""

from __future__ import annotations

import decimal
import math
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from barnraise.core.errors import InputError
from barnraise.privacy.gaussian import SecretStream

MOST_DEVIATION = 1 << 16
"""Largest standard deviation for which a table is made; its time is a second for each 1,300, its memory 15 MiB."""

BITS, HALF = 128, 64
"""Bits of an entry, and those by which it is looked up first."""

DIGITS = 60

CHUNK = 1 << 16
"""Values that are drawn at a time."""


class DiscreteGaussian:
    """Draws integers of the distribution with this variance.

    Raises InputError where the variance is not positive, or beyond `MOST_DEVIATION` squared.
    """

    def __init__(self, variance: float) -> None:
        if not 0 < variance <= MOST_DEVIATION**2:
            raise InputError(
                f"a discrete Gaussian: the variance is {variance}, must be above 0 and at most {MOST_DEVIATION**2}"
            )
        self._bounds = _cumulative(Decimal(variance))
        self._least = -(len(self._bounds) // 2)
        self._upper = np.array([bound >> HALF for bound in self._bounds], np.uint64)
        self._stream = SecretStream()

    def draw(self, count: int) -> npt.NDArray[np.int64]:
        """Return `count` integers, int64."""
        found = np.empty(count, np.int64)
        for begin in range(0, count, CHUNK):
            some = found[begin : begin + CHUNK]
            words = self._stream.words(some.size)
            some[:] = np.searchsorted(self._upper, words, side="right")
            near = np.flatnonzero(self._upper[some - 1] == words)
            for place in near[some[near] > 0]:  # the lower half decides: once in some 2**50 values
                some[place] = self._decided(int(words[place]), int(some[place]))
            some += self._least
        return found

    def _decided(self, word: int, place: int) -> int:
        """Return the place of a number whose upper half equals that of the entry before `place`, or of several."""
        number = (word << HALF) | int(self._stream.words(1)[0])
        while place > 0 and number < self._bounds[place - 1]:
            place -= 1
        return place


def _cumulative(variance: Decimal) -> list[int]:
    """Return the bounds between neighbours in units of 2**-128, ascending: entry i is that above the i-th integer.

    The integers are symmetric around 0; the largest has no bound above.
    """
    with decimal.localcontext() as context:
        context.prec = DIGITS
        reach = math.ceil(math.sqrt(2.0 * (BITS + 8) * math.log(2.0) * float(variance))) + 2
        weights = [(-Decimal(x * x) / (2 * variance)).exp() for x in range(reach + 1)]
        whole = 2 * sum(weights) - weights[0]
        below, bounds = Decimal(0), list[int]()
        for x in range(-reach, reach):
            below += weights[abs(x)]
            bounds.append(min(int(below / whole * 2**BITS), 2**BITS - 1))
    return bounds
