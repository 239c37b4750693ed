"""What every writer of the run directory needs: one wording for a disk that fails."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnraise.core.errors import CorruptionError, StorageError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def storage_error(path: Path, error: OSError | sqlite3.Error, action: str = "write") -> StorageError:
    """The error for users: which path, why, how much room is left, and what to do."""
    if isinstance(error, sqlite3.Error):
        reason, full = str(error), _sqlite_code(error) == sqlite3.SQLITE_FULL
    else:
        reason, full = error.strerror or str(error), error.errno in _FULL
    remedy = "free some space there or raise the quota" if full else "check the disk and its permissions"
    return StorageError(f"cannot {action} {path}: {reason} ({_free(path)}); {remedy}, then `barnraise resume` the run")


@contextmanager
def storage_errors(path: Path, action: str = "write") -> Iterator[None]:
    """Turn what the operating system and SQLite say about `path` into `StorageError` and `CorruptionError`.

    Mistakes of ours (constraint violations, misuse of the API) pass through unchanged.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(path, error, action) from error
    except sqlite3.OperationalError as error:
        raise storage_error(path, error, action) from error
    except sqlite3.DatabaseError as error:
        if _sqlite_code(error) not in _CORRUPT:
            raise
        raise CorruptionError(f"{path} is damaged: {error}; restore it from a copy, or start a new run") from error


def _sqlite_code(error: sqlite3.Error) -> int:
    """The primary result code; extended codes carry more in their upper bytes."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _free(path: Path) -> str:
    for folder in (path, *path.parents):
        try:
            return f"{shutil.disk_usage(folder).free:,} bytes free on that file system"
        except OSError:
            continue
    return "free space unknown"
