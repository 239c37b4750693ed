"""A worker's cache of a run's data on its disk, between tasks and between processes."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from barnraise.core.errors import StorageError
from barnraise.core.files import write_file
from barnraise.core.types import Blob
from barnraise.core.units import bytes_text
from barnraise.wire.file_downloads import FileDownload


class Cache:
    """Files by the digests of their content, in places that the run's description gives them.

    At most `limit` bytes: the least recently used are deleted for others. `on_deleted` is called with each one's name.
    `own` is a folder of the machine's owner with copies of some.
    """

    def __init__(self, limit: float = math.inf) -> None:
        self.limit = limit
        self.own: Path | None = None
        self.places: dict[str, Path] = {}
        self.on_deleted: Callable[[str], None] = lambda name: None
        self._sizes: dict[str, int] = {}  # sizes of the present files, the least recently used first
        self._right: set[str] = set()  # files whose content was compared with their digest
        self._twins: dict[str, list[Path]] = {}  # further files with the same content

    def place(self, digest: str, path: Path) -> None:
        """Register the place of a blob.

        A file that an earlier process left there counts, if it has the right length.
        """
        if self.places.setdefault(digest, path) != path:
            self._twins.setdefault(digest, []).append(path)
            return
        with contextlib.suppress(OSError):
            if path.is_file():
                self._sizes[digest] = path.stat().st_size

    def holds(self, blob: Blob) -> bool:
        """Return whether the blob is here with the right content, also as the owner's; a wrong one counts as absent."""
        path = self.places.get(blob.digest)
        if path is None:
            return False
        if blob.digest in self._right:
            self._sizes[blob.digest] = self._sizes.pop(blob.digest)
            return True
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_size == blob.num_bytes and digest_of(path) == blob.digest:
                self._take(blob.digest, blob.num_bytes)
                return True
        return self.own is not None and self._adopt(blob, self.own)

    def keep(self, digest: str, content: bytes | bytearray) -> None:
        """Write a blob to its place, durably; StorageError when the disk does not take it."""
        self._sizes.pop(digest, None)
        self._right.discard(digest)
        self._make_room(len(content))
        path = self.places[digest]
        try:
            write_file(path, content)
        except OSError as error:
            why = error.strerror or error
            raise StorageError(
                f"{path} cannot be written ({why}): free some space, or join with another --home"
            ) from None
        self._take(digest, len(content))

    def move(self, digest: str, download: FileDownload) -> None:
        """Move a file that was downloaded to the disk to its place; StorageError when that fails."""
        self._right.discard(digest)
        download.move(self.places[digest])
        self._take(digest, download.blob.num_bytes)

    def _adopt(self, blob: Blob, folder: Path) -> bool:
        """Return whether `folder` has a file with these bytes, which is then linked to the blob's place, or copied."""
        for path in sorted(folder.glob("*")):
            with contextlib.suppress(OSError):
                if not path.is_file() or path.stat().st_size != blob.num_bytes or digest_of(path) != blob.digest:
                    continue
                _link(path, self.places[blob.digest])
                self._take(blob.digest, blob.num_bytes)
                return True
        return False

    def _take(self, digest: str, size: int) -> None:
        for twin in self._twins.get(digest, ()):
            twin.unlink(missing_ok=True)
            _link(self.places[digest], twin)
        self._sizes.pop(digest, None)
        self._sizes[digest] = size
        self._right.add(digest)

    def _make_room(self, size: int) -> None:
        if size > self.limit:
            has, lent = bytes_text(size), bytes_text(int(self.limit))
            raise StorageError(f"a file of the run has {has}, but {lent} are lent for files: lend more (--max-disk)")
        while self._sizes and sum(self._sizes.values()) + size > self.limit:
            digest = next(iter(self._sizes))
            del self._sizes[digest]
            self._right.discard(digest)
            for path in (self.places[digest], *self._twins.get(digest, ())):
                self.on_deleted(path.name)
                with contextlib.suppress(OSError):
                    path.unlink()


def _link(path: Path, to: Path) -> None:
    """Make the file `to` of the same content, without a second copy where the disk can."""
    try:
        os.link(path.resolve(), to)
    except OSError:
        shutil.copyfile(path, to)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def delete(folder: Path, moments: Path | None, replica: Path | None = None) -> None:
    """Delete the data, the optimizer's moments and the replica of a run that is over.

    A file that cannot be deleted stays.
    """
    for each in (folder, replica):
        if each is not None:
            shutil.rmtree(each, ignore_errors=True)
    if moments is not None:
        with contextlib.suppress(OSError):
            moments.unlink()
