"""Bytes of versions that workers may fetch: deltas, and snapshots with the digests of their leaves behind them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from torch import Tensor

from barnraise.controller.tensors.cow_snapshot import CopyOnWriteSnapshot
from barnraise.ledger.disk import storage_errors
from barnraise.ledger.tensor_files import TensorFile, content

_NAME = "parameters"


class VersionBytes:
    """Bytes in memory, and, for a snapshot, the digests of its leaves behind them."""

    def __init__(self, data: memoryview, leaves: bytes = b"") -> None:
        self._data, self._leaves = data, leaves

    @property
    def num_bytes(self) -> int:
        return self._data.nbytes

    def read(self, offset: int, num_bytes: int) -> memoryview | None:
        """Return bytes from `offset` on, fewer at the end of the data or of the leaves; None when there are none."""
        behind = offset - self.num_bytes
        if behind >= 0:
            return memoryview(self._leaves)[behind : behind + num_bytes] or None
        return self._chunk(offset, num_bytes)

    def _chunk(self, offset: int, num_bytes: int) -> memoryview | None:
        return self._data[offset : offset + num_bytes]

    def close(self) -> None:
        """Close the bytes, which are not requested any more."""


class LiveBytes(VersionBytes):
    """The parameters themselves, before they change."""

    def __init__(self, parameters: Tensor, leaves: bytes) -> None:
        super().__init__(content(parameters), leaves)
        self.parameters, self.leaves = parameters, leaves

    def _chunk(self, offset: int, num_bytes: int) -> memoryview:
        return memoryview(bytes(self._data[offset : offset + num_bytes]))  # it may wait to be sent until they change

    def copied(self) -> VersionBytes:
        return VersionBytes(content(self.parameters.clone()), self.leaves)


class SnapshotBytes(VersionBytes):
    """A snapshot of parameters that change from now on, with changed chunks in a file without a name.

    The file is in `folder` (that for temporary files by default). Raises StorageError when there can be no file.
    """

    def __init__(self, live: LiveBytes, folder: Path | None) -> None:
        super().__init__(content(live.parameters), live.leaves)
        where = Path(folder or tempfile.gettempdir())
        with storage_errors(where):
            descriptor, name = tempfile.mkstemp(prefix=".snapshot-", dir=where)
            os.unlink(name)
        tensors = {_NAME: live.parameters}
        self.frozen = CopyOnWriteSnapshot(tensors, TensorFile(descriptor, where, tensors))

    def _chunk(self, offset: int, num_bytes: int) -> memoryview | None:
        chunk = self.frozen.read(_NAME, offset, num_bytes)
        return memoryview(chunk) if chunk else None

    def close(self) -> None:
        self.frozen.close()
