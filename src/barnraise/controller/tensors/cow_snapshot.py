"""Copy-on-write snapshots of vectors that change in place: for checkpoints and snapshots of a version."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from torch import Tensor

from barnraise.core.errors import StorageError
from barnraise.core.threads import SPAN
from barnraise.ledger.tensor_files import TensorFile, content


class CopyOnWriteSnapshot:
    """The present content of `vectors`, kept in `file` as far as they change later.

    A thread that changes elements calls `keep` before. Each chunk of SPAN elements goes to the file once, straight from
    its vector: by the thread that writes all of it (`finish`), or before that by one that is about to change it. So
    this takes no memory of the process, however slow the disk, and a change waits for its own chunks alone. The
    operating system takes these at the speed of memory for as long as it may hold more that is not on the disk yet (on
    Linux a fifth of the free memory, `vm.dirty_ratio`); beyond that changes wait for the disk.

    When the disk fails, the snapshot is lost and changes continue: `finish` raises, `read` has nothing.
    """

    def __init__(self, vectors: Mapping[str, Tensor], file: TensorFile) -> None:
        self._contents = {name: (vector.element_size() * SPAN, content(vector)) for name, vector in vectors.items()}
        self._file = file
        chunks = {name: -(-vector.numel() // SPAN) for name, vector in vectors.items()}
        self._kept = {name: bytearray(count) for name, count in chunks.items()}
        self._locks = [Lock() for _ in range(max(chunks.values(), default=0))]
        self._error: StorageError | None = None
        self.over = False
        """Whether the snapshot is closed."""

    def keep(self, start: int, stop: int) -> None:
        """Save elements [start, stop) of the vectors, which are about to change."""
        for chunk in range(start // SPAN, -(-stop // SPAN)):
            for name, kept in self._kept.items():
                if chunk < len(kept) and not kept[chunk]:
                    self._put(name, chunk)

    def _put(self, name: str, chunk: int) -> None:
        with self._locks[chunk]:
            if self.over or self._kept[name][chunk]:
                return
            size, data = self._contents[name]
            try:
                self._file.put(name, chunk * size, data[chunk * size : (chunk + 1) * size])
            except StorageError as error:
                self._error, self.over = error, True
            self._kept[name][chunk] = 1

    def finish(self) -> None:
        """Write all of it to the file, and close it.

        Raises StorageError when that fails.
        """
        for chunk in range(len(self._locks)):
            self.keep(chunk * SPAN, (chunk + 1) * SPAN)
        self.close()
        if self._error is not None:
            raise self._error

    def read(self, name: str, offset: int, num_bytes: int) -> bytes | None:
        """Return bytes of a vector in the snapshot, fewer at its end; None when they are lost."""
        size, data = self._contents[name]
        stop = min(offset + num_bytes, len(data))
        found = []
        while offset < stop:
            chunk = offset // size
            end = min(stop, (chunk + 1) * size)
            with self._locks[chunk]:
                if self.over:
                    return None
                try:
                    kept = self._kept[name][chunk]
                    found.append(self._file.get(name, offset, end - offset) if kept else bytes(data[offset:end]))
                except StorageError:
                    return None
            offset = end
        return b"".join(found)

    def close(self) -> None:
        """Close the file of a snapshot that is not needed any more."""
        self.over = True
        for lock in self._locks:
            with lock:  # a thread within it has checked `over` before
                pass
        self._file.close()
