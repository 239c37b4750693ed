"""Attacks on the bytes: values that no codec writes, in a payload with the right header and length.

Each 4 bytes behind the header are one float32 that is not finite. With the codec `none` that is every element of the
update; of other codecs their scales, values and places. A controller has to refuse it. The worker itself continues with
its honest update.
"""

from __future__ import annotations

import numpy as np

from barnraise.compression.base import HEADER, Encoded

from .base import Attack


class _Filled(Attack):
    """Sends a payload that repeats `value`."""

    value: float

    def payload(self, encoded: Encoded) -> Encoded:
        size = encoded.num_bytes - HEADER.size
        body = np.full(-(-size // 4), self.value, "<f4").tobytes()[:size]
        return Encoded(memoryview(encoded.payload[: HEADER.size].tobytes() + body), encoded.size)


class NotANumber(_Filled):
    """Sends D'_i = NaN for all i: one such value in a mean is a model of NaN."""

    value = float("nan")


class Infinite(_Filled):
    """Sends D'_i = infinity for all i: with another one of the other sign it is NaN, too."""

    value = float("inf")
