"""Check of SQLite's write-ahead log: SQLite takes a damaged one for a shorter one, without an error.

Each frame's checksum continues the one before. Where a frame fails and the next one continues from it, the frame was
whole once: it is damaged. A last frame that fails may be a commit that a crash cut short.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path

from barnraise.ledger.disk import storage_errors

_HEADER, _FRAME = struct.Struct(">8I"), struct.Struct(">6I")
_BIG_ENDIAN = 0x377F0683
_MAGIC = (0x377F0682, _BIG_ENDIAN)


def damage(path: Path) -> Iterator[int]:
    """Yield the offsets of damaged parts: the header (0), or frames.

    Raises StorageError.
    """
    with storage_errors(path, "read"), path.open("rb") as file:
        start = file.read(_HEADER.size)
        if len(start) < _HEADER.size:
            return
        magic, _, page, _, salt, other_salt, *expected = _HEADER.unpack(start)
        big = magic == _BIG_ENDIAN
        sums = _checksum(start[:24], (0, 0), big)
        if magic not in _MAGIC or sums != tuple(expected):
            yield 0
            return
        offset, failed = _HEADER.size, -1
        while len(frame := file.read(_FRAME.size + page)) == _FRAME.size + page:
            _, _, *salts, first, second = _FRAME.unpack(frame[: _FRAME.size])
            ours = salts == [salt, other_salt]
            whole = _checksum(frame[_FRAME.size :], _checksum(frame[:8], sums, big), big) == (first, second)
            if ours and whole and failed >= 0:
                yield failed
            elif not (ours and whole) and failed >= 0:
                return
            failed = -1 if ours and whole else offset
            sums = first, second
            offset += len(frame)


def _checksum(data: bytes, sums: tuple[int, int], big: bool) -> tuple[int, int]:
    words = array("I", data)
    if big == (sys.byteorder == "little"):
        words.byteswap()
    first, second = sums
    for place in range(0, len(words), 2):
        first = (first + words[place] + second) & 0xFFFFFFFF
        second = (second + words[place + 1] + first) & 0xFFFFFFFF
    return first, second
