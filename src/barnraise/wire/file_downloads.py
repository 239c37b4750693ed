"""Downloads of large files in chunks, straight to the disk, continued where an earlier process ended.

A file grows in order: chunks that come early wait in memory, a window of them at most. So its length tells what is
there, and a cut at any byte loses a window.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from barnraise.core.types import Blob
from barnraise.wire.downloads import PATIENCE, WINDOW, Chunks, WrongDigestError, check_size
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


class FileDownload:
    """A download of a blob of at most `limit` bytes to the file `path`, with the interface of `Download`.

    Its beginning, where it is there, is hashed as the download is made, which takes its time. Raises WireError for a
    larger blob, OSError when the disk fails.
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
        self._chunks = GrowingFile(path, *self._sizes)
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

    def requests(self, now: float) -> list[tuple[int, int]]:
        """Return the (offset, number of bytes) pairs to request now."""
        return self._chunks.requests(now)

    def deadline(self) -> float | None:
        """Return when to call `requests` again if nothing arrives; None when nothing is awaited."""
        return self._chunks.deadline()

    def forget_requests(self) -> None:
        """Treat all open requests as lost, so that they are repeated."""
        self._chunks.forget_requests()

    def add(self, offset: int, data: Buffer, now: float) -> bool:
        """Store a chunk; return True when the file is complete and its digest right.

        A second copy of a chunk is ignored. Raises WireError for a chunk that was not requested, and WrongDigestError
        when the digest of the whole is wrong; the download then restarts from nothing.
        """
        if self._chunks.add(offset, data, now) >= 0 and self.complete and self._wrong:
            digest = self._chunks.hash.hexdigest()
            self._restart()
            raise WrongDigestError(digest, self.blob.digest)
        return self.complete

    def close(self) -> None:
        """Close the file; another process may continue it."""
        self._chunks.close()

    def move(self, place: Path) -> None:
        """Move the complete file to its place, durably."""
        self._chunks.close()
        self.path.replace(place)

    def _restart(self) -> None:
        self._chunks.close()
        self.path.unlink()
        self._chunks = GrowingFile(self.path, *self._sizes)
