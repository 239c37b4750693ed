"""Payloads of accepted contributions, appended to segment files until a checkpoint has made them superfluous.

A record is a header of 28 bytes (magic, assignment, payload length, payload CRC, header CRC) and the payload. Payloads
are written straight from the caller's buffers and are on disk (fdatasync) before anything in the ledger mentions them.
The ledger keeps, in the transaction that accepts them, the position up to which segments count. Everything before
that position must be intact (CorruptionError otherwise); everything after it was never acknowledged, torn or not, and
is dropped at the next start. Each process starts files of its own.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

from barnraise.core.errors import CorruptionError
from barnraise.ledger.disk import fsync_directory, storage_errors

Payload: TypeAlias = bytes | bytearray | memoryview

SEGMENT_BYTES = 64 << 20
"""Size in bytes from which on a segment takes no more records."""

MAGIC = b"BRS1"
_HEADER = struct.Struct("<4sQQI")
_HEADER_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _HEADER_CRC.size

_MAX_BUFFERS = 1024  # IOV_MAX of Linux


class Position(NamedTuple):
    """The end of the last record that counts: a segment's number, and an offset in bytes."""

    number: int
    offset: int


class _Place(NamedTuple):
    """Where a payload lies."""

    number: int
    offset: int
    num_bytes: int
    crc: int


class Segments:
    """The segment files of one run. One thread appends; any thread reads and forgets."""

    def __init__(self, directory: Path, durable: Position, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Index what lies in `directory` up to `durable`, and drop what lies after it.

        Only headers are read here; a payload's CRC is checked when it is read. Raises CorruptionError, naming file
        and offset, when a record before `durable` is not intact, and StorageError.
        """
        self._directory, self._segment_bytes = directory, segment_bytes
        self._lock = threading.Lock()
        self._index: dict[int, _Place] = {}
        self._live: Counter[int] = Counter()
        self._sealed: set[int] = set()
        self._end = durable
        self._descriptor: int | None = None
        with storage_errors(directory, "open"):
            directory.mkdir(exist_ok=True)
            for number in sorted(int(path.stem) for path in directory.glob("*.seg") if path.stem.isdecimal()):
                self._recover(number, durable)

    def __contains__(self, assignment: int) -> bool:
        return assignment in self._index

    def __len__(self) -> int:
        return len(self._index)

    def append(self, payloads: Mapping[int, Payload]) -> Position:
        """Append payloads by assignment, durably; returns the position up to which segments count from now on.

        Appending once more what is here already writes nothing, so that a commit that failed may be repeated. Raises
        StorageError when payloads could not be written; then the segments are as they were before.
        """
        new = {assignment: payload for assignment, payload in payloads.items() if not self._holds(assignment, payload)}
        if new:
            before = self._end
            try:
                with storage_errors(self._directory):
                    places = self._append(new)
            except BaseException:
                self._truncate(before)
                raise
            with self._lock:
                for assignment, place in places.items():
                    self._register(assignment, place)
        return self._end

    def read(self, assignment: int) -> bytes:
        """The payload of an assignment's contribution. Raises CorruptionError when it is damaged or missing."""
        with self._lock:
            place = self._index.get(assignment)
        if place is None:
            raise CorruptionError(f"the payload of contribution {assignment} is missing from {self._directory}")
        path = self._path(place.number)
        with storage_errors(path, "read"), path.open("rb", buffering=0) as file:
            payload = _read_exactly(file.fileno(), place.num_bytes, place.offset)
        if len(payload) != place.num_bytes or zlib.crc32(payload) != place.crc:
            raise _corruption(path, place.offset, f"the payload of contribution {assignment} fails its checksum")
        return payload

    def forget(self, assignments: Iterable[int]) -> None:
        """Give up payloads that will not be read again; a file without any other is deleted.

        This is not journaled: after a restart, call `retain`.
        """
        with self._lock:
            for assignment in assignments:
                place = self._index.pop(assignment, None)
                if place is not None:
                    self._live[place.number] -= 1
            self._delete_empty()

    def retain(self, assignments: Iterable[int]) -> None:
        """Forget all but these."""
        with self._lock:
            known = set(self._index)
        self.forget(known.difference(assignments))

    def close(self) -> None:
        """Close the file being written."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:08d}.seg"

    def _recover(self, number: int, durable: Position) -> None:
        path = self._path(number)
        if number > durable.number:
            path.unlink()
            return
        with path.open("r+b", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            end = durable.offset if number == durable.number else size
            if size < end:
                raise _corruption(path, size, f"the file ends before its last record, at {end}")
            for assignment, place in _scan(path, file.fileno(), number, end):
                self._register(assignment, place)
            if size > end:
                os.ftruncate(file.fileno(), end)
                os.fsync(file.fileno())
        self._sealed.add(number)

    def _holds(self, assignment: int, payload: Payload) -> bool:
        try:
            return assignment in self._index and self.read(assignment) == _as_bytes(payload)
        except CorruptionError:
            return False

    def _register(self, assignment: int, place: _Place) -> None:
        before = self._index.get(assignment)
        if before is not None:
            self._live[before.number] -= 1
        self._index[assignment] = place
        self._live[place.number] += 1

    def _append(self, payloads: Mapping[int, Payload]) -> dict[int, _Place]:
        if self._descriptor is None or self._end.offset >= self._segment_bytes:
            self._start_segment()
        assert self._descriptor is not None
        number, start = self._end
        buffers: deque[memoryview] = deque()
        places: dict[int, _Place] = {}
        end = start
        for assignment, payload in payloads.items():
            view = _as_bytes(payload)
            place = _Place(number, end + HEADER_BYTES, view.nbytes, zlib.crc32(view))
            buffers += (memoryview(_pack_header(assignment, place)), view)
            places[assignment] = place
            end = place.offset + place.num_bytes
        _write_all(self._descriptor, buffers, start)
        os.fdatasync(self._descriptor)
        self._end = Position(number, end)
        return places

    def _start_segment(self) -> None:
        number = self._end.number + 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(self._path(number), flags, 0o644)
        self.close()
        self._descriptor = descriptor
        with self._lock:
            self._sealed.add(self._end.number)
            self._end = Position(number, 0)
            self._delete_empty()
        fsync_directory(self._directory)

    def _truncate(self, before: Position) -> None:
        """Drop what was appended after `before`; a segment begun since stays, empty."""
        if self._descriptor is None:
            return
        offset = before.offset if self._end.number == before.number else 0
        self._end = Position(self._end.number, offset)
        with storage_errors(self._path(self._end.number)):
            os.ftruncate(self._descriptor, offset)
            os.fsync(self._descriptor)

    def _delete_empty(self) -> None:
        for number in [number for number in self._sealed if not self._live[number]]:
            with storage_errors(self._path(number), "delete"):
                self._path(number).unlink(missing_ok=True)
            self._sealed.discard(number)
            del self._live[number]


def _as_bytes(payload: Payload) -> memoryview:
    view = memoryview(payload)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _pack_header(assignment: int, place: _Place) -> bytes:
    header = _HEADER.pack(MAGIC, assignment, place.num_bytes, place.crc)
    return header + _HEADER_CRC.pack(zlib.crc32(header))


def _scan(path: Path, descriptor: int, number: int, end: int) -> Iterator[tuple[int, _Place]]:
    """All records of a file up to `end`, by their headers."""
    offset = 0
    while offset < end:
        header = os.pread(descriptor, HEADER_BYTES, offset)
        checked = header[: _HEADER.size]
        if len(header) < HEADER_BYTES or _HEADER_CRC.pack(zlib.crc32(checked)) != header[_HEADER.size :]:
            raise _corruption(path, offset, "a record's header fails its checksum")
        magic, assignment, num_bytes, crc = _HEADER.unpack(checked)
        start = offset + HEADER_BYTES
        if magic != MAGIC or num_bytes > end - start:
            raise _corruption(path, offset, f"a record of {num_bytes} bytes does not fit the file")
        yield assignment, _Place(number, start, num_bytes, crc)
        offset = start + num_bytes


def _write_all(descriptor: int, buffers: deque[memoryview], offset: int) -> None:
    while buffers:
        written = os.pwritev(descriptor, list(islice(buffers, _MAX_BUFFERS)), offset)
        offset += written
        while buffers and written >= buffers[0].nbytes:
            written -= buffers.popleft().nbytes
        if written:
            buffers[0] = buffers[0][written:]


def _read_exactly(descriptor: int, num_bytes: int, offset: int) -> bytes:
    """`num_bytes` from `offset`, fewer at the end of the file; one read call returns 2 GiB at most."""
    payload = os.pread(descriptor, num_bytes, offset)
    if len(payload) == num_bytes:
        return payload
    parts = [payload]
    while parts[-1]:
        done = sum(map(len, parts))
        parts.append(os.pread(descriptor, num_bytes - done, offset + done))
    return b"".join(parts)


def _corruption(path: Path, offset: int, reason: str) -> CorruptionError:
    return CorruptionError(f"{path} is damaged at byte {offset}: {reason}; restore the file, or resume from a copy")
