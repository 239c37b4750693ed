"""The replica on a worker's disk: used where it is right, deleted where it is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from barnraise import compression
from barnraise.core.types import Blob, News, Update
from barnraise.models.vectors import digest, raw
from barnraise.worker import replica_file
from barnraise.worker.replica import Replica
from barnraise.worker.replica_file import ReplicaFile, RestoredVersion

SIZE = 1000
RUN, MANIFEST = "barn", "f" * 64


def parameters(version: int) -> torch.Tensor:
    return torch.full((SIZE,), float(version))


def replica(size: int = SIZE) -> Replica:
    return Replica(size, compression.create("none"), follows=False)


def news(version: int) -> News:
    named = digest(parameters(version))
    return News((Update("snapshot", version, Blob(named, 4 * SIZE), named),))


class Disk:
    """A folder of one worker, and what is said of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder / "home" / "replica", list[str]()

    def open(self, run: str = RUN, manifest: str = MANIFEST) -> ReplicaFile:
        return ReplicaFile(self.folder, run, manifest, self.said.append)

    def write(self, version: int = 3) -> Path:
        """Write a file of that version, as a worker does that has just got its first snapshot."""
        file, held = self.open(), replica()
        self.follow(file, held, version)
        return self.folder / f"{held.digest}.replica"

    def follow(self, file: ReplicaFile, held: Replica, version: int) -> None:
        named = news(version)
        file.followed(held, named, held.update(named, lambda _: bytearray(raw(parameters(version)))))

    def restore(self, newest: RestoredVersion, **identity: str) -> tuple[RestoredVersion, Replica]:
        into = replica()
        return self.open(**identity).restore(into, newest), into

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.mark.parametrize("newest", [RestoredVersion(3, digest(parameters(3))), RestoredVersion(7, "0" * 64)])
def test_a_worker_that_comes_back_continues_from_its_file(disk: Disk, newest: RestoredVersion) -> None:
    path = disk.write(3)
    assert disk.files == [path.name]
    held, into = disk.restore(newest)
    assert held == RestoredVersion(3, digest(parameters(3)))
    assert torch.equal(into.parameters, parameters(3))
    assert into.version == 3
    assert disk.said == ["version 3 of the model is on this disk: only what differs is fetched"]


def test_a_worker_without_a_file_has_no_version(disk: Disk) -> None:
    assert disk.restore(RestoredVersion(3, "0" * 64))[0] == RestoredVersion()
    disk.open().keep(replica())  # there is nothing to keep
    assert (disk.files, disk.said) == ([], [])


def spoil(at: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a parameter": spoil(-7),
    "the header": spoil(3),
    "cut short": lambda content: content[:-4],
    "longer": lambda content: content + bytes(4),
    "empty": lambda content: b"",
    "no header": lambda content: bytes(len(content)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_deleted_and_said_in_one_line(disk: Disk, damage: Callable[[bytes], bytes]) -> None:
    path = disk.write()
    path.write_bytes(damage(path.read_bytes()))
    held, into = disk.restore(RestoredVersion(7, "0" * 64))
    assert held == RestoredVersion()
    assert into.version == -1
    assert disk.files == []
    (said,) = disk.said
    assert said.startswith(f"the replica in {path} is not used: ")
    assert said.endswith("; it is deleted, and what is missing is fetched")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("newest", "identity", "reason"),
    [
        (RestoredVersion(3, "0" * 64), {}, "the controller names another digest for version 3"),
        (RestoredVersion(3, None), {}, "the controller names another digest for version 3"),
        (RestoredVersion(2, "0" * 64), {}, "it has version 3, but the run's newest is 2"),
        (RestoredVersion(7, "0" * 64), {"run": "another"}, "it is of another run or model"),
        (RestoredVersion(7, "0" * 64), {"manifest": "0" * 64}, "it is of another run or model"),
    ],
)
def test_a_file_that_the_controller_does_not_confirm_is_deleted(
    disk: Disk, newest: RestoredVersion, identity: dict[str, str], reason: str
) -> None:
    disk.write(3)
    held, into = disk.restore(newest, **identity)
    assert (held, into.version, disk.files) == (RestoredVersion(), -1, [])
    assert len(disk.said) == 1
    assert reason in disk.said[0]


def test_a_file_of_another_size_is_not_read(disk: Disk) -> None:
    disk.write()
    into = replica(SIZE + 1)
    assert disk.open().restore(into, RestoredVersion(7, "0" * 64)) == RestoredVersion()
    assert disk.files == []
    assert "bytes, but this model's has" in disk.said[0]


def test_a_file_that_the_updates_do_not_follow_is_deleted(disk: Disk) -> None:
    disk.write(3)
    file, into = disk.open(), replica()
    file.restore(into, RestoredVersion(7, "0" * 64))
    wrong = News((Update("delta", 4, Blob("0" * 64, 4), "0" * 64),))
    file.followed(into, wrong, -1)
    assert disk.files == []
    assert "the controller's updates do not follow it" in disk.said[-1]
    file.followed(into, wrong, -1)
    assert len(disk.said) == 2, "it is said once"


def test_the_file_is_replaced_once_enough_has_come(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_file, "INTERVAL", 0.0)
    monkeypatch.setattr(replica_file, "COST", 1e9)
    file, held = disk.open(), replica()
    disk.follow(file, held, 1)
    first = disk.files
    small = News((Update("delta", 2, Blob("0" * 64, SIZE // 2), "0" * 64),))
    file.followed(held, small, 2)
    assert disk.files == first, "an eighth of the model has come"
    disk.follow(file, held, 3)
    assert disk.files == [f"{digest(parameters(3))}.replica"] != first


def test_the_file_is_written_at_once_and_then_seldom(disk: Disk) -> None:
    file, held = disk.open(), replica()
    disk.follow(file, held, 1)
    disk.follow(file, held, 2)
    assert disk.files == [f"{digest(parameters(1))}.replica"]
    file.keep(held)  # as the worker leaves
    assert disk.files == [f"{digest(parameters(2))}.replica"]


def test_a_void_replica_is_not_written(disk: Disk) -> None:
    file, held = disk.open(), replica()
    disk.follow(file, held, 1)
    wrong = News((Update("snapshot", 2, Blob("0" * 64, 4 * SIZE), "0" * 64),))
    file.followed(held, wrong, held.update(wrong, lambda _: bytearray(4 * SIZE)))
    file.keep(held)
    assert disk.files == [f"{digest(parameters(1))}.replica"]


def test_leftovers_of_a_killed_process_are_removed(disk: Disk) -> None:
    path = disk.write(3)
    (disk.folder / f"{'1' * 64}.unfinished").write_bytes(b"begun")
    held, _ = disk.restore(RestoredVersion(7, "0" * 64))
    assert held.version == 3
    assert disk.files == [path.name]


def test_a_disk_that_cannot_be_written_is_said_once(disk: Disk) -> None:
    disk.folder.parent.write_text("a file where a folder should be")
    file, held = disk.open(), replica()
    for version in (1, 2, 3):
        disk.follow(file, held, version)
    assert len(disk.said) == 1
    assert disk.said[0].startswith(f"the replica cannot be kept in {disk.folder}: ")


def test_a_run_cannot_choose_where_its_file_is(disk: Disk, tmp_path: Path) -> None:
    file, held = ReplicaFile(disk.folder, "../../escape", "/etc/passwd", disk.said.append), replica()
    disk.follow(file, held, 1)
    there = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert there == [disk.folder / f"{digest(parameters(1))}.replica"]
