"""Blobs in pieces: a contribution's payload on its way up, a named blob on its way down.

Pure bookkeeping for both shells: no socket and no clock. Sizes are in bytes, times in seconds of any one clock.
Digests are SHA-256, or a tree of it for snapshots (see `core.digests`), computed piece by piece as bytes arrive, so
that no call takes long (0.1 to 0.7 ms a piece).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from barnraise.core.digests import TreeHash
from barnraise.core.errors import WireError
from barnraise.core.types import Blob, Contribution, Update
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import CHUNK_BYTES, FRAME_LIMIT, INLINE_BYTES


class WrongDigestError(WireError):
    """All bytes are there, but they are not those that were promised."""


def parts(payload: Buffer, chunk: int = CHUNK_BYTES, start: int = 0) -> Iterator[tuple[int, memoryview]]:
    """`payload` from `start` on, cut into views of at most `chunk` bytes, each with its offset.

    >>> [(offset, bytes(piece)) for offset, piece in parts(b"abcde", 2)]
    [(0, b'ab'), (2, b'cd'), (4, b'e')]
    """
    if not 1 <= chunk <= FRAME_LIMIT:
        raise ValueError(f"chunk is {chunk}, but must be between 1 and {FRAME_LIMIT}")
    view = memoryview(payload).cast("B")
    for offset in range(start, len(view), chunk):
        yield offset, view[offset : offset + chunk]


def inlined(updates: Sequence[Update]) -> tuple[Blob, ...]:
    """The blobs of `updates` that travel with the message that names them, each once, in order: all, or none."""
    blobs = tuple({update.blob.digest: update.blob for update in updates}.values())
    return blobs if sum(blob.num_bytes for blob in blobs) <= INLINE_BYTES else ()


class Upload:
    """The payload of one contribution, arriving in order. Memory is taken as bytes come, so a promise costs none."""

    def __init__(self, contribution: Contribution) -> None:
        self.contribution = contribution
        self.payload = bytearray()
        self.asked = False  # for the bytes that are next, since some that are not came

    @property
    def complete(self) -> bool:
        """Whether all bytes are here; `verify` says whether they are the right ones."""
        return len(self.payload) == self.contribution.payload.num_bytes

    def add(self, offset: int, data: Buffer) -> bool:
        """Take `data` if it is what comes next; False when it is not. WireError when it ends behind the payload."""
        data = memoryview(data).cast("B")
        size = self.contribution.payload.num_bytes
        if offset + len(data) > size:
            raise WireError(f"part ends at {offset + len(data)}, but the payload has {size} bytes")
        if offset != len(self.payload):
            return False
        self.payload += data
        self.asked = False
        return True

    def verify(self) -> None:
        """Hash the whole payload; WireError when that is not the digest that was offered."""
        _check_digest("payload", hashlib.sha256(self.payload).hexdigest(), self.contribution.payload.digest)


class Uploads:
    """The payloads that a controller's machine wants or keeps, by node and assignment.

    What is inspected is the object that is committed: nothing replaces an upload, it can only be dropped or taken.
    """

    def __init__(self) -> None:
        self._uploads: dict[tuple[str, int], Upload] = {}

    def __len__(self) -> int:
        return len(self._uploads)

    @property
    def num_bytes(self) -> int:
        """Bytes that have come and are kept."""
        return sum(len(upload.payload) for upload in self._uploads.values())

    def open(self, node: str, contribution: Contribution) -> Upload:
        """The upload of this contribution: as far as it has come, or a new one."""
        return self._uploads.setdefault((node, contribution.assignment), Upload(contribution))

    def get(self, node: str, assignment: int) -> Upload | None:
        return self._uploads.get((node, assignment))

    def drop(self, node: str, assignment: int) -> None:
        """The payload will not be used."""
        self._uploads.pop((node, assignment), None)

    def take(self, node: str, assignment: int) -> Upload:
        """The payload goes elsewhere."""
        return self._uploads.pop((node, assignment))


class Download:
    """A blob being fetched: which pieces to ask for next, and where those that arrive belong.

    At most `window` pieces are asked for at a time. When nothing has arrived for `patience` seconds, or the
    connection was lost (`forget_requests`), the missing ones are asked for again. `prefix` are bytes that an earlier
    download left (whole pieces of them are used, never the last of the blob); they are checked with the rest. An empty
    blob is complete at once. `tree`: the blob is a snapshot, which a tree of digests names.
    """

    def __init__(
        self,
        blob: Blob,
        *,
        limit: int,
        chunk: int = CHUNK_BYTES,
        window: int = 16,
        patience: float = 10.0,
        prefix: Buffer = b"",
        tree: bool = False,
    ) -> None:
        if blob.num_bytes > limit:
            raise WireError(f"blob of {blob.num_bytes} bytes, but at most {limit} are allowed")
        if not 1 <= chunk <= FRAME_LIMIT:
            raise ValueError(f"chunk is {chunk}, but must be between 1 and {FRAME_LIMIT}")
        self.blob, self.chunk, self.window, self.patience = blob, chunk, window, patience
        self._new_hash = TreeHash if tree else hashlib.sha256
        self.payload = bytearray(blob.num_bytes)
        self._num_pieces = -(-blob.num_bytes // chunk)
        self._begin(memoryview(prefix).cast("B")[: max(0, blob.num_bytes - 1)])
        if not self._num_pieces:
            self._finish()

    def _begin(self, prefix: Buffer) -> None:
        self._hashed = len(prefix) // self.chunk  # pieces hashed so far: all before the first one that is missing
        held = self._hashed * self.chunk
        self.payload[:held] = prefix[:held]
        self._hash = self._new_hash(prefix[:held])
        self._arrived = bytearray(b"\x01" * self._hashed + b"\x00" * (self._num_pieces - self._hashed))
        self._next = self._hashed  # the first piece that was never asked for
        self._asked: set[int] = set()
        self._again: list[int] = []
        self._active_at = 0.0
        self.complete = False

    @property
    def num_received(self) -> int:
        """Bytes in hand from the start of the blob without a gap: what a later download can start from."""
        return min(self._hashed * self.chunk, len(self.payload))

    def requests(self, now: float) -> list[tuple[int, int]]:
        """The (offset, number of bytes) to ask for now."""
        if self._asked and now - self._active_at > self.patience:
            self.forget_requests()
        asks = []
        while len(self._asked) < self.window and (self._again or self._next < self._num_pieces):
            if self._again:
                piece = self._again.pop()
            else:
                piece, self._next = self._next, self._next + 1
            if not self._asked:
                self._active_at = now
            self._asked.add(piece)
            offset = piece * self.chunk
            asks.append((offset, min(self.chunk, len(self.payload) - offset)))
        return asks

    def deadline(self) -> float | None:
        """When to look for `requests` again although nothing arrived; None when nothing is awaited."""
        return self._active_at + self.patience if self._asked else None

    def forget_requests(self) -> None:
        """Whatever was asked for and has not arrived will not come: ask again."""
        self._again = sorted({*self._again, *self._asked}, reverse=True)
        self._asked.clear()

    def add(self, offset: int, data: Buffer, now: float) -> bool:
        """Take a chunk; True when the blob is complete (`payload`) and its digest right.

        A second copy of a piece is ignored. Raises WireError for a piece that was not asked for, and when the digest
        of the whole is wrong; the download then starts from nothing, should it be tried again.
        """
        data = memoryview(data).cast("B")
        piece, rest = divmod(offset, self.chunk)
        expected = min(self.chunk, len(self.payload) - offset)
        if rest or not 0 <= piece < self._next or len(data) != expected:
            raise WireError(f"chunk of {len(data)} bytes at offset {offset}, which was not asked for")
        if self._arrived[piece]:
            return self.complete
        self._active_at = now
        self._asked.discard(piece)
        if piece in self._again:
            self._again.remove(piece)
        self.payload[offset : offset + len(data)] = data
        self._arrived[piece] = 1
        self._hash_arrived()
        if self._hashed == self._num_pieces:
            self._finish()
        return self.complete

    def _hash_arrived(self) -> None:
        missing = self._arrived.find(0, self._hashed)
        end = missing if missing >= 0 else self._num_pieces
        if end > self._hashed:
            view = memoryview(self.payload)
            self._hash.update(view[self._hashed * self.chunk : end * self.chunk])
            self._hashed = end

    def _finish(self) -> None:
        try:
            _check_digest("blob", self._hash.hexdigest(), self.blob.digest)
        except WireError:
            self._begin(b"")
            raise
        self.complete = True


def _check_digest(what: str, digest: str, expected: str) -> None:
    if digest != expected:
        raise WrongDigestError(f"{what} hashes to {digest[:16]}..., but {expected[:16]}... was promised: send it again")
