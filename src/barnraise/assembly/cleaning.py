"""Folders that runs and joins left on this machine, and their removal."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from barnraise.core.errors import InputError
from barnraise.ledger import RunDirectory
from barnraise.ledger.disk import storage_errors
from barnraise.transport import identity

RUN, JOINED = "run", "join"
"""A run's folder, and the folder of `barnraise join` for one name in one run: keys and fetched data."""

WORKS, OVER, INTERRUPTED, LEFT = "working", "over", "interrupted", "left"
"""States: a process uses it now; a run that is over; one that can be resumed; a join that has ended."""


@dataclass(frozen=True)
class Remains:
    """A folder that was left: its bytes on disk, and seconds since one of its files was written."""

    path: Path
    kind: str
    state: str
    num_bytes: int
    age: float


def runs_in(base: Path) -> Iterator[Remains]:
    """Yield the runs in the folder `base`, the oldest first."""
    folders = [file.parent for file in base.glob("*/ledger.sqlite")] if base.is_dir() else []
    yield from sorted(map(run_at, folders), key=lambda found: -found.age)


def run_at(path: Path) -> Remains:
    """Return the run in the folder `path`.

    Raises RunDirectoryError when there is none.
    """
    run = RunDirectory.open(path)
    over = run.seal.is_file() or run.simulation_file.is_file()
    state = WORKS if run.holder() is not None else OVER if over else INTERRUPTED
    return Remains(path, RUN, state, *_measured(path))


def joined_in(home: Path) -> Iterator[Remains]:
    """Yield the folders of `barnraise join` in `home`, one for each run and name, the oldest first."""
    folders = [file.parent for file in home.glob("*/*/lock")] if home.is_dir() else []
    found = [
        Remains(folder, JOINED, WORKS if identity.in_use(folder) else LEFT, *_measured(folder)) for folder in folders
    ]
    yield from sorted(found, key=lambda item: -item.age)


def remove(found: Remains) -> None:
    """Remove the folder with all its files.

    Raises InputError when a process works in it, StorageError when the disk refuses.
    """
    if found.kind == RUN:
        with RunDirectory.open(found.path).lock():
            _remove(found.path)
        return
    with identity.held(found.path) as free:
        if not free:
            raise InputError(f"{found.path} is in use by a worker: stop it first (Ctrl-C)")
        _remove(found.path)
    if not any(found.path.parent.iterdir()):
        found.path.parent.rmdir()


def _remove(path: Path) -> None:
    with storage_errors(path):
        shutil.rmtree(path)


def _measured(path: Path) -> tuple[int, float]:
    """Return the bytes on disk, and seconds since a file was last written."""
    num_bytes, newest = 0, 0.0
    for file in path.rglob("*"):
        try:
            found = file.lstat()
        except FileNotFoundError:  # removed in the meantime
            continue
        num_bytes += found.st_blocks * 512
        newest = max(newest, found.st_mtime)
    return num_bytes, max(0.0, time.time() - newest)
