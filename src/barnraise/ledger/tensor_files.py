"""Named tensors in a safetensors file, written and read in chunks, without a second copy in memory.

    8 bytes   length of the header, little-endian
    header    JSON: {"name": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}, ...}, spaces up to 8 bytes
    data      the tensors' bytes, one behind the other; the offsets count from here

safetensors' own functions take whole tensors to write, and map the file to read: it then stays on the disk for as long
as the process lives, though it was deleted.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import CorruptionError
from barnraise.core.types import Count
from barnraise.ledger.disk import storage_errors

if TYPE_CHECKING:
    from torch import Tensor

HEADER_LIMIT = 1 << 20
"""Largest header in bytes, enough for thousands of tensors."""

_PREFIX = 8
_METADATA = "__metadata__"
_DTYPES = {"F64": ("float64", 8), "I64": ("int64", 8), "F32": ("float32", 4), "U8": ("uint8", 1)}  # torch's name, bytes
_NAMES = {f"torch.{name}": short for short, (name, _) in _DTYPES.items()}


class _TensorEntry(msgspec.Struct, frozen=True):
    """The place of a tensor in the file."""

    dtype: str
    shape: Annotated[tuple[Count, ...], msgspec.Meta(max_length=8)]
    data_offsets: tuple[Count, Count]


def content(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor on the CPU, without a copy."""
    flat: Any = tensor.detach().contiguous().numpy().reshape(-1)
    return memoryview(flat.view("u1"))


class TensorFile:
    """A file for tensors of the names, types and shapes of `tensors`, whose bytes are `put` there in any order.

    `descriptor` is open for reading and writing, of an empty file; `path` is for errors alone. Any thread may use it.
    """

    def __init__(self, descriptor: int, path: Path, tensors: Mapping[str, Tensor]) -> None:
        self._descriptor, self._path = descriptor, path
        entries, end = {}, 0
        for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):  # aligned
            start, end = end, end + tensor.nbytes
            entries[name] = _TensorEntry(_NAMES[str(tensor.dtype)], tuple(tensor.shape), (start, end))
        header = msgspec.json.encode(entries)
        header += b" " * (-len(header) % 8)
        begin = _PREFIX + len(header)
        self._starts = {name: begin + entry.data_offsets[0] for name, entry in entries.items()}
        with storage_errors(path):
            os.truncate(descriptor, begin + end)
            self._write(len(header).to_bytes(_PREFIX, "little") + header, 0)

    def put(self, name: str, offset: int, data: memoryview) -> None:
        """Write bytes of a tensor from `offset` on.

        StorageError when the disk does not take them.
        """
        with storage_errors(self._path):
            self._write(data, self._starts[name] + offset)

    def get(self, name: str, offset: int, num_bytes: int) -> bytes:
        """Return bytes that were put there.

        StorageError when the disk has lost them.
        """
        with storage_errors(self._path, "read"):
            return os.pread(self._descriptor, num_bytes, self._starts[name] + offset)

    def close(self) -> None:
        """Close the file, which no thread may use any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _write(self, data: bytes | memoryview, offset: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            view, offset = view[written:], offset + written


def read(path: Path, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, each in memory of its own; those of `names` that it has, or all.

    Raises CorruptionError when it is malformed or truncated.
    """
    import torch

    tensors = {}
    with storage_errors(path, "read"), path.open("rb", buffering=0) as file:
        for name, entry, start in _entries(path, file):
            if names is not None and name not in names:
                continue
            tensor = torch.empty(entry.shape, dtype=getattr(torch, _DTYPES[entry.dtype][0]))
            _fill(path, file, start, content(tensor))
            tensors[name] = tensor
    return tensors


def _entries(path: Path, file: FileIO) -> Iterator[tuple[str, _TensorEntry, int]]:
    """Yield name, entry and place of each tensor, none of which lies outside the file."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(_PREFIX), "little")
    begin = _PREFIX + length
    if length > HEADER_LIMIT or begin > size:
        raise _damaged(path, f"its header cannot have {length} bytes")
    try:
        header = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
        entries = {n: msgspec.json.decode(raw, type=_TensorEntry) for n, raw in header.items() if n != _METADATA}
    except MALFORMED as error:
        raise _damaged(path, str(error)) from error
    room = size - begin
    for name, entry in entries.items():
        start, stop = entry.data_offsets
        room -= stop - start
        _, item = _DTYPES.get(entry.dtype, ("", 0))
        if not item or begin + stop > size or room < 0 or stop - start != item * math.prod(entry.shape):
            raise _damaged(path, f"it cannot hold {name!r} as {entry}")
        yield name, entry, begin + start


def _fill(path: Path, file: FileIO, start: int, target: memoryview) -> None:
    file.seek(start)
    while target:
        count = file.readinto(target)
        if not count:
            raise _damaged(path, "it ends too early")
        target = target[count:]


def _damaged(path: Path, reason: str) -> CorruptionError:
    return CorruptionError(f"{path} is damaged: {reason}; resume from the checkpoint before it")
