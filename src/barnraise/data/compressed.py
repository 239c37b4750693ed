"""Files compressed with gzip or zstd, read as what is in them."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any, BinaryIO, cast

from barnraise.core.errors import DataError

GZIP, ZSTD = "gzip", "zstd"
_MAGIC = {b"\x1f\x8b": GZIP, b"\x28\xb5\x2f\xfd": ZSTD}
_BUFFER = 1 << 20

BROKEN = (EOFError, gzip.BadGzipFile)
"""Errors of a compressed file that is cut short or damaged; OSError is one for zstd, and zlib.error for gzip."""


def compression_of(head: bytes) -> str:
    """Return the compression of a file that begins with `head`, empty for none that is read here.

    >>> compression_of(gzip.compress(b"")), compression_of(b"text")
    ('gzip', '')
    """
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")


def opened(path: Path) -> BinaryIO:
    """Open a file for reading, unpacked where it is compressed.

    Raises OSError, and DataError where a library is missing.
    """
    with path.open("rb") as file:
        found = compression_of(file.read(4))
    if found == GZIP:
        return cast(BinaryIO, io.BufferedReader(gzip.open(path, "rb"), _BUFFER))
    if found == ZSTD:
        pa = arrow(path)
        return cast(BinaryIO, io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), ZSTD), _BUFFER))
    return path.open("rb", buffering=_BUFFER)


def arrow(path: Path) -> Any:
    """Return pyarrow, which reads `path`; DataError with what to install where it is missing."""
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(
            f"{path} is read with pyarrow, which is not installed; pip install 'barnraise[data]'"
        ) from error
    return pyarrow
