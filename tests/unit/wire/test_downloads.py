"""Downloads: bytes that come late, twice, in any order, wrong, or never; of a snapshot one leaf after the other."""

from __future__ import annotations

import contextlib
import hashlib
import random
import tracemalloc
from collections.abc import Collection, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.core import digests
from barnraise.core.digests import DIGEST_BYTES, TreeHash
from barnraise.core.errors import WireError
from barnraise.core.types import Blob
from barnraise.wire import Download, SnapshotDownload, downloads
from barnraise.wire.downloads import AT_ONCE, WrongDigestError

from .test_blobs import blob_of

LEAF, CHUNK = 64, 16


class TestDownload:
    @given(st.binary(max_size=200), st.integers(1, 40), st.integers(1, 5), st.randoms(use_true_random=False))
    def test_survives_loss_disorder_and_repetition(
        self, data: bytes, chunk: int, window: int, chance: random.Random
    ) -> None:
        download = Download(blob_of(data), limit=1000, chunk=chunk, window=window, patience=1.0)
        now, on_the_way = 0.0, []
        while not download.complete:
            now += 0.3
            asked = download.requests(now)
            assert all(0 < size <= chunk and offset + size <= len(data) for offset, size in asked)
            on_the_way += [ask for ask in asked if chance.random() < 0.7]
            chance.shuffle(on_the_way)
            if on_the_way:
                offset, size = on_the_way.pop() if chance.random() < 0.8 else on_the_way[-1]
                download.add(offset, data[offset : offset + size], now)
        assert download.payload == data
        assert download.requests(now) == []

    def test_keeps_a_window_of_requests(self) -> None:
        download = Download(blob_of(bytes(10)), limit=10, chunk=2, window=2)
        assert download.requests(0.0) == [(0, 2), (2, 2)]
        assert download.requests(0.0) == []
        download.add(2, bytes(2), 0.0)
        assert download.requests(0.0) == [(4, 2)]

    def test_takes_memory_for_what_has_come_and_not_for_what_was_promised(self) -> None:
        tracemalloc.start()
        try:
            chunks = downloads.Chunks(1 << 36, 1 << 18, 16, 1.0)
            assert len(chunks.requests(0.0)) == 16
            assert tracemalloc.get_traced_memory()[1] < 1 << 20, "of each chunk one byte: whether it is here"
            chunks.add(15 << 18, bytes(1 << 18), 0.0)
            assert len(chunks.payload) == 16 << 18, "a window's chunks at most"
        finally:
            tracemalloc.stop()

    def test_asks_again_when_nothing_comes(self) -> None:
        download = Download(blob_of(bytes(6)), limit=6, chunk=2, window=2, patience=1.0)
        assert download.deadline() is None
        assert download.requests(0.0) == [(0, 2), (2, 2)]
        assert download.deadline() == 1.0
        download.add(0, bytes(2), 0.5)
        assert download.requests(1.5) == [(4, 2)]
        assert download.requests(1.6) == [(2, 2), (4, 2)]

    def test_asks_again_after_a_lost_connection(self) -> None:
        download = Download(blob_of(bytes(4)), limit=4, chunk=2)
        assert download.requests(0.0) == [(0, 2), (2, 2)]
        download.forget_requests()
        assert download.requests(0.0) == [(0, 2), (2, 2)]

    def test_starts_over_when_the_digest_is_wrong(self) -> None:
        data = b"abcdef"
        download = Download(blob_of(data), limit=6, chunk=2)
        assert download.requests(0.0) == [(0, 2), (2, 2), (4, 2)]
        download.add(0, b"XX", 0.0)
        download.add(2, b"cd", 0.0)
        with pytest.raises(WireError, match="promised"):
            download.add(4, b"ef", 0.0)
        assert download.requests(0.0) == [(0, 2), (2, 2), (4, 2)]
        assert [download.add(offset, data[offset : offset + 2], 0.0) for offset in (0, 2, 4)] == [False, False, True]

    @pytest.mark.parametrize(("offset", "size"), [(1, 2), (0, 1), (0, 3), (4, 2), (6, 2), (-2, 2), (2**53, 2)])
    def test_refuses_what_was_not_asked_for(self, offset: int, size: int) -> None:
        download = Download(blob_of(bytes(6)), limit=6, chunk=2, window=2)
        download.requests(0.0)
        with pytest.raises(WireError, match="not asked for"):
            download.add(offset, bytes(size), 0.0)

    def test_checks_the_size_before_allocating(self) -> None:
        with pytest.raises(WireError, match="at most 1000"):
            Download(Blob("ab" * 32, 2**53), limit=1000)

    def test_an_empty_blob_is_complete(self) -> None:
        assert Download(blob_of(b""), limit=0).complete
        with pytest.raises(WireError, match="promised"):
            Download(Blob("ab" * 32, 0), limit=0)


@pytest.fixture(scope="module", autouse=True)
def small_leaves() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (digests, downloads):
            patch.setattr(module, "LEAF_BYTES", LEAF)
        yield


def listed(data: bytes) -> bytes:
    """Return the digests of the leaves."""
    return b"".join(hashlib.sha256(data[start : start + LEAF]).digest() for start in range(0, len(data), LEAF))


def snapshot(data: bytes, window: int = 4, only: Collection[int] | None = None) -> SnapshotDownload:
    blob = Blob(TreeHash(data).hexdigest(), len(data))
    return SnapshotDownload(blob, limit=10_000, only=only, chunk=CHUNK, window=window, patience=1.0)


class Held(NamedTuple):
    """Bytes that are here, and the digests of leaves that were computed of them once."""

    leaves: bytes
    content: bytes

    def leaf(self, number: int) -> memoryview:
        return memoryview(self.content)[number * LEAF : (number + 1) * LEAF]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def fetch_all(download: SnapshotDownload, served: bytes) -> list[int]:
    """Everything asked for once, as `served` has it: the leaves that were wrong."""
    wrong, asked = list[int](), set[tuple[int, int]]()
    while new := [ask for ask in download.requests(0.0) if ask not in asked]:
        for offset, size in new:
            asked.add((offset, size))
            try:
                download.add(offset, served[offset : offset + size], 0.0)
            except WrongDigestError as error:
                wrong.append(error.leaf)
    return wrong  # the wrong leaves were requested again, without an answer


class TestSnapshotDownload:
    @given(
        st.binary(min_size=1, max_size=500),
        st.integers(1, 9),
        st.randoms(use_true_random=False),
        st.floats(0.0, 0.3),
        st.none() | st.sets(st.integers(0, 7)),
    )
    def test_survives_loss_disorder_repetition_and_wrong_bytes(
        self, data: bytes, window: int, chance: random.Random, wrong: float, only: set[int] | None
    ) -> None:
        if only is not None:
            only = {leaf for leaf in only if leaf * LEAF < len(data)}
        download, served = snapshot(data, window, only), data + listed(data)
        now, on_the_way = 0.0, []
        while not download.complete:
            now += 0.3
            asked = download.requests(now)
            assert all(0 < size <= CHUNK and offset + size <= len(served) for offset, size in asked)
            wanted = {offset // LEAF for offset, _ in asked if offset < len(data)}
            assert only is None or wanted <= only
            on_the_way += [ask for ask in asked if chance.random() < 0.7]
            chance.shuffle(on_the_way)
            if on_the_way:
                offset, size = on_the_way.pop() if chance.random() < 0.8 else on_the_way[-1]
                piece = served[offset : offset + size]
                if chance.random() < wrong:
                    piece = flipped(piece, chance.randrange(size))
                with contextlib.suppress(WrongDigestError):
                    download.add(offset, piece, now)
        leaves = range(-(-len(data) // LEAF)) if only is None else sorted(only)
        assert download.payload == b"".join(data[leaf * LEAF : (leaf + 1) * LEAF] for leaf in leaves)
        assert download.requests(now) == []

    def test_refuses_leaves_that_were_not_wanted_or_do_not_exist(self) -> None:
        data = bytes(range(3 * LEAF))
        download = snapshot(data, window=100, only=[1])
        for offset, size in download.requests(0.0):
            download.add(offset, listed(data)[offset - len(data) :][:size], 0.0)
        assert {offset // LEAF for offset, _ in download.requests(0.0)} == {1}
        with pytest.raises(WireError, match="leaf 2, which was not asked for"):
            download.add(2 * LEAF, data[2 * LEAF :][:CHUNK], 0.0)
        with pytest.raises(WireError, match="from 0 to 2"):
            snapshot(data, only=[3])

    def test_the_limit_counts_wanted_leaves_alone(self) -> None:
        """A node that holds one stage of a large model has memory for that stage."""
        blob = Blob("ab" * 32, 100 * LEAF)
        limit = 51 * LEAF  # the digests of 100 leaves are as long as 50 leaves here
        SnapshotDownload(blob, limit=limit, only=range(51), chunk=CHUNK)
        with pytest.raises(WireError, match=f"blob of {52 * LEAF} bytes"):
            SnapshotDownload(blob, limit=limit, only=range(52), chunk=CHUNK)
        with pytest.raises(WireError, match=f"blob of {50 * LEAF} bytes"):
            SnapshotDownload(blob, limit=49 * LEAF, only=[7], chunk=CHUNK)

    def test_asks_for_the_digests_of_the_leaves_first(self) -> None:
        data = bytes(range(5 * CHUNK + 3))
        download = snapshot(data)
        behind = len(data)
        assert download.requests(0.0) == [(behind + at, CHUNK) for at in range(0, 2 * DIGEST_BYTES, CHUNK)]
        for at in range(0, 2 * DIGEST_BYTES, CHUNK):
            assert not download.add(behind + at, listed(data)[at : at + CHUNK], 0.0)
        assert download.requests(0.0) == [(at, CHUNK) for at in range(0, 4 * CHUNK, CHUNK)]
        with pytest.raises(WireError, match="not asked for"):
            download.add(4 * CHUNK, data[4 * CHUNK : 5 * CHUNK], 0.0)

    @given(st.binary(min_size=1, max_size=500), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
    def test_fetches_the_leaves_that_differ_from_those_held(
        self, data: bytes, other: set[int], changed: set[int]
    ) -> None:
        """Some have `other` digests; some have `changed` since theirs were computed."""
        starts = range(0, len(data), LEAF)
        before, after = (
            b"".join(flipped(data[at : at + LEAF], 0) if at // LEAF in wrong else data[at : at + LEAF] for at in starts)
            for wrong in (other, other | changed)
        )
        blob = Blob(TreeHash(data).hexdigest(), len(data))
        held = Held(listed(before), after)
        download = SnapshotDownload(blob, limit=10_000, held=held, chunk=CHUNK, window=4, patience=1.0)
        asked = set[int]()
        while not download.complete:
            for offset, size in download.requests(0.0):
                asked |= {offset // LEAF} if offset < len(data) else set()
                download.add(offset, (data + listed(data))[offset : offset + size], 0.0)
        assert download.payload == data
        differ = {at // LEAF for at in starts} & (other | changed)
        assert asked == differ
        assert download.reused == sum(len(data[at : at + LEAF]) for at in starts if at // LEAF not in differ)
        assert download.requests(0.0) == []

    def test_takes_a_few_held_leaves_a_call_and_asks_for_none_meanwhile(self) -> None:
        data = random.Random(1).randbytes(2 * AT_ONCE * LEAF + 5)
        blob = Blob(TreeHash(data).hexdigest(), len(data))
        held = Held(listed(data), data)
        download = SnapshotDownload(blob, limit=10_000, held=held, chunk=CHUNK, window=100, patience=1.0)
        for offset, size in download.requests(0.0):
            assert offset >= len(data)
            assert not download.add(offset, listed(data)[offset - len(data) : offset - len(data) + size], 0.0)
        for taken in (1, 2):
            assert (download.deadline(), download.complete) == (0.0, False)
            assert download.requests(0.0) == []
            assert download.reused == taken * AT_ONCE * LEAF
        assert download.requests(0.0) == []
        assert download.complete
        assert download.deadline() is None
        assert (download.payload, download.reused) == (data, len(data))

    def test_holding_another_size_helps_nothing(self) -> None:
        data = random.Random(1).randbytes(3 * LEAF + 5)
        blob = Blob(TreeHash(data).hexdigest(), len(data))
        for have in (b"", data[:-1], data + b"x", data[: 2 * LEAF]):
            held = Held(listed(have), have)
            download = SnapshotDownload(blob, limit=10_000, held=held, chunk=CHUNK, window=100, patience=1.0)
            assert fetch_all(download, data + listed(data)) == []
            assert download.payload == data

    def test_asks_for_a_wrong_leaf_alone_again(self) -> None:
        data = random.Random(1).randbytes(5 * LEAF + 5)
        download = snapshot(data, window=100)
        assert fetch_all(download, flipped(data, 2 * LEAF + 7) + listed(data)) == [2]
        assert not download.complete
        download.forget_requests()
        asked = download.requests(0.0)
        assert asked == [(at, CHUNK) for at in range(2 * LEAF, 3 * LEAF, CHUNK)]
        assert [download.add(at, data[at : at + size], 0.0) for at, size in asked] == [False] * 3 + [True]
        assert download.payload == data

    def test_digests_of_leaves_that_are_not_those_of_the_snapshot_are_refused(self) -> None:
        data = random.Random(2).randbytes(3 * LEAF)
        download, other = snapshot(data), flipped(data, 70)
        for _ in range(2):  # another snapshot's digests, which would follow
            assert fetch_all(download, other + listed(other)) == [-1]
            assert download.requests(0.0) == [], "nothing but the digests was asked for"
            download.forget_requests()
        assert fetch_all(download, data + listed(data)) == []
        assert download.complete

    def test_a_digest_names_bytes_of_one_size(self) -> None:
        """Else digests of leaves could be taken for those of a longer snapshot."""
        data = bytes(LEAF)
        longer = SnapshotDownload(Blob(TreeHash(data).hexdigest(), LEAF - 1), limit=LEAF, chunk=CHUNK)
        assert fetch_all(longer, data[1:] + listed(data)) == [-1]

    def test_checks_the_size_before_allocating(self) -> None:
        with pytest.raises(WireError, match="at most 1000"):
            SnapshotDownload(Blob("ab" * 32, 2**53), limit=1000)
        with pytest.raises(ValueError, match="must divide"):
            SnapshotDownload(Blob("ab" * 32, 10), limit=100, chunk=7)

    def test_an_empty_blob_is_complete(self) -> None:
        assert SnapshotDownload(Blob(TreeHash().hexdigest(), 0), limit=0, chunk=CHUNK).complete
        with pytest.raises(WireError, match="promised"):
            SnapshotDownload(Blob("ab" * 32, 0), limit=0, chunk=CHUNK)
