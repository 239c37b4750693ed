"""Chunks of bytes, and a result's payload on its way up; `wire.downloads` has the way down.

Pure bookkeeping for both shells: no socket and no clock. Sizes are in bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from barnraise.core.errors import WireError
from barnraise.core.types import Blob, PayloadResult, Update
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import CHUNK_BYTES, FRAME_LIMIT, INLINE_BYTES


def chunks(payload: Buffer, chunk: int = CHUNK_BYTES, start: int = 0) -> Iterator[tuple[int, memoryview]]:
    """Cut `payload` from `start` on into views of at most `chunk` bytes, and yield each with its offset.

    >>> [(offset, bytes(data)) for offset, data in chunks(b"abcde", 2)]
    [(0, b'ab'), (2, b'cd'), (4, b'e')]
    """
    if not 1 <= chunk <= FRAME_LIMIT:
        raise ValueError(f"chunk is {chunk}, but must be between 1 and {FRAME_LIMIT}")
    view = memoryview(payload).cast("B")
    for offset in range(start, len(view), chunk):
        yield offset, view[offset : offset + chunk]


def inlined(updates: Sequence[Update]) -> tuple[Blob, ...]:
    """Return the blobs of `updates` that travel with the message that names them, in order, each once: all or none."""
    if not updates:
        return ()
    blobs = tuple({update.blob.digest: update.blob for update in updates}.values())
    return blobs if sum([blob.num_bytes for blob in blobs]) <= INLINE_BYTES else ()


class IncomingPayload:
    """The payload of one result, which arrives in order.

    Memory is taken as bytes arrive, so an announced size costs none.
    """

    def __init__(self, result: PayloadResult) -> None:
        self.result = result
        self.payload = bytearray()
        self.asked = False  # that bytes were lost and the next ones were requested again

    @property
    def complete(self) -> bool:
        """Return whether all bytes have arrived; `verify` checks them."""
        return len(self.payload) == self.result.payload.num_bytes

    def add(self, offset: int, data: Buffer) -> bool:
        """Append `data` if it is the next piece, else return False.

        Raises WireError when it reaches beyond the payload's end.
        """
        data = memoryview(data).cast("B")
        size = self.result.payload.num_bytes
        if offset + len(data) > size:
            raise WireError(f"chunk ends at {offset + len(data)}, but the payload has {size} bytes")
        if offset != len(self.payload):
            return False
        self.payload += data
        self.asked = False
        return True

    def verify(self) -> None:
        """Hash the whole payload; WireError when that is not the digest that was offered."""
        digest, promised = hashlib.sha256(self.payload).hexdigest(), self.result.payload.digest
        if digest != promised:
            raise WireError(f"payload hashes to {digest[:16]}..., but {promised[:16]}... was promised: send it again")


class IncomingPayloads:
    """The payloads that a controller's machine wants or keeps, by node and assignment.

    The object that is inspected is the object that is committed: an upload is never replaced, only dropped or taken.
    """

    def __init__(self) -> None:
        self._uploads: dict[tuple[str, int], IncomingPayload] = {}

    def __len__(self) -> int:
        return len(self._uploads)

    @property
    def num_bytes(self) -> int:
        """Return the bytes that have arrived and are kept."""
        return sum(len(upload.payload) for upload in self._uploads.values())

    def open(self, node: str, result: PayloadResult) -> IncomingPayload:
        """Return the upload of this result, with the bytes that have arrived, or a new one."""
        return self._uploads.setdefault((node, result.assignment), IncomingPayload(result))

    def get(self, node: str, assignment: int) -> IncomingPayload | None:
        return self._uploads.get((node, assignment))

    def drop(self, node: str, assignment: int) -> None:
        """Drop a payload that will not be used."""
        self._uploads.pop((node, assignment), None)

    def take(self, node: str, assignment: int) -> IncomingPayload:
        """Remove a payload and return it to its new owner."""
        return self._uploads.pop((node, assignment))
