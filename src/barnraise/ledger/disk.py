"""Common error messages for a failing disk, for all writers of the run directory."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnraise.core.errors import CorruptionError, StorageError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_TEXT = (
    "Could not decode to UTF-8"  # Python's sqlite3 reports a damaged column with this text, without a code of SQLite's
)
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def storage_error(path: Path, error: OSError | sqlite3.Error, action: str = "write") -> StorageError:
    """Return the error for users: path, cause, free space, and remedy."""
    if isinstance(error, sqlite3.Error):
        reason, full = str(error), _sqlite_code(error) == sqlite3.SQLITE_FULL
    else:
        reason, full = error.strerror or str(error), error.errno in _FULL
    remedy = "free some space there or raise the quota" if full else "check the disk and its permissions"
    return StorageError(
        f"cannot {action} {path}: {reason} ({_free(path)}); {remedy}", "then `barnraise resume` the run"
    )


@contextmanager
def storage_errors(path: Path, action: str = "write") -> Iterator[None]:
    """Turn errors of the operating system and SQLite about `path` into `StorageError` and `CorruptionError`.

    Programming errors (constraint violations, misuse of the API) pass through unchanged.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(path, error, action) from error
    except sqlite3.OperationalError as error:
        if str(error).startswith(_NOT_TEXT):
            raise damaged(path, str(error)) from error
        raise storage_error(path, error, action) from error
    except sqlite3.DatabaseError as error:
        if _sqlite_code(error) not in _CORRUPT:
            raise
        raise damaged(path, str(error)) from error


def damaged(path: Path, reason: str) -> CorruptionError:
    """Return the error for users: a damaged database, and the remedy."""
    return CorruptionError(
        f"{path} is damaged: {reason}; restore it from a copy (without one, `barnraise finish RUN_DIR` writes the "
        "model of the newest checkpoint, which does not need it)"
    )


def _sqlite_code(error: sqlite3.Error) -> int:
    """Return the primary result code; extended codes carry more in their upper bytes."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _free(path: Path) -> str:
    for folder in (path, *path.parents):
        try:
            return f"{shutil.disk_usage(folder).free:,} bytes free on that file system"
        except OSError:
            continue
    return "free space unknown"
