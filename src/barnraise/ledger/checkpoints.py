"""Checkpoints: the whole state of a run at one version, so that resuming replays only what came after it.

    checkpoints/v000042/
        parameters.safetensors, outer.safetensors ...   one file a group of named tensors
        state.msgpack                                   the controller's state as of `ledger_id`
        manifest.json                                   version, ledger id, digests; written last

A checkpoint is written beside its place, synced, and renamed: it exists whole or not at all. Its digests find what the
disk damaged later; the one before it is the fallback.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from barnraise.core.errors import CorruptionError, StorageError
from barnraise.core.files import fsync_directory
from barnraise.core.types import Count, Digest
from barnraise.ledger.disk import storage_errors

if TYPE_CHECKING:
    from torch import Tensor

_NAME = re.compile(r"v(\d{6,12})(?:\.(\d{1,6}))?")
_MANIFEST = "manifest.json"
_MANIFEST_LIMIT = 1 << 20
_STATE = "state.msgpack"
_UNFINISHED = ".unfinished-"

FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_]+\.(safetensors|json|msgpack)$", max_length=120)]


class StoredFile(msgspec.Struct, frozen=True):
    """What a file of a checkpoint must be."""

    num_bytes: Count
    sha256: Digest


class Manifest(msgspec.Struct, frozen=True):
    """What a checkpoint holds. `ledger_id` is the last decision that its state includes."""

    version: Count
    ledger_id: Count
    parameters_digest: Digest
    files: dict[FileName, StoredFile]
    format: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk."""

    path: Path
    manifest: Manifest

    def state(self) -> bytes:
        """The controller's state; empty in one of before it was kept."""
        with storage_errors(self.path, "read"):
            return (self.path / _STATE).read_bytes() if _STATE in self.manifest.files else b""

    def tensors(self, group: str) -> dict[str, Tensor]:
        """The named tensors of a group, on the CPU. Raises CorruptionError when they cannot be read."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.path / f"{group}.safetensors"
        try:
            with storage_errors(path, "read"):
                tensors: dict[str, Tensor] = load_file(path)
        except SafetensorError as error:
            raise CorruptionError(f"{path} is damaged: {error}; resume from the checkpoint before it") from error
        return tensors

    def verify(self) -> None:
        """Compare every file with its digest. Raises CorruptionError naming the first that differs."""
        for name, stored in self.manifest.files.items():
            if _describe(self.path / name) != stored:
                raise CorruptionError(f"{self.path / name} is damaged: its bytes do not match the manifest")


@dataclass(frozen=True)
class Rejected:
    """A checkpoint that cannot be used, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Latest:
    """The newest good checkpoint, None when there is none, and the newer ones that are not good."""

    checkpoint: Checkpoint | None
    rejected: tuple[Rejected, ...] = ()


class Checkpoints:
    """The checkpoints of one run. One process saves and prunes; any process loads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rejected: set[Path] = set()

    def save(
        self,
        version: int,
        *,
        ledger_id: int,
        parameters_digest: str,
        state: bytes,
        tensors: Mapping[str, Mapping[str, Tensor]],
    ) -> Checkpoint:
        """Write the checkpoint of `version` durably; `tensors` are groups of named tensors, a file each.

        A checkpoint that the version already has is replaced. Raises StorageError when the disk fails (full, over
        quota): nothing is left of the new one then, and the old ones are untouched.
        """
        with storage_errors(self._directory):
            self._directory.mkdir(exist_ok=True)
            self._remove_unfinished()
            older = [path for path in self._paths() if _key(path)[0] == version]
            suffix = f".{_key(older[-1])[1] + 1}" if older else ""
            final = self._directory / f"v{version:06d}{suffix}"
            unfinished = self._directory / f"{_UNFINISHED}{final.name}"
            try:
                unfinished.mkdir()
                manifest = _write(unfinished, version, ledger_id, parameters_digest, state, tensors)
                unfinished.rename(final)
                fsync_directory(self._directory)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
            for path in older:
                self._remove(path)
        return Checkpoint(final, manifest)

    def load_latest(self, validate: bool = True) -> Latest:
        """The newest checkpoint whose files match their digests, and why newer ones were passed over.

        Without `validate` only manifests are read. Nothing is changed on disk: what was rejected stays for
        inspection until `prune`.
        """
        rejected: list[Rejected] = []
        for path in reversed(self._paths()):
            try:
                checkpoint = Checkpoint(path, _read_manifest(path))
                if validate:
                    checkpoint.verify()
            except StorageError as error:
                rejected.append(Rejected(path, str(error)))
                self._rejected.add(path)
            else:
                return Latest(checkpoint, tuple(rejected))
        return Latest(None, tuple(rejected))

    def readable(self) -> dict[int, Checkpoint]:
        """The checkpoints whose manifest can be read, by version, the oldest first; their files are not looked at."""
        found: dict[int, Checkpoint] = {}
        for path in self._paths():
            with contextlib.suppress(StorageError):
                found[_key(path)[0]] = Checkpoint(path, _read_manifest(path))
        return found

    def prune(self, keep: int) -> list[Checkpoint]:
        """Delete all but the newest `keep` checkpoints, and those that `load_latest` rejected.

        Returns those kept, the oldest first: what that one covers is not needed for any replay from here on.
        """
        assert keep >= 1
        good = [path for path in self._paths() if path not in self._rejected]
        kept = good[-keep:]
        with storage_errors(self._directory, "delete from"):
            self._remove_unfinished()
            for path in self._paths():
                if path not in kept:
                    self._remove(path)
        return [Checkpoint(path, _read_manifest(path)) for path in kept]

    def _paths(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return sorted((path for path in self._directory.iterdir() if _NAME.fullmatch(path.name)), key=_key)

    def _remove(self, path: Path) -> None:
        doomed = path.rename(self._directory / f"{_UNFINISHED}{path.name}")  # never a half-deleted checkpoint
        shutil.rmtree(doomed)

    def _remove_unfinished(self) -> None:
        for path in self._directory.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(path)


def _key(path: Path) -> tuple[int, int]:
    """Version, and which of its checkpoints this is."""
    match = _NAME.fullmatch(path.name)
    assert match
    return int(match[1]), int(match[2] or 0)


def _write(
    folder: Path,
    version: int,
    ledger_id: int,
    parameters_digest: str,
    state: bytes,
    tensors: Mapping[str, Mapping[str, Tensor]],
) -> Manifest:
    (folder / _STATE).write_bytes(state)
    for group, named in tensors.items():
        _save_tensors(folder / f"{group}.safetensors", named)
    names = [_STATE, *(f"{group}.safetensors" for group in tensors)]
    manifest = Manifest(version, ledger_id, parameters_digest, {name: _describe(folder / name) for name in names})
    (folder / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
    for name in (*names, _MANIFEST):
        _fsync(folder / name)
    fsync_directory(folder)
    return manifest


def _save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from error


def _read_manifest(path: Path) -> Manifest:
    file = path / _MANIFEST
    with storage_errors(file, "read"), file.open("rb") as stream:
        text = stream.read(_MANIFEST_LIMIT + 1)
    if len(text) > _MANIFEST_LIMIT:
        raise CorruptionError(f"{file} is damaged: more than {_MANIFEST_LIMIT} bytes")
    try:
        return msgspec.json.decode(text, type=Manifest)
    except msgspec.MsgspecError as error:
        raise CorruptionError(f"{file} is damaged: {error}") from error


def _describe(path: Path) -> StoredFile:
    with storage_errors(path, "read"), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return StoredFile(file.tell(), digest)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
