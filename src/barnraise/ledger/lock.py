"""The lock of a run: one process at a time may write, and the lock ends with its holder.

It is an open file description lock: unlike a plain POSIX lock it survives when the process closes another copy of the
file, and unlike an flock it takes a file that was opened for writing, which another user's descriptor is not. The file
can be opened by its owner alone, so that no other user can hold even a reader's lock against a resume.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from barnraise.core.errors import RunDirectoryError
from barnraise.core.files import private
from barnraise.ledger.disk import storage_errors

_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, pid: Linux's, where the kernel pads offsets to 64 bits


class RunLock:
    """The exclusive lock on a run, held from construction until `release`.

    The file holds the holder's pid. A forked child does not hold it, and a child started by exec does not inherit it.
    In a `with` statement all files that the process makes meanwhile are `private`, since they are those of the run.
    """

    def __init__(self, path: Path) -> None:
        """Raise RunDirectoryError, naming the holder's pid, when another process (or this one) holds the lock."""
        with storage_errors(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.fchmod(descriptor, 0o600)  # a process that may read the file could lock it against its owner
                _lock(descriptor, path)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except BaseException:
                os.close(descriptor)
                raise
        self._descriptor: int | None = descriptor
        os.register_at_fork(after_in_child=self.release)
        self._private = ExitStack()

    def release(self) -> None:
        """Release the lock; releasing twice does nothing.

        Closing is enough: only the last open copy holds the lock.
        """
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> RunLock:
        self._private.enter_context(private())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._private.close()
        self.release()


def holder(path: Path) -> int | None:
    """Return the pid of the lock's holder, None when there is none, or this user may not know.

    Takes no lock itself.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)  # only a writer's lock conflicts
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else _pid(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except (BlockingIOError, PermissionError):  # POSIX allows either
        pid = _pid(descriptor)
        who, stop = (f"process {pid}", f"stop it (kill -INT {pid})") if pid else ("another process", "stop it")
        raise RunDirectoryError(
            f"{path.parent} is in use by {who}: wait until it ends or {stop}, then try again"
        ) from None


def _pid(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
