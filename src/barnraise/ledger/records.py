"""The records of a segment file: writing, and finding them again, past damage too.

A record is a header of 28 bytes (magic, assignment, payload length, payload CRC, header CRC) and the payload. The magic
distinguishes the first record of a commit from the others.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

FIRST, FURTHER = b"BRS2", b"BRS1"
"""The magic of a commit's first record, and of the others; older directories have the second alone."""

_HEADER = struct.Struct("<4sQQI")
_HEADER_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _HEADER_CRC.size

_COMMON = b"BRS"
_WINDOW = 1 << 20
_MAX_BUFFERS = 1024  # Linux's IOV_MAX


class Place(NamedTuple):
    """The place of a payload in a segment."""

    number: int
    offset: int
    num_bytes: int
    crc: int


class Record(NamedTuple):
    """A record by its header; `first`: it begins a commit."""

    assignment: int
    place: Place
    first: bool


class Damage(NamedTuple):
    """A place, `offset`, where there is no valid record."""

    offset: int
    reason: str


def pack_header(assignment: int, place: Place, first: bool) -> bytes:
    """Return the 28 bytes before the payload that is to lie at `place`."""
    header = _HEADER.pack(FIRST if first else FURTHER, assignment, place.num_bytes, place.crc)
    return header + _HEADER_CRC.pack(zlib.crc32(header))


def scan(descriptor: int, number: int, start: int, end: int) -> Iterator[Record | Damage]:
    """Yield all records from `start` to `end` of a file, by their headers.

    After damage it continues at the next intact header. A payload may imitate one, so a record from there must not
    replace an earlier one.
    """
    offset = start
    while offset < end:
        found = _record(descriptor, number, offset, end)
        yield found
        if isinstance(found, Record):
            offset = found.place.offset + found.place.num_bytes
        else:
            offset = _next_record(descriptor, number, offset + 1, end)


def intact(descriptor: int, place: Place) -> bool:
    """Return whether the payload at `place` matches its checksum."""
    payload = read_exactly(descriptor, place.num_bytes, place.offset)
    return len(payload) == place.num_bytes and zlib.crc32(payload) == place.crc


def write_all(descriptor: int, buffers: deque[memoryview], offset: int) -> None:
    """Write `buffers`, which are used up, from `offset` on."""
    while buffers:
        written = os.pwritev(descriptor, list(islice(buffers, _MAX_BUFFERS)), offset)
        offset += written
        while buffers and written >= buffers[0].nbytes:
            written -= buffers.popleft().nbytes
        if written:
            buffers[0] = buffers[0][written:]


def read_exactly(descriptor: int, num_bytes: int, offset: int) -> bytes:
    """Read `num_bytes` from `offset`, fewer at the end of the file; one read call returns 2 GiB at most."""
    payload = os.pread(descriptor, num_bytes, offset)
    if len(payload) == num_bytes:
        return payload
    chunks = [payload]
    while chunks[-1]:
        done = sum(map(len, chunks))
        chunks.append(os.pread(descriptor, num_bytes - done, offset + done))
    return b"".join(chunks)


def _record(descriptor: int, number: int, offset: int, end: int) -> Record | Damage:
    header = os.pread(descriptor, HEADER_BYTES, offset)
    checked = header[: _HEADER.size]
    if len(header) < HEADER_BYTES or _HEADER_CRC.pack(zlib.crc32(checked)) != header[_HEADER.size :]:
        return Damage(offset, "a record's header fails its checksum")
    magic, assignment, num_bytes, crc = _HEADER.unpack(checked)
    start = offset + HEADER_BYTES
    if magic not in (FIRST, FURTHER) or num_bytes > end - start:
        return Damage(offset, f"a record of {num_bytes} bytes does not fit the file")
    return Record(assignment, Place(number, start, num_bytes, crc), magic == FIRST)


def _next_record(descriptor: int, number: int, offset: int, end: int) -> int:
    """Return where the next record with an intact header begins; `end` when there is none."""
    while offset < end:
        window = os.pread(descriptor, min(_WINDOW, end - offset), offset)
        place = window.find(_COMMON)
        while place >= 0:
            if isinstance(_record(descriptor, number, offset + place, end), Record):
                return offset + place
            place = window.find(_COMMON, place + 1)
        if len(window) < _WINDOW:
            break
        offset += len(window) - len(_COMMON) + 1
    return end
