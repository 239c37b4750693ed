"""The run directory: all files of one run, and the lock of its writer.

runs/sat-neo-20260131-174500/
    run.yaml         the resolved run file
    manifest.json    what workers fetch first: the model's config and the dataset's description
    address.json     where the controller listens, and how the run was started
    ledger.sqlite    every decision, in order
    segments/        payloads that no checkpoint covers yet
    checkpoints/     v000042/ ...
    data/            token shards, tokenizer
    keys/            the controller's secret keys
    requests/        what other commands want of the controller
    logs/            one file a process
    moments/         what the local workers' optimizers know, until the run is over
    model/           the result, in Hugging Face format
    report.md        what happened
    report.html      the same as a page
    seal.json        once the run is over: the digests of all files
    simulation.json  a simulation's parameters and end; such a folder has no model, data, keys, checkpoints or payloads
    account.cache    the account as it was read last; it may be deleted, and is then folded again from the ledger
    lock             held while a controller runs
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from itertools import count
from pathlib import Path

from barnraise.core.errors import RunDirectoryError
from barnraise.core.files import fsync_directory, write_file
from barnraise.ledger import simulation
from barnraise.ledger.disk import storage_errors
from barnraise.ledger.lock import RunLock, holder
from barnraise.ledger.simulation import Simulation

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FOLDERS = ("checkpoints", "data", "keys", "logs", "requests", "segments")


class RunDirectory:
    """The paths in one run's folder, made by `create` or `open`.

    The folder itself need not be the current one's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_file = path / "run.yaml"
        self.ledger = path / "ledger.sqlite"
        self.segments = path / "segments"
        self.checkpoints = path / "checkpoints"
        self.data = path / "data"
        self.keys = path / "keys"
        self.logs = path / "logs"
        self.moments = path / "moments"
        self.model = path / "model"
        self.requests = path / "requests"
        self.report = path / "report.md"
        self.report_page = path / "report.html"
        self.seal = path / "seal.json"
        self.account_cache = path / "account.cache"
        self.simulation_file = path / "simulation.json"
        self.lock_file = path / "lock"

    @classmethod
    def create(cls, name: str, base: Path, *, now: datetime | None = None) -> RunDirectory:
        """Make BASE/NAME-YYYYmmdd-HHMMSS, numbered -2, -3 ... when that is taken, with its empty folders, all 0700.

        Raises RunDirectoryError when the name cannot be one or the folder cannot be made.
        """
        if not _NAME.fullmatch(name):
            raise RunDirectoryError(
                f"'{name}' cannot name a run: use up to 64 letters, digits, '_', '.' and '-', a letter or digit first"
            )
        stem = f"{name}-{now or datetime.now():%Y%m%d-%H%M%S}"
        try:
            base.mkdir(parents=True, exist_ok=True)
            path = _make_new(base, stem)
            for folder in _FOLDERS:
                (path / folder).mkdir(mode=0o700)
            fsync_directory(path)
            fsync_directory(base)
        except OSError as error:
            raise RunDirectoryError(
                f"cannot make a run directory in {base.absolute()}: {error.strerror}; "
                "name another folder with `run: {dir: FOLDER}` in the run file"
            ) from error
        return cls(path.absolute())

    @classmethod
    def create_at(cls, path: Path) -> RunDirectory:
        """Make the folder `path`, 0700, or take an empty one.

        Raises RunDirectoryError when it holds anything, or cannot be made.
        """
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise RunDirectoryError(f"{path} is not empty: name a folder that does not exist yet, or remove it")
        except OSError as error:
            raise RunDirectoryError(f"cannot make the folder {path}: {error.strerror}; name another") from error
        return cls(path.absolute())

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open the run in an existing folder.

        Raises RunDirectoryError when there is none, with where one may be.
        """
        run = cls(path.absolute())
        if not path.exists():
            raise RunDirectoryError(f"there is no run directory {path}: check the path; runs are made in `run.dir`")
        if not path.is_dir():
            raise RunDirectoryError(f"{path} is a file, not a run directory: give the folder that holds run.yaml")
        missing = [file.name for file in (run.run_file, run.ledger) if not file.is_file()]
        if missing:
            raise RunDirectoryError(
                f"{path} is not a run directory: it has no {' and no '.join(missing)}; {_suggestion(path)}"
            )
        return run

    @property
    def simulation(self) -> Simulation | None:
        """Return the parameters and the end of the simulation that wrote this folder; None for a real run's.

        Raises CorruptionError, StorageError.
        """
        return simulation.read(self.simulation_file)

    def require_real(self, deed: str) -> RunDirectory:
        """Return the run; RunDirectoryError for a simulation, which has nothing to do the named deed with."""
        if self.simulation_file.is_file():
            raise RunDirectoryError(
                f"{self.path} is a simulation's: there is nothing to {deed}; to train for real, run "
                f"`barnraise train {self.run_file}`"
            )
        return self

    def lock(self) -> RunLock:
        """Take the run's lock, as its one writer.

        Raises RunDirectoryError, naming the holder, when another process is.
        """
        return RunLock(self.lock_file)

    def holder(self) -> int | None:
        """Return the pid of the running controller, None when there is none."""
        return holder(self.lock_file)

    def unchanged_for(self) -> float:
        """Return the seconds since the ledger was written to last, by this machine's clock; 0 if that is not known."""
        files = (self.ledger, self.ledger.with_name(f"{self.ledger.name}-wal"))
        try:
            return max(0.0, time.time() - max(file.stat().st_mtime for file in files if file.exists()))
        except (OSError, ValueError):
            return 0.0

    def write(self, path: Path, content: bytes) -> None:
        """Write one of the run's files, atomically and durably.

        Raises StorageError.
        """
        with storage_errors(path):
            write_file(path, content)

    def write_key(self, name: str, secret: bytes) -> Path:
        """Write a secret, durably, that only the owner may read (0600).

        Raises StorageError.
        """
        return self.write_private(self.keys / name, secret)

    def write_private(self, path: Path, content: bytes) -> Path:
        """Write a file of the run, durably and atomically, that only the owner may read (0600).

        Raises StorageError.
        """
        with storage_errors(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_file(path, content, mode=0o600)
        return path


def _make_new(base: Path, stem: str) -> Path:
    for number in count(1):
        path = base / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return path
    raise AssertionError("count() does not end")


def _suggestion(path: Path) -> str:
    runs = [file.parent for file in path.glob("*/ledger.sqlite")]
    if not runs:
        return "give the folder that `barnraise train` or `barnraise serve` printed at its start"
    newest = max(runs, key=lambda run: run.stat().st_mtime)
    return f"it holds runs, the newest is {newest}"
