"""What comes along with a task, and what has to be asked for."""

from __future__ import annotations

import hashlib

from barnraise.core.types import Blob, Update
from barnraise.wire.blobs import inlined
from barnraise.wire.messages import INLINE_BYTES
from barnraise.worker.fetching import Fetcher


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
