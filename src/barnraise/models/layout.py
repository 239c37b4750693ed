"""The place of each named parameter in the one flat float32 vector that travels.

Torch-free.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import PayloadError
from barnraise.models.config import lookup

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=300, pattern=r"^[A-Za-z0-9_.-]+$")]
Shape = Annotated[tuple[Annotated[int, msgspec.Meta(ge=1, le=1 << 40)], ...], msgspec.Meta(min_length=0, max_length=8)]
MAX_PARAMETERS = 1 << 40
_MAX_BYTES = 64 << 20


class LayoutEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One parameter tensor: its name and its shape."""

    name: Name
    shape: Shape

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class FlatLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters in the order in which they fill the vector; shared ones are listed once."""

    entries: Annotated[tuple[LayoutEntry, ...], msgspec.Meta(min_length=1, max_length=200_000)]

    def __post_init__(self) -> None:
        if len({entry.name for entry in self.entries}) < len(self.entries):
            raise ValueError("two parameters have the same name")
        if self.total > MAX_PARAMETERS:
            raise ValueError(f"{self.total} parameters, but a layout may have {MAX_PARAMETERS}")

    @classmethod
    def of(cls, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> FlatLayout:
        return cls(tuple(LayoutEntry(name, shape) for name, shape in shapes))

    @classmethod
    def from_config(cls, resolved: Mapping[str, Any]) -> FlatLayout:
        """Return the layout of a model before it is built; without torch for the architectures of `ARCHITECTURES`."""
        return cls.of(lookup(resolved["model_type"]).shapes(resolved))

    @property
    def total(self) -> int:
        """Return the vector's length d."""
        return sum(entry.size for entry in self.entries)

    def offsets(self) -> Iterator[tuple[LayoutEntry, int, int]]:
        """Yield each entry with its place: vector[start:stop]."""
        start = 0
        for entry in self.entries:
            yield entry, start, start + entry.size
            start += entry.size

    def digest(self) -> str:
        """Return the SHA-256 by which two replicas know that they read the same vector alike."""
        return hashlib.sha256(msgspec.json.encode(self.entries)).hexdigest()

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, content: bytes) -> FlatLayout:
        """Decode a layout; PayloadError unless `content` is one within its limits."""
        if len(content) > _MAX_BYTES:
            raise PayloadError(f"layout has {len(content)} bytes, but may have {_MAX_BYTES}")
        try:
            return msgspec.json.decode(content, type=cls)
        except MALFORMED as error:
            raise PayloadError(f"not a parameter layout: {error}") from error
