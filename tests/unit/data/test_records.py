"""Records of every form of file come back as they were written; a fault names its line or row."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

from barnraise.core.errors import DataError
from barnraise.data.records import FileRecord, record_file

RECORDS: list[dict[str, Any]] = [{"text": f'line {n}, "quoted"\nand é 語', "number": n} for n in range(700)]


def lines(path: Path) -> None:
    path.write_text("\n\n".join(json.dumps(record) for record in RECORDS))


def array(path: Path) -> None:
    path.write_text(json.dumps(RECORDS, indent=2, ensure_ascii=False))


def sequence(path: Path) -> None:
    path.write_text("\n".join(json.dumps(record, indent=2) for record in RECORDS))


def arrow_file(path: Path) -> None:
    table = pa.Table.from_pylist(RECORDS)
    with ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=300)


def arrow_stream(path: Path) -> None:
    table = pa.Table.from_pylist(RECORDS)
    with pa.OSFile(str(path), "wb") as out, ipc.new_stream(out, table.schema) as file:
        file.write_table(table, max_chunksize=300)


def zstd(path: Path) -> None:
    lines(path)
    content = path.read_bytes()
    with pa.CompressedOutputStream(str(path), "zstd") as file:
        file.write(content)


def gzipped(write: Callable[[Path], None]) -> Callable[[Path], None]:
    def pack(path: Path) -> None:
        write(path)
        path.write_bytes(gzip.compress(path.read_bytes()))

    return pack


def one_line(path: Path) -> None:
    path.write_text(json.dumps(RECORDS))


def table(separator: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["text", "number"], delimiter=separator)
            writer.writeheader()
            writer.writerows(RECORDS)

    return write


WRITERS = [
    ("a.jsonl", lines),
    ("a.ndjson", lines),
    ("a.txt", lines),
    ("a.json", array),
    ("a.json", sequence),
    ("a.csv", table(",")),
    ("a.csv", table(";")),
    ("a.tsv", table("\t")),
    ("a.parquet", lambda path: parquet.write_table(pa.Table.from_pylist(RECORDS), path, row_group_size=300)),
    ("a.arrow", arrow_file),
    ("a.arrow", arrow_stream),
    ("a.feather", lambda path: feather.write_feather(pa.Table.from_pylist(RECORDS), path)),
    ("a.json", one_line),
    ("a.jsonl.gz", gzipped(lines)),
    ("a.json.gz", gzipped(array)),
    ("a.tsv.gz", gzipped(table("\t"))),
    ("a.jsonl.zst", zstd),
]


def read(path: Path, **options: Any) -> list[FileRecord]:
    file = record_file(path, path.name)
    assert file is not None
    return list(file.read(**options))


@pytest.mark.parametrize(("name", "write"), WRITERS, ids=[f"{name}-{at}" for at, (name, _) in enumerate(WRITERS)])
def test_records_come_back_and_some_may_be_passed_over(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / name)
    found = read(tmp_path / name)
    assert [record.fault for record in found] == [""] * len(RECORDS)
    as_text = [{key: str(value) for key, value in record.items()} for record in RECORDS]
    assert [record.fields for record in found] == (as_text if name[2:5] in ("csv", "tsv") else RECORDS)
    wanted = np.array([record["number"] % 7 == 3 for record in RECORDS])
    assert read(tmp_path / name, wanted=wanted) == found[3::7]


def test_records_are_counted_by_lines_and_rows(tmp_path: Path) -> None:
    for name, write in dict(WRITERS).items():
        write(tmp_path / name)
    numbers = {name: [record.number for record in read(tmp_path / name)][:3] for name in dict(WRITERS)}
    assert numbers["a.jsonl"] == [1, 3, 5]
    assert numbers["a.csv"] == [2, 4, 6]
    assert numbers["a.json"] == numbers["a.parquet"] == numbers["a.arrow"] == [1, 2, 3]
    units = {name: file.unit for name in dict(WRITERS) if (file := record_file(tmp_path / name, name))}
    assert (units["a.jsonl"], units["a.csv"], units["a.json"], units["a.parquet"]) == ("line", "line", "record", "row")


def test_a_table_is_read_in_the_named_columns_alone(tmp_path: Path) -> None:
    for name, write in WRITERS[8:11]:
        write(tmp_path / name)
        file = record_file(tmp_path / name, name)
        assert file is not None
        assert file.columns() == ["text", "number"]
        assert read(tmp_path / name, columns={"number", "other"})[5] == FileRecord(6, {"number": 5})


def test_plain_text_and_empty_files_have_no_records(tmp_path: Path) -> None:
    (tmp_path / "story.txt").write_text("Once upon a time.\n")
    (tmp_path / "empty.jsonl").touch()
    assert record_file(tmp_path / "story.txt", "story.txt") is None
    assert record_file(tmp_path / "empty.jsonl", "empty.jsonl") is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"text": "a"', "is no JSON (Expecting ',' delimiter at character 14)"),
        (b"text", "is no JSON (Expecting value at character 1)"),
        (b'{"text": "\xe9"}', "is not UTF-8 (byte 11); `iconv -f latin1 -t utf-8 FILE > NEW` converts it"),
        (b'["text"]', 'is a list, but must be a record such as {"text": "..."}'),
        (b'"text"', "is text, but must be a record"),
        (b"null", "is null, but must be a record"),
        (b"7", "is a number or truth value, but must be a record"),
        (b'{"text": "\\ud800"}', "has half of a character, '\\ud800'"),
        (b"[" * 9000, "is nested too deeply"),
        (b'{"number": ' + b"9" * 5000 + b"}", "is no JSON (Exceeds the limit"),
    ],
    ids=range(10),
)
def test_a_bad_line_is_a_fault_of_its_own(tmp_path: Path, line: bytes, why: str) -> None:
    good = b'{"text": "good", "score": NaN}\n'
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + good + line + b"\n" + good)
    first, bad, last = read(tmp_path / "a.jsonl")
    assert first.fields is not None
    assert last.fields is not None
    assert (bad.number, bad.fields) == (2, None)
    assert bad.fault.startswith(why)


def test_a_row_of_another_length_is_a_fault_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,number\n"two\nlines",1\nx,2,3\n\ny,4\n')
    assert read(tmp_path / "a.csv") == [
        FileRecord(2, {"text": "two\nlines", "number": "1"}),
        FileRecord(4, None, "has 3 values, but the header has 2 names"),
        FileRecord(6, {"text": "y", "number": "4"}),
    ]


CUT = gzip.compress(b'{"text": "a"}\n' * 99999)[:-60]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b'[{"text": "a"}, {"text": ]', r"a\.json, record 2: is no JSON \(Expecting value\); correct it"),
        ("a.json", b'[{"text": "a"}', r"a\.json ends within its list of records; it may be cut short: copy it again"),
        ("a.json", b"[" + b"[" * 9000, r"a\.json, record 1: is no JSON \(it is nested too deeply\)"),
        ("a.json", b'[{"text": "\xe9"}]', r"a\.json is not UTF-8 \(invalid continuation byte\)"),
        ("a.jsonl", '{"text": "a"}\n'.encode("utf-16"), r"a\.jsonl is UTF-16; `iconv -f utf-16 -t utf-8 FILE > NEW`"),
        ("a.csv", b"text,number\na,1\n\xe9,2\n", r"a\.csv:3: is not UTF-8 \(byte 1\)"),
        ("a.csv", b'text,number\na,1\n"b,2\n', r"a\.csv:3: is no CSV \(unexpected end of data\); correct its quotes"),
        ("a.csv", b"text,text\na,1\n", r"a\.csv:1: two columns have the name 'text'; rename one"),
        ("a.parquet", b"PAR1" + bytes(40), r"a\.parquet cannot be read as Parquet \(.*\); it may be cut short"),
        ("a.arrow", b"ARROW1\x00\x00" + bytes(40), r"a\.arrow cannot be read as Arrow \(.*\); it may be cut short"),
        ("a.jsonl.gz", CUT, r"a\.jsonl\.gz cannot be read as JSON lines \(.*cut short"),
        ("a.pdf", b"%PDF-1.7\n", r"a\.pdf is a PDF document, which cannot be read; extract the text"),
        ("a.feather", b"FEA1" + bytes(40), r"a\.feather is a Feather table of the first version"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_on_is_an_error(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        read(tmp_path / name)


def test_a_line_that_is_too_long_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnraise.data.records.LONGEST", 1 << 20)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a" * (1 << 20)}))
    with pytest.raises(DataError, match=r"a\.jsonl:1: the line has more than 1 MiB; cut it into several records"):
        read(tmp_path / "a.jsonl")
