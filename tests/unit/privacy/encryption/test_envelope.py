"""Ciphertexts as bytes: foreign, stale, damaged and random bytes are refused with the sender and the reason."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from barnraise.core.errors import InputError, PayloadError
from barnraise.privacy.encryption import envelope
from barnraise.privacy.encryption.envelope import Agreement, Ciphertext, decode, encode, total
from barnraise.privacy.encryption.scheme import DEGREE, MODULUS, SumBudget

AGREEMENT = Agreement("barn", "ab" * 16, SumBudget(4, 1.0), (0, 3000, 4096, 7000))


def update(seed: int = 0, agreement: Agreement = AGREEMENT, terms: int = 1) -> Ciphertext:
    blocks = np.random.default_rng(seed).integers(0, MODULUS, (2, 2, DEGREE), dtype=np.uint64)
    return Ciphertext(agreement.header(terms), blocks)


def refused(payload: bytes, *, fresh: bool = True) -> str:
    with pytest.raises(PayloadError) as caught:
        decode(payload, AGREEMENT, "ann", fresh=fresh)
    assert str(caught.value).startswith("ciphertext of ann: ")
    return str(caught.value)


def with_header(**changes: object) -> bytes:
    packed = encode(update())
    header = msgspec.structs.replace(AGREEMENT.header(1), **changes)
    _, _, length = envelope._PREFIX.unpack(packed[:7])
    body = msgspec.msgpack.encode(header)
    return envelope._PREFIX.pack(envelope.MAGIC, envelope.FORMAT, len(body)) + body + packed[7 + length :]


def test_a_ciphertext_comes_back_and_fits_its_bound() -> None:
    packed = encode(update())
    assert len(packed) <= AGREEMENT.most_bytes
    found = decode(packed, AGREEMENT, "ann", fresh=True)
    assert found.header == AGREEMENT.header(1)
    assert np.array_equal(found.residues, update().residues)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": "cd" * 16}, "its key is cdcd"),
        ({"run": "stable"}, "its run is stable, but the run has barn"),
        ({"scheme": "ckks-4096-48"}, "its scheme is ckks-4096-48"),
        ({"ranges": "0" * 16}, "its ranges is"),
        ({"values": 5}, "its values is 5, but the run has 5904"),
        ({"parties": 8}, "its parties is 8, but the run has 4"),
        ({"bound": 2.0}, "its bound is 2.0, but the run has 1.0"),
        ({"bound": float("nan")}, "its bound is nan"),
        ({"terms": 2}, "a sum of 2 updates, at most 1"),
    ],
)
def test_a_ciphertext_under_other_terms_is_refused(change: dict[str, object], said: str) -> None:
    assert said in refused(with_header(**change))


def test_a_field_out_of_its_range_cannot_be_read() -> None:
    assert "cannot be read" in refused(with_header(values=1 << 40))
    assert "cannot be read" in refused(with_header(terms=0))


def test_a_sum_may_have_as_many_updates_as_the_budget() -> None:
    assert decode(encode(update(terms=4)), AGREEMENT, "host", fresh=False).header.terms == 4
    assert "a sum of 5 updates, at most 4" in refused(encode(update(terms=5)), fresh=False)


@pytest.mark.parametrize("cut", [0, 6, 20, 150, -1])
def test_a_ciphertext_that_is_cut_short_is_refused(cut: int) -> None:
    refused(encode(update())[:cut])


def test_a_ciphertext_that_is_too_long_is_refused_before_it_is_read() -> None:
    assert "at most" in refused(bytes(AGREEMENT.most_bytes + 1))


def test_another_format_is_refused_with_the_remedy() -> None:
    packed = bytearray(encode(update()))
    packed[4] = 9
    assert "format 9, but this machine reads format 1; use the same barnraise everywhere" in refused(bytes(packed))


def test_random_and_damaged_bytes_are_refused_or_read() -> None:
    chance = random.Random(5)
    whole = encode(update())
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 8))):
            damaged[chance.randrange(200)] = chance.randrange(256)
        with contextlib.suppress(PayloadError):  # only damaged residues are read
            assert decode(bytes(damaged), AGREEMENT, "ann", fresh=True).header == AGREEMENT.header(1)
        refused(chance.randbytes(chance.randrange(2000)))


def test_a_sum_counts_its_updates_and_refuses_more_than_the_budget() -> None:
    assert total([update(seed) for seed in range(4)], AGREEMENT).header.terms == 4
    with pytest.raises(PayloadError, match="a sum of 5 encrypted updates, at most 4"):
        total([update(seed) for seed in range(5)], AGREEMENT)


def test_ranges_that_do_not_ascend_are_refused() -> None:
    for ranges in ((), (4, 2), (0, 4, 4, 8), (1,)):
        with pytest.raises(InputError, match="do not ascend in pairs"):
            replace(AGREEMENT, ranges=ranges)
