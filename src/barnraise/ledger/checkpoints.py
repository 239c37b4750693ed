"""Checkpoints: the whole state of a run at one version, so that resuming replays only later decisions.

    checkpoints/v000042/
        parameters.safetensors, outer.safetensors ...   one file a group of named tensors
        state.msgpack                                   the controller's state as of `ledger_id`
        manifest.json                                   version, ledger id, digests; written last

A checkpoint is written beside its place, synced, and renamed: it exists whole or not at all. Its digests detect later
damage of the disk; the checkpoint before it is the fallback. Tensors are written in chunks, in any order, and read into
the memory where they are used (`ledger.tensor_files`): there is no second copy of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import CorruptionError, StorageError
from barnraise.core.files import fsync_directory
from barnraise.core.types import Count, Digest
from barnraise.ledger.disk import storage_errors
from barnraise.ledger.tensor_files import TensorFile, content, read

if TYPE_CHECKING:
    from torch import Tensor

_NAME = re.compile(r"v(\d{6,12})(?:\.(\d{1,6}))?")
_MANIFEST = "manifest.json"
_MANIFEST_LIMIT = 1 << 20
_STATE = "state.msgpack"
_UNFINISHED = ".unfinished-"

FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_]+\.(safetensors|json|msgpack)$", max_length=120)]


class StoredFile(msgspec.Struct, frozen=True):
    """The expected size and digest of a checkpoint's file."""

    num_bytes: Count
    sha256: Digest


class CheckpointManifest(msgspec.Struct, frozen=True):
    """The content of a checkpoint.

    `ledger_id` is the last decision that its state includes, `head` that of the ledger's chain after it; "" in older
    ones, and before there is a ledger.
    """

    version: Count
    ledger_id: Count
    parameters_digest: Digest
    files: dict[FileName, StoredFile]
    format: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    head: str = ""

    def encode(self) -> bytes:
        """Return the manifest file's content."""
        return msgspec.json.format(msgspec.json.encode(self))

    @property
    def digest(self) -> str:
        """Return the digest of the manifest file, and so of the whole checkpoint."""
        return hashlib.sha256(self.encode()).hexdigest()


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint on disk, with its manifest."""

    path: Path
    manifest: CheckpointManifest

    def state(self) -> bytes:
        """Return the controller's state; empty in a checkpoint from before it was kept."""
        with storage_errors(self.path, "read"):
            return (self.path / _STATE).read_bytes() if _STATE in self.manifest.files else b""

    def tensors(self, group: str, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """Read the named tensors of a group (those of `names` that it has, or all), on the CPU, as own copies.

        Raises CorruptionError when they cannot be read.
        """
        return read(self.path / f"{group}.safetensors", names)

    def verify(self) -> None:
        """Compare every file with its digest.

        Raises CorruptionError naming the first that differs.
        """
        for name, stored in self.manifest.files.items():
            if describe(self.path / name) != stored:
                raise CorruptionError(f"{self.path / name} is damaged: its bytes do not match the manifest")


@dataclass(frozen=True)
class Rejected:
    """A checkpoint that cannot be used, and the reason."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Latest:
    """The newest good checkpoint, None when there is none, and newer ones that are not good."""

    checkpoint: StoredCheckpoint | None
    rejected: tuple[Rejected, ...] = ()


class Unfinished:
    """A checkpoint that is being written: `files`, by group, take the bytes of its tensors.

    Then it is finished.
    """

    def __init__(self, folder: Path, version: int, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        self._folder, self._version = folder, version
        self.files: dict[str, TensorFile] = {}
        folder.mkdir()
        for group, named in tensors.items():
            path = folder / f"{group}.safetensors"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            self.files[group] = TensorFile(descriptor, path, named)

    def finish(self, *, ledger_id: int, parameters_digest: str, state: bytes, head: str = "") -> StoredCheckpoint:
        """Move it to its place, durably, once all bytes are written and the files closed.

        It replaces one that the version already has. Raises StorageError.
        """
        directory = self._folder.parent
        with storage_errors(directory):
            (self._folder / _STATE).write_bytes(state)
            names = [_STATE, *(f"{group}.safetensors" for group in self.files)]
            files = {name: describe(self._folder / name) for name in names}
            manifest = CheckpointManifest(self._version, ledger_id, parameters_digest, files, head=head)
            (self._folder / _MANIFEST).write_bytes(manifest.encode())
            for name in (*names, _MANIFEST):
                _fsync(self._folder / name)
            fsync_directory(self._folder)
            older = [path for path in _paths(directory) if _key(path)[0] == self._version]
            suffix = f".{_key(older[-1])[1] + 1}" if older else ""
            final = self._folder.rename(directory / f"v{self._version:06d}{suffix}")
            fsync_directory(directory)
            for path in older:
                _remove(path)
        return StoredCheckpoint(final, manifest)

    def abandon(self) -> None:
        """Delete all of it."""
        for file in self.files.values():
            file.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Checkpoints:
    """The checkpoints of one run.

    One process saves, one checkpoint after the other, and prunes; any process loads.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rejected: set[Path] = set()

    def begin(self, version: int, tensors: Mapping[str, Mapping[str, Tensor]]) -> Unfinished:
        """Begin a checkpoint of `version` with groups of named tensors, a file each, whose bytes follow."""
        with storage_errors(self._directory):
            self._directory.mkdir(exist_ok=True)
            self._remove_unfinished()
            folder = self._directory / f"{_UNFINISHED}v{version:06d}"
            try:
                return Unfinished(folder, version, tensors)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise

    def save(
        self,
        version: int,
        *,
        ledger_id: int,
        parameters_digest: str,
        state: bytes,
        tensors: Mapping[str, Mapping[str, Tensor]],
        head: str = "",
    ) -> StoredCheckpoint:
        """Write the checkpoint of `version` durably; `tensors` are groups of named tensors, a file each.

        A checkpoint that the version already has is replaced. Raises StorageError when the disk fails (full, over
        quota): the new one is deleted then, and the old ones are untouched.
        """
        unfinished = self.begin(version, tensors)
        try:
            for group, file in unfinished.files.items():
                for name, tensor in tensors[group].items():
                    file.put(name, 0, content(tensor))
                file.close()
            return unfinished.finish(ledger_id=ledger_id, parameters_digest=parameters_digest, state=state, head=head)
        except BaseException:
            unfinished.abandon()
            raise

    def load_latest(self, validate: bool = True) -> Latest:
        """Return the newest checkpoint whose files match their digests, and why newer ones were rejected.

        Without `validate` only manifests are read. Nothing is changed on disk: rejected checkpoints stay for inspection
        until `prune`.
        """
        rejected: list[Rejected] = []
        for path in reversed(_paths(self._directory)):
            try:
                checkpoint = StoredCheckpoint(path, _read_manifest(path))
                if validate:
                    checkpoint.verify()
            except StorageError as error:
                rejected.append(Rejected(path, str(error)))
                self._rejected.add(path)
            else:
                return Latest(checkpoint, tuple(rejected))
        return Latest(None, tuple(rejected))

    def readable(self) -> dict[int, StoredCheckpoint]:
        """Return the checkpoints with a readable manifest by version, the oldest first; their files are not read."""
        found: dict[int, StoredCheckpoint] = {}
        for path in _paths(self._directory):
            with contextlib.suppress(StorageError):
                found[_key(path)[0]] = StoredCheckpoint(path, _read_manifest(path))
        return found

    def prune(self, keep: int) -> list[StoredCheckpoint]:
        """Delete all but the newest `keep` checkpoints, and those that `load_latest` rejected.

        Returns those kept, the oldest first: no later replay needs the decisions that it covers.
        """
        assert keep >= 1
        good = [path for path in _paths(self._directory) if path not in self._rejected]
        kept = good[-keep:]
        with storage_errors(self._directory, "delete from"):
            self._remove_unfinished()
            for path in _paths(self._directory):
                if path not in kept:
                    _remove(path)
        return [StoredCheckpoint(path, _read_manifest(path)) for path in kept]

    def _remove_unfinished(self) -> None:
        for path in self._directory.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(path)


def _key(path: Path) -> tuple[int, int]:
    """Return the version, and the number of its checkpoint."""
    match = _NAME.fullmatch(path.name)
    assert match
    return int(match[1]), int(match[2] or 0)


def _paths(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted((path for path in directory.iterdir() if _NAME.fullmatch(path.name)), key=_key)


def _remove(path: Path) -> None:
    doomed = path.rename(path.with_name(f"{_UNFINISHED}{path.name}"))  # never leaves a half-deleted checkpoint
    shutil.rmtree(doomed)


def _read_manifest(path: Path) -> CheckpointManifest:
    file = path / _MANIFEST
    with storage_errors(file, "read"), file.open("rb") as stream:
        text = stream.read(_MANIFEST_LIMIT + 1)
    if len(text) > _MANIFEST_LIMIT:
        raise CorruptionError(f"{file} is damaged: more than {_MANIFEST_LIMIT} bytes")
    try:
        return msgspec.json.decode(text, type=CheckpointManifest)
    except MALFORMED as error:
        raise CorruptionError(f"{file} is damaged: {error}") from error


def describe(path: Path) -> StoredFile:
    """Return the size and digest of a file.

    Raises StorageError.
    """
    with storage_errors(path, "read"), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return StoredFile(file.tell(), digest)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
