"""Frames of TenSEAL's ciphertexts: residues come out and go back in, and unknown forms are refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from barnraise.core.errors import InputError
from barnraise.privacy.encryption import keys
from barnraise.privacy.encryption.scheme import MODULUS, SCALE, SLOTS
from barnraise.privacy.encryption.seal_format import SealFrame

KEY = keys.make("barn")


def encrypted(values: np.ndarray) -> bytes:
    return bytes(keys.tenseal().ckks_vector(KEY.context, values.tolist(), SCALE).serialize())


def test_residues_go_through_a_frame_and_back() -> None:
    frame = SealFrame(encrypted(np.zeros(SLOTS)), SCALE)
    found = frame.residues(encrypted(np.arange(SLOTS, dtype=float)))
    assert found.shape == (2, 8192)
    assert int(found.max()) < MODULUS
    vector = keys.tenseal().ckks_vector_from(KEY.context, frame.vector(found))
    assert np.allclose(vector.decrypt(), np.arange(SLOTS), atol=0.02)
    assert np.array_equal(frame.residues(frame.vector(found)), found)


def test_a_ciphertext_of_another_form_is_refused() -> None:
    whole = encrypted(np.zeros(SLOTS))
    damaged = whole.replace(b"\x5e\xa1", b"\x00\x00", 1)
    with pytest.raises(InputError, match=r"install the version that constraints\.txt names"):
        SealFrame(damaged, SCALE)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = encrypted(np.zeros(SLOTS))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="pyarrow, which is not installed"):
        SealFrame(whole, SCALE)
