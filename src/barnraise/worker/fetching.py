"""Downloads of blobs: several at once over one connection, cached on disk where that pays.

A blob that does not come, or has wrong bytes, is requested again, each time later than before.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from barnraise.core.digests import TreeHash
from barnraise.core.errors import DataError, WireError
from barnraise.core.types import Blob, Update
from barnraise.wire.downloads import Download, HeldLeaves, SnapshotDownload, WrongDigestError
from barnraise.wire.file_downloads import FileDownload
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import Chunk, Fetch, Gone
from barnraise.worker.cache import Cache

if TYPE_CHECKING:
    from barnraise.worker.mirrors import Mirrors

MOST_TRIES = 4
"""Times that a blob, or a leaf of a snapshot, may come with wrong bytes: then the link is not the cause."""

FIRST_REST, LONGEST_REST = 1.0, 60.0
"""Seconds before a blob is requested again, doubled each time."""


class Fetcher:
    """Keeps fetched blobs until they are taken; those with a place in the `cache` stay there."""

    def __init__(self, cache: Cache | None = None) -> None:
        self.cache = cache or Cache()
        self.files = self.cache.places
        self.mirrors: Mirrors | None = None
        self.limit = 64 << 20
        self.held: HeldLeaves | None = None  # the replica, whose leaves a snapshot may share
        self._downloads: dict[str, Download | SnapshotDownload | FileDownload] = {}
        self._held: dict[str, Buffer] = {}
        self._inlined: dict[str, Buffer] = {}  # bytes that came with the newest task
        self._wrong: dict[str, Counter[int]] = {}  # times that the bytes of a blob, or a leaf, had a wrong digest
        self._failures: Counter[str] = Counter()  # times that it did not come, these included
        self._rests: dict[str, float] = {}  # until when
        self._found: list[tuple[str, int]] = []  # snapshots that leaves of the replica completed

    def start(self, blob: Blob, snapshot: bool = False) -> bool:
        """Begin to fetch `blob`, a `snapshot` or any other; True when it is available already."""
        if blob.digest in self._inlined:
            self._held[blob.digest] = self._inlined.pop(blob.digest)
        if blob.digest in self._held or self.cache.holds(blob):
            return True
        if blob.digest not in self._downloads:
            self._downloads[blob.digest] = (
                SnapshotDownload(blob, limit=self.limit, held=self.held)
                if snapshot
                else Download(blob, limit=self.limit)
            )
        return self._downloads[blob.digest].complete and self._complete(blob.digest)

    def fetch_to_disk(self, download: FileDownload) -> None:
        """Begin a download to the disk of a file whose place is registered; `start` continues it."""
        self._downloads[download.blob.digest] = download

    def inline(self, blobs: Sequence[Blob], data: Buffer) -> None:
        """Accept bytes of `blobs`, one after the other, that came with a task; those of a wrong digest are ignored."""
        self._inlined, view, start = {}, memoryview(data).cast("B"), 0
        for blob in blobs:
            content = view[start : start + blob.num_bytes]
            start += blob.num_bytes
            if blob.digest in (hashlib.sha256(content).hexdigest(), TreeHash(content).hexdigest()):
                self._inlined[blob.digest] = content

    def take(self, blob: Blob) -> Buffer:
        """Return the bytes of an available blob, and drop them."""
        return self._held.pop(blob.digest)

    def take_all(self, updates: Iterable[Update]) -> Callable[[Blob], Buffer] | None:
        """Return a reader of the updates' bytes; None, and nothing is taken, when one is missing."""
        digests = {update.blob.digest for update in updates}  # equal deltas are one blob
        if not digests <= self._held.keys():
            return None
        held = {digest: self._held.pop(digest) for digest in digests}
        return lambda blob: held[blob.digest]

    def requests(self, now: float) -> list[Fetch]:
        """Return the requests to send to the controller now; those that a mirror takes are begun.

        Files come one after the other, so that memory has at most one of them: the machine checks the room for all
        other blobs.
        """
        asks, file = list[Fetch](), False
        for digest, download in [*self._downloads.items()]:
            if now < self._rests.get(digest, now) or (file and digest in self.files):
                continue
            file = file or digest in self.files
            asks += [Fetch(digest, offset, size) for offset, size in download.requests(now)]
            if isinstance(download, SnapshotDownload) and download.complete and self._complete(digest):
                self._found.append((digest, _crossed(download)))
        return [ask for ask in asks if self.mirrors is None or not self.mirrors.takes(ask)]

    def completed(self) -> list[tuple[str, int]]:
        """Return the blobs that `requests` has completed: their digests, and the bytes that crossed the link."""
        found, self._found = self._found, []
        return found

    def deadline(self) -> float:
        """Return when to call `requests` again if nothing arrives."""
        due = (
            self._rests.get(digest, math.inf) if (at := download.deadline()) is None else at
            for digest, download in self._downloads.items()
        )
        return min(due, default=math.inf)

    def chunk(self, message: Chunk, data: Buffer, now: float) -> int:
        """Accept bytes, and return how many crossed the link for the blob that they complete, else 0.

        Bytes that were not requested are ignored. DataError when the blob's bytes were wrong too often.
        """
        download = self._downloads.get(message.digest)
        if download is None:
            return 0
        try:
            complete = download.add(message.offset, data, now) and self._complete(message.digest)
        except WrongDigestError as error:
            wrong = self._wrong.setdefault(message.digest, Counter())
            wrong[error.leaf] += 1
            if wrong[error.leaf] >= MOST_TRIES:
                raise DataError(self._spoiled(download.blob)) from None
            self._rest(message.digest, now)
            return 0
        except WireError:
            return 0
        return _crossed(download) if complete else 0

    def gone(self, message: Gone, now: float) -> bool:
        """Record that the controller does not keep the blob, or cannot read it: True when it was awaited.

        Files of the run are requested again.
        """
        waited = self._downloads.pop(message.digest, None) is not None
        if waited and message.digest in self.files:  # versions are replaced, but these exist for as long as the run
            self._rest(message.digest, now)
        return waited

    def forget(self, digests: Iterable[str]) -> None:
        """Drop blobs that are not needed any more.

        Files are kept all the same.
        """
        for digest in digests:
            self._held.pop(digest, None)
            if digest not in self.files:
                self._downloads.pop(digest, None)
                self._forget_failures(digest)

    def has_failed(self, digest: str) -> bool:
        """Return whether a blob has come with wrong bytes, or not at all."""
        return self._failures[digest] > 0

    def lost(self, digest: str) -> None:
        """Mark the open requests for a blob as lost."""
        if (download := self._downloads.get(digest)) is not None:
            download.forget_requests()

    def forget_requests(self) -> None:
        """Mark open requests as lost with the connection."""
        for download in self._downloads.values():
            download.forget_requests()

    def _rest(self, digest: str, now: float) -> None:
        """Postpone a blob's next request."""
        self._rests[digest] = now + min(LONGEST_REST, FIRST_REST * 2.0 ** min(self._failures[digest], 60))
        self._failures[digest] += 1

    def _forget_failures(self, digest: str) -> None:
        for counted in (self._wrong, self._failures, self._rests):
            counted.pop(digest, None)

    def _spoiled(self, blob: Blob) -> str:
        path = self.files.get(blob.digest)
        name = path.name if path else f"blob {blob.digest[:16]}"
        return (
            f"{name} came {MOST_TRIES} times with bytes that are not those of its name ({blob.num_bytes:,} bytes); "
            "it is damaged on the controller's machine, whose `barnraise resume` will say more"
        )

    def _complete(self, digest: str) -> bool:
        download = self._downloads.pop(digest)
        self._forget_failures(digest)
        if isinstance(download, FileDownload):
            self.cache.move(digest, download)
        elif digest in self.files:
            self.cache.keep(digest, download.payload)
        else:
            self._held[digest] = download.payload
        return True


def _crossed(download: Download | SnapshotDownload | FileDownload) -> int:
    """Return how many bytes of a complete download crossed the link; 1 for none, which stands for its digests."""
    return max(1, download.blob.num_bytes - download.reused)
