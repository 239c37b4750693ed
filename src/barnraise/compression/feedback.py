"""Error feedback: what a codec leaves out of one contribution is added to the next.

Seide et al. (2014); Karimireddy et al. (2019), "Error Feedback Fixes SignSGD", algorithm 1. The decay is that of
SparseLoCo (Sarfi et al., 2025): e <- beta e + x; send q = codec(e); e <- e - q.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from barnraise.core.errors import InputError

from .base import Codec, Encoded

_SPAN = 1 << 16
WHOLE = slice(None)


class ErrorFeedback:
    """A codec with a memory: the residual, one float32 vector on the CPU, made at the first `compress`.

    `decay` (0 to 1) is the share of the residual that survives into the next contribution.
    A new codec or ratio takes a new ErrorFeedback: a residual fits only the rate that left it.
    """

    def __init__(self, codec: Codec, decay: float = 1.0) -> None:
        if not 0 <= decay <= 1:
            raise InputError(f"error feedback: the decay is {decay}, but must be between 0 and 1")
        self.codec, self.decay = codec, decay
        self._residual: Tensor | None = None

    @property
    def residual(self) -> Tensor | None:
        """The live residual [d]; None while nothing is left over."""
        return self._residual

    @property
    def residual_norm(self) -> float:
        """The L2 norm of the residual."""
        if self._residual is None:
            return 0.0
        spans = self._residual.numpy().reshape(-1)
        squares = [np.square(spans[i : i + _SPAN], dtype=np.float64).sum() for i in range(0, spans.size, _SPAN)]
        return math.sqrt(sum(squares))

    def compress(self, vector: Tensor, version: int = 0, span: slice = WHOLE) -> Encoded:
        """Encode the part `span` of `vector`, an update of `version`, plus the residual, and keep what was left out.

        PayloadError when that is not finite, InputError when the size has changed; either leaves the residual alone.
        """
        total = vector.detach().to("cpu", copy=True)
        if self._residual is not None:
            if self._residual.shape != total.shape:
                raise InputError(
                    f"error feedback: a vector of {total.numel()} elements after one of {self._residual.numel()}; "
                    "call reset() first"
                )
            for start in range(0, total.numel(), _SPAN):
                total[start : start + _SPAN] += self._residual[start : start + _SPAN] * self.decay
        encoded = self.codec.encode(total[span], version)
        self.codec.decode_add(encoded, total[span], weight=-1.0)
        self._residual = total
        return encoded

    def give_back(self, encoded: Encoded, codec: Codec | None = None, span: slice = WHOLE) -> None:
        """Return a refused contribution of `codec` to the residual. PayloadError when another codec or size made it."""
        codec = codec or self.codec
        if self._residual is None:
            self._residual = codec.decode(encoded)
        else:
            codec.decode_add(encoded, self._residual[span])

    def flush(self, codec: Codec | None = None) -> Encoded | None:
        """Encode the residual by itself, undecayed, for a worker that leaves; None when nothing is left over.

        `codec` may be a denser one, since there is no next contribution to carry the rest.
        """
        if self._residual is None:
            return None
        codec = codec or self.codec
        encoded = codec.encode(self._residual)
        codec.decode_add(encoded, self._residual, weight=-1.0)
        return encoded

    def reset(self) -> None:
        """Forget the residual."""
        self._residual = None
