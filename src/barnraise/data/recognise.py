"""Recognition of files that are not text: tables, records, archives, documents of other programs.

Trained on as text, such a file teaches a model its keys, commas and bytes. It is recognised by its first bytes, and by
the ending of its name where that says more. Prose that begins with a brace or has commas in it is text. Some of these
files hold records that can be read (`barnraise.data.records`).
"""

from __future__ import annotations

import csv
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnraise.core.errors import DataError
from barnraise.data.compressed import BROKEN, compression_of, opened

LINES, JSON, CSV, PARQUET, ARROW, STREAM = "JSON lines", "JSON", "CSV", "Parquet", "Arrow", "Arrow stream"
"""Forms of records that can be read."""

HEAD_BYTES = 64 * 1024
"""Bytes of a file that are examined."""

_UNPACK = "unpack it and name the text in it"
_EXTRACT = "extract the text to .txt files and name those"


class RecognisedFile(NamedTuple):
    """A recognised kind of file, the remedy where it is no text, and the form of its records where they can be read."""

    what: str
    remedy: str
    form: str = ""

    def __str__(self) -> str:
        return f"{self.what}, which would be trained on as if it were prose; {self.remedy}"


_MAGIC: tuple[tuple[int, bytes, str, str], ...] = (  # offset, first bytes, kind, remedy
    (0, b"PAR1", "a Parquet table", _EXTRACT),
    (0, b"ARROW1", "an Arrow file", _EXTRACT),
    (0, b"FEA1", "a Feather table of the first version", "save it again with a newer pyarrow or pandas"),
    (0, b"\xff\xff\xff\xff", "an Arrow stream", _EXTRACT),
    (0, b"Obj\x01", "an Avro file", _EXTRACT),
    (0, b"ORC", "an ORC table", _EXTRACT),
    (0, b"SQLite format 3\x00", "an SQLite database", _EXTRACT),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file", _EXTRACT),
    (0, b"\x93NUMPY", "a NumPy array", _EXTRACT),
    (0, b"\x1f\x8b", "compressed with gzip", _UNPACK),
    (0, b"BZh", "compressed with bzip2", _UNPACK),
    (0, b"\xfd7zXZ\x00", "compressed with xz", _UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstd", _UNPACK),
    (0, b"\x04\x22\x4d\x18", "compressed with lz4", _UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (0, b"Rar!\x1a\x07", "a RAR archive", _UNPACK),
    (0, b"PK\x03\x04", "a zip archive", _UNPACK),
    (0, b"PK\x05\x06", "a zip archive", _UNPACK),
    (257, b"ustar", "a tar archive", _UNPACK),
    (0, b"%PDF-", "a PDF document", _EXTRACT),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of an older office program", _EXTRACT),
    (0, b"{\\rtf", "a rich text document", _EXTRACT),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG picture", "leave it out"),
    (0, b"\xff\xd8\xff", "a JPEG picture", "leave it out"),
    (0, b"GIF8", "a GIF picture", "leave it out"),
    (0, b"\x7fELF", "a program", "leave it out"),
)
_PRINTABLE = {b"%PDF-", b"{\\rtf"}
"""First bytes of formats that may be printable throughout; other formats need unprintable bytes after these."""

_FORMS = {
    "JSON Lines": LINES,
    "comma-separated values": CSV,
    "tab-separated values": CSV,
    "a Parquet table": PARQUET,
    "an Arrow file": ARROW,
    "a Feather table": ARROW,
    "an Arrow stream": STREAM,
}
"""The forms of the kinds of files whose records can be read."""

_ENDINGS: dict[str, tuple[str, str]] = {
    ".jsonl": ("JSON Lines", _EXTRACT),
    ".ndjson": ("JSON Lines", _EXTRACT),
    ".parquet": ("a Parquet table", _EXTRACT),
    ".arrow": ("an Arrow file", _EXTRACT),
    ".feather": ("a Feather table", _EXTRACT),
    ".avro": ("an Avro file", _EXTRACT),
    ".orc": ("an ORC table", _EXTRACT),
    ".csv": ("comma-separated values", _EXTRACT),
    ".tsv": ("tab-separated values", _EXTRACT),
    ".gz": ("compressed with gzip", _UNPACK),
    ".tgz": ("a compressed tar archive", _UNPACK),
    ".bz2": ("compressed with bzip2", _UNPACK),
    ".xz": ("compressed with xz", _UNPACK),
    ".zst": ("compressed with zstd", _UNPACK),
    ".zip": ("a zip archive", _UNPACK),
    ".7z": ("a 7z archive", _UNPACK),
    ".tar": ("a tar archive", _UNPACK),
    ".pdf": ("a PDF document", _EXTRACT),
    ".docx": ("a Word document", _EXTRACT),
    ".xlsx": ("an Excel table", _EXTRACT),
    ".pptx": ("a PowerPoint document", _EXTRACT),
    ".odt": ("an OpenDocument text", _EXTRACT),
    ".epub": ("an e-book", _EXTRACT),
    ".npy": ("a NumPy array", _EXTRACT),
    ".npz": ("NumPy arrays", _EXTRACT),
    ".pkl": ("a pickle", _EXTRACT),
    ".pt": ("tensors of PyTorch", "leave it out"),
    ".safetensors": ("tensors", "leave it out"),
}
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_SEPARATORS = {",": "comma-separated values", "\t": "tab-separated values", ";": "semicolon-separated values"}
_FEWEST_ROWS, _MOST_ROWS = 3, 200
_MOSTLY = 0.9


def recognise(path: Path) -> RecognisedFile | None:
    """Return the kind of a file that is not text; None for text, and for an empty file.

    OSError when it cannot be read.
    """
    head, whole = _head(path)
    if not head:
        return None
    if compression_of(head):
        return _compressed(path) or _by_ending(path) or _by_beginning(head)
    return _recognised(path, head, whole)


def _recognised(path: Path, head: bytes, whole: bool) -> RecognisedFile | None:
    first, ending = _by_beginning(head), _by_ending(path)
    if first and (first.form or ending is None or ending.form):
        return first
    text = head.decode("utf-8-sig", errors="replace")
    return ending or _json(text, whole) or _table(text, whole) or _named_json(path)


def _compressed(path: Path) -> RecognisedFile | None:
    """Recognise records in a compressed file."""
    try:
        with opened(path) as file:
            head = file.read(HEAD_BYTES)
            whole = len(head) < HEAD_BYTES or not file.read(1)
    except (*BROKEN, zlib.error, OSError, DataError):  # DataError: no library for zstd, so the remedy is to unpack it
        return None
    found = _recognised(path.with_suffix(""), head, whole) if head else None
    if found is None or found.form not in (LINES, JSON, CSV):
        return None
    return found._replace(what=f"{found.what}, compressed")


def _head(path: Path) -> tuple[bytes, bool]:
    """Return the first bytes of a file, and whether they are all of it."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        return head, len(head) < HEAD_BYTES or not file.read(1)


def require_text(paths: Sequence[Path]) -> None:
    """Raise DataError that names the first of `paths` that is not text, and counts the others.

    OSError as `recognise`.
    """
    found = [(path, what) for path in paths if (what := recognise(path)) is not None]
    if found:
        path, what = found[0]
        more = f" (and {len(found) - 1} more file{'s' * (len(found) > 2)} that are no text)" if found[1:] else ""
        raise DataError(f"{path} is {what}{more}")


def _by_ending(path: Path) -> RecognisedFile | None:
    known = _ENDINGS.get(path.suffix.lower())
    return RecognisedFile(*known, form=_FORMS.get(known[0], "")) if known else None


def _named_json(path: Path) -> RecognisedFile | None:
    return RecognisedFile("a JSON document", _EXTRACT, JSON) if path.suffix.lower() == ".json" else None


def _by_beginning(head: bytes) -> RecognisedFile | None:
    for start, magic, what, remedy in _MAGIC:
        if head.startswith(magic, start) and (magic in _PRINTABLE or not _is_text(head)):
            return RecognisedFile(what, remedy, _FORMS.get(what, ""))
    return None


def _is_text(head: bytes) -> bool:
    try:
        head[: HEAD_BYTES - 4].decode()
    except UnicodeDecodeError:
        return False
    return b"\x00" not in head


def _json(text: str, whole: bool) -> RecognisedFile | None:
    """Recognise one JSON document, or a record a line."""
    text = text.strip() if whole else text.lstrip()
    if text[:1] not in ("{", "["):
        return None
    lines = [line for line in text.split("\n") if line.strip()]
    full = lines if whole else lines[:-1]
    records = sum(_is_record(_parsed(line)) for line in full)
    if full and records >= _MOSTLY * len(full):
        what, form = ("JSON Lines", LINES) if len(full) > 1 else ("a JSON record", JSON)
        return RecognisedFile(
            what, "extract the text to a .txt file, as `jq -r .text FILE > FILE.txt` does for the key text", form
        )
    if _is_json(text, whole):
        return RecognisedFile("a JSON document", _EXTRACT, JSON)
    return None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_record(value: Any) -> bool:
    """Return whether a value is a record: a list such as `[1]` may be a footnote in prose."""
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(item, str | dict | list) for item in value)
    )


def _is_json(text: str, whole: bool) -> bool:
    """Return whether `text` is a sequence of records, or the beginning of one."""
    decoder, place = json.JSONDecoder(), 0
    try:
        while place < len(text):
            value, stop = decoder.raw_decode(text, place)
            if not _is_record(value):
                return False
            place = len(text) - len(text[stop:].lstrip())
    except RecursionError:
        return True
    except json.JSONDecodeError as error:
        # In a document that continues after the bytes that were read, the decoder reports the end of the input.
        return not whole and (error.pos >= len(text) - 8 or error.msg.startswith("Unterminated string"))
    return True


def _table(text: str, whole: bool) -> RecognisedFile | None:
    """Recognise a header of column names, and rows with as many fields."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    whole = whole and len(lines) <= _MOST_ROWS
    for separator, what in _SEPARATORS.items():
        if separator not in lines[0]:
            continue
        try:
            rows = [row for row in csv.reader(lines[:_MOST_ROWS], delimiter=separator) if row]
        except csv.Error:
            continue
        header, others = rows[0], rows[1:] if whole else rows[1:-1]
        named = len(set(header)) == len(header) > 1 and all(_COLUMN.fullmatch(name) for name in header)
        if named and len(others) >= _FEWEST_ROWS - 1 and all(len(row) == len(header) for row in others):
            return RecognisedFile(what, _EXTRACT, CSV)
    return None
