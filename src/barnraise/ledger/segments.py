"""Segment files with the payloads of accepted contributions, kept until a checkpoint makes them superfluous.

Payloads are written straight from the caller's buffers (see `records`) and are on disk (fdatasync) before anything in
the ledger mentions them. The ledger keeps, in the transaction that accepts them, the position up to which segments
count. Records after it were never acknowledged, torn or not: those of the one commit that a crash cut short are dropped
when this process writes its first record. More than that means that the ledger is not the newest, and is refused.
Opening changes nothing, so a resume that fails leaves all unchanged. Each process starts files of its own.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from barnraise.core.errors import CorruptionError
from barnraise.core.files import fsync_directory
from barnraise.ledger.disk import storage_errors
from barnraise.ledger.records import HEADER_BYTES, Damage, Place, intact, pack_header, read_exactly, scan, write_all

PayloadBytes: TypeAlias = bytes | bytearray | memoryview

SEGMENT_BYTES = 64 << 20
"""Size in bytes from which a segment takes no more records."""


class Position(NamedTuple):
    """The end of the last valid record: a segment's number, and an offset in bytes."""

    number: int
    offset: int


class Segments:
    """The segment files of one run.

    One thread appends; any thread reads and forgets.
    """

    def __init__(
        self,
        directory: Path,
        durable: Position,
        *,
        last_assignment: int | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Index the records in `directory` up to `durable`, and change nothing.

        Only headers are read here; a payload's CRC is checked when it is read. `damage` lists broken places: `read`
        refuses a contribution that is lost by it. Raises CorruptionError when intact records lie after `durable` that a
        crash cannot have left: of more than one commit, or of assignments after `last_assignment`, the last that the
        ledger knows. Raises StorageError.
        """
        self._directory, self._segment_bytes = directory, segment_bytes
        self._lock = threading.Lock()
        self._index: dict[int, Place] = {}
        self._live: Counter[int] = Counter()
        self._sealed: set[int] = set()
        self._begun = self._end = durable
        self._descriptor: int | None = None
        self.damage: list[str] = []
        self.orphans: list[int] = []  # assignments of a commit with whole payloads, but without rows
        self.keep_all = False  # whether nothing is forgotten
        with storage_errors(directory, "open"):
            directory.mkdir(exist_ok=True)
            numbers = self._numbers()
            for number in numbers:
                if number <= durable.number:
                    self._index_file(number, durable)
            self._refuse_unknown([number for number in numbers if number >= durable.number], last_assignment)

    def __contains__(self, assignment: int) -> bool:
        return assignment in self._index

    def __len__(self) -> int:
        return len(self._index)

    def append(self, payloads: Mapping[int, PayloadBytes]) -> Position:
        """Append payloads by assignment, durably; returns the position up to which segments count from now on.

        A payload that is already there is not written again, so that a failed commit may be repeated. Raises
        StorageError when payloads could not be written; then the segments are as they were before.
        """
        new = {assignment: payload for assignment, payload in payloads.items() if not self._holds(assignment, payload)}
        if new:
            before = self._end
            try:
                with storage_errors(self._directory):
                    places = self._append(new)
            except BaseException:
                self._truncate(before)
                raise
            with self._lock:
                for assignment, place in places.items():
                    self._register(assignment, place)
        return self._end

    def read(self, assignment: int) -> bytes:
        """Return the payload of an assignment's contribution.

        Raises CorruptionError when it is damaged or missing.
        """
        place = self._place(assignment)
        path = self._path(place.number)
        with storage_errors(path, "read"), path.open("rb", buffering=0) as file:
            payload = read_exactly(file.fileno(), place.num_bytes, place.offset)
        if len(payload) != place.num_bytes or zlib.crc32(payload) != place.crc:
            raise _corruption(path, place.offset, f"the payload of contribution {assignment} fails its checksum")
        return payload

    def read_part(self, assignment: int, offset: int, num_bytes: int) -> bytes:
        """Return bytes of a payload, for a caller that checks the whole; none behind its end.

        Raises CorruptionError when it is missing, StorageError.
        """
        place = self._place(assignment)
        size = max(0, min(num_bytes, place.num_bytes - offset))
        path = self._path(place.number)
        with storage_errors(path, "read"), path.open("rb", buffering=0) as file:
            return read_exactly(file.fileno(), size, place.offset + offset)

    def forget(self, assignments: Iterable[int]) -> None:
        """Drop payloads that will not be read again, unless all are kept; a file without others is deleted.

        This is not journaled: after a restart, call `retain`.
        """
        if self.keep_all:
            return
        with self._lock:
            for assignment in assignments:
                place = self._index.pop(assignment, None)
                if place is not None:
                    self._live[place.number] -= 1
            self._delete_empty()

    def retain(self, assignments: Iterable[int]) -> None:
        """Forget all but these."""
        with self._lock:
            known = set(self._index)
        self.forget(known.difference(assignments))

    def close(self) -> None:
        """Close the file being written."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _place(self, assignment: int) -> Place:
        with self._lock:
            place = self._index.get(assignment)
        if place is None:
            why = f" ({'; '.join(self.damage)})" if self.damage else ""
            raise CorruptionError(f"the payload of contribution {assignment} is missing from {self._directory}{why}")
        return place

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:08d}.seg"

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob("*.seg") if path.stem.isdecimal())

    def _index_file(self, number: int, durable: Position) -> None:
        path, hurt = self._path(number), False
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            end = durable.offset if number == durable.number else size
            for found in scan(file.fileno(), number, 0, min(size, end)):
                if isinstance(found, Damage):
                    hurt = True
                    self.damage.append(f"{path} is damaged at byte {found.offset}: {found.reason}")
                elif not (hurt and found.assignment in self._index):
                    self._register(found.assignment, found.place)
        if size < end:
            self.damage.append(f"{path} is damaged at byte {size}: the file ends before its last record, at {end}")
        self._sealed.add(number)

    def _refuse_unknown(self, numbers: list[int], last_assignment: int | None) -> None:
        """Raise CorruptionError when more than one interrupted commit lies after the durable position."""
        commits, foreign = 0, False
        for number in numbers:
            start = self._begun.offset if number == self._begun.number else 0
            with self._path(number).open("rb", buffering=0) as file:
                new = True
                for found in scan(file.fileno(), number, start, os.fstat(file.fileno()).st_size):
                    if isinstance(found, Damage) or not intact(file.fileno(), found.place):
                        break
                    commits, new = commits + (found.first or new), False
                    self.orphans.append(found.assignment)
                    foreign = foreign or (last_assignment is not None and found.assignment > last_assignment)
        if commits > 1 or foreign:
            raise CorruptionError(
                f"{self._directory} holds {len(self.orphans)} payloads that the ledger does not list: the ledger is "
                "an older copy, or was copied without its ledger.sqlite-wal. Nothing was changed: put back the "
                "ledger that belongs to these files, both of its files, and resume. If it is lost, remove the "
                f"payloads that it does not list (in that folder: {self._removal(numbers)}) to continue from the end "
                "of this ledger"
            )

    def _removal(self, numbers: list[int]) -> str:
        """Return shell commands that remove the records after the durable position in these files."""
        later = [self._path(number).name for number in numbers if number > self._begun.number]
        commands = [f"rm {' '.join(later)}"] if later else []
        if self._begun.number in numbers:
            commands.insert(0, f"truncate -s {self._begun.offset} {self._path(self._begun.number).name}")
        return "; ".join(commands)

    def _drop_unacknowledged(self) -> None:
        """Remove the records after the position at which this process began, durably."""
        for number in self._numbers():
            path = self._path(number)
            if number > self._begun.number:
                path.unlink()
            elif number == self._begun.number and path.stat().st_size > self._begun.offset:
                with path.open("r+b", buffering=0) as file:
                    os.ftruncate(file.fileno(), self._begun.offset)
                    os.fsync(file.fileno())

    def _holds(self, assignment: int, payload: PayloadBytes) -> bool:
        try:
            return assignment in self._index and self.read(assignment) == _as_bytes(payload)
        except CorruptionError:
            return False

    def _register(self, assignment: int, place: Place) -> None:
        before = self._index.get(assignment)
        if before is not None:
            self._live[before.number] -= 1
        self._index[assignment] = place
        self._live[place.number] += 1

    def _append(self, payloads: Mapping[int, PayloadBytes]) -> dict[int, Place]:
        if self._descriptor is None or self._end.offset >= self._segment_bytes:
            self._start_segment()
        assert self._descriptor is not None
        number, start = self._end
        buffers: deque[memoryview] = deque()
        places: dict[int, Place] = {}
        end = start
        for assignment, payload in payloads.items():
            view = _as_bytes(payload)
            place = Place(number, end + HEADER_BYTES, view.nbytes, zlib.crc32(view))
            buffers += (memoryview(pack_header(assignment, place, not places)), view)
            places[assignment] = place
            end = place.offset + place.num_bytes
        write_all(self._descriptor, buffers, start)
        os.fdatasync(self._descriptor)
        self._end = Position(number, end)
        return places

    def _start_segment(self) -> None:
        if self._descriptor is None:
            self._drop_unacknowledged()
        number = self._end.number + 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(self._path(number), flags, 0o644)
        self.close()
        self._descriptor = descriptor
        with self._lock:
            self._sealed.add(self._end.number)
            self._end = Position(number, 0)
            self._delete_empty()
        fsync_directory(self._directory)

    def _truncate(self, before: Position) -> None:
        """Drop the records appended after `before`; a segment begun since stays, empty."""
        if self._descriptor is None:
            return
        offset = before.offset if self._end.number == before.number else 0
        self._end = Position(self._end.number, offset)
        with storage_errors(self._path(self._end.number)):
            os.ftruncate(self._descriptor, offset)
            os.fsync(self._descriptor)

    def _delete_empty(self) -> None:
        for number in [number for number in self._sealed if not self._live[number]]:
            with storage_errors(self._path(number), "delete"):
                self._path(number).unlink(missing_ok=True)
            self._sealed.discard(number)
            del self._live[number]


def _as_bytes(payload: PayloadBytes) -> memoryview:
    view = memoryview(payload)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _corruption(path: Path, offset: int, reason: str) -> CorruptionError:
    return CorruptionError(f"{path} is damaged at byte {offset}: {reason}; restore the file, or resume from a copy")
