"""Ranges of the parameters: what they are cut into."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnraise.core.ranges import CHUNK, covers, disjoint, split
from barnraise.core.types import ParameterRange

RANGES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 10)).map(lambda pair: ParameterRange(pair[0], sum(pair))), min_size=1
)


@given(RANGES)
def test_pieces_are_what_ranges_have_in_common(ranges: list[ParameterRange]) -> None:
    found = disjoint(ranges)
    for piece in found:
        inside = [covers(part, piece) for part in ranges]
        touching = [part.start < piece.stop and piece.start < part.stop for part in ranges]
        assert any(inside)
        assert inside == touching
    elements = [at for piece in found for at in range(piece.start, piece.stop)]
    assert elements == sorted({at for part in ranges for at in range(part.start, part.stop)})


@given(st.integers(1, 100 * CHUNK), st.integers(1, 64))
def test_a_split_covers_all_and_a_finer_one_cuts_it_again(size: int, count: int) -> None:
    coarse, fine = split(size, count), split(size, 2 * count)
    assert [(part.start, part.stop) for part in disjoint(coarse)] == [(part.start, part.stop) for part in coarse]
    assert (coarse[0].start, coarse[-1].stop) == (0, size)
    assert all(part.start % CHUNK == 0 for part in coarse)
    assert sum(any(covers(outer, part) for outer in coarse) for part in fine) == len(fine)
