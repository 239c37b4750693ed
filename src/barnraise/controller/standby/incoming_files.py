"""The files of a standby's copy of a run directory: which are wanted, and where they go.

Changes only its folder. Small files and the dataset go to their place at once. The files of a checkpoint wait beside
its place until all are there and `settle` is called, for a checkpoint beyond the ledger's rows stops a resume.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import WireError
from barnraise.core.files import fsync_directory, write_file
from barnraise.core.types import Blob
from barnraise.ledger import Checkpoints
from barnraise.ledger.checkpoints import CheckpointManifest
from barnraise.ledger.disk import storage_errors
from barnraise.wire.following import CopiedFile

_PATH = re.compile(
    r"run\.yaml|manifest\.json|predecessors\.json|keys/(controller|invites)\.json|data/[A-Za-z0-9_][A-Za-z0-9_.-]*"
    r"|checkpoints/v\d{6,12}(\.\d{1,6})?/([A-Za-z0-9_]+\.(safetensors|json|msgpack))"
)
_NEEDED = {"run.yaml", "manifest.json", "keys/controller.json", "data/meta.json"}
_ARRIVING = ".unfinished-copy"


@dataclass(frozen=True)
class Unsettled:
    """A checkpoint that is here, and not in its place yet."""

    name: str
    version: int
    ledger_id: int


class IncomingFiles:
    """The files of the copy.

    `rewrite` turns the received run file into the kept one; `keep` is the number of checkpoints to keep.
    """

    def __init__(self, folder: Path, rewrite: Callable[[bytes], bytes], keep: int = 2) -> None:
        self._folder, self._rewrite, self._keep = folder, rewrite, keep
        self._here: dict[str, str] = {}  # path -> digest of the received file
        self._checkpoints = Checkpoints(folder / "checkpoints")
        self._arriving = folder / "checkpoints" / _ARRIVING
        self._wanted: set[str] = set()  # small files and data of which not even an older version is here
        self.unsettled: Unsettled | None = None
        readable = self._checkpoints.readable()
        self.oldest = min(readable, default=-1)  # version of the oldest checkpoint
        self.newest = max(readable, default=-1)
        self.ledger_id = readable[self.newest].manifest.ledger_id if readable else -1
        for folder in self._arriving.glob("v*"):  # one may have arrived as a whole before this process began
            self._look_at(folder)

    @property
    def complete(self) -> bool:
        """Return whether everything but the ledger is here."""
        return self.newest >= 0 and not self._wanted and self._here.keys() >= _NEEDED

    def wanted(self, files: Sequence[CopiedFile]) -> list[CopiedFile]:
        """Return those of the controller's files to fetch.

        Raises WireError for a file that is not one of a run.
        """
        for file in files:
            if not _PATH.fullmatch(file.path):
                raise WireError(f"'{file.path[:100]}' is no file that a copy of a run has")
        new = [file for file in files if not self._is_here(file)]
        names = {file.path for file in new if not file.path.startswith("checkpoints/")}
        self._wanted = {name for name in names if not (self._folder / name).is_file()}
        return new

    def put(self, file: CopiedFile, content: bytes) -> None:
        """Store the bytes of one of them, which hash to its name.

        Raises StorageError, WireError.
        """
        if file.path.startswith("checkpoints/"):
            self._put_checkpoint(file, content)
            return
        kept = self._rewrite(content) if file.path == "run.yaml" else content
        path = self._folder / file.path
        with storage_errors(path):
            write_file(path, kept, mode=0o600 if file.path.startswith("keys/") else 0o644)
        self._here[file.path] = file.blob.digest
        self._wanted.discard(file.path)

    def settle(self) -> None:
        """Put the checkpoint that is here in its place.

        Raises StorageError.
        """
        assert self.unsettled is not None
        found, self.unsettled = self.unsettled, None
        directory = self._arriving.parent
        with storage_errors(directory):
            fsync_directory(self._arriving)
            (self._arriving / found.name).rename(directory / found.name)
            fsync_directory(directory)
        kept = self._checkpoints.prune(self._keep)
        self.oldest, self.newest, self.ledger_id = kept[0].manifest.version, found.version, found.ledger_id

    def _is_here(self, file: CopiedFile) -> bool:
        if file.path.startswith("checkpoints/"):
            name = file.path.split("/")[1]
            settled = (self._folder / "checkpoints" / name).is_dir()
            return settled or self._matches(self._arriving / name / file.path.split("/")[2], file)
        if self._here.get(file.path) == file.blob.digest:
            return True
        if file.path != "run.yaml" and self._matches(self._folder / file.path, file):
            self._here[file.path] = file.blob.digest
            return True
        return False

    def _matches(self, path: Path, file: CopiedFile) -> bool:
        if not path.is_file() or path.stat().st_size != file.blob.num_bytes:
            return False
        with storage_errors(path, "read"), path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.blob.digest

    def _put_checkpoint(self, file: CopiedFile, content: bytes) -> None:
        _, name, part = file.path.split("/")
        folder = self._arriving / name
        with storage_errors(folder):
            for other in self._arriving.glob("*"):
                if other.name != name:  # an older one, which the controller does not keep any more
                    self.unsettled = None
                    shutil.rmtree(other)
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / part, content)
        self._look_at(folder)

    def _look_at(self, folder: Path) -> None:
        """Check whether all of the checkpoint is here.

        A damaged one does not count, and is fetched again.
        """
        path = folder / "manifest.json"
        if not path.is_file():
            return
        with storage_errors(path, "read"):
            content = path.read_bytes()
        try:
            manifest = msgspec.json.decode(content, type=CheckpointManifest)
        except MALFORMED:
            return
        blobs = {part: Blob(kept.sha256, kept.num_bytes) for part, kept in manifest.files.items()}
        if all(self._matches(folder / part, CopiedFile(part, blob)) for part, blob in blobs.items()):
            self.unsettled = Unsettled(folder.name, manifest.version, manifest.ledger_id)
