from __future__ import annotations

import hashlib
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.core.errors import WireError
from barnraise.core.types import Blob, Contribution, ParameterRange
from barnraise.wire import Download, Uploads, parts
from barnraise.wire.messages import FRAME_LIMIT


def blob_of(data: bytes) -> Blob:
    return Blob(hashlib.sha256(data).hexdigest(), len(data))


def contribution(data: bytes, assignment: int = 1, **fields: object) -> Contribution:
    payload = fields.get("payload", blob_of(data))
    assert isinstance(payload, Blob)
    return Contribution(
        assignment=assignment,
        base=0,
        parameters=ParameterRange(0, 9),
        payload=payload,
        steps=1,
        loss=1.0,
        seconds=1.0,
        codec=0,
    )


@given(st.binary(max_size=100), st.integers(1, 40))
def test_parts_put_together_are_the_payload(data: bytes, chunk: int) -> None:
    pieces = list(parts(data, chunk))
    assert b"".join(piece for _, piece in pieces) == data
    assert all(0 < len(piece) <= chunk and data[offset:].startswith(piece) for offset, piece in pieces)


def test_parts_are_frames() -> None:
    with pytest.raises(ValueError, match="between 1 and"):
        next(parts(b"x", FRAME_LIMIT + 1))


class TestUploads:
    @given(st.binary(min_size=1, max_size=100), st.integers(1, 40), st.integers(0, 99))
    def test_gives_the_payload_back_wherever_it_was_broken_off(self, data: bytes, chunk: int, cut: int) -> None:
        uploads = Uploads()
        upload = uploads.open("a", contribution(data))
        for offset, piece in list(parts(data, chunk))[:cut]:
            assert upload.add(offset, piece)
        assert uploads.open("a", contribution(data)) is upload, "an offer that is repeated goes on where it stood"
        for offset, piece in parts(data, chunk, start=len(upload.payload)):
            assert not upload.complete
            assert upload.add(offset, piece)
        assert upload.complete
        upload.verify()
        taken = uploads.take("a", 1)
        assert (bytes(taken.payload), taken.contribution) == (data, contribution(data))
        assert (len(uploads), uploads.num_bytes) == (0, 0)

    def test_a_promise_takes_no_memory(self) -> None:
        tracemalloc.start()
        try:
            Uploads().open("a", contribution(b"", payload=Blob("ab" * 32, 2**53)))
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize(("offset", "size"), [(0, 4), (5, 1), (3, 1)])
    def test_takes_nothing_but_what_comes_next(self, offset: int, size: int) -> None:
        upload = Uploads().open("a", contribution(bytes(10)))
        assert upload.add(0, bytes(4))
        assert not upload.add(offset, b"x" * size)
        assert upload.payload == bytes(4)

    def test_refuses_more_than_was_offered(self) -> None:
        upload = Uploads().open("a", contribution(bytes(10)))
        with pytest.raises(WireError, match="ends at 11, but the payload has 10"):
            upload.add(4, bytes(7))

    def test_verifies_what_has_come(self) -> None:
        uploads = Uploads()
        right, wrong = (uploads.open(node, contribution(b"0123456789")) for node in "ab")
        right.add(0, b"0123456789")
        wrong.add(0, b"0123456788")
        right.verify()
        with pytest.raises(WireError, match="promised"):
            wrong.verify()

    def test_knows_nodes_and_assignments_apart(self) -> None:
        uploads = Uploads()
        uploads.open("a", contribution(b"aa", 1)).add(0, b"aa")
        uploads.open("b", contribution(b"bb", 2)).add(0, b"b")
        assert uploads.get("a", 2) is None
        assert uploads.num_bytes == 3
        uploads.drop("a", 1)
        uploads.drop("nobody", 1)
        assert (len(uploads), uploads.num_bytes) == (1, 1)


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
        assert download.num_received == len(data)
        assert download.requests(now) == []

    def test_keeps_a_window_of_requests(self) -> None:
        download = Download(blob_of(bytes(10)), limit=10, chunk=2, window=2)
        assert download.requests(0.0) == [(0, 2), (2, 2)]
        assert download.requests(0.0) == []
        download.add(2, bytes(2), 0.0)
        assert download.requests(0.0) == [(4, 2)]

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

    def test_goes_on_from_what_an_earlier_one_left(self) -> None:
        data = b"abcdefg"
        download = Download(blob_of(data), limit=7, chunk=2, prefix=data[:5])
        assert download.num_received == 4
        assert download.requests(0.0) == [(4, 2), (6, 1)]
        download.add(4, b"ef", 0.0)
        assert download.add(6, b"g", 0.0)
        assert download.payload == data

    def test_starts_over_when_the_digest_is_wrong(self) -> None:
        data = b"abcdef"
        download = Download(blob_of(data), limit=6, chunk=2, prefix=b"XX")
        assert download.requests(0.0) == [(2, 2), (4, 2)]
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

    def test_of_nothing(self) -> None:
        assert Download(blob_of(b""), limit=0).complete
        with pytest.raises(WireError, match="promised"):
            Download(Blob("ab" * 32, 0), limit=0)
