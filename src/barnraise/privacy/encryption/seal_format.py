"""Residues in and out of TenSEAL's objects, for bytes that this machine made or has checked itself.

TenSEAL reads a vector as a Protocol Buffers message with the number of values, SEAL's ciphertext and the scale. It
does not compare that number with the ciphertext's slots, and SEAL unpacks what is compressed before it looks at sizes.
So no byte of another machine gets here except residues that `residues.unpack` has checked, in a frame that was copied
from a ciphertext of this machine. The frame and the residues make an uncompressed ciphertext.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from barnraise.core.errors import InputError

from .residues import Residues
from .scheme import DEGREE, SLOTS

_HEADER = struct.Struct("<HBBBBHQ")
"""SEAL's header: magic, its size, major and minor version, mode of compression, reserved, size in bytes."""

_MAGIC, _NONE, _ZSTD = 0xA15E, 0, 2
_RESIDUES_BYTES = 2 * DEGREE * 8
_MOST_FRAME_BYTES = 1024


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def _seal_bytes(vector: bytes) -> bytes:
    """Return the one ciphertext of TenSEAL's message: field 2, behind field 1."""
    length, at = _read_varint(vector, 1)
    length, at = _read_varint(vector, at + length + 1)
    return vector[at : at + length]


class SealFrame:
    """The bytes around the residues of a ciphertext, learned from one that this machine made with this `scale`."""

    def __init__(self, vector: bytes, scale: int) -> None:
        header, raw = _unpacked(_seal_bytes(vector))
        frame = len(raw) - _RESIDUES_BYTES
        if not 0 < frame <= _MOST_FRAME_BYTES:
            raise InputError(
                f"a ciphertext of this TenSEAL has {len(raw)} bytes, {_RESIDUES_BYTES} and a short frame are expected; "
                "install the version that constraints.txt names"
            )
        self._frame = raw[:frame]
        fields = [*header[:4], _NONE, header[5], _HEADER.size + len(raw)]
        whole = _HEADER.pack(*fields)
        counts = _varint(SLOTS)
        self._before = (
            b"\x0a" + _varint(len(counts)) + counts + b"\x12" + _varint(_HEADER.size + len(raw)) + whole + self._frame
        )
        self._after = b"\x19" + struct.pack("<d", scale)

    def residues(self, vector: bytes) -> Residues:
        """Return the residues [2, DEGREE] of a serialised vector that this machine encrypted."""
        _, raw = _unpacked(_seal_bytes(vector))
        if raw[: len(self._frame)] != self._frame or len(raw) != len(self._frame) + _RESIDUES_BYTES:
            raise InputError("a ciphertext of this TenSEAL has another frame than the first one; report this")
        return np.frombuffer(raw, dtype="<u8", offset=len(self._frame)).astype(np.uint64).reshape(2, DEGREE)

    def vector(self, residues: Residues) -> bytes:
        """Return the serialised vector of the residues [2, DEGREE] of a block."""
        return self._before + residues.astype("<u8", copy=False).tobytes() + self._after


def _unpacked(seal: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the header and the unpacked bytes behind it, of a ciphertext that this machine made."""
    header = _HEADER.unpack(seal[: _HEADER.size])
    if header[0] != _MAGIC or header[4] not in (_NONE, _ZSTD):
        raise InputError(
            f"a ciphertext of this TenSEAL has the magic {header[0]:#x} and compression {header[4]}; "
            "install the version that constraints.txt names"
        )
    body = seal[_HEADER.size :]
    return header, body if header[4] == _NONE else _zstd(body)


def _zstd(body: bytes) -> bytes:
    arrow = _arrow()
    room = arrow.CompressedInputStream(arrow.BufferReader(body), "zstd")
    return bytes(room.read(_RESIDUES_BYTES + _MOST_FRAME_BYTES + 1))


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise InputError(
            "ciphertexts are unpacked with pyarrow, which is not installed; pip install 'barnraise[privacy]'"
        ) from error
    return pyarrow
