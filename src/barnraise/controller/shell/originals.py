"""The original files of a run for a standby, by their digests, and contributions' payloads by theirs."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from barnraise.core.errors import CorruptionError, StorageError
from barnraise.core.types import Blob
from barnraise.ledger import Checkpoints, Ledger
from barnraise.ledger.copying import CopiedRow, brought, understood
from barnraise.wire.following import MOST_FILES, CopiedFile

SMALL_FILES = ("run.yaml", "manifest.json", "predecessors.json", "keys/controller.json", "keys/invites.json")
"""Files that are hashed at each survey, since some change."""

MOST_PAYLOADS = 100_000
"""Payloads that were named lately, of which a standby may ask for the bytes."""


class Originals:
    """The files of the run in `folder`, for one thread.

    `data` are those of its dataset, with names and digests.
    """

    def __init__(self, folder: Path, data: Sequence[tuple[str, Blob]], ledger: Ledger) -> None:
        self._folder, self._ledger = folder, ledger
        self._data = [CopiedFile(f"data/{name}", blob) for name, blob in data]
        self._checkpoints = Checkpoints(folder / "checkpoints")
        self._files: dict[str, CopiedFile] = {}
        self._payloads: OrderedDict[str, int] = OrderedDict()

    def inventory(self) -> tuple[CopiedFile, ...]:
        """Return the files, the newest checkpoint last.

        Raises StorageError.
        """
        found = [*self._small(), *self._data, *self._checkpoint()]
        self._files = {file.blob.digest: file for file in found}
        return tuple(found[:MOST_FILES])

    def named(self, rows: Sequence[CopiedRow]) -> None:
        """Record rows that are on their way: the payloads that they name will be requested."""
        for row in rows:
            contribution = brought(understood(row)) if row[0] == "Judged" else None
            if contribution is not None:
                self._payloads[contribution.claim.digest] = contribution.assignment
        while len(self._payloads) > MOST_PAYLOADS:
            self._payloads.popitem(last=False)

    def read(self, digest: str, offset: int, num_bytes: int) -> bytes:
        """Return bytes of a file or payload, which the reader checks.

        None when it is not kept (any more), or ends before `offset`.
        """
        if (assignment := self._payloads.get(digest)) is not None:
            try:
                return self._ledger.segments.read_part(assignment, offset, num_bytes)
            except (CorruptionError, StorageError):
                return b""
        file = self._files.get(digest)
        if file is None or offset >= file.blob.num_bytes:
            return b""
        try:
            with (self._folder / file.path).open("rb") as stream:
                stream.seek(offset)
                return stream.read(num_bytes)
        except OSError:  # a checkpoint that was pruned since
            return b""

    def _small(self) -> list[CopiedFile]:
        found = []
        for name in SMALL_FILES:
            try:
                content = (self._folder / name).read_bytes()
            except OSError:
                continue
            found.append(CopiedFile(name, Blob(hashlib.sha256(content).hexdigest(), len(content))))
        return found

    def _checkpoint(self) -> list[CopiedFile]:
        readable = self._checkpoints.readable()
        if not readable:
            return []
        checkpoint = readable[max(readable)]
        name = f"checkpoints/{checkpoint.path.name}"
        files = [(file, Blob(kept.sha256, kept.num_bytes)) for file, kept in checkpoint.manifest.files.items()]
        try:
            content = (checkpoint.path / "manifest.json").read_bytes()
        except OSError:
            return []
        files.append(("manifest.json", Blob(hashlib.sha256(content).hexdigest(), len(content))))
        return [CopiedFile(f"{name}/{file}", blob) for file, blob in files]


@dataclass(frozen=True)
class Replication:
    """The replication of a run: `originals` are its files (None: no standby may follow).

    `lease` is the seconds of silence after which a standby takes over. Where acknowledgements `wait`, they do until a
    standby has their rows, or none was there for `patience` seconds. `by` is the key of the standby that this
    controller was, if it was one.
    """

    originals: Originals | None = None
    lease: float = 3.0
    wait: bool = False
    by: str = ""
    patience: float = 30.0
