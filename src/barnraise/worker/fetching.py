"""Blobs on their way down: several downloads at once over one connection, cached on disk where they are worth it.

What does not come, or comes with wrong bytes, is asked for again, each time later than the last.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from barnraise.core.digests import TreeHash
from barnraise.core.errors import DataError, WireError
from barnraise.core.types import Blob, Update
from barnraise.wire.downloads import Download, SnapshotDownload, WrongDigestError
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import Chunk, Fetch, Gone
from barnraise.worker.cache import Cache

MOST_TRIES = 4
"""Times that a blob, or a leaf of a snapshot, may come with wrong bytes: then they are not the link's fault."""

FIRST_REST, LONGEST_REST = 1.0, 60.0
"""Seconds before a blob is asked for again, doubled each time."""


class Fetcher:
    """Keeps what was fetched until it is taken; what has a place in the `cache` stays there."""

    def __init__(self, cache: Cache | None = None) -> None:
        self.cache = cache or Cache()
        self.files = self.cache.places
        self.limit = 64 << 20
        self._downloads: dict[str, Download | SnapshotDownload] = {}
        self._held: dict[str, Buffer] = {}
        self._inlined: dict[str, Buffer] = {}  # what came with the newest task
        self._wrong: dict[str, Counter[int]] = {}  # times that a blob's bytes, or a leaf's, were not those of its name
        self._failures: Counter[str] = Counter()  # times that it did not come, these included
        self._rests: dict[str, float] = {}  # until when

    def start(self, blob: Blob, snapshot: bool = False) -> bool:
        """Begin to fetch `blob`, which is a `snapshot` or anything else; True when it is at hand already."""
        if blob.digest in self._inlined:
            self._held[blob.digest] = self._inlined.pop(blob.digest)
        if blob.digest in self._held or self.cache.holds(blob):
            return True
        if blob.digest not in self._downloads:
            self._downloads[blob.digest] = (SnapshotDownload if snapshot else Download)(blob, limit=self.limit)
        return self._downloads[blob.digest].complete and self._complete(blob.digest)

    def inline(self, blobs: Sequence[Blob], data: Buffer) -> None:
        """Bytes of `blobs`, one after the other, came with a task; what does not hash to its name is not used."""
        self._inlined, view, start = {}, memoryview(data).cast("B"), 0
        for blob in blobs:
            content = view[start : start + blob.num_bytes]
            start += blob.num_bytes
            if blob.digest in (hashlib.sha256(content).hexdigest(), TreeHash(content).hexdigest()):
                self._inlined[blob.digest] = content

    def take(self, blob: Blob) -> Buffer:
        """The bytes of a blob that is at hand; they are not kept."""
        return self._held.pop(blob.digest)

    def take_all(self, updates: Iterable[Update]) -> Callable[[Blob], Buffer] | None:
        """What gives the bytes of updates that are at hand; None, and nothing is taken, when one is not."""
        digests = {update.blob.digest for update in updates}  # equal deltas are one blob
        if not digests <= self._held.keys():
            return None
        held = {digest: self._held.pop(digest) for digest in digests}
        return lambda blob: held[blob.digest]

    def requests(self, now: float) -> list[Fetch]:
        """What to ask the controller for now. Files come one after the other, so that memory has one of them at most:
        of all else the machine sees to it that there is room."""
        asks, file = list[Fetch](), False
        for digest, download in self._downloads.items():
            if now < self._rests.get(digest, now) or (file and digest in self.files):
                continue
            file = file or digest in self.files
            asks += [Fetch(digest, offset, size) for offset, size in download.requests(now)]
        return asks

    def deadline(self) -> float:
        """When `requests` wants to be called again though nothing arrived."""
        due = (d.deadline() or self._rests.get(digest, math.inf) for digest, d in self._downloads.items())
        return min(due, default=math.inf)

    def chunk(self, message: Chunk, data: Buffer, now: float) -> int:
        """Take bytes; the size of the blob that they complete, else 0. What nobody asked for is ignored.

        DataError when the blob's bytes were wrong once too often.
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
        return download.blob.num_bytes if complete else 0

    def gone(self, message: Gone, now: float) -> bool:
        """The controller does not keep the blob, or cannot read it: True when we were waiting for it."""
        waited = self._downloads.pop(message.digest, None) is not None
        if waited and message.digest in self.files:  # versions pass, but these are there for as long as the run
            self._rest(message.digest, now)
        return waited

    def forget(self, digests: Iterable[str]) -> None:
        """Nobody takes these any more. A file is worth having all the same."""
        for digest in digests:
            self._held.pop(digest, None)
            if digest not in self.files:
                self._downloads.pop(digest, None)
                self._forget_failures(digest)

    def forget_requests(self) -> None:
        """The connection was lost: what is under way will not come."""
        for download in self._downloads.values():
            download.forget_requests()

    def _rest(self, digest: str, now: float) -> None:
        """Let it be for a while."""
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
        payload = self._downloads.pop(digest).payload
        self._forget_failures(digest)
        if digest in self.files:
            self.cache.keep(digest, payload)
        else:
            self._held[digest] = payload
        return True
