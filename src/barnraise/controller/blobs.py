"""What workers may fetch: the manifest, the dataset's files, the deltas of recent versions, snapshots of newer ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from barnraise.data.shards import Dataset
from barnraise.models.vectors import raw

RECENT_VERSIONS = 4
"""Snapshots that can be fetched although no task has named them yet."""

HELD_SNAPSHOTS = 2
"""Older snapshots kept because a task named them."""


class BlobStore:
    """Bytes by SHA-256. Snapshots are views of immutable parameters: keeping one keeps its version alive."""

    def __init__(self, dataset: Dataset, manifest_digest: str, manifest: bytes) -> None:
        self._fixed: dict[str, bytes] = {manifest_digest: manifest}
        self._paths: dict[str, Path] = {info.sha256: dataset.folder / info.name for info in dataset.files()}
        self._deltas: dict[str, memoryview] = {}
        self._recent: OrderedDict[str, Tensor] = OrderedDict()
        self._held: OrderedDict[str, Tensor] = OrderedDict()

    def publish(self, parameters: Tensor, digest: str) -> None:
        """A version exists."""
        self._recent[digest] = parameters
        while len(self._recent) > RECENT_VERSIONS:
            self._recent.popitem(last=False)

    def add_delta(self, digest: str, delta: memoryview) -> None:
        self._deltas[digest] = delta

    def release(self, digests: Iterable[str]) -> None:
        for digest in digests:
            self._deltas.pop(digest, None)

    def hold(self, digest: str) -> None:
        """A task names this snapshot: keep it while it is fetched."""
        tensor = self._recent.get(digest)
        if tensor is not None:
            self._held[digest] = tensor
            self._held.move_to_end(digest)
            while len(self._held) > HELD_SNAPSHOTS:
                self._held.popitem(last=False)

    def read(self, digest: str, offset: int, num_bytes: int) -> memoryview | None:
        """Bytes of a blob, fewer at its end; None when it is not kept or ends before `offset`."""
        content = self._find(digest)
        if content is not None:
            piece = content[offset : offset + num_bytes]
        elif digest in self._paths:
            with self._paths[digest].open("rb") as file:
                file.seek(offset)
                piece = memoryview(file.read(num_bytes))
        else:
            return None
        return piece if len(piece) else None

    def _find(self, digest: str) -> memoryview | None:
        if digest in self._deltas:
            return self._deltas[digest]
        tensor = self._recent.get(digest, self._held.get(digest))
        if tensor is not None:
            return raw(tensor)
        return memoryview(self._fixed[digest]) if digest in self._fixed else None
