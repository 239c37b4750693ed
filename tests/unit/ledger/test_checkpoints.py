"""Checkpoints: whole or not at all, found damaged, and replaced by the one before."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from barnraise.core.errors import CorruptionError, StorageError
from barnraise.ledger import Checkpoints, StoredCheckpoint

DIGEST = hashlib.sha256(b"parameters").hexdigest()


def save(checkpoints: Checkpoints, version: int, ledger_id: int = 7) -> StoredCheckpoint:
    generator = torch.Generator().manual_seed(version)
    flat = torch.randn(1000, generator=generator)
    return checkpoints.save(
        version,
        ledger_id=ledger_id,
        parameters_digest=DIGEST,
        state=b'{"cursor": %d}' % version,
        tensors={"parameters": {"flat": flat}, "outer": {"momentum": flat * 2, "residual": flat.double()}},
    )


@contextmanager
def file_limit(num_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond `num_bytes`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def folders(path: Path) -> list[str]:
    return sorted(child.name for child in path.iterdir())


def test_a_saved_checkpoint_is_loaded(tmp_path: Path) -> None:
    saved = save(Checkpoints(tmp_path), 42)
    latest = Checkpoints(tmp_path).load_latest()
    assert latest.checkpoint == saved
    assert latest.rejected == ()
    assert folders(tmp_path) == ["v000042"]
    assert (saved.manifest.version, saved.manifest.ledger_id, saved.manifest.parameters_digest) == (42, 7, DIGEST)
    assert saved.state() == b'{"cursor": 42}'
    outer, flat = saved.tensors("outer"), saved.tensors("parameters")["flat"]
    assert torch.equal(flat, torch.randn(1000, generator=torch.Generator().manual_seed(42)))
    assert torch.equal(outer["momentum"], flat * 2)
    assert outer["residual"].dtype == torch.float64


def test_the_manifest_is_readable_and_holds_the_digest_of_each_file(tmp_path: Path) -> None:
    path = save(Checkpoints(tmp_path), 1).path
    manifest = json.loads((path / "manifest.json").read_text())
    assert folders(path) == ["manifest.json", "outer.safetensors", "parameters.safetensors", "state.msgpack"]
    for name, stored in manifest["files"].items():
        data = (path / name).read_bytes()
        assert stored == {"num_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_there_may_be_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "missing").load_latest().checkpoint is None
    assert Checkpoints(tmp_path).load_latest().checkpoint is None


@pytest.mark.parametrize("name", ["parameters.safetensors", "outer.safetensors", "state.msgpack", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path, name: str, damage: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    for version in (1, 2, 3):
        save(checkpoints, version)
    file = tmp_path / "v000003" / name
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[-2] ^= 0x10
    file.write_bytes(data if damage == "flip" else data[:-2])
    if damage == "remove":
        file.unlink()
    latest = checkpoints.load_latest()
    assert latest.checkpoint is not None
    assert latest.checkpoint.manifest.version == 2
    assert [rejected.path for rejected in latest.rejected] == [tmp_path / "v000003"]
    assert name in latest.rejected[0].reason


def test_all_may_be_damaged(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for version in (1, 2):
        (save(checkpoints, version).path / "state.msgpack").write_bytes(b"{}")
    latest = checkpoints.load_latest()
    assert latest.checkpoint is None
    assert [rejected.path.name for rejected in latest.rejected] == ["v000002", "v000001"]
    assert checkpoints.load_latest(validate=False).checkpoint is not None


@pytest.mark.parametrize("name", ["../../etc/passwd.json", "/state.msgpack", "state.pickle"])
def test_a_manifest_names_only_files_of_its_own(tmp_path: Path, name: str) -> None:
    path = save(Checkpoints(tmp_path), 1).path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = manifest["files"]["state.msgpack"]
    path.write_text(json.dumps(manifest))
    latest = Checkpoints(tmp_path).load_latest()
    assert latest.checkpoint is None
    assert "manifest.json is damaged" in latest.rejected[0].reason


def test_an_oversize_manifest_is_not_read(tmp_path: Path) -> None:
    path = save(Checkpoints(tmp_path), 1).path / "manifest.json"
    path.write_bytes(b" " * (1 << 20) + path.read_bytes())
    assert "more than 1048576 bytes" in Checkpoints(tmp_path).load_latest().rejected[0].reason


def test_tensors_that_cannot_be_read_are_corrupt(tmp_path: Path) -> None:
    checkpoint = save(Checkpoints(tmp_path), 1)
    (checkpoint.path / "outer.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(CorruptionError, match=r"outer\.safetensors is damaged"):
        checkpoint.tensors("outer")


def test_saving_a_version_again_replaces_it(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for ledger_id in (7, 8, 9):
        save(checkpoints, 5, ledger_id)
    assert folders(tmp_path) == ["v000005.2"]
    latest = checkpoints.load_latest().checkpoint
    assert latest is not None
    assert latest.manifest.ledger_id == 9


def test_prune_keeps_the_newest_good_ones(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for version in (1, 2, 999_999, 1_000_000):
        save(checkpoints, version)
    assert [kept.manifest.version for kept in checkpoints.prune(keep=3)] == [2, 999_999, 1_000_000]
    (tmp_path / "v1000000" / "state.msgpack").write_bytes(b"{}")
    checkpoints.load_latest()
    assert folders(tmp_path) == ["v000002", "v1000000", "v999999"]  # looking changes nothing
    assert [kept.manifest.version for kept in checkpoints.prune(keep=1)] == [999_999]
    assert folders(tmp_path) == ["v999999"]


def test_an_unfinished_checkpoint_is_ignored_and_cleared(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    path = save(checkpoints, 1).path
    shutil.copytree(path, tmp_path / ".unfinished-v000002")
    latest = checkpoints.load_latest()
    assert latest.checkpoint is not None
    assert (latest.checkpoint.manifest.version, latest.rejected) == (1, ())
    save(checkpoints, 2)
    assert folders(tmp_path) == ["v000001", "v000002"]


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    with file_limit(1000), pytest.raises(StorageError, match="File too large"):
        save(checkpoints, 2)
    with pytest.raises(KeyError, match="bfloat16"):
        checkpoints.save(
            2, ledger_id=1, parameters_digest=DIGEST, state=b"", tensors={"outer": {"a": torch.zeros(1).bfloat16()}}
        )
    assert folders(tmp_path) == ["v000001"]
