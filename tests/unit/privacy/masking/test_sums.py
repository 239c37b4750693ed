"""Sums of masked updates are those of the unmasked ring, word for word, with any trustees that answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from tests.maskings import listed, signatures, terms, trustee, update

from barnraise.core.errors import PayloadError
from barnraise.privacy.masking.payload import parse, plain
from barnraise.privacy.masking.sums import GroupSums, expanded, sums_digest
from barnraise.privacy.masking.trustee import Expansion

IT = terms(333)
GENERATOR = np.random.default_rng(0)
VALUES = [GENERATOR.normal(0, 0.4, 333).astype(np.float32) for _ in range(7)]
WORDS = [IT.ring.quantise(one, weight) for weight, one in enumerate(VALUES, 300)]
UPDATES = [update(IT, number, words) for number, words in enumerate(WORDS)]


@pytest.mark.parametrize("answering", [*combinations(range(4), 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("group", [0, 2])
def test_a_masked_run_s_means_are_those_of_the_unmasked_ring_bit_for_bit(
    answering: tuple[int, ...], group: int
) -> None:
    members = listed(IT, UPDATES, group=group)
    masked = GroupSums(IT, members.groups)
    for place, one in enumerate(UPDATES):
        masked.add(place, one)
    assert IT.committee is not None
    for portion in IT.committee.portions(answering):
        digests = set()
        for number in portion.knowers:
            machine = trustee(number, IT, [].append)
            shares = [one.shares[number] for one in UPDATES]
            work = machine.give(members, shares, signatures(members, range(3)), [portion.seeds])
            assert isinstance(work, Expansion)
            (packed,) = [b"".join(one) for one in expanded(work)]
            digests.add(sums_digest([packed]))
        assert len(digests) == 1, "all that know a portion expand it to the same bytes"
        masked.subtract(packed)
    without = replace(IT, committee=None)
    open_sums = GroupSums(without, members.groups)
    for place, words in enumerate(WORDS):
        open_sums.add(place, parse(plain(without, words), without))
    for ours, theirs in zip(masked.means(), open_sums.means(), strict=True):
        assert not isinstance(ours, str)
        assert not isinstance(theirs, str)
        assert np.array_equal(ours[0].view(np.uint32), theirs[0].view(np.uint32))
        assert ours[1] == theirs[1]


def test_a_group_whose_sum_cannot_be_honest_is_left_out_with_the_reason() -> None:
    without = replace(IT, committee=None)
    sums = GroupSums(without, [(0, 1), (2, 3)])
    for place, words in enumerate(WORDS[:4]):
        changed = words.copy()
        if place == 2:
            changed[5] = IT.ring.mask // 2
        sums.add(place, parse(plain(without, changed), without))
    honest, refused = sums.means()
    assert not isinstance(honest, str)
    assert isinstance(refused, str)
    assert "a value sums to" in refused


def test_masks_of_another_length_are_refused() -> None:
    sums = GroupSums(IT, [(0,), (1,)])
    for bad in (b"", bytes(IT.word_bytes), bytes(2 * IT.word_bytes + 1)):
        with pytest.raises(PayloadError, match="2 groups take"):
            sums.subtract(bad)
