"""Top-k sparsification: the k elements of largest magnitude, by index and value.

Exact and deterministic: of equal magnitudes the lowest indices are kept. The threshold is guessed from a sample and
corrected among the few candidates above the guess, for sorting ten million elements would cost twenty times as much.
"""

from __future__ import annotations

import math

import numpy as np

from barnraise.core.errors import InputError, PayloadError

from .base import Array, Header, Sections, SparseCodec, largest_magnitude, require_finite, require_no_exponent
from .catalog import kept
from .fp16 import check_half, from_half, largest_half, shared_exponent, to_half

LARGEST_SIZE = (1 << 31) - 1  # indices are int32
_SPAN = 1 << 16
_SAMPLE = 1 << 16


class TopK(SparseCodec):
    """Body: k int32 indices, strictly increasing, then k values, float32 ("tk32") or float16 ("tk16", see fp16).

    k = round(ratio * size), at least 1; the header's count is k. Error: an omitted element is no larger than the least
    kept one; half values add fp16's error.
    """

    name = "topk"

    def __init__(self, ratio: float, half_values: bool) -> None:
        super().__init__(ratio=ratio, half_values=half_values)
        self.ratio, self.half_values = ratio, half_values
        self.tag = b"tk16" if half_values else b"tk32"

    def count(self, size: int, version: int) -> int:
        if size > LARGEST_SIZE:
            raise InputError(f"codec 'topk' takes at most {LARGEST_SIZE} elements, got {size}; use int8")
        return kept(self.ratio, size)

    def pack(self, values: Array, body: Array, count: int) -> int:
        largest_magnitude(values)
        indices, stored = self._sections(body, count)
        indices[:] = largest_indices(values, indices.size)
        chosen = values[indices]
        if not self.half_values:
            stored[:] = chosen
            return 0
        exponent = shared_exponent(chosen)
        to_half(chosen, exponent, stored)
        return exponent

    def parse(self, header: Header, body: Array) -> Sections:
        indices, stored = self._sections(body, header.count)
        if indices.size:
            if indices[0] < 0 or indices[-1] >= header.size:
                raise PayloadError(f"codec 'topk': an index is not between 0 and {header.size - 1}")
            if not (indices[1:] > indices[:-1]).all():
                raise PayloadError("codec 'topk': the indices are not strictly increasing")
        if self.half_values:
            check_half(stored, header.exponent)
        else:
            require_no_exponent(self.name, header)
            require_finite(stored, "the payload's values")
        return indices, stored, np.array(header.exponent)

    def entries(self, sections: Sections, start: int, stop: int) -> Sections:
        indices, stored, exponent = sections
        first, last = np.searchsorted(indices, np.array([start, stop], "<i4"))
        values = stored[first:last]
        if self.half_values:
            values = np.empty(last - first, np.float32)
            from_half(stored[first:last], int(exponent), values)
        return indices[first:last] - np.int32(start), values

    def largest(self, sections: Sections) -> float:
        _, stored, exponent = sections
        return largest_half(stored, int(exponent)) if self.half_values else largest_magnitude(stored)

    def _sections(self, body: Array, count: int) -> tuple[Array, Array]:
        return body[: 4 * count].view("<i4"), body[4 * count :].view("<f2" if self.half_values else "<f4")


def largest_indices(values: Array, k: int) -> Array:
    """Return the indices of the k elements of largest magnitude, ascending; of equal ones the lowest indices.

    `values` is float32 [d], finite, k <= d. Expects two passes over `values`; at worst one selection over all.
    """
    if k == values.size:
        return np.arange(k)
    candidates = _at_least(values, _guess_threshold(values, k))
    if candidates.size < k:  # the sample was misleading: take all
        candidates = np.arange(values.size)
    if candidates.size == k:
        return candidates
    magnitudes = np.abs(values[candidates])
    smallest_kept = np.partition(magnitudes, candidates.size - k)[candidates.size - k]
    chosen = magnitudes > smallest_kept
    ties = np.flatnonzero(magnitudes == smallest_kept)
    chosen[ties[: k - np.count_nonzero(chosen)]] = True
    kept_indices: Array = candidates[chosen]
    return kept_indices


def _guess_threshold(values: Array, k: int) -> float:
    """Return a magnitude that probably a few more than k elements reach; 0 when a sample cannot tell."""
    sample = np.abs(values[:: max(1, values.size // _SAMPLE)])
    expected = sample.size * k / values.size
    rank = math.ceil(1.05 * expected + 4 * math.sqrt(expected) + 4)
    if rank >= sample.size:
        return 0.0
    return float(np.partition(sample, sample.size - rank)[sample.size - rank])


def _at_least(values: Array, threshold: float) -> Array:
    found = []
    for start in range(0, values.size, _SPAN):
        indices = np.flatnonzero(np.abs(values[start : start + _SPAN]) >= threshold)
        indices += start
        found.append(indices)
    return np.concatenate(found)
