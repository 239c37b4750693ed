"""Encrypted sums: decrypted they equal the sum of the rounded values, and bad ciphertexts are refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnraise.core.errors import InputError, PayloadError
from barnraise.privacy.encryption import keys
from barnraise.privacy.encryption.cipher import KeyHolder, integers
from barnraise.privacy.encryption.envelope import Agreement, Ciphertext, decode, encode, total
from barnraise.privacy.encryption.scheme import MODULUS, SumBudget

KEY = keys.make("barn")
VALUES = 5000


def agreement(parties: int = 4, bound: float = 1.0, values: int = VALUES) -> Agreement:
    return Agreement("barn", KEY.id, SumBudget(parties, bound), (0, values))


def drawn(seed: int, values: int = VALUES, scale: float = 0.1) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).normal(0, scale, values), -1, 1).astype(np.float32)


@pytest.mark.parametrize("parties", [2, 8, 32])
def test_a_decrypted_sum_equals_the_sum_of_the_rounded_values(parties: int) -> None:
    terms = agreement(parties)
    holder = KeyHolder(KEY, terms)
    weights = np.linspace(0.1, 1.0, parties)
    sent = [encode(holder.encrypt(drawn(seed), weight)) for seed, weight in enumerate(weights)]
    parts = [decode(payload, terms, "ann", fresh=True) for payload in sent]
    summed = decode(encode(total(parts, terms)), terms, "host", fresh=False)
    found = holder.decrypt(summed)
    step = terms.budget.step
    whole = sum(integers(drawn(seed).astype(np.float64) * weight, step) for seed, weight in enumerate(weights))
    assert np.array_equal(found, whole * step)
    exact = sum(drawn(seed).astype(np.float64) * weight for seed, weight in enumerate(weights))
    assert np.linalg.norm(found - exact) <= 1e-4 * np.linalg.norm(exact)


@settings(max_examples=20, deadline=None)
@given(
    values=st.lists(st.floats(-0.25, 0.25, width=32), min_size=1, max_size=5),
    bound=st.sampled_from([0.25, 1.0, 4.0]),
    copies=st.integers(1, 4),
)
def test_values_of_any_pattern_come_back_as_whole_steps(values: list[float], bound: float, copies: int) -> None:
    terms = agreement(4, bound, 1 + len(values))
    holder = KeyHolder(KEY, terms)
    given_values = np.array([bound / 4, *values], dtype=np.float32)
    whole = integers(given_values.astype(np.float64), terms.budget.step)
    parts = [holder.encrypt(given_values) for _ in range(copies)]
    assert np.array_equal(holder.decrypt(total(parts, terms)), copies * whole * terms.budget.step)


def test_values_at_the_bound_fill_a_sum_without_wrapping() -> None:
    terms = agreement(8)
    holder = KeyHolder(KEY, terms)
    full = np.where(np.arange(VALUES) % 3 == 0, -1, 1).astype(np.float32)
    found = holder.decrypt(total([holder.encrypt(full) for _ in range(8)], terms))
    assert np.allclose(np.abs(found), 8.0, rtol=1e-12)


def test_two_encryptions_of_the_same_values_differ() -> None:
    holder = KeyHolder(KEY, agreement())
    first, second = holder.encrypt(drawn(0)), holder.encrypt(drawn(0))
    assert (first.residues != second.residues).mean() > 0.999


def test_a_value_above_the_bound_and_a_vector_too_fine_are_refused() -> None:
    holder = KeyHolder(KEY, agreement())
    with pytest.raises(InputError, match="clip updates to the bound"):
        holder.encrypt(np.full(VALUES, 1.5, dtype=np.float32))
    with pytest.raises(InputError, match="clip updates to the bound"):
        holder.encrypt(drawn(0), weight=100.0)
    with pytest.raises(InputError, match=r"of its norm, at most 0\.0001"):
        holder.encrypt(drawn(0, scale=1e-7))
    with pytest.raises(InputError, match="3 values to encrypt, but the run's ranges have 5000"):
        holder.encrypt(np.zeros(3, dtype=np.float32))
    with pytest.raises(InputError, match="nan"):
        holder.encrypt(np.full(VALUES, np.nan, dtype=np.float32))


def test_another_runs_key_is_refused() -> None:
    with pytest.raises(InputError, match="is not the key"):
        KeyHolder(keys.make("barn"), agreement())


def test_a_ciphertext_of_another_key_is_refused_although_its_header_lies() -> None:
    other = keys.make("barn")
    made = KeyHolder(other, replace(agreement(), key=other.id)).encrypt(drawn(0))
    with pytest.raises(PayloadError, match="it was encrypted with another key, or is no sum of updates"):
        KeyHolder(KEY, agreement()).decrypt(Ciphertext(agreement().header(1), made.residues))


def test_more_updates_than_the_header_says_are_refused() -> None:
    holder = KeyHolder(KEY, agreement())
    part = holder.encrypt(np.ones(VALUES, dtype=np.float32))
    summed = total([part] * 4, agreement())
    with pytest.raises(PayloadError, match="is no sum of updates"):
        holder.decrypt(Ciphertext(agreement().header(1), summed.residues))


def test_a_ciphertext_under_other_terms_is_not_decrypted() -> None:
    made = KeyHolder(KEY, agreement(8)).encrypt(drawn(0))
    with pytest.raises(PayloadError, match="under other terms"):
        KeyHolder(KEY, agreement(4)).decrypt(made)


HOSTILE = f"""
import numpy as np
from barnraise.core.errors import PayloadError
from barnraise.privacy.encryption import keys
from barnraise.privacy.encryption.cipher import KeyHolder
from barnraise.privacy.encryption.envelope import Agreement, Ciphertext, decode, encode
from barnraise.privacy.encryption.scheme import MODULUS, SumBudget

key = keys.make("barn")
terms = Agreement("barn", key.id, SumBudget(4, 1.0), (0, 5000))
holder = KeyHolder(key, terms)
good = encode(holder.encrypt(np.zeros(5000, dtype=np.float32)))
chance = np.random.default_rng(0)
refused = 0
for number in range(60):
    hostile = bytearray(good)
    if number < 20:  # blocks of one residue, which encrypt zero without any key
        at = len(good) - 98304 * (1 + number % 2)
        hostile[at:at + 98304] = [bytes(98304), ({MODULUS - 1}).to_bytes(6, "little") * 16384][number // 2 % 2]
    elif number < 40:
        at = int(chance.integers(0, len(good)))
        hostile[at:at + 64] = chance.bytes(64)[: len(good) - at]
    else:
        hostile = chance.bytes(int(chance.integers(0, len(good))))
    try:
        assert not holder.decrypt(decode(bytes(hostile), terms, "mallory", fresh=True)).any()
    except PayloadError:
        refused += 1
print(refused)
"""


def test_hostile_ciphertexts_do_not_end_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", HOSTILE], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 40


def test_the_modulus_is_the_one_that_the_library_takes() -> None:
    from tenseal.sealapi import CoeffModulus

    assert CoeffModulus.Create(8192, [48, 48])[0].value() == MODULUS
