"""Checkpoints and snapshots of a version while others are made in place: each is of one version, to the bit."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from barnraise import compression
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.state.effects import Checkpoint, Checkpointed
from barnraise.controller.state.events import Event
from barnraise.controller.tensors import blobs, cow_snapshot
from barnraise.controller.tensors.blobs import BlobStore
from barnraise.controller.tensors.cow_snapshot import CopyOnWriteSnapshot
from barnraise.controller.tensors.executor import ControllerExecutor
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.core.errors import StorageError
from barnraise.core.types import ParameterRange
from barnraise.ledger import Checkpoints, Head
from barnraise.ledger.tensor_files import TensorFile, read

from ...ledger.test_checkpoints import file_limit, folders
from .test_parameter_server_chunks import SIZE, advance, make, state, vector

CHUNK = 3001


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie across those that versions are made in."""
    monkeypatch.setattr(cow_snapshot, "SPAN", CHUNK)


def freeze(server: ParameterServer, path: Path) -> CopyOnWriteSnapshot:
    tensors = server.state()
    found = CopyOnWriteSnapshot(tensors, TensorFile(os.open(path, os.O_RDWR | os.O_CREAT), path, tensors))
    server.watch(found)
    return found


def stored(path: Path) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in read(path).items()}


@pytest.mark.parametrize("outer", ["sgd", "delayed_nesterov", "adam"])
@pytest.mark.parametrize("downlink", ["none", "int4", "topk"])
@pytest.mark.parametrize("threads", [1, 3])
def test_it_is_as_it_was_whatever_comes_after(tmp_path: Path, downlink: str, outer: str, threads: int) -> None:
    server, twin = make(downlink, outer, threads=threads), make(downlink, outer)
    chance, taken = random.Random(f"{downlink} {outer}"), []
    for version in range(4):  # several at a time, each finished at another time
        taken.append((freeze(server, tmp_path / str(version)), state(server)))
        for _ in range(5):
            start = chance.randrange(SIZE)
            taken[-1][0].keep(start, min(SIZE, start + chance.randrange(1, 2 * CHUNK)))
        advance(server, version + 1)
        if version % 2:
            taken[version - 1][0].finish()
    advance(twin, 4)
    assert state(server) == state(twin), "versions are what they would have been"
    for version, (found, expected) in enumerate(taken):
        for name in expected:
            offset = chance.randrange(4 * SIZE)
            piece = found.read(name, offset, 50_000)
            assert not piece if found.over else piece == expected[name][offset : offset + 50_000]
        if not found.over:
            found.finish()
        assert stored(tmp_path / str(version)) == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_it_is_written_while_versions_are_made(tmp_path: Path, threads: int) -> None:
    server = make("int4", "nesterov", threads=threads)
    for version in range(1, 9):
        path, expected = tmp_path / str(version), state(server)
        found = freeze(server, path)
        writer = threading.Thread(target=found.finish)
        writer.start()
        advance(server, version)
        writer.join()
        assert stored(path) == expected


def test_a_version_without_contributions_changes_a_zero_only_once_it_is_kept(tmp_path: Path) -> None:
    server = make("none", "sgd")
    server.parameters[0] = -0.0
    found, expected = freeze(server, tmp_path / "file"), state(server)
    server.aggregate(1, [], {}.__getitem__)
    found.finish()
    assert state(server)["parameters"] != expected["parameters"]
    assert stored(tmp_path / "file") == expected


def test_the_average_moves_where_a_version_does_not(tmp_path: Path) -> None:
    server, codec = make("int4", "nesterov"), compression.create("int8")
    advance(server, 2)
    found, expected = freeze(server, tmp_path / "file"), state(server)
    part = Slot("node", ParameterRange(8192, 12288), (Held(1, 1.0, [one.name for one in server.codecs].index("int8")),))
    server.aggregate(3, [part], {1: codec.encode(0.01 * vector(1, 4096)).to_bytes()}.__getitem__)
    found.finish()
    assert stored(tmp_path / "file") == expected


def test_a_disk_that_is_full_stops_no_version(tmp_path: Path) -> None:
    server, twin = make("int4", "adam", threads=2), make("int4", "adam")
    found = freeze(server, tmp_path / "file")
    with file_limit(100_000):
        advance(server, 2)
        assert found.over
        assert found.read("parameters", 0, 4) is None
        with pytest.raises(StorageError, match="File too large"):
            found.finish()
    advance(twin, 2)
    assert state(server) == state(twin)


class Shell:
    """An executor that makes versions and checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.events, self.broken = SimpleQueue[Event](), list[BaseException]()
        self.server, self.checkpoints = make("int4", "nesterov", threads=2), Checkpoints(folder)
        store: Any = SimpleNamespace()
        self.executor = ControllerExecutor(
            self.server, store, store, store, self.checkpoints, report=self.events.put, failed=self.broken.append
        )

    def checkpoint(self) -> None:
        """Ask for one, and then for versions at once."""
        self.executor.checkpoint(Checkpoint(1, self.server.version), b"state", Head(5, "ab" * 32))
        self.executor._threads["version"].submit(advance, self.server, self.server.version + 2).result()


def test_a_checkpoint_is_of_one_version_and_resumed_from(tmp_path: Path) -> None:
    shell, twin = Shell(tmp_path), make("int4", "nesterov")
    for version in (0, 2, 4):
        advance(twin, version)
        shell.checkpoint()
        told = shell.events.get()
        manifest = (tmp_path / f"v{version:06d}" / "manifest.json").read_bytes()
        assert told == Checkpointed(1, version, digest=hashlib.sha256(manifest).hexdigest())
        assert shell.checkpoints.readable()[version].manifest.head == "ab" * 32
        found = Checkpoints(tmp_path).load_latest().checkpoint
        assert found is not None
        assert (found.manifest.version, found.manifest.parameters_digest) == (version, twin.digest)
        tensors = found.tensors("parameters")
        assert {name: tensor.numpy().tobytes() for name, tensor in tensors.items()} == state(twin)
        again = make("int4", "nesterov")
        again.load(tensors, version)
        assert again.parameters is tensors["parameters"], "there is no second copy"
        assert all(again.outer.moments[name] is tensors[f"outer.{name}"] for name in again.outer.moments)
        advance(again, version + 2)
        assert state(again) == state(shell.server)
    shell.executor.close()
    assert not shell.broken


def test_a_checkpoint_that_fails_or_is_cut_short_leaves_the_one_before(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.checkpoint()
    shell.events.get()
    for limit in (100, 100_000):  # for its header; for its tensors
        version = shell.server.version
        with file_limit(limit):
            shell.checkpoint()
            told = shell.events.get()
        assert isinstance(told, Checkpointed)
        assert told.version == version
        assert "File too large" in told.reason
        assert folders(tmp_path) == ["v000000"]
    unfinished = shell.checkpoints.begin(6, {"parameters": shell.server.state()})  # as kill -9 leaves it
    unfinished.files["parameters"].close()
    latest = Checkpoints(tmp_path).load_latest()
    assert latest.checkpoint is not None
    assert (latest.checkpoint.manifest.version, latest.rejected) == (0, ())
    shell.checkpoint()
    shell.events.get()
    assert folders(tmp_path) == ["v000000", "v000006"]
    shell.executor.close()


def test_a_large_snapshot_that_is_held_is_left_on_disk_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "SMALL_BYTES", 0)
    dataset: Any = SimpleNamespace(folder=None, files=list)
    server = make("int4", "sgd", threads=2)
    store, expected = BlobStore(dataset, "manifest", b"m", folder=tmp_path), dict[str, bytes]()
    before = os.listdir("/proc/self/fd")

    def read_whole(name: str) -> bytes:
        pieces = [store.read(name, offset, 9999) for offset in range(0, 4 * SIZE + 32, 9999)]
        return b"".join(piece for piece in pieces if piece is not None)

    for version in range(1, 5):
        store.publish(server.parameters, server.digest, server.leaves)
        store.hold(f"node{version}", [server.digest])
        expected[server.digest] = state(server)["parameters"]
        store.freeze(server.watch)
        for name, content in expected.items():
            assert read_whole(name) == content
        advance(server, version)
    for name, content in expected.items():
        assert read_whole(name) == content
    assert folders(tmp_path) == [], "its file has no name, so that a crash leaves nothing"
    assert len(os.listdir("/proc/self/fd")) == len(before) + 4
    for version in range(1, 5):
        store.let_go(f"node{version}")
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert not any(map(read_whole, expected))
    advance(server, 5)


def test_a_snapshot_that_cannot_be_kept_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "SMALL_BYTES", 0)
    dataset: Any = SimpleNamespace(folder=None, files=list)
    server = make("int4", "sgd")
    store = BlobStore(dataset, "manifest", b"m", folder=tmp_path / "missing")
    store.publish(server.parameters, server.digest, server.leaves)
    store.hold("node", [server.digest])
    name = server.digest
    store.freeze(server.watch)
    advance(server, 1)
    assert store.read(name, 0, 4) is None
