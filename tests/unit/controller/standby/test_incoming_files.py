"""The files of a standby's copy: which make it complete, and what a restart finds."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from barnraise.controller.standby.incoming_files import IncomingFiles
from barnraise.core.types import Blob
from barnraise.ledger.checkpoints import CheckpointManifest, StoredFile
from barnraise.wire.following import CopiedFile

PARAMETERS = b"parameters"
PART = StoredFile(10, hashlib.sha256(PARAMETERS).hexdigest())
MANIFEST = msgspec.json.encode(
    CheckpointManifest(
        0, 1, "0" * 64, {"parameters.safetensors": StoredFile(10, hashlib.sha256(PARAMETERS).hexdigest())}
    )
)
CHECKPOINT = {"checkpoints/v000000/parameters.safetensors": PARAMETERS, "checkpoints/v000000/manifest.json": MANIFEST}
SMALL = {
    "run.yaml": b"1",
    "manifest.json": b"2",
    "keys/controller.json": b"3",
    "keys/invites.json": b"4",
    "data/meta.json": b"5",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("checkpoints", "keys", "data"):
        (tmp_path / name).mkdir()
    return tmp_path


def begin(folder: Path) -> IncomingFiles:
    return IncomingFiles(folder, lambda content: content)


def offered(contents: dict[str, bytes]) -> list[CopiedFile]:
    return [CopiedFile(name, Blob(hashlib.sha256(raw).hexdigest(), len(raw))) for name, raw in contents.items()]


def fetch(files: IncomingFiles, contents: dict[str, bytes]) -> list[str]:
    wanted = files.wanted(offered(contents))
    for file in wanted:
        files.put(file, contents[file.path])
    return [file.path for file in wanted]


def test_a_newer_small_file_that_has_not_come_leaves_the_copy_complete(folder: Path) -> None:
    files = begin(folder)
    fetch(files, SMALL | CHECKPOINT)
    files.settle()
    assert files.complete
    newer = SMALL | {"keys/invites.json": b"6"}
    assert [file.path for file in files.wanted(offered(newer))] == ["keys/invites.json"]
    assert files.complete


def test_a_file_of_which_no_version_is_here_is_lacking(folder: Path) -> None:
    files = begin(folder)
    fetch(files, SMALL | CHECKPOINT)
    files.settle()
    files.wanted(offered(SMALL | {"data/rows.bin": b"7"}))
    assert not files.complete


def test_a_checkpoint_that_had_come_before_a_restart_is_put_in_its_place(folder: Path) -> None:
    fetch(begin(folder), SMALL | CHECKPOINT)
    again = begin(folder)
    assert fetch(again, SMALL | CHECKPOINT) == ["run.yaml"]
    assert again.unsettled is not None
    again.settle()
    assert again.complete
    assert (folder / "checkpoints/v000000/parameters.safetensors").read_bytes() == PARAMETERS


@pytest.mark.parametrize("hurt", ["parameters.safetensors", "manifest.json"])
def test_a_damaged_one_is_fetched_once_more(folder: Path, hurt: str) -> None:
    fetch(begin(folder), SMALL | CHECKPOINT)
    (folder / "checkpoints/.unfinished-copy/v000000" / hurt).write_bytes(b"PARAMETERS")
    again = begin(folder)
    assert again.unsettled is None
    assert fetch(again, SMALL | CHECKPOINT) == ["run.yaml", f"checkpoints/v000000/{hurt}"]
    assert again.unsettled is not None


def test_one_that_a_newer_one_displaces_is_not_settled(folder: Path) -> None:
    fetch(begin(folder), SMALL | CHECKPOINT)
    again = begin(folder)
    newer = {"checkpoints/v000001/parameters.safetensors": PARAMETERS}
    fetch(again, newer)
    assert again.unsettled is None
