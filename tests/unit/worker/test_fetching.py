"""The blobs that are attached to a task, and those that the worker requests."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from barnraise.core.digests import LEAF_BYTES
from barnraise.core.errors import DataError
from barnraise.core.types import Blob, Update
from barnraise.models.vectors import Leaves, raw
from barnraise.wire.blobs import inlined
from barnraise.wire.messages import CHUNK_BYTES, INLINE_BYTES, Chunk, Gone
from barnraise.worker.fetching import FIRST_REST, LONGEST_REST, MOST_TRIES, Fetcher


def blob(content: bytes) -> Blob:
    return Blob(hashlib.sha256(content).hexdigest(), len(content))


def updates(*contents: bytes) -> tuple[Update, ...]:
    return tuple(Update("delta", i, blob(content), "0" * 64) for i, content in enumerate(contents))


def test_small_updates_come_along_and_are_not_asked_for() -> None:
    way, fetcher = updates(b"one", b"three", b"one"), Fetcher()
    blobs = inlined(way)
    assert [each.num_bytes for each in blobs] == [3, 5]  # equal deltas are one blob
    fetcher.inline(blobs, b"onethree")
    assert all(fetcher.start(each) for each in blobs)
    assert fetcher.requests(0.0) == []
    assert [bytes(fetcher.take(each)) for each in blobs] == [b"one", b"three"]


def test_large_updates_are_asked_for() -> None:
    assert inlined(updates(b"a" * INLINE_BYTES)) != ()
    assert inlined(updates(b"a" * INLINE_BYTES, b"b")) == ()
    assert inlined(()) == ()


def test_inlined_bytes_with_a_wrong_hash_are_requested() -> None:
    way, fetcher = updates(b"one", b"three"), Fetcher()
    fetcher.inline(inlined(way), b"oneTHREE")
    assert fetcher.start(way[0].blob)
    assert not fetcher.start(way[1].blob)
    assert [request.digest for request in fetcher.requests(0.0)] == [way[1].blob.digest]
    fetcher.inline(inlined(way), b"on")  # too short
    assert not fetcher.start(blob(b"another"))


def test_forgotten_blobs_are_neither_requested_nor_kept(tmp_path: Path) -> None:
    held, coming, rows, fetcher = blob(b"one"), blob(b"three"), blob(b"rows"), Fetcher()
    fetcher.files[rows.digest] = tmp_path / "rows"
    for each in (held, coming, rows):
        assert not fetcher.start(each)
    assert len(fetcher.requests(0.0)) == 3
    assert fetcher.chunk(Chunk(held.digest, 0), b"one", 0.0)
    fetcher.forget([held.digest, coming.digest, rows.digest])
    assert held.digest not in fetcher._held
    fetcher.forget_requests()
    assert [request.digest for request in fetcher.requests(0.0)] == [rows.digest]
    assert not fetcher.chunk(Chunk(coming.digest, 0), b"three", 0.0)
    assert not fetcher.start(coming), "it can be asked for anew"


def test_files_come_one_after_the_other(tmp_path: Path) -> None:
    """So that memory holds one of them at a time."""
    fetcher, shards = Fetcher(), [blob(b"rows"), blob(b"others"), blob(b"more")]
    for number, each in enumerate(shards):
        fetcher.files[each.digest] = tmp_path / str(number)
        assert not fetcher.start(each)
    came = list[str]()
    while requests := fetcher.requests(0.0):
        (request,) = requests
        came.append(request.digest)
        content = {each.digest: content for each, content in zip(shards, (b"rows", b"others", b"more"), strict=True)}
        assert fetcher.chunk(Chunk(request.digest, 0), content[request.digest], 0.0)
    assert came == [each.digest for each in shards]


def test_inlined_bytes_of_an_older_task_are_dropped() -> None:
    first, second, fetcher = updates(b"one"), updates(b"two"), Fetcher()
    fetcher.inline(inlined(first), b"one")
    fetcher.inline(inlined(second), b"two")
    assert not fetcher.start(first[0].blob)
    assert fetcher.start(second[0].blob)


def attempts(fetcher: Fetcher, until: float) -> list[float]:
    """When the fetcher asks, though all that comes is wrong."""
    now, asked = 0.0, list[float]()
    while now < until:
        for request in fetcher.requests(now):
            asked.append(now)
            fetcher.chunk(Chunk(request.digest, request.offset), b"x" * request.num_bytes, now)
        now = max(now + 0.1, min(fetcher.deadline(), until))
    return asked


def test_a_blob_whose_bytes_are_wrong_is_asked_for_ever_later_and_given_up_by_name(tmp_path: Path) -> None:
    fetcher, shard = Fetcher(), blob(b"rows")
    fetcher.files[shard.digest] = tmp_path / "train-00007.bin"
    assert not fetcher.start(shard)
    asked = attempts(fetcher, until=3.5)
    assert asked == pytest.approx([0.0, 1.0, 3.0])
    with pytest.raises(DataError, match=r"train-00007.bin came 4 times with bytes that are not those of its name"):
        attempts(fetcher, until=10.0)
    assert len(asked) + 1 == MOST_TRIES


def test_bytes_that_were_wrong_once_are_forgiven(tmp_path: Path) -> None:
    fetcher, shard = Fetcher(), blob(b"rows")
    for _ in range(2 * MOST_TRIES):
        fetcher.start(shard)
        (request,) = fetcher.requests(0.0)
        assert fetcher.chunk(Chunk(shard.digest, 0), b"ROWS", 0.0) == 0
        assert fetcher.requests(0.5) == []
        assert fetcher.deadline() == 1.0
        assert fetcher.requests(1.0) == [request]
        assert fetcher.chunk(Chunk(shard.digest, 0), b"rows", 1.0) == 4
        assert bytes(fetcher.take(shard)) == b"rows"


def snapshot(num_leaves: int) -> tuple[Blob, bytes]:
    """A snapshot, and what is served of it: its bytes, and behind them the digests of its leaves."""
    vector, leaves = torch.randn(num_leaves * LEAF_BYTES // 4 - 3, generator=torch.Generator().manual_seed(1)), Leaves()
    return Blob(leaves.digest(vector), vector.nbytes), bytes(raw(vector)) + leaves.listed


def serve(fetcher: Fetcher, served: bytes, spoil: Callable[[int], bool]) -> list[tuple[float, int, int]]:
    """Answer the fetcher, with a wrong byte where `spoil` is true of the offset; return (time, offset, size)."""
    now, asked = 0.0, list[tuple[float, int, int]]()
    while now < math.inf:
        while requests := fetcher.requests(now):
            for request in requests:
                offset, piece = request.offset, bytearray(served[request.offset : request.offset + request.num_bytes])
                asked.append((now, offset, len(piece)))
                piece[0] ^= spoil(offset)
                fetcher.chunk(Chunk(request.digest, offset), piece, now)
        now = max(now, fetcher.deadline())
    return asked


def test_a_leaf_that_is_wrong_is_asked_for_alone() -> None:
    fetcher, (version, served), left = Fetcher(), snapshot(5), {2 * LEAF_BYTES + CHUNK_BYTES}
    assert not fetcher.start(version, snapshot=True)
    asked = serve(fetcher, served, lambda offset: offset in left and not left.discard(offset))
    assert bytes(fetcher.take(version)) == served[: version.num_bytes]
    assert sum(size for *_, size in asked) == len(served) + LEAF_BYTES
    again = [offset for offset, times in Counter(offset for _, offset, _ in asked).items() if times > 1]
    assert sorted(again) == list(range(2 * LEAF_BYTES, 3 * LEAF_BYTES, CHUNK_BYTES))
    assert asked[-1][0] == FIRST_REST


def test_leaves_may_each_be_wrong_now_and_then_but_not_one_for_ever() -> None:
    fetcher, (version, served), left = Fetcher(), snapshot(6), set(range(0, 6 * LEAF_BYTES, LEAF_BYTES))
    fetcher.start(version, snapshot=True)
    serve(fetcher, served, lambda offset: offset in left and not left.discard(offset))
    assert version.digest in fetcher._held
    times = list[int]()
    fetcher = Fetcher()
    fetcher.start(version, snapshot=True)
    with pytest.raises(DataError, match=r"blob \w{16} came 4 times with bytes that are not those of its name"):
        serve(fetcher, served, lambda offset: offset == LEAF_BYTES and not times.append(offset))
    assert len(times) == MOST_TRIES


def test_digests_of_leaves_that_are_wrong_for_ever_are_given_up() -> None:
    fetcher, (version, served), asked = Fetcher(), snapshot(2), list[int]()
    fetcher.start(version, snapshot=True)
    with pytest.raises(DataError, match="came 4 times"):
        serve(fetcher, served, lambda offset: not asked.append(offset))
    assert asked == [version.num_bytes] * MOST_TRIES, "no byte of it was asked for"


def test_a_file_that_is_gone_for_now_is_asked_for_ever_later(tmp_path: Path) -> None:
    fetcher, shard = Fetcher(), blob(b"rows")
    fetcher.files[shard.digest] = tmp_path / "train-00000.bin"
    now, rests = 0.0, list[float]()
    for _ in range(12):
        fetcher.start(shard)
        asked = max(now, fetcher.deadline()) if rests else now
        assert len(fetcher.requests(asked)) == 1
        assert fetcher.gone(Gone(shard.digest), asked)
        fetcher.start(shard)
        rests.append(fetcher.deadline() - asked)
        now = asked
    assert rests[:4] == [1.0, 2.0, 4.0, 8.0]
    assert rests[-1] == LONGEST_REST


def test_a_version_that_is_gone_makes_nothing_wait() -> None:
    fetcher, version = Fetcher(), blob(b"version")
    fetcher.start(version)
    fetcher.requests(0.0)
    assert fetcher.gone(Gone(version.digest), 0.0)
    fetcher.start(version)
    assert len(fetcher.requests(0.0)) == 1
