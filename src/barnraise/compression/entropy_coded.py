"""Entropy-coded scalar quantisation: every element to the nearest of a few levels, the rarer ones in more bits.

At equal bits this keeps more than the largest elements do (Sullivan, 1996, "Efficient Scalar Quantization of
Exponential and Laplacian Random Variables"; with three levels Sattler et al., 2019, "Robust and Communication-Efficient
Federated Learning from Non-IID Data"): with error feedback on Gaussian data its residual has 0.7 of the energy of that
of `sparse_loco` at 0.8 bits an element, and half of it at 1.6. The code is Huffman's (RFC 1951), by zlib.
"""

from __future__ import annotations

import math
import zlib
from typing import NamedTuple

import numpy as np

from barnraise.core.errors import PayloadError

from .base import Array, DenseCodec, Header, Sections, largest_magnitude, require_no_exponent

LEVELS = 31
SMALLEST = np.float32(1e-30)
_SPAN = 1 << 16
_SAMPLE = 1 << 16
_TRIES = 8
_FILLED = 0.9  # share of the room that ends the search
_HIGHEST = math.log(3e38)
_POWERS = 3 ** np.arange(5, dtype=np.uint8)
_TRITS = np.array([0, 1, -1], np.int8)[np.arange(3**5, dtype=np.uint8)[:, None] // _POWERS % 3]


class Quantised(NamedTuple):
    """A quantised vector: `levels` (int8 [n], -31 to 31), about multiples of `step`, and their `magnitudes`.

    `magnitudes` (float32, ascending) are those of levels 1, 2 ...
    """

    levels: Array
    step: float
    magnitudes: Array
    stream: bytes

    @property
    def num_bytes(self) -> int:
        return 4 + 4 * len(self.magnitudes) + len(self.stream)


class EntropyCoded(DenseCodec):
    """Body: the number of levels (uint32), their magnitudes (float32, ascending), a deflated stream, zeros.

    In the stream one plane follows the other: of each element whether it is 0, positive (1) or negative (2), five to a
    byte in base 3; of each that is not 0 whether it lies beyond the first level, eight to a byte; of each of these
    whether it lies beyond the second, and so on. Magnitudes are the means of the values rounded to a multiple of a
    step, and the step is about the smallest with which `bits` an element suffice. Payloads of one size are equally
    long; the same vector gives other bytes with another zlib, which decode alike. Opening takes a byte an element. The
    error of an element is less than the distance of two levels, but for those beyond the highest; where all are below
    1e-30 they are zero. Where too many elements of one magnitude do not all fit, those of the lowest indices are sent.
    """

    name = "entropy_coded"
    tag = b"ecsq"

    def __init__(self, bits: float) -> None:
        super().__init__(bits=bits)

    def pack(self, values: Array, body: Array, count: int) -> int:
        best = _fitted(values, body.size)
        start = 4 + 4 * len(best.magnitudes)
        body[:4].view("<u4")[0] = len(best.magnitudes)
        body[4:start].view("<f4")[:] = best.magnitudes
        body[start : best.num_bytes] = np.frombuffer(best.stream, np.uint8)
        body[best.num_bytes :] = 0
        return 0

    def parse(self, header: Header, body: Array) -> Sections:
        require_no_exponent(self.name, header)
        num_levels = int(body[:4].view("<u4")[0])
        if num_levels > LEVELS:
            raise PayloadError(f"codec '{self.name}': {num_levels} levels, but at most {LEVELS} are allowed")
        start = 4 + 4 * num_levels
        magnitudes = body[4:start].view("<f4")
        if not (np.isfinite(magnitudes).all() and (np.diff(magnitudes, prepend=0) > 0).all()):
            raise PayloadError(f"codec '{self.name}': magnitudes are not finite, above 0 and ascending")
        levels = _inflated(body[start:], header.size, num_levels)
        return levels, np.concatenate([-magnitudes[::-1], [0], magnitudes]).astype(np.float32)

    def values(self, sections: Sections, start: int, out: Array) -> None:
        levels, table = sections
        np.take(table, levels[start : start + out.size].astype(np.intp) + len(table) // 2, out=out)

    def largest(self, sections: Sections) -> float:
        return float(sections[1][-1])


def _fitted(values: Array, room: int) -> Quantised:
    """Quantise `values` with about the smallest step whose encoding fits into `room` bytes; zeros where none does."""
    best = _measured(values, np.zeros(values.size, np.int8), 0.0)
    largest = largest_magnitude(values)
    if largest < SMALLEST:
        return best
    sample = np.abs(values[:: values.size // _SAMPLE | 1])  # odd, so that it differs from the width of a matrix
    sample = np.sort(sample if sample.any() else np.abs(values))
    low, high = (
        _finest(sample),
        min(math.log(1.9 * largest), _HIGHEST),
    )  # logarithms: too fine, coarse enough
    bits = 0.985 * 8.0 * room / values.size
    finer = best
    for _ in range(_TRIES):
        step = _step(sample, bits)
        if not low < step < high:
            step = (low + high) / 2
        tried = _quantised(values, np.float32(math.exp(step)))
        fits = tried.num_bytes <= room
        low, high = (low, step) if fits else (step, high)
        if not fits:
            finer = tried
        elif tried.num_bytes > best.num_bytes:
            best = tried
        if 0.99 * room <= tried.num_bytes <= room:
            break
        bits *= 0.995 * room / tried.num_bytes
    return best if best.num_bytes > _FILLED * room else _filled_up(values, best, finer, room)


def _filled_up(values: Array, best: Quantised, finer: Quantised, room: int) -> Quantised:
    """Add to `best` about as many of the elements that only `finer`, which is too long, sends as there is room for.

    There are such where many are of one magnitude: no step separates them, and all would wait forever. With error
    feedback the others follow the next time, since omitted elements have grown.
    """
    waiting = ((best.levels == 0) & (finer.levels != 0)).nonzero()[0]
    waiting = waiting[np.argsort(-np.abs(values[waiting]), kind="stable")]
    few, many = 0, len(waiting)
    for _ in range(_TRIES):
        if best.num_bytes > _FILLED * room or many - few < 2:
            break
        middle = (few + many) // 2
        levels = best.levels.copy()
        levels[waiting[few:middle]] = np.sign(values[waiting[few:middle]])
        tried = _measured(values, levels, best.step)
        fits = tried.num_bytes <= room
        few, many = (middle, many) if fits else (few, middle)
        best = tried if fits else best
    return best


def _finest(sample: Array) -> float:
    """Return the logarithm of a step with which few of `sample` (magnitudes) are beyond the highest level."""
    return math.log(math.sqrt(np.square(sample[sample > 0], dtype=np.float64).mean()) * 4 / LEVELS)


def _step(sample: Array, bits: float) -> float:
    """Return the logarithm of the step with which an element of `sample` (ascending) takes about `bits` bits."""
    low, high = _finest(sample), math.log(2.0 * float(sample[-1]))
    for _ in range(30):
        middle = (low + high) / 2
        edges = np.searchsorted(sample, (np.arange(LEVELS) + 0.5) * math.exp(middle))
        shares = np.diff(edges, prepend=0, append=len(sample)) / len(sample)
        some = shares[shares > 0]
        signs, whole_bits = (
            1.0 - shares[0],
            0.07 * shares[0] ** 5,
        )  # bits of a byte that repeats, measured
        taken = signs + whole_bits - (some * np.log2(some)).sum()
        low, high = (middle, high) if taken > bits else (low, middle)
    return high


def _quantised(values: Array, step: np.float32) -> Quantised:
    levels = np.empty(values.size, np.int8)
    scratch = np.empty(min(_SPAN, values.size), np.float32)
    for start in range(0, values.size, _SPAN):
        span = values[start : start + _SPAN]
        steps = np.divide(span, step, out=scratch[: span.size])
        np.rint(steps, out=steps)
        np.clip(steps, -LEVELS, LEVELS, out=steps)
        np.copyto(levels[start : start + _SPAN], steps, casting="unsafe")
    return _measured(values, levels, float(step))


def _measured(values: Array, levels: Array, step: float) -> Quantised:
    """Measure `values` at `levels`: magnitudes are the means there, or the multiple of `step` where there are none."""
    counts, sums = np.zeros(LEVELS + 1, np.int64), np.zeros(LEVELS + 1)
    for start in range(0, values.size, _SPAN):
        places = start + (levels[start : start + _SPAN] != 0).nonzero()[0]  # indices of booleans: seven times as fast
        found = np.abs(levels[places])
        counts += np.bincount(found, minlength=LEVELS + 1)
        sums += np.bincount(found, np.abs(values[places]), LEVELS + 1)
    used = int(counts.nonzero()[0][-1]) if counts.any() else 0
    means = np.where(counts, sums / np.maximum(counts, 1), np.arange(LEVELS + 1) * step)
    return Quantised(levels, step, means[1 : used + 1].astype(np.float32), _deflated(levels))


def _deflated(levels: Array) -> bytes:
    deflate = zlib.compressobj(method=zlib.DEFLATED, wbits=-15, memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    streams = []
    trits = np.zeros((-(-levels.size // 5), 5), np.uint8)
    trits.reshape(-1)[: levels.size] = np.where(levels < 0, 2, levels > 0)
    plane = trits @ _POWERS
    beyond, level = np.abs(levels[levels != 0]), 1
    while plane.size:
        streams += [deflate.compress(plane.tobytes()), deflate.flush(zlib.Z_FULL_FLUSH)]  # each with its own code
        larger = beyond > level
        plane, beyond, level = np.packbits(larger), beyond[larger], level + 1
    return b"".join([*streams, deflate.flush()])


def _inflated(body: Array, size: int, num_levels: int) -> Array:
    """Decode the levels (int8 [size]); PayloadError unless `body` is a stream of `_deflated` and zeros."""
    planes = _Planes(body)
    signs = planes.read(-(-size // 5))
    if signs.size and signs.max() >= len(_TRITS):
        raise PayloadError(f"codec 'entropy_coded': five signs as {signs.max()}, but at most {len(_TRITS) - 1}")
    trits: Array = _TRITS[signs].reshape(-1)
    levels, padded = trits[:size], bool(trits[size:].any())
    beyond, level = (levels != 0).nonzero()[0], 0
    while beyond.size and level < num_levels:
        larger = np.unpackbits(planes.read(-(-beyond.size // 8)))
        padded |= bool(larger[beyond.size :].any())
        beyond, level = beyond[larger[: beyond.size].view(bool)], level + 1
        levels[beyond] += np.sign(levels[beyond])
    planes.end()
    if beyond.size or level < num_levels or padded:
        raise PayloadError(f"codec 'entropy_coded': the planes are not those of {num_levels} levels")
    return levels


class _Planes:
    """A deflated stream, read plane by plane; PayloadError where it is malformed or ends elsewhere.

    Huffman's code takes a bit a byte at least. Deflate also has references to earlier bytes, a thousand of them in a
    few bits, which this encoder never writes: planes of more bytes than the payload has bits are refused unread.
    """

    def __init__(self, body: Array) -> None:
        self._inflate, self._rest, self._left = zlib.decompressobj(wbits=-15), body.tobytes(), 8 * body.size

    def read(self, length: int) -> Array:
        """Return the next `length` bytes; no more are decompressed, whatever the stream holds."""
        self._left -= length
        if self._left < 0:
            raise PayloadError(
                f"codec 'entropy_coded': a plane of {length} bytes, but so many do not fit into the payload"
            )
        plane = self._decompressed(length) if length else b""  # for zlib 0 means any number
        if len(plane) != length:
            raise PayloadError(f"codec 'entropy_coded': a plane of {len(plane)} bytes, but it must have {length}")
        return np.frombuffer(plane, np.uint8)

    def end(self) -> None:
        """Check that the stream ends here, with nothing but zeros behind it."""
        if self._decompressed(1) or not self._inflate.eof or any(self._inflate.unused_data):
            raise PayloadError("codec 'entropy_coded': there is more than its planes")

    def _decompressed(self, most: int) -> bytes:
        try:
            plane = self._inflate.decompress(self._rest, most)
        except zlib.error as error:
            raise PayloadError(f"codec 'entropy_coded': {error}") from error
        self._rest = self._inflate.unconsumed_tail
        return plane
