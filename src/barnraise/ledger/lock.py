"""One process at a time may write to a run: an flock that dies with its holder, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from barnraise.core.errors import RunDirectoryError
from barnraise.ledger.disk import storage_errors

_ATTEMPTS = 5


class RunLock:
    """The exclusive lock on a run, held from construction until `release`. The file holds the holder's pid.

    A forked child does not hold it, and a child started by exec does not inherit it.
    """

    def __init__(self, path: Path) -> None:
        """Raises RunDirectoryError, naming the holder's pid, when another process (or this one) holds the lock."""
        with storage_errors(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.fchmod(descriptor, 0o600)  # whoever may read the file could hold the lock, and so keep the owner out
                _lock(descriptor, path)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except BaseException:
                os.close(descriptor)
                raise
        self._descriptor: int | None = descriptor
        os.register_at_fork(after_in_child=self.release)

    def release(self) -> None:
        """Let go; releasing twice does nothing. Closing is enough: only the last open copy holds an flock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def holder(path: Path) -> int | None:
    """The pid of the process that holds the lock, None when nobody does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02 * (attempt + 1))  # `holder` in another process may be looking just now
        else:
            return
    pid = _pid(descriptor)
    who, stop = (f"process {pid}", f"stop it (kill -INT {pid})") if pid else ("another process", "stop it")
    raise RunDirectoryError(f"{path.parent} is in use by {who}: wait until it ends or {stop}, then try again")


def _pid(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
