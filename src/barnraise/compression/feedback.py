"""Error feedback: the elements that a codec omits from one contribution are added to the next.

Seide et al. (2014); Karimireddy et al. (2019), "Error Feedback Fixes SignSGD", algorithm 1. The decay is that of
SparseLoCo (Sarfi et al., 2025): e <- beta e + x; send q = codec(e); e <- e - q.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from barnraise.core import ranges
from barnraise.core.errors import InputError
from barnraise.core.threads import SPAN, Crew, spans
from barnraise.core.types import Ranges

from .base import Array, Codec, Encoded


class ErrorFeedback:
    """A codec with a residual, one float32 vector in main memory, made at the first `compress`.

    `decay` (0 to 1) is the share of the residual that survives into the next contribution. A new codec or ratio takes a
    new ErrorFeedback: a residual fits only the rate that left it. The `crew` shares the work on elements.
    """

    def __init__(self, codec: Codec, decay: float = 1.0, crew: Crew | None = None) -> None:
        if not 0 <= decay <= 1:
            raise InputError(f"error feedback: the decay is {decay}, but must be between 0 and 1")
        self.codec, self.decay, self._crew = codec, decay, crew or Crew()
        self._residual: Tensor | None = None

    @property
    def residual(self) -> Tensor | None:
        """Return the live residual [d]; None while it is empty."""
        return self._residual

    @property
    def residual_norm(self) -> float:
        """Return the L2 norm of the residual."""
        if self._residual is None:
            return 0.0
        return norm(self._residual.numpy(), self._crew)

    def compress(self, vector: Tensor, version: int = 0, covered: Ranges | None = None) -> Encoded:
        """Encode the ranges `covered` of `vector`, an update of `version`, plus the residual; keep the rest.

        `vector` is overwritten. PayloadError when that is not finite, InputError when the size has changed; either
        leaves the residual unchanged.
        """
        self.add(vector)
        encoded = self.codec.encode(gathered(vector, covered), version)
        self.keep(vector.clone(), encoded, self.codec, covered)
        return encoded

    def add(self, vector: Tensor) -> None:
        """Compute vector += beta e, without changing the residual.

        InputError when the size has changed.
        """
        add = self.adder(vector)
        if add is not None:
            self._crew.each(add, spans(vector.numel()))

    def adder(self, vector: Tensor) -> Callable[[slice], None] | None:
        """Return a function that computes vector += beta e for a span, which any thread may call; None: e is 0."""
        if (residual := self.fitting(vector)) is None:
            return None
        decay, total, kept = self.decay, vector.numpy(), residual.numpy()

        def add(span: slice) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # the codec refuses values that are not finite
                np.add(total[span], kept[span] if decay == 1.0 else kept[span] * decay, out=total[span])

        return add

    def fitting(self, vector: Tensor) -> Tensor | None:
        """Return the residual on the device of `vector`; InputError when its size is another."""
        residual = self._residual
        if residual is not None and residual.shape != vector.shape:
            raise InputError(
                f"error feedback: a vector of {vector.numel()} elements after one of {residual.numel()}; "
                "call reset() first"
            )
        self._residual = residual = None if residual is None else residual.to(vector.device)
        return residual

    def keep(self, vector: Tensor, encoded: Encoded, codec: Codec, covered: Ranges | None = None) -> Tensor:
        """Make `vector` the residual, less the encoded part of its ranges `covered` (None: all of it).

        Nothing is copied: `vector` belongs to this object from here on, and the returned one to the caller.
        """
        add_decoded(codec, encoded, vector, covered, -1.0, self._crew)
        free = self._residual if self._residual is not None else torch.empty_like(vector)
        self._residual = vector
        return free

    def give_back(self, encoded: Encoded, codec: Codec | None = None, covered: Ranges | None = None) -> None:
        """Return a refused contribution of `codec` to the residual.

        PayloadError when another codec or size made it.
        """
        codec = codec or self.codec
        if self._residual is None:
            self._residual = codec.decode(encoded)
        else:
            add_decoded(codec, encoded, self._residual, covered, crew=self._crew)

    def flush(self, codec: Codec | None = None) -> Encoded | None:
        """Encode the residual by itself, undecayed, for a worker that leaves; None when it is empty.

        `codec` may be a denser one, since no later contribution carries the rest.
        """
        if self._residual is None:
            return None
        codec = codec or self.codec
        encoded = codec.encode(self._residual)
        codec.decode_add(encoded, self._residual, weight=-1.0)
        return encoded

    def reset(self) -> None:
        """Drop the residual, so that the next contribution starts without one."""
        self._residual = None


def gathered(vector: Tensor, covered: Ranges | None) -> Tensor:
    """Return the elements `covered` of a vector in one piece: a view of one range, or of all (None), else a copy."""
    if covered is None:
        return vector
    found = [vector[start:stop] for start, stop in ranges.pieces(covered)]
    return found[0] if len(found) == 1 else torch.cat(found)


def add_decoded(
    codec: Codec,
    encoded: Encoded,
    vector: Tensor,
    covered: Ranges | None = None,
    weight: float = 1.0,
    crew: Crew | None = None,
) -> None:
    """Compute vector += weight * decoded in the ranges `covered` of `vector`, float32 (None: all of it).

    PayloadError when the payload has another number of elements; `vector` is unchanged then.
    """
    covered = covered or (0, vector.numel())
    reader, out = codec.open(encoded, ranges.size(covered)), vector.numpy()

    def share(span: slice) -> None:
        for part in ranges.parts(covered, span.start, span.stop):
            reader.add(part.place, out[part.here], weight)

    (crew or Crew()).each(share, spans(reader.size, -(-SPAN // codec.multiple) * codec.multiple))


def norm(values: Array, crew: Crew) -> float:
    """Return the L2 norm of float32 [d], summed in float64."""
    return math.sqrt(
        sum(crew.each(lambda span: float(np.square(values[span], dtype=np.float64).sum()), spans(values.size)))
    )
