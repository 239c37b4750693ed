from __future__ import annotations

import hashlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.core.errors import WireError
from barnraise.core.types import Blob, Contribution, ParameterRange
from barnraise.wire import IncomingPayloads, chunks
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
def test_chunks_put_together_are_the_payload(data: bytes, chunk: int) -> None:
    found = list(chunks(data, chunk))
    assert b"".join(view for _, view in found) == data
    assert all(0 < len(view) <= chunk and data[offset:].startswith(view) for offset, view in found)


def test_chunks_are_frames() -> None:
    with pytest.raises(ValueError, match="between 1 and"):
        next(chunks(b"x", FRAME_LIMIT + 1))


class TestIncomingPayloads:
    @given(st.binary(min_size=1, max_size=100), st.integers(1, 40), st.integers(0, 99))
    def test_gives_the_payload_back_wherever_it_was_broken_off(self, data: bytes, chunk: int, cut: int) -> None:
        uploads = IncomingPayloads()
        upload = uploads.open("a", contribution(data))
        for offset, view in list(chunks(data, chunk))[:cut]:
            assert upload.add(offset, view)
        assert uploads.open("a", contribution(data)) is upload, "an offer that is repeated goes on where it stood"
        for offset, view in chunks(data, chunk, start=len(upload.payload)):
            assert not upload.complete
            assert upload.add(offset, view)
        assert upload.complete
        upload.verify()
        taken = uploads.take("a", 1)
        assert (bytes(taken.payload), taken.result) == (data, contribution(data))
        assert (len(uploads), uploads.num_bytes) == (0, 0)

    def test_a_promise_takes_no_memory(self) -> None:
        tracemalloc.start()
        try:
            IncomingPayloads().open("a", contribution(b"", payload=Blob("ab" * 32, 2**53)))
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize(("offset", "size"), [(0, 4), (5, 1), (3, 1)])
    def test_takes_nothing_but_what_comes_next(self, offset: int, size: int) -> None:
        upload = IncomingPayloads().open("a", contribution(bytes(10)))
        assert upload.add(0, bytes(4))
        assert not upload.add(offset, b"x" * size)
        assert upload.payload == bytes(4)

    def test_another_offer_of_an_assignment_replaces_nothing(self) -> None:
        """The inspected bytes are committed: else a node could send a good payload, and swap it meanwhile."""
        uploads, good = IncomingPayloads(), b"good payload"
        upload = uploads.open("a", contribution(good))
        assert upload.add(0, good)
        again = uploads.open("a", contribution(b"x"))
        assert again is upload
        assert not again.add(0, b"x")
        assert bytes(uploads.take("a", 1).payload) == good

    def test_refuses_more_than_was_offered(self) -> None:
        upload = IncomingPayloads().open("a", contribution(bytes(10)))
        with pytest.raises(WireError, match="ends at 11, but the payload has 10"):
            upload.add(4, bytes(7))

    def test_verifies_what_has_come(self) -> None:
        uploads = IncomingPayloads()
        right, wrong = (uploads.open(node, contribution(b"0123456789")) for node in "ab")
        right.add(0, b"0123456789")
        wrong.add(0, b"0123456788")
        right.verify()
        with pytest.raises(WireError, match="promised"):
            wrong.verify()

    def test_knows_nodes_and_assignments_apart(self) -> None:
        uploads = IncomingPayloads()
        uploads.open("a", contribution(b"aa", 1)).add(0, b"aa")
        uploads.open("b", contribution(b"bb", 2)).add(0, b"b")
        assert uploads.get("a", 2) is None
        assert uploads.num_bytes == 3
        uploads.drop("a", 1)
        uploads.drop("nobody", 1)
        assert (len(uploads), uploads.num_bytes) == (1, 1)
