"""Packed residues: what is packed comes back, bad bytes are refused, and sums are exact."""

from __future__ import annotations

import numpy as np
import pytest

from barnraise.core.errors import PayloadError
from barnraise.privacy.encryption import residues
from barnraise.privacy.encryption.scheme import DEGREE, MODULUS


def drawn(seed: int, blocks: int = 2) -> residues.Residues:
    return np.random.default_rng(seed).integers(0, MODULUS, (blocks, 2, DEGREE), dtype=np.uint64)


def test_packed_residues_come_back() -> None:
    packed = residues.pack(drawn(0))
    assert len(packed) == 2 * residues.BLOCK_BYTES
    assert np.array_equal(residues.unpack(packed), drawn(0))


def test_a_residue_that_is_not_below_the_modulus_is_refused() -> None:
    block = drawn(1, 1)
    block[0, 1, 5] = MODULUS
    with pytest.raises(PayloadError, match=f"a residue of {MODULUS} is not below the modulus"):
        residues.unpack(residues.pack(block))


def test_a_part_of_a_block_is_refused() -> None:
    with pytest.raises(PayloadError, match="are no whole blocks of 98304"):
        residues.unpack(residues.pack(drawn(0))[:-1])


def test_a_sum_equals_that_of_integers_in_any_order() -> None:
    parts = [drawn(seed) for seed in range(5)]
    whole = sum(part.astype(object) for part in parts) % MODULUS
    assert np.array_equal(residues.add(parts).astype(object), whole)
    assert np.array_equal(residues.add(parts[::-1]), residues.add(parts))
    assert np.array_equal(parts[0], drawn(0))


def test_a_sum_of_nothing_and_one_of_other_shapes_are_refused() -> None:
    with pytest.raises(PayloadError, match="needs at least one"):
        residues.add([])
    with pytest.raises(PayloadError, match="is to be added to"):
        residues.add([drawn(0, 1), drawn(0, 2)])
