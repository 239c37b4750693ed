"""A worker's copy of the published parameters, which follows the versions.

One thread calls `update`, another one trains; they meet here, under a lock that is held for a pass over the parameters.
The copy is checked against the version's digest after every update. Elementwise work is done in chunks, by as many
threads as torch has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from barnraise.compression.base import Codec
from barnraise.core import ranges
from barnraise.core.digests import LEAF_BYTES
from barnraise.core.errors import PayloadError
from barnraise.core.ranges import fault, pieces
from barnraise.core.threads import SPAN, Crew, spans
from barnraise.core.types import Blob, News, Ranges, Update
from barnraise.models.vectors import Leaves, raw
from barnraise.wire.frames import Buffer

Array = np.ndarray[Any, np.dtype[np.float32]]
Fetched = Callable[[Blob], Buffer]
REMEMBERED = 256
"""Versions whose digests a replica remembers."""

_CACHED = 1 << 16  # elements that are decoded and added while a core's cache holds them


class Replica:
    """The parameters, `size` of them, at the newest received `version`.

    Deltas are in `codec`; with `follows` it also adds up their movement of the parameters: since that was last
    forgotten, or with `last` that of the newest alone.
    """

    def __init__(self, size: int, codec: Codec, *, follows: bool, last: bool = False) -> None:
        self.parameters = torch.zeros(size, dtype=torch.float32)
        self.version, self.digest = -1, ""  # the digest of that version
        self._digests: dict[int, str] = {}  # digests of the newest versions that it had
        self.lock = threading.Lock()
        self.merged, self.share, self.moved = 0, 1.0, False  # from the last `update`, and whether it is to be taken in
        self.movement: Tensor | None = (
            None  # sum over the versions, during the last `steps_moved` of this worker's steps
        )
        self.steps = self._forgotten = 0  # steps of this worker, and those before the movement
        self._spare: Tensor | None = None
        self.on_changed: Callable[[], None] = lambda: None  # called with the lock held, at each new version
        self.codec, self._follows, self._last = codec, follows, last
        self._crew = Crew(torch.get_num_threads(), gives_way=True)
        self._leaves = Leaves(self._crew)

    def update(self, news: News, fetched: Fetched) -> int:
        """Apply the updates of `news` in order: the version it is at, or -1 when it is void."""
        with self.lock:
            self.moved, self.version = False, -1
            for update in news.updates:
                data, changed = fetched(update.blob), None
                try:
                    if update.kind == "snapshot":
                        self._load(data)
                    else:
                        self._follow(data, covered := self._covered(update))
                        changed = pieces(covered)
                except PayloadError:
                    return -1
                self.digest = self._leaves.digest(self.parameters, changed)
                if self.digest != update.parameters_digest:
                    return -1
                self._remember(update.version)
            self.merged, self.share, self.moved = news.merged, news.share, True
            self.version = news.updates[-1].version
            self.on_changed()
        return self.version

    def _remember(self, version: int) -> None:
        self._digests[version] = self.digest
        while len(self._digests) > REMEMBERED:
            del self._digests[next(iter(self._digests))]

    def digest_of(self, version: int) -> str:
        """Return the digest of a version that it had lately; PayloadError where it does not know it any more."""
        found = self.digest if version == self.version else self._digests.get(version)
        if found is None:
            raise PayloadError(f"the digest of version {version} is not known any more")
        return found

    def restore(self, parameters: Tensor, version: int) -> str:
        """Continue from `parameters` of an earlier process, which are not copied, and return their digest.

        No task sees them before an update, or the controller, confirms the digest.
        """
        with self.lock:
            self.parameters, self.version = parameters, version
            self.digest = self._leaves.digest(parameters)
            self.on_changed()
        return self.digest

    @property
    def leaves(self) -> bytes:
        """Return the digests of its leaves, one after the other, of the last update that was tried."""
        return self._leaves.listed

    def leaf(self, number: int) -> memoryview:
        """Return the bytes of a leaf, without a lock: an update may change them meanwhile."""
        return raw(self.parameters)[number * LEAF_BYTES : (number + 1) * LEAF_BYTES]

    def require(self) -> None:
        """Raise RunFailedError where its parameters are not those of its version."""

    def read(self, published: Tensor) -> Tensor:
        """Return the model, float32 [d], of a version's published numbers; PayloadError where they are none."""
        return published

    def copy(self) -> Tensor:
        """Return a copy of its parameters, float32 [size]."""
        with self.lock:
            return self.parameters.clone()

    def decode(self, update: Update, fetched: Fetched, vectors: Sequence[Tensor], move: Callable[..., Array]) -> None:
        """Move these vectors, float32 [size], by a delta with `move`.

        Raises PayloadError.
        """
        self._decode(fetched(update.blob), self._covered(update), [vector.numpy() for vector in vectors], move)

    @property
    def steps_moved(self) -> int:
        """Return the number of this worker's steps during which `movement` came about."""
        return self.steps - self._forgotten

    def take_movement(self) -> Tensor | None:
        """Return the sum of the versions' movement, and start a new one; None where there is none."""
        taken, self.movement = self.movement, None
        if taken is not None:
            self._forgotten = self.steps
        return taken

    def reuse(self, vector: Tensor) -> None:
        """Take a movement back as memory for the next one."""
        self._spare = vector

    def _new_movement(self) -> Tensor:
        spare, self._spare = self._spare, None
        return torch.zeros_like(self.parameters) if spare is None else spare.zero_()

    def _load(self, snapshot: Buffer) -> None:
        """Set the parameters to a snapshot.

        A downloaded one becomes the replica, without a copy.
        """
        needed = raw(self.parameters).nbytes
        if len(snapshot) != needed:
            raise PayloadError(f"snapshot has {len(snapshot)} bytes, but the model needs {needed}")
        if isinstance(snapshot, bytearray):
            self.parameters = torch.frombuffer(snapshot, dtype=torch.float32)
        else:  # it came with a message, which owns its memory
            np.copyto(self.parameters.numpy(), np.frombuffer(snapshot, "<f4"))
        self.movement, self._forgotten = None, self.steps

    def _covered(self, update: Update) -> Ranges:
        """Return the parameters that a delta changes.

        PayloadError where they are not in the vector.
        """
        covered = update.parameters or (0, len(self.parameters))
        if reason := fault(covered, len(self.parameters)):
            raise PayloadError(f"the ranges of version {update.version}: {reason}")
        return covered

    def _follow(self, delta: Buffer, covered: Ranges) -> None:
        """Apply a delta to the parameters, and to the vectors that measure the versions' movement."""
        if self._last and self.movement is not None:
            self.movement.zero_()
        if self._follows and self.movement is None:
            self.movement = self._new_movement()
        moving = [self.parameters] if self.movement is None else [self.parameters, self.movement]
        self._decode(delta, covered, [vector.numpy() for vector in moving], np.add)

    def _decode(self, delta: Buffer, covered: Ranges, moving: Sequence[Array], move: Callable[..., Array]) -> None:
        """Apply `move` to the ranges `covered` of each of the vectors with the decoded delta.

        Decoded zeros count too: a zero may have a sign.
        """
        reader, multiple = self.codec.open(delta, ranges.size(covered)), self.codec.multiple

        def each(span: slice) -> None:
            scratch = np.empty(min(span.stop - span.start, _rounded(_CACHED, multiple)), np.float32)
            for few in spans(span.stop - span.start, scratch.size):
                first, decoded = span.start + few.start, scratch[: few.stop - few.start]
                reader.read(first, decoded)
                for part in ranges.parts(covered, first, first + decoded.size):
                    values = decoded[part.place - first : part.place - first + part.stop - part.start]
                    for vector in moving:
                        move(vector[part.here], values, out=vector[part.here])

        self._crew.each(each, spans(reader.size, _rounded(SPAN, multiple)))


def _rounded(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple
