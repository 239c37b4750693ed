"""The stages between the version's movement and its delta: those of the downlink codec.

The part that the codec leaves out stays in the residual, and is added to the next version. A codec that encodes chunk
by chunk does so as they come. One that must see all before it writes (top-k, one exponent for all) takes a second pass:
the first collects the input in the residual; the second delivers the encoded part.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from barnraise.compression.base import Array, Codec, Reader, Writer
from barnraise.compression.catalog import CATALOG
from barnraise.controller.tensors.stages.base import Making, Stage
from barnraise.core import ranges

_NAME = "the residual of its downlink codec"
_CODED = 1.01  # factor of the largest encoded element up to which a codec decodes


class Residual(Stage):
    """Adds the part that was left out before.

    `vector` [size] is made by the first version.
    """

    def __init__(self) -> None:
        self.vector: Tensor | None = None
        self._carries = False

    def growth(self, making: Making, largest: float, before: Mapping[str, float], after: dict[str, float]) -> float:
        sent = largest + before.get(_NAME, 0.0)
        after[_NAME] = sent + _CODED * sent
        return sent

    def begin(self, making: Making) -> None:
        self._carries = self.vector is not None
        if self.vector is None:
            self.vector = torch.zeros(making.size, dtype=torch.float32)

    def step(self, making: Making, span: slice, values: Array) -> Array:
        if self._carries:
            for here, there in making.parts(span):
                values[there] += self.array(here)
        return values

    def array(self, elements: slice) -> Array:
        """Return these elements of it, writable."""
        assert self.vector is not None
        array: Array = self.vector.numpy()[elements]
        return array

    def vectors(self) -> dict[str, Tensor]:
        return {} if self.vector is None else {_NAME: self.vector}

    def state(self) -> dict[str, Tensor]:
        return {} if self.vector is None else {"residual": self.vector}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.vector = tensors.get("residual")


class Requantise(Stage):
    """Encodes chunks as they come, and passes on their decoded values."""

    def __init__(self, codec: Codec, residual: Residual | None) -> None:
        self._codec, self._residual = codec, residual  # None: the codec leaves nothing out
        self._writer: Writer | None = None

    def prepare(self, making: Making) -> None:
        self._writer = self._codec.writer(ranges.size(making.moving), making.version)

    def growth(self, making: Making, largest: float, before: Mapping[str, float], after: dict[str, float]) -> float:
        return _CODED * largest

    def step(self, making: Making, span: slice, values: Array) -> Array:
        assert self._writer is not None
        if self._residual is None:
            self._writer.write(span.start, values)
            return values
        decoded = np.empty_like(values)
        self._writer.write(span.start, values, decoded)
        for here, there in making.parts(span):
            np.subtract(values[there], decoded[there], out=self._residual.array(here))
        return decoded

    def end(self, making: Making) -> None:
        assert self._writer is not None
        making.encoded, self._writer = self._writer.finish(), None


class Collect(Stage):
    """Collects all input in the residual, and encodes it there: the first of two passes."""

    seals = True

    def __init__(self, codec: Codec, residual: Residual) -> None:
        self._codec, self._residual = codec, residual
        self._writer: Writer | None = None
        self.sent: Reader | None = None

    def prepare(self, making: Making) -> None:
        self._writer = self._codec.writer(ranges.size(making.moving), making.version)

    def step(self, making: Making, span: slice, values: Array) -> Array:
        for here, there in making.parts(span):
            self._residual.array(here)[:] = values[there]
        return values

    def seal(self, making: Making) -> None:
        assert self._writer is not None
        collected = [self._residual.array(slice(*piece)) for piece in ranges.pieces(making.moving)]
        whole = collected[0] if len(collected) == 1 else np.concatenate(collected)
        encoded = making.encoded = self._writer.whole(whole)
        self.sent = self._codec.open(encoded, encoded.size, making.version)

    def end(self, making: Making) -> None:
        self._writer = self.sent = None


class Deliver(Stage):
    """Passes on the encoded part, and removes it from the residual: the second pass."""

    def __init__(self, collected: Collect, residual: Residual) -> None:
        self._collected, self._residual = collected, residual

    def growth(self, making: Making, largest: float, before: Mapping[str, float], after: dict[str, float]) -> float:
        return _CODED * largest

    def step(self, making: Making, span: slice, values: Array) -> Array:
        assert self._collected.sent is not None
        self._collected.sent.read(span.start, values)
        for here, there in making.parts(span):
            residual = self._residual.array(here)
            residual -= values[there]
        return values


def requantising(codec: Codec) -> list[Stage]:
    """Return the stages that `codec` takes."""
    if codec.piecewise and CATALOG.entry(codec.name).declares.lossless:
        return [Requantise(codec, None)]
    residual = Residual()
    if codec.piecewise:
        return [residual, Requantise(codec, residual)]
    collected = Collect(codec, residual)
    return [residual, collected, Deliver(collected, residual)]
