"""Masks of any updates, committees and groups: the exact sums, bit for bit those of the ring without masks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.maskings import listed, signatures, terms, trustee, update

from barnraise.privacy.masking.payload import parse, plain
from barnraise.privacy.masking.sums import GroupSums, expanded
from barnraise.privacy.masking.trustee import Expansion

SHAPES = [(4, 1), (5, 1), (7, 2), (8, 2)]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_masks_taken_off_by_any_trustees_leave_the_exact_sums(data: Any) -> None:
    m, t = data.draw(st.sampled_from(SHAPES))
    count = data.draw(st.integers(2, 6))
    it = terms(9, m=m, t=t, value_bits=data.draw(st.integers(2, 16)), members=8)
    rows = st.lists(st.floats(-2, 2, width=32), min_size=9, max_size=9)
    weights = st.integers(1, it.ring.most_weight)
    words = [
        it.ring.quantise(np.array(data.draw(rows), np.float32), data.draw(weights), bytes([number] * 32))
        for number in range(count)
    ]
    updates = [update(it, number, one) for number, one in enumerate(words)]
    members = listed(it, updates, group=data.draw(st.sampled_from([0, 2])))
    masked, without = GroupSums(it, members.groups), replace(it, committee=None)
    bare = GroupSums(without, members.groups)
    for place, (one, open_words) in enumerate(zip(updates, words, strict=True)):
        masked.add(place, one)
        bare.add(place, parse(plain(without, open_words), without))
    assert it.committee is not None
    answering = sorted(data.draw(st.permutations(range(m)))[: data.draw(st.integers(2 * t + 1, m))])
    for portion in it.committee.portions(answering):
        number = data.draw(st.sampled_from(portion.knowers))
        shares = [one.shares[number] for one in updates]
        signed = signatures(members, range(it.committee.quorum))
        work = trustee(number, it, [].append).give(members, shares, signed, [portion.seeds])
        assert isinstance(work, Expansion)
        masked.subtract(b"".join(next(expanded(work))))
    assert [one.tolist() for one in masked.sums] == [one.tolist() for one in bare.sums]
    assert [total.tolist() for total in masked.sums] == [
        [sum(int(words[place][j]) for place in group) & it.ring.mask for j in range(10)] for group in members.groups
    ]
