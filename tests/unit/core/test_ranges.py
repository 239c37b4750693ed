"""Ranges of the parameters: what they are cut into, and the places of their elements in a payload."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.core import ranges
from barnraise.core.errors import InputError
from barnraise.core.ranges import CHUNK, covers, disjoint, joined, moved, split
from barnraise.core.types import ParameterRange, Ranges

PIECES = st.tuples(st.integers(0, 30), st.integers(1, 10)).map(lambda pair: ParameterRange(pair[0], sum(pair)))
RANGES = st.lists(PIECES, min_size=1, max_size=5).map(joined)


def elements(covered: Ranges) -> list[int]:
    return [at for piece in ranges.pieces(covered) for at in range(*piece)]


@given(st.lists(RANGES, min_size=1, max_size=6))
def test_pieces_are_what_ranges_have_in_common(covered: list[Ranges]) -> None:
    found = disjoint(covered)
    for piece in found:
        inside = [covers(part, piece) for part in covered]
        touching = [bool({*elements(part)} & {*range(*piece)}) for part in covered]
        assert any(inside)
        assert inside == touching
    assert [at for piece in found for at in range(*piece)] == sorted({at for part in covered for at in elements(part)})


@given(st.integers(1, 100 * CHUNK), st.integers(1, 64))
def test_a_split_covers_all_and_a_finer_one_cuts_it_again(size: int, count: int) -> None:
    coarse, fine = split(size, count), split(size, 2 * count)
    assert disjoint(coarse) == list(coarse)
    assert (coarse[0].start, coarse[-1].stop) == (0, size)
    assert all(part.start % CHUNK == 0 for part in coarse)
    assert sum(any(covers(outer, part) for outer in coarse) for part in fine) == len(fine)


@given(st.lists(PIECES, min_size=1))
def test_joined_ranges_hold_the_same_elements_and_are_as_they_must_be(given: list[ParameterRange]) -> None:
    found = joined(given)
    assert elements(found) == sorted({at for piece in given for at in range(*piece)})
    assert ranges.size(found) == len(elements(found))
    assert not ranges.fault(found, found[-1])
    assert "but the vector has" in ranges.fault(found, found[-1] - 1)
    with pytest.raises(InputError, match="covers no parameters"):
        joined([ParameterRange(3, 3)])


@given(RANGES, st.integers(0, 50), st.integers(0, 50))
def test_a_payload_is_written_over_the_ranges_one_after_the_other(covered: Ranges, one: int, other: int) -> None:
    """Parts of a payload's span, and the overlap with a span of parameters, name the same pairs of places."""
    places = dict(enumerate(elements(covered)))
    start, stop = sorted((one, other))
    if stop <= len(places):
        found = [pair for part in ranges.parts(covered, start, stop) for pair in _pairs(part)]
        assert found == [(place, places[place]) for place in range(start, stop)]
    found = [pair for part in ranges.overlap(covered, start, stop) for pair in _pairs(part)]
    assert found == [(place, at) for place, at in places.items() if start <= at < stop]
    assert [ranges.place_of(covered, at) for at in places.values()] == list(places)


def _pairs(part: ranges.RangePart) -> list[tuple[int, int]]:
    return list(zip(range(10**6)[part.there], range(part.start, part.stop), strict=True))


@given(st.lists(RANGES, min_size=1, max_size=6))
def test_a_version_moves_all_that_its_updates_cover(covered: list[Ranges]) -> None:
    found = moved(covered)
    assert {at for part in covered for at in elements(part)} <= {*elements(found)}
    assert not ranges.fault(found, found[-1])


@pytest.mark.parametrize(("cuts", "why"), [((0, 8, 8, 9), "do not ascend"), ((3, 2), "ascend"), ((0, 1, 2), "3 cuts")])
def test_ranges_that_are_none_are_told(cuts: Ranges, why: str) -> None:
    assert why in ranges.fault(cuts, 100)


def test_one_range_is_written_as_ever_and_several_in_one_list() -> None:
    assert msgspec.json.encode(ParameterRange(0, 8)) == b"[0,8]"
    assert msgspec.json.decode(b"[0,8]", type=Ranges) == ParameterRange(0, 8)
    assert msgspec.json.decode(msgspec.json.encode((0, 8, 9, 12)), type=Ranges) == (0, 8, 9, 12)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b"[0]", type=Ranges)
