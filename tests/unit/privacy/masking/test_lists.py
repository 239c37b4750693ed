"""A list has one form and one digest, hostile bytes are refused, and a member finds out whether it was counted."""

from __future__ import annotations

import contextlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.maskings import listed, member_signer, origin, signatures, terms, update

from barnraise.core.errors import PayloadError
from barnraise.privacy.masking.lists import MOST_LIST_BYTES, counted, decode_list, entry_of

IT = terms()
UPDATES = [update(IT, number, np.zeros(IT.num_words, IT.ring.dtype)) for number in range(6)]
LIST = listed(IT, UPDATES)


def test_a_list_comes_back_from_its_bytes() -> None:
    assert decode_list(LIST.encode()) == LIST
    assert decode_list(LIST.encode()).digest == LIST.digest


def test_every_field_changes_the_digest() -> None:
    changes = {"version": 5, "model": "cd" * 32, "nonce": "cd" * 32, "terms": "cd" * 32, "support": 1, "group": 2}
    others = [msgspec.structs.replace(LIST, **{name: value}) for name, value in changes.items()]
    others += [msgspec.structs.replace(LIST, entries=entries) for entries in (LIST.entries[1:], LIST.entries[::-1])]
    assert len({one.digest for one in [LIST, *others]}) == 1 + len(others)


@given(place=st.integers(0, len(LIST.encode()) - 1), bit=st.integers(0, 7))
def test_changed_bytes_are_another_list_or_none(place: int, bit: int) -> None:
    changed = bytearray(LIST.encode())
    changed[place] ^= 1 << bit
    with contextlib.suppress(PayloadError):
        assert decode_list(bytes(changed)).digest != LIST.digest


@given(content=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(PayloadError):
        decode_list(content)


def test_another_form_of_the_same_list_is_refused() -> None:
    wide = LIST.encode().replace(b"\xa4barn", b"\xd9\x04barn", 1)
    for other in (wide, LIST.encode() + b"\0", bytes(MOST_LIST_BYTES + 1)):
        with pytest.raises(PayloadError):
            decode_list(other)


def test_groups_follow_from_the_entries_in_any_order_and_with_any_nonce() -> None:
    def nodes(of: object) -> set[frozenset[str]]:
        return {frozenset(of.entries[place].node for place in group) for group in of.groups}  # type: ignore[attr-defined]

    paired = msgspec.structs.replace(LIST, group=2)
    assert len(paired.groups) == 3
    other = msgspec.structs.replace(paired, entries=paired.entries[::-1], nonce="cd" * 32)
    assert nodes(other) == nodes(paired)


def test_entries_are_signed_by_their_members() -> None:
    entry = LIST.entries[0]
    assert entry.is_signed(IT.run, IT.digest, member_signer(0).public)
    assert not entry.is_signed(IT.run, IT.digest, member_signer(1).public)
    assert not entry.is_signed(IT.run, "cd" * 32, member_signer(0).public)
    for change in ({"words": "cd" * 32}, {"commitments": bytes(128)}, {"base": 2}, {"assignment": 9}, {"node": "n1"}):
        assert not msgspec.structs.replace(entry, **change).is_signed(IT.run, IT.digest, member_signer(0).public)


def test_a_member_learns_its_group_from_a_signed_list() -> None:
    them, paired = IT.committee, msgspec.structs.replace(LIST, group=2)
    assert them is not None
    signed = signatures(paired, range(3))
    for place, entry in enumerate(paired.entries):
        assert place in paired.groups[counted(paired, entry, signed, them)]


def test_a_member_learns_that_it_was_not_counted() -> None:
    them = IT.committee
    assert them is not None
    other = entry_of(update(IT, 0, np.ones(IT.num_words, IT.ring.dtype)), origin(0))
    with pytest.raises(PayloadError, match="assignment 0 of n0 is not in the list"):
        counted(LIST, other, signatures(LIST, range(4)), them)
    forged = signatures(LIST, range(2)) | {"t2": "ab" * 64, "t3": signatures(LIST, [2])["t2"]}
    with pytest.raises(PayloadError, match=r"2 trustees signed .* 3 must"):
        counted(LIST, LIST.entries[0], forged, them)
