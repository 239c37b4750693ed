"""Records of files: JSON Lines, JSON, CSV, Parquet and Arrow, one by one, in constant memory.

JSON and CSV may be compressed with gzip or zstd. Parquet, Arrow and zstd are read with pyarrow.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import DataError
from barnraise.core.text import printable
from barnraise.data.compressed import BROKEN, arrow, opened
from barnraise.data.recognise import ARROW, CSV, JSON, LINES, PARQUET, STREAM, recognise

Wanted = npt.NDArray[np.bool_]
"""A truth value for each record of a file."""

LONGEST = 64 << 20
"""Most bytes of a record."""

_ROWS = 256
_PIECE = 1 << 20
_SPACE = re.compile(r"[\s,]*")
_UTF_8 = "`iconv -f latin1 -t utf-8 FILE > NEW` converts it, if it is Latin-1"


class FileRecord(NamedTuple):
    """A record of a file: its line, row or place there, from 1, and its fields, or why there are none."""

    number: int
    fields: dict[str, Any] | None
    fault: str = ""


class RecordFile(NamedTuple):
    """A file of records: its path, its name for messages, and the form of its records."""

    path: Path
    name: str
    form: str

    @property
    def unit(self) -> str:
        """The unit by which records are counted: `line`, `row` or `record`."""
        return {LINES: "line", CSV: "line", JSON: "record"}.get(self.form, "row")

    def columns(self) -> list[str] | None:
        """Return the names of the columns of a table, None where each record has names of its own."""
        if self.form not in (PARQUET, ARROW, STREAM):
            return None
        with _reading(self):
            return list(_table(self).names)

    def read(self, columns: Collection[str] | None = None, wanted: Wanted | None = None) -> Iterator[FileRecord]:
        """Yield the records of the file.

        A table is read in `columns` alone, or in all when None. `wanted` has a truth value for each record: others are
        passed over, which costs little. Raises DataError with the place where the file cannot be read on.
        """
        with _reading(self):
            if self.form == LINES:
                yield from _lines(self, wanted)
            elif self.form in (JSON, CSV):
                records = _documents(self) if self.form == JSON else _csv(self)
                yield from records if wanted is None else itertools.compress(records, wanted)
            else:
                yield from _rows(self, columns, wanted)


def record_file(path: Path, name: str) -> RecordFile | None:
    """Return a file of records, None for plain text and for an empty file; DataError for other files."""
    try:
        found = recognise(path)
    except OSError as error:
        raise DataError(f"{name} cannot be read ({error.strerror})") from error
    if found is not None and not found.form:
        raise DataError(f"{name} is {found.what}, which cannot be read; {found.remedy}")
    return RecordFile(path, name, found.form) if found else None


@contextmanager
def _reading(source: RecordFile) -> Iterator[None]:
    """Turn the errors of reading into DataError with the file's name."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise DataError(f"{source.name} is not UTF-8 ({error.reason}); {_UTF_8}") from error
    except (*BROKEN, zlib.error, OSError, ValueError, NotImplementedError) as error:
        what = printable(str(error).partition("\n")[0], 160)
        remedy = "it may be cut short: copy it again, or leave it out"
        raise DataError(f"{source.name} cannot be read as {source.form} ({what}); {remedy}") from error


def _lines(source: RecordFile, wanted: Wanted | None) -> Iterator[FileRecord]:
    lines = ((number, line) for number, line in _numbered(source) if not line.isspace())
    for number, line in lines if wanted is None else itertools.compress(lines, wanted):
        yield FileRecord(number, *_decoded(line))


def _numbered(source: RecordFile) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers, without the mark of UTF-8 at its beginning."""
    number = 0
    with opened(source.path) as file:
        while line := file.readline(LONGEST + 1):
            number += 1
            if number == 1:
                if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise DataError(f"{source.name} is UTF-16; `iconv -f utf-16 -t utf-8 FILE > NEW` converts it")
                line = line.removeprefix(codecs.BOM_UTF8)
            if len(line) > LONGEST:
                most = f"{LONGEST >> 20} MiB"
                raise DataError(f"{source.name}:{number}: the line has more than {most}; cut it into several records")
            yield number, line


def _decoded(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the record in a line of JSON, or why it is none."""
    try:
        value = _DECODE(line)
    except MALFORMED:
        return _decoded_leniently(line)
    return _checked(value)


def _decoded_leniently(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """Do the same with NaN as a number, and with the place of an error."""
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return None, f"is not UTF-8 (byte {error.start + 1}); {_UTF_8}"
    except RecursionError:
        return None, "is nested too deeply"
    except ValueError as error:
        at = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        return None, f"is no JSON ({getattr(error, 'msg', error)}{at})"
    return _checked(value, escaped=True)


def _checked(value: Any, escaped: bool = False) -> tuple[dict[str, Any] | None, str]:
    """Return a value that is a record; `escaped` ones may have halves of characters, which no text can have."""
    if not isinstance(value, dict):
        kind = {list: "a list", str: "text", type(None): "null"}.get(type(value), "a number or truth value")
        return None, f'is {kind}, but must be a record such as {{"text": "..."}}'
    if escaped:
        try:
            msgspec.json.encode(value)
        except UnicodeEncodeError as error:
            return None, f"has half of a character, {error.object[error.start]!a}"
    return value, ""


def _documents(source: RecordFile) -> Iterator[FileRecord]:
    """Yield the records of a JSON list, or those that follow each other, with one piece of the file in memory."""
    with opened(source.path) as file:
        text = io.TextIOWrapper(file, "utf-8-sig")
        buffer, place, number, listed, whole = "", 0, 0, False, False
        while True:
            place = _SPACE.match(buffer, place).end()  # type: ignore[union-attr]  # it matches nothing, too
            head = buffer[place : place + 1]
            if head == "[" and not listed and number == 0:
                listed, place = True, place + 1
                continue
            if head == "]" and listed:
                return
            if head:
                try:
                    value, stop = _JSON.raw_decode(buffer, place)
                except (json.JSONDecodeError, RecursionError) as error:
                    if whole or len(buffer) - place > LONGEST or isinstance(error, RecursionError):
                        why = getattr(error, "msg", "it is nested too deeply")
                        raise DataError(
                            f"{source.name}, record {number + 1}: is no JSON ({why}); correct it"
                        ) from error
                else:
                    number += 1
                    yield FileRecord(number, *_checked(value, escaped=buffer.find("\\u", place, stop) >= 0))
                    place = stop
                    continue
            elif whole:
                if listed:
                    raise DataError(
                        f"{source.name} ends within its list of records; it may be cut short: copy it again"
                    )
                return
            more = text.read(max(_PIECE, len(buffer) - place))
            buffer, place, whole = buffer[place:] + more, 0, not more


def _csv(source: RecordFile) -> Iterator[FileRecord]:
    csv.field_size_limit(LONGEST)
    lines = _decoded_lines(source)
    first = next(lines, "")
    rows = csv.reader(itertools.chain([first], lines), delimiter=max(",\t;", key=first.count), strict=True)
    line = 1
    try:
        header = next(rows, [])
        if twice := [name for name, count in Counter(header).items() if count > 1]:
            raise DataError(f"{source.name}:1: two columns have the name '{printable(twice[0], 80)}'; rename one")
        line = rows.line_num + 1
        for row in rows:
            if len(row) == len(header):
                yield FileRecord(line, dict(zip(header, row, strict=True)))
            elif row:
                yield FileRecord(line, None, f"has {len(row)} values, but the header has {len(header)} names")
            line = rows.line_num + 1
    except csv.Error as error:
        raise DataError(f"{source.name}:{line}: is no CSV ({error}); correct its quotes") from error


def _decoded_lines(source: RecordFile) -> Iterator[str]:
    for number, line in _numbered(source):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{source.name}:{number}: is not UTF-8 (byte {error.start + 1}); {_UTF_8}") from error


def _rows(source: RecordFile, columns: Collection[str] | None, wanted: Wanted | None) -> Iterator[FileRecord]:
    table = _table(source)
    names = table.names if columns is None else [name for name in table.names if name in columns]
    first = 0
    for batch in table.batches(names):
        for start in range(0, batch.num_rows, _ROWS):
            rows = batch.slice(start, _ROWS)
            numbers = np.arange(first, first + rows.num_rows)
            first += rows.num_rows
            if wanted is not None:
                chosen = wanted[numbers]
                numbers, rows = numbers[chosen], rows.filter(arrow(source.path).array(chosen))
            yield from map(FileRecord, (numbers + 1).tolist(), rows.to_pylist())


class _Table(NamedTuple):
    """A table of pyarrow: the names of its columns, and a function from columns to batches of rows."""

    names: list[str]
    batches: Callable[[list[str]], Iterator[Any]]


def _table(source: RecordFile) -> _Table:
    pa = arrow(source.path)
    if source.form == PARQUET:
        from pyarrow import parquet

        # Group by group, without reading ahead: otherwise all groups that were read stay in memory.
        file = parquet.ParquetFile(source.path, buffer_size=_PIECE, pre_buffer=False)
        groups = range(file.num_row_groups)
        return _Table(
            file.schema_arrow.names,
            lambda names: itertools.chain.from_iterable(
                file.iter_batches(_ROWS, row_groups=[group], columns=names, use_threads=False) for group in groups
            ),
        )
    from pyarrow import ipc

    mapped = pa.memory_map(str(source.path))
    if source.form == STREAM:
        stream = ipc.open_stream(mapped)
        return _Table(stream.schema.names, lambda names: (batch.select(names) for batch in stream))
    reader = ipc.open_file(mapped)
    numbers = range(reader.num_record_batches)
    return _Table(reader.schema.names, lambda names: (reader.get_batch(at).select(names) for at in numbers))


_DECODE = msgspec.json.Decoder().decode
_JSON = json.JSONDecoder()
