"""Residues of ciphertexts as arrays: packed for the wire, unpacked with checks, and added.

A block is two polynomials of `DEGREE` residues modulo `MODULUS`, each little-endian in six bytes. The host adds them
with numpy: integers, so a sum has the same bits on every machine, and no C++ library reads bytes of other machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from barnraise.core.errors import PayloadError

from .scheme import DEGREE, MODULUS, MODULUS_BITS

Residues: TypeAlias = npt.NDArray[np.uint64]
"""Residues below `MODULUS`, of shape [blocks, 2, DEGREE]."""

_RESIDUE_BYTES = MODULUS_BITS // 8
BLOCK_BYTES = 2 * DEGREE * _RESIDUE_BYTES
"""Bytes of one packed block."""


def pack(residues: Residues) -> bytes:
    """Return the residues as bytes, six for each."""
    return residues.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :_RESIDUE_BYTES].tobytes()


def unpack(packed: bytes | memoryview) -> Residues:
    """Return the residues of packed blocks; PayloadError unless each is whole and below the modulus."""
    if len(packed) % BLOCK_BYTES:
        raise PayloadError(f"{len(packed)} bytes of residues are no whole blocks of {BLOCK_BYTES}")
    wide = np.zeros((len(packed) // _RESIDUE_BYTES, 8), dtype=np.uint8)
    wide[:, :_RESIDUE_BYTES] = np.frombuffer(packed, dtype=np.uint8).reshape(-1, _RESIDUE_BYTES)
    residues = wide.view("<u8").astype(np.uint64, copy=False).reshape(-1, 2, DEGREE)
    if residues.size and int(residues.max()) >= MODULUS:
        raise PayloadError(f"a residue of {int(residues.max())} is not below the modulus {MODULUS}")
    return residues


def add(parts: Iterable[Residues]) -> Residues:
    """Return the sum of residues of the same shape, modulo `MODULUS`; the arrays given are left as they are."""
    total: Residues | None = None
    for part in parts:
        if total is None:
            total = part.copy()
            continue
        if total.shape != part.shape:
            raise PayloadError(f"a ciphertext of shape {list(part.shape)} is to be added to {list(total.shape)}")
        total += part
        np.subtract(total, np.uint64(MODULUS), out=total, where=total >= MODULUS)
    if total is None:
        raise PayloadError("a sum of ciphertexts needs at least one")
    return total
