"""Sealed shares open for one trustee and one update, and for nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from tests.maskings import committee, trustee_sealing

from barnraise.core.errors import InputError, PayloadError
from barnraise.privacy.masking.committee import Committee
from barnraise.privacy.masking.sealing import SealingKey, committed, draw_seeds, seal, share_bytes
from barnraise.transport.identity import Keys

BINDING = bytes(32)


def test_each_trustee_opens_the_seeds_that_it_may_know() -> None:
    them = committee(8, 2)
    seeds = draw_seeds(them)
    ephemeral, shares = seal(them, seeds, BINDING)
    for number, share in enumerate(shares):
        assert len(share) == share_bytes(them)
        opened = trustee_sealing(number).open(ephemeral + share, BINDING, number)
        assert opened == [seeds[seed] for seed in them.known[number]]


def test_a_share_opens_for_no_other_update_trustee_or_bytes() -> None:
    them = committee()
    ephemeral, shares = seal(them, draw_seeds(them), BINDING)
    share, key = ephemeral + shares[0], trustee_sealing(0)
    changed = bytearray(share)
    changed[40] ^= 1
    for bad, binding, number, of in [
        (share, bytes([1, *BINDING[1:]]), 0, key),
        (share, BINDING, 1, key),
        (share, BINDING, 0, trustee_sealing(1)),
        (ephemeral + shares[1], BINDING, 0, key),
        (bytes(changed), BINDING, 0, key),
        (share[:-1], BINDING, 0, key),
        (bytes(len(share)), BINDING, 0, key),
        (b"", BINDING, 0, key),
    ]:
        with pytest.raises(PayloadError, match="does not open"):
            of.open(bad, binding, number)


def test_an_ephemeral_key_is_never_used_again() -> None:
    them = committee()
    seeds = draw_seeds(them)
    assert len({seal(them, seeds, BINDING)[0] for _ in range(20)}) == 20


def test_commitments_are_digests_of_the_seeds() -> None:
    seeds = draw_seeds(committee())
    assert committed(seeds) == b"".join(hashlib.sha256(seed).digest() for seed in seeds)


def test_a_sealing_key_follows_from_a_machine_s_keys() -> None:
    keys = Keys.generate()
    assert SealingKey.of(keys).public == SealingKey.of(keys).public
    assert SealingKey.of(keys).public != SealingKey.of(Keys.generate()).public


@pytest.mark.parametrize("sealing", ["", "zz", "00" * 32, "ab" * 31])
def test_a_trustee_s_key_that_is_none_is_refused(sealing: str) -> None:
    first, *others = committee().trustees
    them = Committee((replace(first, sealing=sealing), *others), 1)
    with pytest.raises(InputError, match="sealing key of trustee t0"):
        seal(them, draw_seeds(them), BINDING)
