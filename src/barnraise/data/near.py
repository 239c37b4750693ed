"""Near-equal texts, by MinHash: the share of their pieces of eight bytes that two texts have in common.

Each piece is hashed once, and each of 128 bins keeps the lowest of its hashes (one permutation hashing; Shrivastava and
Li, 2014, for bins that stay empty). Two texts are compared where they agree in a band of five bins, as nearly all texts
with a similarity (Jaccard) of 0.8 do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

PIECE = 8
BINS, BAND = 128, 5
SIMILAR = 0.8
"""Share of equal bins from which on two texts count as nearly equal."""

Sketch = npt.NDArray[np.uint64]

_BANDS = BINS // BAND
_BIN_NUMBERS = np.arange(BINS)
_BIN_STARTS = np.arange(BINS, dtype=np.uint64) << np.uint64(64 - 7)
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)
_BAND_KEYS = np.random.default_rng(0).integers(1, 2**63, size=BAND, dtype=np.uint64) | np.uint64(1)


def sketch(text: str) -> Sketch:
    """Return the minima of a text's bins: uint64 [128], whatever its case and spaces."""
    content = " ".join(text.lower().split()).encode().ljust(PIECE, b"\0")
    pieces = np.ndarray(len(content) - PIECE + 1, dtype="<u8", buffer=content, strides=(1,))
    hashes = _mixed(pieces.astype(np.uint64))
    hashes.sort()
    starts = np.searchsorted(hashes, _BIN_STARTS)
    filled = np.flatnonzero(np.diff(starts, append=len(hashes)))
    # An empty bin has the value of the next filled one, and how far that is.
    source = filled[np.searchsorted(filled, _BIN_NUMBERS) % len(filled)]
    distance = ((source - _BIN_NUMBERS) % BINS).astype(np.uint64)
    minima: Sketch = hashes[starts[source]] + distance * _SECOND
    return minima


class NearIndex:
    """Sketches of texts, to find those that nearly equal another text."""

    def __init__(self, sketches: list[Sketch]) -> None:
        self._sketches = np.array(sketches, dtype=np.uint64).reshape(-1, BINS)
        bands = _bands(self._sketches).ravel()
        order = np.argsort(bands, kind="stable")
        self._bands, self._owners = bands[order], order // _BANDS

    def has_near(self, text: Sketch) -> bool:
        """Return whether a text of the index is similar to the text of this sketch."""
        bands = _bands(text[None])[0]
        first = np.searchsorted(self._bands, bands)
        met = self._bands[np.minimum(first, len(self._bands) - 1)] == bands if len(self._bands) else first < 0
        if not met.any():
            return False
        last = np.searchsorted(self._bands, bands, "right")
        owners = {int(owner) for start, stop in zip(first, last, strict=True) for owner in self._owners[start:stop]}
        return bool(((self._sketches[sorted(owners)] == text).mean(axis=1) >= SIMILAR).any())


def _bands(sketches: Sketch) -> Sketch:
    """Return a hash of each band of sketches [n, 128]: uint64 [n, 25]."""
    parts = sketches[:, : _BANDS * BAND].reshape(-1, _BANDS, BAND)
    numbers = np.arange(_BANDS, dtype=np.uint64) * _FIRST
    return _mixed((parts * _BAND_KEYS).sum(axis=2, dtype=np.uint64) + numbers)


def _mixed(values: Sketch) -> Sketch:
    """Return well-spread hashes of numbers of 64 bits."""
    values = (values ^ (values >> _HALF)) * _FIRST
    values = (values ^ (values >> _HALF)) * _SECOND
    return values ^ (values >> _HALF)
