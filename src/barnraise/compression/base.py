"""What every codec is: `encode` a float32 vector into one payload, `decode` it, refuse a payload that lies.

A payload is a header of 20 bytes and a body whose layout the codec's docstring gives; everything is little-endian:

    offset  bytes  field
    0       4      tag       which codec wrote it ("f32 ", "f16 ", "int8", "tk32", "tk16" ...)
    4       4      count     unsigned; elements kept (topk), elements a scale (int8), as the codec's docstring says
    8       8      size      unsigned; elements of the vector
    16      4      exponent  signed; half-precision values are to be multiplied by 2**exponent, else 0

Encoding and decoding are elementwise in numpy, one rounding an operation, so their bits depend neither on the number
of threads nor on the instruction set. Codecs for which decoding is not (`portable` is false) cannot write versions,
which every replica must decode to the same bits.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from barnraise.core.errors import InputError, PayloadError

from .catalog import CATALOG, HEADER_BYTES

Array: TypeAlias = NDArray[Any]
Sections: TypeAlias = tuple[Array, ...]
HEADER = struct.Struct("<4sIQi")
assert HEADER.size == HEADER_BYTES
_SPAN = 1 << 16  # fits a processor's cache


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
        """The payload, copied."""
        return self.payload.tobytes()

    def frames(self, limit: int = 1 << 20) -> Iterator[memoryview]:
        """The payload in order, in views of at most `limit` bytes; nothing is copied."""
        for start in range(0, self.num_bytes, limit):
            yield self.payload[start : start + limit]


Payload: TypeAlias = Encoded | bytes | bytearray | memoryview


class Codec(ABC):
    """One way to write a vector. A subclass names itself as in the catalog and fills in `pack`, `open`, `write`, `add`.

    `name` is the catalog's; `tag` opens each payload.
    """

    name: ClassVar[str]
    tag: bytes
    count_tells_version: ClassVar[bool] = False

    def __init__(self, **options: Any) -> None:
        self.options = options

    def max_bytes(self, size: int) -> int:
        """Bytes of the payload for `size` elements, which is exact for all codecs here."""
        return int(CATALOG.entry(self.name).declares.max_bytes(self.options, size))

    def encode(self, vector: Tensor, version: int = 0) -> Encoded:
        """Encode a 1-D float32 tensor (moved to the CPU if it lies elsewhere), which is left as it is.

        `version` is what the vector is an update of: it chooses the elements that random blocks send.
        PayloadError when an element is not finite; InputError for another shape or type.
        """
        values = float32_array(vector)
        buffer = np.empty(self.max_bytes(values.size), np.uint8)
        count = self.count(values.size, version)
        exponent = self.pack(values, buffer[HEADER.size :], count)
        HEADER.pack_into(buffer.data, 0, self.tag, count, values.size, exponent)
        return Encoded(buffer.data.toreadonly(), values.size)

    def wrote(self, payload: Payload, size: int) -> bool:
        """Whether `payload`, for a vector of `size` elements, bears this codec's tag and has its size."""
        raw = payload.payload if isinstance(payload, Encoded) else memoryview(payload).cast("B")
        return raw.nbytes == self.max_bytes(size) and raw[: len(self.tag)] == self.tag

    def check(self, payload: Payload, size: int, version: int | None = None) -> None:
        """PayloadError unless `payload` decodes to `size` finite elements, and is of `version` where it says of which.

        Allocates no vector.
        """
        self._opened(payload, size, version)

    def decode(
        self, payload: Payload, size: int | None = None, out: Tensor | None = None, version: int | None = None
    ) -> Tensor:
        """The float32 vector [size], all finite, into `out` when given; PayloadError as for `check`.

        `size` is what the receiver expects. It may be left out when `out` is given or for an `Encoded` of our own;
        it is never taken from foreign bytes.
        """
        size = _expected_size(payload, size, out)
        sections = self._opened(payload, size, version)
        out = torch.empty(size) if out is None else out
        self.write(sections, _writable(out, size))
        return out

    def decode_add(self, payload: Payload, out: Tensor, weight: float = 1.0) -> Tensor:
        """out += weight * decoded, without a dense temporary; PayloadError as for `check`, with `out` untouched."""
        size = out.numel()
        self.add(self._opened(payload, size), _writable(out, size), np.float32(weight))
        return out

    def _opened(self, payload: Payload, size: int, version: int | None = None) -> Sections:
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
        body = np.frombuffer(raw, np.uint8, offset=HEADER.size)
        if body.ctypes.data % 4:  # a slice of a larger message
            body = body.copy()
        return self.open(header, body)

    def count(self, size: int, version: int) -> int:
        """The header's count for a vector of `size` elements that is an update of `version`."""
        return 0

    @abstractmethod
    def pack(self, values: Array, body: Array, count: int) -> int:
        """Write `values` (float32) to `body` (bytes), return the header's exponent; PayloadError if not finite."""

    @abstractmethod
    def open(self, header: Header, body: Array) -> Sections:
        """`body`, whose length is right, as typed views; PayloadError for anything that `pack` never writes."""

    @abstractmethod
    def write(self, sections: Sections, out: Array) -> None:
        """Decode all of `sections` into `out`."""

    @abstractmethod
    def add(self, sections: Sections, out: Array, weight: np.float32) -> None:
        """out += weight * decoded, the product rounded before the sum."""


class DenseCodec(Codec):
    """A codec that stores every element: it decodes any span by itself."""

    span: int = 1 << 16

    @abstractmethod
    def values(self, sections: Sections, start: int, out: Array) -> None:
        """Decode the elements from `start` on into `out`; `start` is a multiple of `span`."""

    def write(self, sections: Sections, out: Array) -> None:
        for start in range(0, out.size, self.span):
            self.values(sections, start, out[start : start + self.span])

    def add(self, sections: Sections, out: Array, weight: np.float32) -> None:
        scratch = np.empty(min(self.span, out.size), np.float32)
        for start in range(0, out.size, self.span):
            target = out[start : start + self.span]
            piece = scratch[: target.size]
            self.values(sections, start, piece)
            piece *= weight
            target += piece


class SparseCodec(Codec):
    """A codec whose sections are (indices, values): distinct indices, and float32 values for them."""

    def write(self, sections: Sections, out: Array) -> None:
        indices, values = sections
        out.fill(0)
        out[indices] = values

    def add(self, sections: Sections, out: Array, weight: np.float32) -> None:
        indices, values = sections
        torch.from_numpy(out).scatter_add_(0, torch.from_numpy(indices), torch.from_numpy(weight * values))


def float32_array(vector: Tensor) -> Array:
    """A 1-D float32 tensor as a contiguous array, sharing memory where it can."""
    if vector.ndim != 1 or vector.dtype != torch.float32:
        raise InputError(
            f"a codec takes a 1-D float32 tensor, got shape {list(vector.shape)} of {vector.dtype}; "
            "flatten it and call .float()"
        )
    array: Array = vector.detach().cpu().contiguous().numpy()
    return array


def largest_magnitude(values: Array) -> float:
    """max |x|, 0 for an empty vector; PayloadError when an element is not finite."""
    flat = values.reshape(-1)
    spans = [flat[start : start + _SPAN] for start in range(0, flat.size, _SPAN)]
    largest = float(np.max([np.maximum(span.max(), -span.min()) for span in spans], initial=0.0))
    if not np.isfinite(largest):
        raise PayloadError(f"a vector with {int(np.sum(~np.isfinite(values)))} elements that are not finite")
    return largest


def require_finite(values: Array, what: str) -> None:
    """PayloadError unless all of `values` (float32) are finite."""
    for start in range(0, values.size, 1 << 16):
        if not np.isfinite(values[start : start + (1 << 16)]).all():
            raise PayloadError(f"{what} hold NaN or infinity")


def require_no_exponent(name: str, header: Header) -> None:
    """PayloadError when a codec without an exponent is given one."""
    if header.exponent:
        raise PayloadError(f"codec '{name}': the payload has exponent {header.exponent}, but must have 0")


def _expected_size(payload: Payload, size: int | None, out: Tensor | None) -> int:
    if size is not None:
        return size
    if out is not None:
        return out.numel()
    if isinstance(payload, Encoded):
        return payload.size
    raise InputError("decode needs `size` for bytes: a length that the payload claims is not to be trusted")


def _writable(out: Tensor, size: int) -> Array:
    fits = out.dtype == torch.float32 and out.shape == (size,) and out.is_contiguous() and out.device.type == "cpu"
    if not fits:
        raise InputError(
            f"`out` must be a contiguous float32 CPU tensor [{size}], "
            f"got shape {list(out.shape)} of {out.dtype} on {out.device}"
        )
    array: Array = out.detach().numpy()
    return array
