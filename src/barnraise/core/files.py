"""Files that are there whole or not at all, whatever happens to the machine while they are written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_file(path: Path, content: bytes | bytearray, *, mode: int = 0o644) -> None:
    """Put `content` in the file `path`, durably, in place of what it held; `mode` is the new file's, less the umask.

    It is written beside its place, synced and renamed: a reader, and whoever comes after a power loss, finds the old
    file or the new one. For one writer at a time. Raises OSError; the old file is untouched then.
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
    """Files and folders that this process and its children make meanwhile can be read by their owner alone.

    It is the umask of the whole process, so that libraries and other threads keep to it too.
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
