"""Downloads of blobs in chunks: the next requests, the place of each chunk, and the check of digests.

Pure bookkeeping for both shells: no socket and no clock. Sizes are in bytes, times in seconds of any one clock. A blob
is named by its SHA-256, which is computed as bytes arrive, and a snapshot by a tree hash (see `core.digests`), of which
each leaf is checked once it has arrived. So no call takes long (0.1 to 0.7 ms a chunk; 10 ms for leaves that are held).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Protocol

from barnraise.core.digests import DIGEST_BYTES, LEAF_BYTES, num_leaves, root
from barnraise.core.errors import WireError
from barnraise.core.types import Blob
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import CHUNK_BYTES, FRAME_LIMIT

WINDOW = 16
"""Chunks that are requested at a time."""

AT_ONCE = 8
"""Held leaves that one call looks at, which takes a millisecond or two each."""

PATIENCE = 10.0
"""Seconds without a chunk after which the missing ones are requested again."""


class WrongDigestError(WireError):
    """The bytes have another digest than promised: one `leaf` of a snapshot, or the whole (-1)."""

    def __init__(self, digest: str, promised: str, leaf: int = -1) -> None:
        what = "blob" if leaf < 0 else f"leaf {leaf}"
        super().__init__(f"{what} hashes to {digest[:16]}..., but {promised[:16]}... was promised: send it again")
        self.leaf = leaf


class Chunks:
    """Bytes that arrive in chunks of `size`, at most `window` of which are requested at a time.

    Memory is taken up to the last byte that is here, so an announced size costs none.
    When nothing has arrived for `patience` seconds, or the connection was lost (`forget_requests`), the missing chunks
    are requested again.
    """

    def __init__(self, num_bytes: int, size: int, window: int, patience: float) -> None:
        if not 1 <= size <= FRAME_LIMIT:
            raise ValueError(f"chunk is {size}, but must be between 1 and {FRAME_LIMIT}")
        self.size, self.window, self.patience = size, window, patience
        self.num_bytes = num_bytes
        self.payload = bytearray()
        self.arrived = bytearray(-(-num_bytes // size))  # 1 for each chunk that has arrived
        self._missing = len(self.arrived)
        self._next = 0  # the first chunk that was never requested
        self._asked: set[int] = set()
        self._again: list[int] = []
        self._active_at = 0.0

    @property
    def complete(self) -> bool:
        return not self._missing

    def requests(self, now: float) -> list[tuple[int, int]]:
        """Return the (offset, number of bytes) pairs to request now."""
        if self._asked and now - self._active_at > self.patience:
            self.forget_requests()
        asks = []
        while len(self._asked) < self.window and (self._again or self._next < len(self.arrived)):
            if self._again:
                number = self._again.pop()
            else:
                number, self._next = self._next, self._next + 1
                if self.arrived[number]:
                    continue
            if not self._asked:
                self._active_at = now
            self._asked.add(number)
            offset = number * self.size
            asks.append((offset, min(self.size, self.num_bytes - offset)))
        return asks

    def deadline(self) -> float | None:
        """Return when to call `requests` again if nothing arrives; None when nothing is awaited."""
        return self._active_at + self.patience if self._asked else None

    def forget_requests(self) -> None:
        """Treat all open requests as lost, so that they are repeated."""
        self._again = sorted({*self._again, *self._asked}, reverse=True)
        self._asked.clear()

    def add(self, offset: int, data: Buffer, now: float) -> int:
        """Store a chunk and return its number, -1 for a duplicate.

        Raises WireError for one that was not requested.
        """
        data = memoryview(data).cast("B")
        number, rest = divmod(offset, self.size)
        expected = min(self.size, self.num_bytes - offset)
        if rest or not 0 <= number < self._next or len(data) != expected:
            raise WireError(f"chunk of {len(data)} bytes at offset {offset}, which was not asked for")
        if self.arrived[number]:
            return -1
        self._active_at = now
        self._asked.discard(number)
        if number in self._again:
            self._again.remove(number)
        self.arrived[number] = 1
        self._missing -= 1
        self.store(offset, data)
        return number

    def store(self, offset: int, data: memoryview) -> None:
        """Store the bytes of a chunk that came for the first time."""
        while (lacking := offset - len(self.payload)) > 0:
            self.payload += bytes(min(lacking, LEAF_BYTES))
        self.payload[offset : offset + len(data)] = data

    def fill(self, offset: int, data: memoryview) -> None:
        """Store bytes that are here already, from a chunk's start on to a chunk's end or that of the whole."""
        self.store(offset, data)
        numbers = range(offset // self.size, -(-(offset + len(data)) // self.size))
        self.arrived[numbers.start : numbers.stop] = b"\1" * len(numbers)
        self._missing -= len(numbers)

    def drop(self, numbers: range) -> None:
        """Discard chunks that have arrived with wrong bytes, so that they are requested again."""
        self.arrived[numbers.start : numbers.stop] = bytes(len(numbers))
        self._missing += len(numbers)
        if self._missing == len(self.arrived):
            self.payload = bytearray()  # no chunk is right
        self._again = sorted({*self._again, *numbers}, reverse=True)


class InOrder:
    """A download whose offsets are those of its `_chunks`."""

    _chunks: Chunks
    reused = 0
    """Bytes that did not cross the link."""

    def requests(self, now: float) -> list[tuple[int, int]]:
        """Return the (offset, number of bytes) pairs to request now."""
        return self._chunks.requests(now)

    def deadline(self) -> float | None:
        """Return when to call `requests` again if nothing arrives; None when nothing is awaited."""
        return self._chunks.deadline()

    def forget_requests(self) -> None:
        """Treat all open requests as lost, so that they are repeated."""
        self._chunks.forget_requests()


class Download(InOrder):
    """A download of a blob of at most `limit` bytes.

    An empty one is complete at once. Raises WireError.
    """

    def __init__(
        self, blob: Blob, *, limit: int, chunk: int = CHUNK_BYTES, window: int = WINDOW, patience: float = PATIENCE
    ) -> None:
        check_size(blob.num_bytes, limit)
        self.blob = blob
        self._chunks = Chunks(blob.num_bytes, chunk, window, patience)
        self._begin()
        if not blob.num_bytes:
            self._check()

    def _begin(self) -> None:
        self._hash, self._hashed = hashlib.sha256(), 0  # chunks hashed so far: all before the first missing one
        self.complete = False

    @property
    def payload(self) -> bytearray:
        """Return the blob, once it is complete."""
        return self._chunks.payload

    def add(self, offset: int, data: Buffer, now: float) -> bool:
        """Store a chunk; return True when the blob is complete (`payload`) and its digest right.

        A second copy of a chunk is ignored. Raises WireError for a chunk that was not requested, and WrongDigestError
        when the digest of the whole is wrong; the download then restarts from nothing.
        """
        chunks = self._chunks
        if chunks.add(offset, data, now) >= 0:
            missing = chunks.arrived.find(0, self._hashed)
            end = missing if missing >= 0 else len(chunks.arrived)
            self._hash.update(memoryview(chunks.payload)[self._hashed * chunks.size : end * chunks.size])
            self._hashed = end
            if chunks.complete:
                self._check()
        return self.complete

    def _check(self) -> None:
        digest = self._hash.hexdigest()
        if digest != self.blob.digest:
            self._begin()
            self._chunks.drop(range(len(self._chunks.arrived)))
            raise WrongDigestError(digest, self.blob.digest)
        self.complete = True


class HeldLeaves(Protocol):
    """The bytes of another version of the parameters; they need no more than be nearly the same."""

    @property
    def leaves(self) -> bytes:
        """Return the digests of its leaves, one after the other, as far as they are known."""

    def leaf(self, number: int) -> memoryview:
        """Return the bytes of a leaf, which may have changed since its digest was computed."""


class SnapshotDownload:
    """A download of a snapshot, or of some of its leaves, of at most `limit` bytes, with the interface of `Download`.

    The digests of its leaves come first: they are stored behind its bytes, and its own digest is computed from them.
    Then each leaf is checked as soon as it has arrived, and requested again alone if it is wrong. `chunk` divides a
    leaf. `only` are the numbers of the leaves to fetch (see `models.vectors.leaves_of` for those of a range of the
    parameters); None: all of them. Leaves that are `held` with the same digest are not fetched: before any other is
    requested, calls of `requests` take some of them each, and may complete the download. Offsets in requests and chunks
    are always those of the whole snapshot.
    """

    def __init__(
        self,
        blob: Blob,
        *,
        limit: int,
        only: Collection[int] | None = None,
        held: HeldLeaves | None = None,
        chunk: int = CHUNK_BYTES,
        window: int = WINDOW,
        patience: float = PATIENCE,
    ) -> None:
        count = num_leaves(blob.num_bytes)
        self._numbers: Sequence[int] = range(count) if only is None else sorted(set(only))  # leaves, as in `payload`
        if self._numbers and not 0 <= self._numbers[0] <= self._numbers[-1] < count:
            raise WireError(f"leaves {list(self._numbers)}, but the snapshot has those from 0 to {count - 1}")
        num_bytes = len(self._numbers) * LEAF_BYTES
        if self._numbers and self._numbers[-1] == count - 1:
            num_bytes -= count * LEAF_BYTES - blob.num_bytes
        check_size(max(num_bytes, DIGEST_BYTES * count), limit)
        if LEAF_BYTES % chunk:
            raise ValueError(f"chunk is {chunk}, but must divide {LEAF_BYTES}")
        self.blob, self._held = blob, held
        self.reused = 0  # bytes that were held
        self._leaves = Chunks(DIGEST_BYTES * count, chunk, window, patience)
        self._chunks = Chunks(num_bytes, chunk, window, patience)
        self._listed = False  # whether the digests of the leaves have arrived and are right
        self._places = iter(range(0 if held is None else len(self._numbers)))  # held, and not looked at
        if not blob.num_bytes:
            self._check_list()

    @property
    def complete(self) -> bool:
        return self._listed and self._chunks.complete

    @property
    def payload(self) -> bytearray:
        """Return the snapshot, or its wanted leaves one after the other, once it is complete."""
        return self._chunks.payload

    @property
    def _current(self) -> Chunks:
        return self._chunks if self._listed else self._leaves

    def requests(self, now: float) -> list[tuple[int, int]]:
        """Return the (offset, number of bytes) pairs to request now."""
        if not self._listed:
            return [(self.blob.num_bytes + offset, size) for offset, size in self._leaves.requests(now)]
        if self._held is not None and not self._reuse(self._held):
            return []
        asks = [(*divmod(offset, LEAF_BYTES), size) for offset, size in self._chunks.requests(now)]
        return [(self._numbers[place] * LEAF_BYTES + rest, size) for place, rest, size in asks]

    def deadline(self) -> float | None:
        """Return when to call `requests` again if nothing arrives; None when nothing is awaited."""
        return 0.0 if self._listed and self._held is not None else self._current.deadline()

    def forget_requests(self) -> None:
        """Treat all open requests as lost, so that they are repeated."""
        self._current.forget_requests()

    def add(self, offset: int, data: Buffer, now: float) -> bool:
        """Store a chunk; return True when the snapshot is complete (`payload`).

        A second copy of a chunk is ignored. Raises WireError for a chunk that was not requested, and WrongDigestError
        when a leaf is wrong, or the digests of all are: these bytes are then requested again, the others are kept.
        """
        if offset >= self.blob.num_bytes:
            if self._leaves.add(offset - self.blob.num_bytes, data, now) >= 0 and self._leaves.complete:
                self._check_list()
            return self.complete
        leaf, rest = divmod(offset, LEAF_BYTES)
        place = bisect_left(self._numbers, leaf)
        if place == len(self._numbers) or self._numbers[place] != leaf:
            raise WireError(f"bytes of leaf {leaf}, which was not asked for")
        if self._chunks.add(place * LEAF_BYTES + rest, data, now) >= 0:
            self._check_leaf(place)
        return self.complete

    def _check_list(self) -> None:
        digest = root(self._leaves.payload, self.blob.num_bytes)
        if digest != self.blob.digest:
            self._leaves.drop(range(len(self._leaves.arrived)))
            raise WrongDigestError(digest, self.blob.digest)
        self._listed = True

    def _reuse(self, held: HeldLeaves) -> bool:
        """Take a few of the leaves that are held with the right digests, and return whether all were looked at."""
        known, promised, looked_at = held.leaves, self._leaves.payload, 0
        while looked_at < AT_ONCE:
            if (place := next(self._places, None)) is None:
                self._held = None
                return True
            leaf = self._numbers[place]
            span = slice(leaf * DIGEST_BYTES, (leaf + 1) * DIGEST_BYTES)
            if known[span] != promised[span]:
                continue
            looked_at += 1
            content = memoryview(bytes(held.leaf(leaf)))
            size = min(LEAF_BYTES, self._chunks.num_bytes - place * LEAF_BYTES)
            if len(content) == size and hashlib.sha256(content).digest() == promised[span]:
                self._chunks.fill(place * LEAF_BYTES, content)
                self.reused += size
        return False

    def _check_leaf(self, place: int) -> None:
        """Check the leaf at `place` of those wanted, once all of its chunks have arrived."""
        leaf = self._numbers[place]
        start, stop = place * LEAF_BYTES, min((place + 1) * LEAF_BYTES, self._chunks.num_bytes)
        numbers = range(start // self._chunks.size, -(-stop // self._chunks.size))
        if 0 in self._chunks.arrived[numbers.start : numbers.stop]:
            return
        digest = hashlib.sha256(memoryview(self._chunks.payload)[start:stop]).digest()
        promised = bytes(self._leaves.payload[leaf * DIGEST_BYTES : (leaf + 1) * DIGEST_BYTES])
        if digest != promised:
            self._chunks.drop(numbers)
            raise WrongDigestError(digest.hex(), promised.hex(), leaf)


def check_size(num_bytes: int, limit: int) -> None:
    """Raise WireError for a blob that is larger than allowed."""
    if num_bytes > limit:
        raise WireError(f"blob of {num_bytes} bytes, but at most {limit} are allowed")
