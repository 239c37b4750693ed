"""Selection and error feedback for vectors on an accelerator, by torch: only kept elements come to main memory.

The results have the bits of `chunks` and `feedback`, whatever the device: no sum is involved, and ties fall alike.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from barnraise.core import ranges
from barnraise.core.errors import PayloadError
from barnraise.core.types import Ranges

from .base import Array, Codec, Encoded, Reader, SparseCodec
from .feedback import ErrorFeedback

_AT_ONCE = 1 << 22
"""Elements whose keys, 8 bytes each, are there at a time."""

_MAGNITUDE = 0x7FFFFFFF


def select(vector: Tensor, chunk: int, kept: int) -> tuple[Array, Array]:
    """Return the places (uint16) and values (float32) of the `kept` largest magnitudes of each chunk: [rows, kept].

    Places ascend; of equal magnitudes the lowest places are kept. `vector` is float32 [d] on any device. PayloadError
    when an element is not finite.
    """
    whole, rest = vector.numel() // chunk * chunk, vector.numel() % chunk
    several = list(torch.split(vector[:whole].view(-1, chunk), max(1, _AT_ONCE // chunk))) if whole else []
    if rest:
        several.append(torch.nn.functional.pad(vector[whole:], (0, chunk - rest)).view(1, chunk))
    found = [_largest(rows, kept) for rows in several]
    places, chosen = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
    if not np.isfinite(chosen).all():  # NaN and infinity have the largest magnitudes
        raise PayloadError("a vector with elements that are not finite")
    return places.astype(np.uint16), chosen


def _largest(rows: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """Return places, int32, and values of the largest magnitudes of each of `rows`.

    A key is a magnitude's bits, and below them how far its place is from the end: no two are equal.
    """
    last = rows.shape[1] - 1  # chunks are a power of two
    from_end = torch.arange(last, -1, -1, device=rows.device)
    keys = (rows.view(torch.int32) & _MAGNITUDE).long().bitwise_left_shift_(last.bit_length()).bitwise_or_(from_end)
    largest = torch.topk(keys, kept, dim=1, sorted=False).values
    places = (last - (largest & last)).sort(dim=1).values
    return places.int(), rows.gather(1, places)


class DeviceFeedback(ErrorFeedback):
    """Error feedback whose residual is where the vectors are."""

    def add(self, vector: Tensor) -> None:
        if (residual := self.fitting(vector)) is not None:
            vector.add_(residual if self.decay == 1.0 else residual * self.decay)

    def keep(self, vector: Tensor, encoded: Encoded, codec: Codec, covered: Ranges | None = None) -> Tensor:
        covered = covered or (0, vector.numel())
        add_read(codec.open(encoded, ranges.size(covered)), vector, covered, -1.0)
        free = self._residual if self._residual is not None else torch.empty_like(vector)
        self._residual = vector
        return free

    def give_back(self, encoded: Encoded, codec: Codec | None = None, covered: Ranges | None = None) -> None:
        if self._residual is None:
            super().give_back(encoded, codec, covered)
            return
        covered = covered or (0, self._residual.numel())
        add_read((codec or self.codec).open(encoded, ranges.size(covered)), self._residual, covered, 1.0)

    def flush(self, codec: Codec | None = None) -> Encoded | None:
        if self._residual is None:
            return None
        there, self._residual = self._residual, self._residual.cpu()
        encoded = super().flush(codec)
        self._residual = there.copy_(self._residual)
        return encoded


def add_read(reader: Reader, vector: Tensor, covered: Ranges, weight: float) -> None:
    """Compute vector += weight * decoded in the ranges `covered` of `vector`, which is on any device."""
    for part in ranges.parts(covered, 0, reader.size):
        target, count = vector[part.here], part.stop - part.start
        if isinstance(reader.codec, SparseCodec) and reader.codec.selects_on_devices:
            kept = reader.codec.entries(reader.sections, part.place, part.place + count)
            places = torch.from_numpy(kept[0].astype(np.int64)).to(vector.device)
            added = torch.from_numpy(kept[1] * np.float32(weight)).to(vector.device)
            target[places] = target[places].add_(added)  # each place is there once
        else:
            decoded = np.zeros(count, np.float32)
            reader.add(part.place, decoded, weight)
            target.add_(torch.from_numpy(decoded).to(vector.device))
