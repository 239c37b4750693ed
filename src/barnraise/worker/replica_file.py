"""A worker's replica, kept on its disk from one process to the next.

A worker that comes back names the version of its file, and gets the newer deltas, or the leaves that differ. The file
is named by the digest of the parameters, which this worker computes itself. It is no authority: the digest of the bytes
must be that of the name, the controller must name the same digest for that version, and each delta leads to a digest
that the controller names. Else the file is deleted. Then the worker fetches a whole version, less the leaves that it
has with the digests that the controller names.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

from barnraise.core.decoding import MALFORMED
from barnraise.core.text import printable
from barnraise.core.types import News
from barnraise.models.vectors import raw
from barnraise.worker.leaving import GRACE, LEAVES_WITHIN
from barnraise.worker.replica import Replica

SUFFIX, UNFINISHED = ".replica", ".unfinished"

INTERVAL = 30.0
"""Seconds between two writes, at least."""

COST = 0.01
"""Share of the time that writing may take."""

BEHIND = 0.25
"""Bytes of updates after which the file is written again, in models: so the disk takes at most four times as many bytes
as the link, and a worker that comes back fetches a quarter of the model, or a little more."""

LAST_WRITE = 0.8 * (LEAVES_WITHIN - GRACE)
"""Seconds that the write before may have taken for a last one to fit."""

MOST_HEADER = 4096
"""Largest first line of a file in bytes."""


class ReplicaHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a file: the run and the manifest that its parameters belong to, and their version."""

    run: str
    manifest: str
    version: int


class RestoredVersion(NamedTuple):
    """A version that a replica is at, and the digest of its parameters; -1 for a void replica."""

    version: int = -1
    digest: str | None = None


class ReplicaFile:
    """The file of one worker's replica of one run, in a `folder` of its own.

    `run` and `manifest` identify the model. `restore` is called once, before the first update; all else on the thread
    that updates the replica, so no version is written in part. Errors are reported, and do not interrupt training.
    """

    def __init__(self, folder: Path, run: str, manifest: str, say: Callable[[str], None]) -> None:
        self.folder, self.run, self.manifest, self.say = folder, run, manifest, say
        self._due, self._took = -math.inf, 0.0  # when the next write is due, and the seconds that the last one took
        self._behind = 0  # bytes of updates since the last write
        self._unproven: Path | None = None  # the file that was restored, until the controller has named its digest

    def restore(self, replica: Replica, newest: RestoredVersion) -> RestoredVersion:
        """Load the file into `replica`, and return what it holds.

        `newest` is the newest version that the controller names. A file that does not fit it is deleted.
        """
        with contextlib.suppress(OSError):
            for leftover in self.folder.glob(f"*{UNFINISHED}"):
                leftover.unlink()
        with contextlib.suppress(OSError):
            files = sorted(self.folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
            for path in files[:-1]:
                path.unlink()
            if files:
                return self._restore(files[-1], replica, newest)
        return RestoredVersion()

    def followed(self, replica: Replica, news: News, version: int) -> None:
        """Record that the updates of `news` led to `version`, -1 for a void replica; write the file if that is due."""
        if version < 0:
            if self._unproven is not None:
                self._drop(self._unproven, "the controller's updates do not follow it")
            return
        self._unproven = None
        self._behind += sum(update.blob.num_bytes for update in news.updates)
        if self._behind >= BEHIND * raw(replica.parameters).nbytes and time.monotonic() >= self._due:
            self.keep(replica)

    def keep_last(self, replica: Replica) -> None:
        """Write the replica of a worker that leaves, if that takes no longer than the process lives."""
        if self._took <= LAST_WRITE:
            self.keep(replica)

    def keep(self, replica: Replica) -> None:
        """Write the replica to its file, atomically, unless it is there; the file of an older version is deleted."""
        if replica.version < 0 or not self._behind:
            return
        began, path = time.monotonic(), self.folder / f"{replica.digest}{SUFFIX}"
        unfinished = path.with_suffix(UNFINISHED)
        header = msgspec.json.encode(ReplicaHeader(self.run, self.manifest, replica.version))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(header + b"\n")
                file.write(raw(replica.parameters))
            unfinished.replace(path)
            for other in self.folder.glob(f"*{SUFFIX}"):
                if other != path:
                    other.unlink()
            self._behind, self._took = 0, time.monotonic() - began
            self._due = time.monotonic() + max(INTERVAL, self._took / COST)
        except OSError as error:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            self.say(f"the replica cannot be kept in {self.folder}: {printable(str(error))}")
            self._due = math.inf

    def _restore(self, path: Path, replica: Replica, newest: RestoredVersion) -> RestoredVersion:
        try:
            origin, parameters = self._read(path, len(replica.parameters))
        except (OSError, ValueError, *MALFORMED) as error:
            self._drop(path, printable(str(error)))
            return RestoredVersion()
        found = RestoredVersion(origin.version, replica.restore(parameters, origin.version))
        if path.stem != found.digest:
            trouble = "its bytes have another digest than its name"
        elif found.version > newest.version:
            trouble = f"it has version {found.version}, but the run's newest is {newest.version}"
        elif found.version == newest.version and found.digest != newest.digest:
            trouble = f"the controller names another digest for version {found.version}"
        else:
            self.say(f"version {found.version} of the model is on this disk: only what differs is fetched")
            self._unproven = path
            return found
        replica.version = -1
        self._drop(path, trouble)
        return RestoredVersion()

    def _read(self, path: Path, size: int) -> tuple[ReplicaHeader, Tensor]:
        """Read a file of `size` parameters; ValueError for one of another run, model or size."""
        with path.open("rb") as file:
            origin = msgspec.json.decode(file.readline(MOST_HEADER), type=ReplicaHeader)
            if (origin.run, origin.manifest) != (self.run, self.manifest):
                raise ValueError("it is of another run or model")
            needed, there = file.tell() + 4 * size, path.stat().st_size
            if there != needed or origin.version < 0:
                raise ValueError(f"it has {there:,} bytes, but this model's has {needed:,}")
            content = bytearray(4 * size)
            if file.readinto(content) != len(content):
                raise ValueError("it cannot be read to its end")
        return origin, torch.frombuffer(content, dtype=torch.float32)

    def _drop(self, path: Path, trouble: str) -> None:
        self._unproven = None
        self.say(f"the replica in {path} is not used: {trouble}; it is deleted, and what is missing is fetched")
        with contextlib.suppress(OSError):
            path.unlink()
