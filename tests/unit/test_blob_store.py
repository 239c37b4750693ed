from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from barnraise.controller import blobs
from barnraise.controller.blobs import RECENT_VERSIONS, BlobStore


@pytest.fixture
def store() -> BlobStore:
    dataset: Any = SimpleNamespace(folder=Path(), files=list)
    return BlobStore(dataset, "manifest", b"m")


def publish(store: BlobStore, *names: str, size: int = 1) -> None:
    for name in names:
        store.publish(torch.full((size,), float(len(name))), name)


def kept(store: BlobStore, digest: str) -> bool:
    return store.read(digest, 0, 100) is not None


def test_a_delta_that_a_task_names_outlives_its_release(store: BlobStore) -> None:
    store.add_delta("d1", memoryview(b"delta"))
    store.hold("a", ["d1"])
    store.release(["d1"])
    assert bytes(cast(memoryview, store.read("d1", 1, 3))) == b"elt"
    store.hold("a", ["d2"])  # its next task: the first one's are fetched
    assert not kept(store, "d1")


def test_a_snapshot_that_a_task_names_outlives_newer_versions(store: BlobStore) -> None:
    publish(store, "v0")
    store.hold("a", ["v0"])
    store.hold("b", ["v0"])
    publish(store, *(f"w{number}" for number in range(RECENT_VERSIONS)))
    store.let_go("a")
    assert kept(store, "v0")
    store.let_go("b")
    assert not kept(store, "v0")


def test_what_is_held_is_bounded(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "HELD_BYTES", 20)
    for number in range(9):
        publish(store, f"v{number}", size=2)
        store.hold(f"node{number}", [f"v{number}"])
    publish(store, *(f"w{number}" for number in range(RECENT_VERSIONS)))
    assert [number for number in range(9) if kept(store, f"v{number}")] == [7, 8]
