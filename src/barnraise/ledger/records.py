"""The records of a segment file: how one is written, and how they are found again, past damage too.

A record is a header of 28 bytes (magic, assignment, payload length, payload CRC, header CRC) and the payload. The magic
tells the first record of a commit from those that follow in it.
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
"""The magic of a commit's first record, and of the others; directories of before know the second alone."""

_HEADER = struct.Struct("<4sQQI")
_HEADER_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _HEADER_CRC.size

_COMMON = b"BRS"
_WINDOW = 1 << 20
_MAX_BUFFERS = 1024  # IOV_MAX of Linux


class Place(NamedTuple):
    """Where a payload lies."""

    number: int
    offset: int
    num_bytes: int
    crc: int


class Record(NamedTuple):
    """A record by its header. `first`: it begins a commit."""

    assignment: int
    place: Place
    first: bool


class Damage(NamedTuple):
    """What lies at `offset` is no record."""

    offset: int
    reason: str


def pack_header(assignment: int, place: Place, first: bool) -> bytes:
    """The 28 bytes before the payload that is to lie at `place`."""
    header = _HEADER.pack(FIRST if first else FURTHER, assignment, place.num_bytes, place.crc)
    return header + _HEADER_CRC.pack(zlib.crc32(header))


def scan(descriptor: int, number: int, start: int, end: int) -> Iterator[Record | Damage]:
    """All records from `start` to `end` of a file, by their headers.

    After damage it goes on with the next header that is intact. A payload may imitate one, so what is found there must
    not take the place of what was found before.
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
    """Whether the payload at `place` matches its checksum."""
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
    """`num_bytes` from `offset`, fewer at the end of the file; one read call returns 2 GiB at most."""
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
    """Where the next record begins whose header is intact; `end` when there is none."""
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
