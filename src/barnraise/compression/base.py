"""The base of codecs: `encode` a float32 vector into one payload, `decode` it, refuse an invalid payload.

A received payload is checked once (`open`) and then decoded span by span, so that no caller needs the whole vector.

A payload is a header of 20 bytes and a body whose layout the codec's docstring gives; everything is little-endian:

    offset  bytes  field
    0       4      tag       which codec wrote it ("f32 ", "f16 ", "int8", "tk32", "tk16" ...)
    4       4      count     unsigned; elements kept (topk), elements a scale (int8), as the codec's docstring says
    8       8      size      unsigned; elements of the vector
    16      4      exponent  signed; half-precision values are to be multiplied by 2**exponent, else 0

Encoding and decoding are elementwise in numpy, one rounding an operation, so their bits depend neither on the number of
threads nor on the instruction set. Codecs for which decoding is not (`portable` is false) cannot write versions, which
every replica must decode to the same bits.
"""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from barnraise.core.errors import InputError, PayloadError
from barnraise.core.threads import SPAN, Crew, spans

from .catalog import CATALOG, HEADER_BYTES

Array: TypeAlias = NDArray[Any]
Sections: TypeAlias = tuple[Array, ...]
HEADER = struct.Struct("<4sIQi")
assert HEADER.size == HEADER_BYTES
_SPAN = 1 << 15  # fits a processor's cache; torch works on no more with one thread
_STRETCH = 1 << 20  # elements of which a sparse codec stores enough to be worth a call


@dataclass(frozen=True)
class Header:
    """The first 20 bytes of a payload."""

    tag: bytes
    count: int
    size: int
    exponent: int


@dataclass(frozen=True)
class Encoded:
    """One encoded vector: `payload` is its read-only, contiguous bytes, `size` the elements it decodes to."""

    payload: memoryview
    size: int

    @property
    def num_bytes(self) -> int:
        return self.payload.nbytes

    def to_bytes(self) -> bytes:
        """Return a copy of the payload."""
        return self.payload.tobytes()

    def frames(self, limit: int = 1 << 20) -> Iterator[memoryview]:
        """Yield the payload in order, in views of at most `limit` bytes; nothing is copied."""
        for start in range(0, self.num_bytes, limit):
            yield self.payload[start : start + limit]


EncodedBytes: TypeAlias = Encoded | bytes | bytearray | memoryview


class Codec(ABC):
    """Base class of codecs.

    A subclass names itself as in the catalog and implements the abstract methods. `name` is the catalog's; `tag` opens
    each payload. `multiple`: spans that begin and end at multiples of it (or at the vector's end) are decoded without
    their neighbours, and encoded, too, where it is `piecewise`. No decoded element is larger than the largest one
    encoded, but for 1%. The `crew` shares the encoding of a whole vector, where that can be shared. With
    `selects_on_devices` only the kept elements of a vector on an accelerator come to main memory.
    """

    name: ClassVar[str]
    tag: bytes
    count_tells_version: ClassVar[bool] = False
    multiple: int = 1
    piecewise: bool = False
    selects_on_devices: ClassVar[bool] = False

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.crew = Crew()

    def max_bytes(self, size: int) -> int:
        """Return the bytes of the payload for `size` elements, exact for all codecs here."""
        return int(CATALOG.entry(self.name).declares.max_bytes(self.options, size))

    def encode(self, vector: Tensor, version: int = 0) -> Encoded:
        """Encode a 1-D float32 tensor (moved to the CPU if it lies elsewhere), without changing it.

        `version` is the version that the vector updates: it chooses the elements that random blocks send. PayloadError
        when an element is not finite; InputError for another shape or type.
        """
        values = float32_array(vector)
        return self.writer(values.size, version).whole(values)

    def writer(self, size: int, version: int = 0) -> Writer:
        """Return a writer of a payload of `size` elements; InputError when there can be none."""
        return Writer(self, size, self.count(size, version))

    def open(self, payload: EncodedBytes, size: int, version: int | None = None) -> Reader:
        """Check `payload` and return a reader of it; takes memory of its size at most, but for `entropy_coded`.

        `size` is the number that the receiver expects, never taken from foreign bytes. PayloadError unless the payload
        decodes to `size` finite elements, and is of `version` if it names one.
        """
        raw, header = self.header(payload, size, version)
        body = np.frombuffer(raw, np.uint8, offset=HEADER.size)
        if body.ctypes.data % 4:  # a slice of a larger message
            body = body.copy()
        return Reader(self, self.parse(header, body), size)

    def header(self, payload: EncodedBytes, size: int, version: int | None = None) -> tuple[memoryview, Header]:
        """Return the bytes of `payload` and its header, once length and header are right; PayloadError as for `open`.

        The numbers are not looked at.
        """
        raw = payload.payload if isinstance(payload, Encoded) else memoryview(payload).cast("B")
        if raw.nbytes != self.max_bytes(size):
            raise PayloadError(
                f"codec '{self.name}': a payload of {raw.nbytes} bytes, but {size} elements take {self.max_bytes(size)}"
            )
        header = Header(*HEADER.unpack_from(raw))
        count = header.count if self.count_tells_version and version is None else self.count(size, version or 0)
        expected = replace(header, tag=self.tag, count=count, size=size)
        if header != expected:
            raise PayloadError(f"codec '{self.name}': the payload says {header}, but {expected} is expected")
        return raw, header

    def wrote(self, payload: EncodedBytes, size: int) -> bool:
        """Return whether `payload` has this codec's tag and its length for a vector of `size` elements."""
        raw = payload.payload if isinstance(payload, Encoded) else memoryview(payload).cast("B")
        return raw.nbytes == self.max_bytes(size) and raw[: len(self.tag)] == self.tag

    def decode(
        self, payload: EncodedBytes, size: int | None = None, out: Tensor | None = None, version: int | None = None
    ) -> Tensor:
        """Decode to the float32 vector [size], all finite, into `out` when given; PayloadError as for `open`.

        `size` may be omitted when `out` is given or for an `Encoded`.
        """
        size = _expected_size(payload, size, out)
        reader = self.open(payload, size, version)
        out = torch.empty(size, dtype=torch.float32) if out is None else out
        reader.read(0, writable(out, size))
        return out

    def decode_add(self, payload: EncodedBytes, out: Tensor, weight: float = 1.0) -> Tensor:
        """Compute out += weight * decoded without a dense temporary.

        PayloadError as for `open`, with `out` untouched.
        """
        size = out.numel()
        self.open(payload, size).add(0, writable(out, size), weight)
        return out

    def count(self, size: int, version: int) -> int:
        """Return the header's count for a vector of `size` elements that is an update of `version`."""
        return 0

    @abstractmethod
    def pack(self, values: Array, body: Array, count: int) -> int:
        """Write `values` (float32) to `body` (bytes), return the header's exponent; PayloadError if not finite."""

    @abstractmethod
    def parse(self, header: Header, body: Array) -> Sections:
        """Return `body`, whose length is right, as typed views; PayloadError for bytes that `pack` never writes."""

    @abstractmethod
    def load(self, sections: Sections, start: int, out: Array) -> None:
        """Decode the elements from `start` on into `out`, which begins and ends at multiples."""

    @abstractmethod
    def add(self, sections: Sections, start: int, out: Array, weight: np.float32) -> None:
        """Compute out += weight * decoded for the same span, the product rounded before the sum."""

    @abstractmethod
    def largest(self, sections: Sections) -> float:
        """Return an upper bound of the decoded elements' magnitudes."""

    def squares(self, sections: Sections, size: int) -> float:
        """Return the sum of the decoded elements' squares, in float64."""
        length = -(-_SPAN // self.multiple) * self.multiple
        scratch, total = np.empty(min(length, size), np.float32), 0.0
        for start in range(0, size, length):
            decoded = scratch[: size - start]
            self.load(sections, start, decoded)
            total += float(np.square(decoded, dtype=np.float64).sum())
        return total


class Reader:
    """A checked payload that any number of threads decode span by span.

    An element decodes to the same bits in any span.
    """

    def __init__(self, codec: Codec, sections: Sections, size: int) -> None:
        self.codec, self.sections, self.size = codec, sections, size

    @property
    def largest(self) -> float:
        """Return an upper bound of the decoded elements' magnitudes, from the payload."""
        return self.codec.largest(self.sections)

    def norm(self) -> float:
        """Return the decoded vector's L2 norm, summed in float64 and without the vector."""
        return math.sqrt(self.codec.squares(self.sections, self.size))

    def read(self, start: int, out: Array) -> None:
        """Decode the elements from `start` on into `out` (float32)."""
        if self._whole(start, out.size):
            self.codec.load(self.sections, start, out)
        else:
            out[:] = self._around(start, out.size)

    def add(self, start: int, out: Array, weight: float = 1.0) -> None:
        """Compute out += weight * decoded for the elements from `start` on; the product is rounded before the sum."""
        factor = np.float32(weight)
        if self._whole(start, out.size):
            self.codec.add(self.sections, start, out, factor)
        else:
            out += self._around(start, out.size) * factor

    def _whole(self, start: int, count: int) -> bool:
        multiple, stop = self.codec.multiple, start + count
        return start % multiple == 0 and (stop % multiple == 0 or stop == self.size)

    def _around(self, start: int, count: int) -> Array:
        """Return a span that begins or ends within a multiple, cut out of one that does not."""
        multiple = self.codec.multiple
        first, last = start // multiple * multiple, min(self.size, -(-(start + count) // multiple) * multiple)
        wider = np.empty(last - first, np.float32)
        self.codec.load(self.sections, first, wider)
        return wider[start - first : start - first + count]


class Writer:
    """Writes a payload of `size` elements: at once or, where the codec is `piecewise`, in spans."""

    def __init__(self, codec: Codec, size: int, count: int) -> None:
        self._codec, self.size, self._count = codec, size, count
        self._buffer = np.empty(codec.max_bytes(size), np.uint8)

    def whole(self, values: Array) -> Encoded:
        """Return the payload of `values` (float32 [size]); PayloadError when an element is not finite."""
        return self.by(lambda body: self._codec.pack(values, body, self._count))

    def by(self, pack: Callable[[Array], int]) -> Encoded:
        """Return the payload whose body `pack` writes; it returns the header's exponent."""
        return self.finish(pack(self._buffer[HEADER.size :]))

    def write(self, start: int, values: Array, decoded: Array | None = None) -> None:
        """Encode the elements from `start` on, which begin and end at multiples, and decode them into `decoded`.

        Any thread may write any span. PayloadError when an element is not finite.
        """
        assert self._codec.piecewise
        assert isinstance(self._codec, PiecewiseCodec)
        self._codec.put(values, self._buffer[HEADER.size :], start, self.size, decoded)

    def finish(self, exponent: int = 0) -> Encoded:
        """Return the payload, once all of it is written."""
        HEADER.pack_into(self._buffer.data, 0, self._codec.tag, self._count, self.size, exponent)
        return Encoded(self._buffer.data.toreadonly(), self.size)


class DenseCodec(Codec):
    """A codec that stores every element: it decodes any span by itself."""

    at_once: int = _SPAN

    @abstractmethod
    def values(self, sections: Sections, start: int, out: Array) -> None:
        """Decode the elements from `start` on, at most `at_once` of them, into `out`."""

    def load(self, sections: Sections, start: int, out: Array) -> None:
        for first in range(0, out.size, self.at_once):
            self.values(sections, start + first, out[first : first + self.at_once])

    def add(self, sections: Sections, start: int, out: Array, weight: np.float32) -> None:
        scratch = np.empty(min(self.at_once, out.size), np.float32)
        for first in range(0, out.size, self.at_once):
            target = out[first : first + self.at_once]
            decoded = scratch[: target.size]
            self.values(sections, start + first, decoded)
            decoded *= weight
            target += decoded


class PiecewiseCodec(DenseCodec):
    """A codec that also encodes any span by itself, so that a version is encoded while it is made."""

    piecewise = True

    @abstractmethod
    def put(self, values: Array, body: Array, start: int, size: int, decoded: Array | None) -> None:
        """Encode `values` as the elements from `start` on of `size`, and decode them into `decoded`."""

    def pack(self, values: Array, body: Array, count: int) -> int:
        found = spans(values.size, -(-SPAN // self.multiple) * self.multiple)
        self.crew.each(lambda span: self.put(values[span], body, span.start, values.size, None), found)
        return 0


class SparseCodec(Codec):
    """A codec that stores some elements, with their places."""

    @abstractmethod
    def entries(self, sections: Sections, start: int, stop: int) -> Sections:
        """Return the stored (places, values) of elements `start` to `stop`; places count from `start`, ascending."""

    def load(self, sections: Sections, start: int, out: Array) -> None:
        places, values = self.entries(sections, start, start + out.size)
        out.fill(0)
        out[places] = values

    def add(self, sections: Sections, start: int, out: Array, weight: np.float32) -> None:
        places, values = self.entries(sections, start, start + out.size)
        out[places] += weight * values

    def squares(self, sections: Sections, size: int) -> float:
        total = 0.0
        for start in range(0, size, _STRETCH):
            _, values = self.entries(sections, start, min(size, start + _STRETCH))
            total += float(np.square(values, dtype=np.float64).sum())
        return total


def float32_array(vector: Tensor) -> Array:
    """Return a 1-D float32 tensor as a contiguous array, sharing memory where it can."""
    if vector.ndim != 1 or vector.dtype != torch.float32:
        raise InputError(
            f"a codec takes a 1-D float32 tensor, got shape {list(vector.shape)} of {vector.dtype}; "
            "flatten it and call .float()"
        )
    array: Array = vector.detach().cpu().contiguous().numpy()
    return array


def largest_magnitude(values: Array) -> float:
    """Return max |x|, 0 for an empty vector; PayloadError when an element is not finite."""
    flat = values.reshape(-1)
    found = [np.maximum(flat[span].max(), -flat[span].min()) for span in spans(flat.size, _SPAN)]
    largest = float(np.max(found, initial=0.0))
    if not np.isfinite(largest):
        raise PayloadError(f"a vector with {int(np.sum(~np.isfinite(values)))} elements that are not finite")
    return largest


def require_finite(values: Array, what: str) -> None:
    """Raise PayloadError unless all of `values` (float32) are finite."""
    for start in range(0, values.size, 1 << 16):
        if not np.isfinite(values[start : start + (1 << 16)]).all():
            raise PayloadError(f"{what} hold NaN or infinity")


def require_no_exponent(name: str, header: Header) -> None:
    """Raise PayloadError when a codec without an exponent is given one."""
    if header.exponent:
        raise PayloadError(f"codec '{name}': the payload has exponent {header.exponent}, but must have 0")


def _expected_size(payload: EncodedBytes, size: int | None, out: Tensor | None) -> int:
    if size is not None:
        return size
    if out is not None:
        return out.numel()
    if isinstance(payload, Encoded):
        return payload.size
    raise InputError("decode needs `size` for bytes: a length that the payload claims is not to be trusted")


def writable(out: Tensor, size: int) -> Array:
    """Return `out` as an array that shares its memory; InputError unless a vector of `size` can be decoded into it."""
    fits = out.dtype == torch.float32 and out.shape == (size,) and out.is_contiguous() and out.device.type == "cpu"
    if not fits:
        raise InputError(
            f"`out` must be a contiguous float32 CPU tensor [{size}], "
            f"got shape {list(out.shape)} of {out.dtype} on {out.device}"
        )
    array: Array = out.detach().numpy()
    return array
