"""Downloads of large files in chunks, straight to the disk, continued where an earlier process ended.

A file grows in order: chunks that come early wait in memory, a window of them at most. So its length tells what is
there, and a cut at any byte loses a window.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnraise.core.errors import StorageError
from barnraise.core.types import Blob
from barnraise.wire.downloads import PATIENCE, WINDOW, Chunks, InOrder, WrongDigestError, check_size
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import CHUNK_BYTES

READ_BYTES = 1 << 22
"""Bytes of a file that are read at a time."""


class GrowingFile(Chunks):
    """Chunks that are written to the file `path` in order; the file may hold their beginning."""

    def __init__(self, path: Path, num_bytes: int, size: int, window: int, patience: float) -> None:
        super().__init__(num_bytes, size, window, patience)
        self.hash, self.end = hashlib.sha256(), 0
        self._early: dict[int, bytes] = {}
        self._file = path.open("a+b")
        there = self._file.tell()
        kept = num_bytes if there == num_bytes else min(there, num_bytes) // size * size
        self._file.truncate(kept)
        self._file.seek(0)
        while content := self._file.read(READ_BYTES):
            self.hash.update(content)
        self.end = kept
        self._next = -(-kept // size)
        self.arrived[: self._next] = b"\1" * self._next
        self._missing -= self._next

    def store(self, offset: int, data: memoryview) -> None:
        self._early[offset] = bytes(data)
        while (found := self._early.pop(self.end, None)) is not None:
            self._file.write(found)
            self.hash.update(found)
            self.end += len(found)

    def close(self) -> None:
        """Make the file durable and close it."""
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())


class FileDownload(InOrder):
    """A download of a blob of at most `limit` bytes to the file `path`, with the interface of `Download`.

    Its beginning, where it is there, is hashed as the download is made, which takes its time. Raises WireError for a
    larger blob, StorageError when the disk fails, as the methods do.
    """

    def __init__(
        self,
        blob: Blob,
        path: Path,
        *,
        limit: int,
        chunk: int = CHUNK_BYTES,
        window: int = WINDOW,
        patience: float = PATIENCE,
    ) -> None:
        check_size(blob.num_bytes, limit)
        self.blob, self.path = blob, path
        self._sizes = blob.num_bytes, chunk, window, patience
        with self._disk():
            self._chunks: GrowingFile = GrowingFile(path, *self._sizes)
        if self.complete and self._wrong:
            self._restart()

    @property
    def complete(self) -> bool:
        return self._chunks.complete

    @property
    def _wrong(self) -> bool:
        return self._chunks.hash.hexdigest() != self.blob.digest

    @property
    def num_there(self) -> int:
        """Return the bytes that are on the disk."""
        return self._chunks.end

    def add(self, offset: int, data: Buffer, now: float) -> bool:
        """Store a chunk; return True when the file is complete and its digest right.

        A second copy of a chunk is ignored. Raises WireError for a chunk that was not requested, and WrongDigestError
        when the digest of the whole is wrong; the download then restarts from nothing.
        """
        with self._disk():
            added = self._chunks.add(offset, data, now) >= 0
        if added and self.complete and self._wrong:
            digest = self._chunks.hash.hexdigest()
            self._restart()
            raise WrongDigestError(digest, self.blob.digest)
        return self.complete

    def close(self) -> None:
        """Close the file; another process may continue it."""
        with self._disk():
            self._chunks.close()

    def move(self, place: Path) -> None:
        """Move the complete file to its place, durably."""
        with self._disk():
            self._chunks.close()
            self.path.replace(place)

    def _restart(self) -> None:
        with self._disk():
            self._chunks.close()
            self.path.unlink()
            self._chunks = GrowingFile(self.path, *self._sizes)

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Turn a failure of the disk into an error with a remedy; a later process continues the download."""
        try:
            yield
        except OSError as error:
            why = error.strerror or error
            raise StorageError(
                f"{self.path} cannot be written ({why}): free some space, or join with another --home"
            ) from None
