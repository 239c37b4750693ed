"""Atomic writes of files: a file exists whole or not at all, also after a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_file(path: Path, content: bytes | bytearray, *, mode: int = 0o644) -> None:
    """Write `content` durably to the file `path`, replacing it; `mode` is the new file's, less the umask.

    The content is written beside `path`, synced and renamed: a reader sees the old file or the new one, also after a
    power loss. One writer at a time. Raises OSError; the old file is untouched then.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


@contextmanager
def private() -> Iterator[None]:
    """Make files and folders created in the body readable by their owner alone.

    Sets the umask of the whole process, so it holds for libraries and other threads too.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def fsync_directory(path: Path) -> None:
    """Make the names in a directory (files created, renamed, removed) survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
