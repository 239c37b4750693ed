"""Blobs on their way down: several downloads at once over one connection, cached on disk where they are worth it."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path

from barnraise.core.errors import WireError
from barnraise.core.types import Blob
from barnraise.wire.blobs import Download
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import Chunk, Fetch, Gone


class Fetcher:
    """Keeps what was fetched until it is taken. `files` maps the digests of cacheable blobs to their places."""

    def __init__(self) -> None:
        self.files: dict[str, Path] = {}
        self.limit = 64 << 20
        self._downloads: dict[str, Download] = {}
        self._held: dict[str, Buffer] = {}
        self._inlined: dict[str, Buffer] = {}  # what came with the newest task
        self._on_disk: set[str] = set()

    def start(self, blob: Blob) -> bool:
        """Begin to fetch `blob`; True when it is at hand already."""
        if blob.digest in self._inlined:
            self._held[blob.digest] = self._inlined.pop(blob.digest)
        if blob.digest in self._held or self._cached(blob):
            return True
        if blob.digest not in self._downloads:
            self._downloads[blob.digest] = Download(blob, limit=self.limit)
        return self._downloads[blob.digest].complete and self._complete(blob.digest)

    def inline(self, blobs: Sequence[Blob], data: Buffer) -> None:
        """Bytes of `blobs`, one after the other, came with a task; what does not hash to its name is not used."""
        self._inlined, view, start = {}, memoryview(data).cast("B"), 0
        for blob in blobs:
            piece = view[start : start + blob.num_bytes]
            start += blob.num_bytes
            if hashlib.sha256(piece).hexdigest() == blob.digest:
                self._inlined[blob.digest] = piece

    def take(self, blob: Blob) -> Buffer:
        """The bytes of a blob that is at hand; they are not kept."""
        return self._held.pop(blob.digest)

    def requests(self, now: float) -> list[Fetch]:
        """What to ask the controller for now."""
        return [
            Fetch(digest, offset, size)
            for digest, download in self._downloads.items()
            for offset, size in download.requests(now)
        ]

    def deadline(self) -> float:
        """When `requests` wants to be called again though nothing arrived."""
        return min((d.deadline() or math.inf for d in self._downloads.values()), default=math.inf)

    def chunk(self, message: Chunk, data: Buffer, now: float) -> int:
        """Take bytes; the size of the blob that they complete, else 0. What nobody asked for is ignored."""
        download = self._downloads.get(message.digest)
        if download is None:
            return 0
        try:
            complete = download.add(message.offset, data, now) and self._complete(message.digest)
        except WireError:
            return 0
        return download.blob.num_bytes if complete else 0

    def gone(self, message: Gone) -> bool:
        """The controller does not keep the blob: True when we were waiting for it."""
        return self._downloads.pop(message.digest, None) is not None

    def forget_requests(self) -> None:
        """The connection was lost: what is under way will not come."""
        for download in self._downloads.values():
            download.forget_requests()

    def _complete(self, digest: str) -> bool:
        payload = self._downloads.pop(digest).payload
        path = self.files.get(digest)
        if path is None:
            self._held[digest] = payload
        else:
            partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
            partial.write_bytes(payload)
            partial.replace(path)
            self._on_disk.add(digest)
        return True

    def _cached(self, blob: Blob) -> bool:
        path = self.files.get(blob.digest)
        if path is None or blob.digest in self._on_disk:
            return path is not None
        if path.is_file() and path.stat().st_size == blob.num_bytes:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == blob.digest:
                    self._on_disk.add(blob.digest)
                    return True
        return False
