from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from barnraise.controller.tensors import blobs
from barnraise.controller.tensors.blobs import RECENT_VERSIONS, BlobStore


@pytest.fixture
def store() -> BlobStore:
    dataset: Any = SimpleNamespace(folder=Path(), files=list)
    return BlobStore(dataset, "manifest", b"m")


def publish(store: BlobStore, *names: str, size: int = 1) -> None:
    for name in names:
        store.freeze(lambda frozen: None)
        store.publish(torch.full((size,), float(len(name))), name, b"leaves of " + name.encode())


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


def test_bytes_held_for_nodes_are_bounded(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "HELD_BYTES", 20)
    for number in range(9):
        publish(store, f"v{number}", size=2)
        store.hold(f"node{number}", [f"v{number}"])
    publish(store, *(f"w{number}" for number in range(RECENT_VERSIONS)))
    assert [number for number in range(9) if kept(store, f"v{number}")] == [7, 8]


@pytest.mark.parametrize("small", [0, 1000])
def test_behind_a_snapshot_are_the_digests_of_its_leaves(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(blobs, "SMALL_BYTES", small)
    publish(store, "v0")
    store.hold("a", ["v0"])
    for _ in range(2):  # the newest version, then one that was left
        assert bytes(store.read("v0", 0, 100) or b"") == np.float32(2.0).tobytes()
        assert bytes(store.read("v0", 3, 1) or b"") == np.float32(2.0).tobytes()[3:]
        assert bytes(store.read("v0", 4, 6) or b"") == b"leaves"
        assert bytes(store.read("v0", 14, 100) or b"") == b"v0"
        assert store.read("v0", 16, 1) is store.read("v0", 2**53, 1) is None
        publish(store, "w0")


def test_a_file_that_cannot_be_read_is_not_kept_for_now_and_its_host_is_told_once(tmp_path: Path) -> None:
    path, told = tmp_path / "train-00000.bin", list[str]()
    info = SimpleNamespace(sha256="shard", name=path.name, bytes=4)
    dataset: Any = SimpleNamespace(folder=tmp_path, files=lambda: [info])
    store = BlobStore(dataset, "manifest", b"m", told.append)
    assert not kept(store, "shard")
    assert not kept(store, "shard")
    assert len(told) == 1
    assert str(path) in told[0]
    path.write_bytes(b"rows")
    assert kept(store, "shard")
    for offset in (4, 2**44, 2**53):  # the warning is about the file, not about the request
        assert store.read("shard", offset, 1) is None
    assert len(told) == 1
    path.unlink()
    assert not kept(store, "shard")
    assert len(told) == 2


def test_news_for_a_task_leave_what_the_task_names(store: BlobStore) -> None:
    for name in ("back", "d1", "d2", "d3"):
        store.add_delta(name, memoryview(b"delta"))
    store.hold("a", ["back"])
    store.hold("a", ["d1"], news=True)
    store.hold("a", ["d2"], news=True)
    store.release(["back", "d1", "d2"])
    assert [kept(store, name) for name in ("back", "d1", "d2")] == [True, False, True], "the newest news alone"
    store.hold("a", ["d3"])
    assert [kept(store, name) for name in ("back", "d2", "d3")] == [False, False, True]
    store.release(["d3"])
    store.let_go("a")
    assert not kept(store, "d3")
