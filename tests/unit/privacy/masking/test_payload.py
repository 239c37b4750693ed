"""The payload: masks cancel exactly, the bytes tell nothing else, and hostile ones are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.maskings import MODEL, member_signer, origin, terms, trustee_sealing, update

from barnraise.core.errors import PayloadError
from barnraise.privacy.masking.expand import add_streams
from barnraise.privacy.masking.payload import UpdateOrigin, mask, parse, plain


@pytest.mark.parametrize(("value_bits", "members"), [(10, 32), (10, 64), (12, 64), (6, 2), (16, 65536)])
def test_masks_cancel_and_leave_the_words_of_an_unmasked_update(value_bits: int, members: int) -> None:
    it = terms(999, value_bits=value_bits, members=members)
    words = it.ring.quantise(np.random.default_rng(0).uniform(-1, 1, 999).astype(np.float32), 2)
    sent = update(it, 1, words)
    masked = sent.read()
    assert not np.array_equal(masked, words)
    opened = {}
    for number in range(4):
        seeds = trustee_sealing(number).open(sent.shares[number], it.binding(*origin(1)), number)
        opened.update(zip(it.committee.known[number], seeds, strict=True))  # type: ignore[union-attr]
    add_streams(masked, [opened[seed] for seed in sorted(opened)], it.ring.mask, subtract=True)
    without = replace(it, committee=None)
    assert np.array_equal(masked, words)
    assert np.array_equal(parse(plain(without, words), without).read(), words)


def test_masked_words_are_uniform_whatever_the_update() -> None:
    it = terms(65536, value_bits=8, members=1)
    sent = update(it, 1, np.zeros(it.num_words, it.ring.dtype)).read()
    counts = np.bincount(sent, minlength=256)
    chi_square = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
    assert 150 < chi_square < 380  # 255 degrees of freedom: beyond it once in a million


def test_two_updates_have_no_seed_in_common() -> None:
    it = terms()
    words = np.zeros(it.num_words, it.ring.dtype)
    one, two = update(it, 1, words), update(it, 1, words)
    assert one.words_digest != two.words_digest
    assert not {one.commitments[i : i + 32] for i in range(0, 128, 32)} & {
        two.commitments[i : i + 32] for i in range(0, 128, 32)
    }


def test_a_signature_is_of_one_origin_and_of_all_parts() -> None:
    it = terms()
    words, key = np.zeros(it.num_words, it.ring.dtype), member_signer(1)
    payload = mask(it, origin(1), words, key)
    sent = parse(payload, it)
    assert sent.refuse_signature(origin(1), key.public) == ""
    others = [origin(2), origin(1, 2), UpdateOrigin("n1", 1, 4, MODEL), UpdateOrigin("n1", 1, 3, "cd" * 32)]
    assert all(sent.refuse_signature(other, key.public) for other in others)
    assert sent.refuse_signature(origin(1), member_signer(2).public)
    for place in (28 + 32, len(payload) - 1):  # a commitment, a word
        changed = bytearray(payload)
        changed[place] ^= 1
        assert parse(changed, it).refuse_signature(origin(1), key.public)


def test_payloads_of_another_length_or_header_are_refused() -> None:
    it = terms()
    payload = mask(it, origin(1), np.zeros(it.num_words, it.ring.dtype), member_signer(1))
    for bad in (b"", payload[:-1], payload + b"\0"):
        with pytest.raises(PayloadError, match="those of this run have"):
            parse(bad, it)
    for place in range(28):
        changed = bytearray(payload)
        changed[place] ^= 0x40
        with pytest.raises(PayloadError, match="header"):
            parse(changed, it)
