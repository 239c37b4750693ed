"""The blobs that workers may fetch: manifest, files of dataset and frozen parts, recent deltas and snapshots."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

from torch import Tensor

from barnraise.controller.tensors.cow_snapshot import CopyOnWriteSnapshot
from barnraise.controller.tensors.version_bytes import LiveBytes, SnapshotBytes, VersionBytes
from barnraise.core.errors import StorageError
from barnraise.data.shards import Dataset
from barnraise.wire.manifest import FrozenPart

RECENT_VERSIONS = 4
"""Snapshots that can be fetched although no task has named them yet, where they are small."""

SMALL_BYTES = 16 << 20
"""Size up to which snapshots are always kept; larger ones when a task names them, or while they are newest."""

HELD_BYTES = 4 << 30
"""Bytes of older versions that are kept because tasks name them, large snapshots on disk; two snapshots at least."""


class BlobStore:
    """Bytes by their digests; behind those of a snapshot the digests of its leaves.

    A snapshot of the newest version is read from the parameters themselves, chunk by chunk. Once these change in place
    (`freeze`) it is dropped, unless it is small, and then copied, or a node's task names it: then chunks go to a file
    in `folder` before they change, and from there to the node. So no node gets bytes of two versions, and there is no
    second copy of them in memory. A node whose task names a version that is just being replaced is told that it is
    gone, and asks again.

    The thread that makes versions calls `freeze` and `publish`, the event loop's thread the rest; shared data is under
    a lock, which is never held for longer than a chunk takes to copy.

    Blobs that a node's newest task names stay for as long as the node may be fetching them, however far the run has
    advanced. `warn` gets a message about each unreadable file.
    """

    def __init__(
        self,
        dataset: Dataset,
        manifest_digest: str,
        manifest: bytes,
        warn: Callable[[str], None] = lambda text: None,
        folder: Path | None = None,
        *,
        frozen: Iterable[FrozenPart] = (),
    ) -> None:
        self._warn, self._folder = warn, folder
        self._unreadable: set[Path] = set()
        self._fixed: dict[str, bytes] = {manifest_digest: manifest}
        self._files = {info.sha256: (dataset.folder / info.name, info.bytes) for info in dataset.files()}
        self._files |= {part.blob.digest: (dataset.folder / part.name, part.blob.num_bytes) for part in frozen}
        self._deltas: dict[str, VersionBytes] = {}
        self._lock = threading.Lock()
        self._newest: tuple[str, LiveBytes] | None = None  # None while the next version is being made
        self._recent: OrderedDict[str, VersionBytes] = OrderedDict()
        self._holders: dict[tuple[str, bool], list[str]] = {}  # digests by node, and whether by news; oldest first
        self._held: dict[str, VersionBytes] = {}
        self._num_holders: Counter[str] = Counter()
        self._held_bytes = 0

    def publish(self, parameters: Tensor, digest: str, leaves: bytes) -> None:
        """Publish a version, which does not change until `freeze`; `leaves` are the digests of its leaves."""
        with self._lock:
            self._newest = digest, LiveBytes(parameters, leaves)

    def freeze(self, watch: Callable[[CopyOnWriteSnapshot], None]) -> None:
        """Prepare for a change of the newest version's parameters: keep needed bytes of them.

        `watch` is called with the snapshots that are to be told before they change.
        """
        if self._newest is None:
            return
        digest, live = self._newest
        small = live.num_bytes <= SMALL_BYTES
        with self._lock:
            if not small and (digest in self._held or not self._num_holders[digest]):
                self._newest = None
                return
        kept = live.copied() if small else self._leave(live, watch)  # without the lock: no other thread changes them
        with self._lock:
            self._newest = None
            if small and kept is not None:
                self._recent[digest] = kept
                while len(self._recent) >= RECENT_VERSIONS:
                    self._recent.popitem(last=False)
            if self._num_holders[digest] and kept is not None:
                self._keep(digest, kept)
                self._trim()
            elif kept is not None:
                kept.close()

    def _leave(self, live: LiveBytes, watch: Callable[[CopyOnWriteSnapshot], None]) -> VersionBytes | None:
        try:
            left = SnapshotBytes(live, self._folder)
        except StorageError:  # then it is gone
            return None
        watch(left.frozen)
        return left

    def add_delta(self, digest: str, delta: memoryview) -> None:
        with self._lock:
            self._deltas[digest] = VersionBytes(delta)

    def release(self, digests: Iterable[str]) -> None:
        with self._lock:
            for digest in digests:
                self._deltas.pop(digest, None)

    def hold(self, node: str, digests: Iterable[str], *, news: bool = False) -> None:
        """Record that the node's newest task names these versions, and has fetched those before.

        With `news`, the newest news for that task do.
        """
        with self._lock:
            named = [digest for digest in dict.fromkeys(digests) if self._has(digest)]
            for digest in named:
                self._num_holders[digest] += 1
                if (kept := self._deltas.get(digest) or self._recent.get(digest)) is not None:
                    self._keep(digest, kept)
            for kind in {True, news}:
                self._release((node, kind))
            if named:
                self._holders[node, news] = named
            self._trim()

    def let_go(self, node: str) -> None:
        """Record that the node fetches nothing more."""
        with self._lock:
            self._release((node, False))
            self._release((node, True))

    def _has(self, digest: str) -> bool:
        newest = self._newest is not None and self._newest[0] == digest
        return newest or digest in self._deltas or digest in self._recent or digest in self._held

    def _keep(self, digest: str, kept: VersionBytes) -> None:
        """Keep bytes for the nodes that hold them."""
        if digest not in self._held:
            self._held[digest] = kept
            self._held_bytes += kept.num_bytes

    def _trim(self) -> None:
        while self._held_bytes > HELD_BYTES and len(self._holders) > 2:
            self._release(next(iter(self._holders)))

    def _release(self, holder: tuple[str, bool]) -> None:
        for digest in self._holders.pop(holder, ()):
            self._num_holders[digest] -= 1
            if not self._num_holders[digest]:
                del self._num_holders[digest]
                if (kept := self._held.pop(digest, None)) is not None:
                    self._held_bytes -= kept.num_bytes
                    kept.close()

    def read(self, digest: str, offset: int, num_bytes: int) -> memoryview | None:
        """Return bytes of a blob, fewer at its end; None when it is not kept, unreadable, or ends before `offset`."""
        chunk: memoryview | None
        if digest in self._fixed:
            chunk = memoryview(self._fixed[digest])[offset : offset + num_bytes]
        elif digest in self._files:
            chunk = self._read(*self._files[digest], offset, num_bytes)
        else:
            chunk = self._version(digest, offset, num_bytes)
        return chunk if chunk else None

    def _read(self, path: Path, size: int, offset: int, num_bytes: int) -> memoryview:
        if offset >= size:  # which a file system may report as an error of the file
            return memoryview(b"")
        try:
            with path.open("rb") as file:
                file.seek(offset)
                content = file.read(num_bytes)
        except OSError as error:
            if path not in self._unreadable:
                self._unreadable.add(path)
                self._warn(f"{path} cannot be read ({error.strerror}); workers that need it wait until it can be")
            return memoryview(b"")
        self._unreadable.discard(path)
        return memoryview(content)

    def _version(self, digest: str, offset: int, num_bytes: int) -> memoryview | None:
        with self._lock:
            if self._newest is not None and self._newest[0] == digest:
                return self._newest[1].read(offset, num_bytes)
            places = (self._deltas, self._recent, self._held)
            found = next((place[digest] for place in places if digest in place), None)
        return found.read(offset, num_bytes) if found is not None else None  # a file is read without the lock
