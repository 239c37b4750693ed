"""What comes along with a task, and what has to be asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from barnraise.core.errors import DataError
from barnraise.core.types import Blob, Update
from barnraise.wire.blobs import inlined
from barnraise.wire.messages import INLINE_BYTES, Chunk, Gone
from barnraise.worker.fetching import LONGEST_REST, MOST_TRIES, Fetcher


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


def test_what_does_not_hash_to_its_name_is_asked_for() -> None:
    way, fetcher = updates(b"one", b"three"), Fetcher()
    fetcher.inline(inlined(way), b"oneTHREE")
    assert fetcher.start(way[0].blob)
    assert not fetcher.start(way[1].blob)
    assert [request.digest for request in fetcher.requests(0.0)] == [way[1].blob.digest]
    fetcher.inline(inlined(way), b"on")  # too short
    assert not fetcher.start(blob(b"another"))


def test_what_came_with_an_older_task_is_not_kept() -> None:
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
