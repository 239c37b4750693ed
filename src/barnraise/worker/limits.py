"""Checks of a task against a worker's memory, and its owner's terms, before anything is fetched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from barnraise.core.types import KINDS, Audit, Blob, Evaluate, Task, Train, name_of
from barnraise.core.units import bytes_text

ROW_BYTES, BATCH_BYTES, TOKEN_BYTES = 48, 256, 16
"""Memory for making batches: for each row its place and length, while they are sorted; for each batch its record; for
each token of the current batch its id and label, int64."""

LEAST_BYTES = 32 << 20
"""Bytes for the rows of a task that are always allowed: 600,000 rows in batches of 32."""


class Limits(msgspec.Struct, frozen=True):
    """The limits of a worker's memory and disk.

    `fetched` bytes of versions and deltas may be on their way, or wait to be taken in, at a time; making the batches of
    a task may take `batches` bytes. `lengths` are the tokens of a row in each file with rows: rows of up to `longest`
    can be trained on, and rows of up to `longest_measured` be measured. `disk` bytes of those files are kept. `copied`
    are the bytes in memory of a row that is read; 0 where rows stay in their file. `own` are the tokens of a row of
    this worker's own, which are in none of those files.
    """

    fetched: float = math.inf
    batches: float = math.inf
    lengths: tuple[int, ...] = ()
    longest: float = math.inf
    longest_measured: float = math.inf
    disk: float = math.inf
    copied: int = 0
    own: int = 0

    def refusal(self, task: Task) -> str:
        """Return why the memory of this machine is too small for the task; "" when it is not."""
        lengths = self.lengths
        length = max([lengths[rows.shard] if rows.shard < len(lengths) else self.own for rows in task.rows], default=0)
        longest = self.longest_measured if isinstance(task, Evaluate) else self.longest
        if length > longest:
            return f"rows of {length} tokens need more memory than this worker may take"
        needed, has = self._batches_need(task, length), self.batches
        if needed > has:
            return f"its batches need {bytes_text(needed)} of memory, but this worker may take {bytes_text(int(has))}"
        undoes = task.undoes
        if not undoes:
            return ""
        needed, has = sum({u.blob.digest: u.blob.num_bytes for u in undoes}.values()), self.fetched
        if needed > has:
            return f"its deltas need {bytes_text(needed)} of memory, but this worker may take {bytes_text(int(has))}"
        return ""

    def too_many_files(self, files: Iterable[Sequence[Blob]]) -> str:
        """Return why the lent disk is too small for the `files` that tasks need, those of each task."""
        if self.disk == math.inf:
            return ""
        needed = sum({blob.digest: blob.num_bytes for some in files for blob in some}.values())
        if needed <= self.disk:
            return ""
        return f"its rows need {bytes_text(needed)} of disk, but this worker may take {bytes_text(int(self.disk))}"

    def _batches_need(self, task: Task, length: int) -> int:
        rows = sum([max(0, rows.stop - rows.start) for rows in task.rows])
        train = task.train if isinstance(task, Audit) else task
        size = train.batches.size if isinstance(train, Train) else 0
        if isinstance(task, Evaluate):
            size = task.batch_size
        if not size:
            return 0
        return (
            (ROW_BYTES + self.copied) * rows + BATCH_BYTES * -(-rows // size) + TOKEN_BYTES * min(size, rows) * length
        )


def unlent(task: Task, kinds: tuple[str, ...]) -> str:
    """Return why the owner's terms exclude the task, which may be of these `kinds`; "" when they do not."""
    kind = name_of(type(task))
    if kind in kinds:
        return ""
    return f"its owner lends this machine for {', '.join(name for name in kinds if name in KINDS)}, not for {kind}"
