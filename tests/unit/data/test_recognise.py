"""Files that are no text are recognised by what is in them; prose is text whatever it begins with."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from barnraise.core.errors import DataError
from barnraise.data import text
from barnraise.data.recognise import HEAD_BYTES, recognise

PROSE = "Once upon a time, there was a barn.\nIt had a roof, a door, and a floor.\n"
RECORDS = [{"text": f"line {number}, with a comma", "number": number} for number in range(20)]


def table(separator: str) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["text", "number"], delimiter=separator)
    writer.writeheader()
    writer.writerows(RECORDS)
    return out.getvalue()


def lines(records: list[dict[str, object]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def archive(write: Callable[[io.BytesIO], None]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def zipped(out: io.BytesIO) -> None:
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("story.txt", PROSE)


def tarred(out: io.BytesIO) -> None:
    with tarfile.open(fileobj=out, mode="w") as file:
        entry = tarfile.TarInfo("story.txt")
        entry.size = len(PROSE)
        file.addfile(entry, io.BytesIO(PROSE.encode()))


def database(folder: Path) -> bytes:
    with sqlite3.connect(folder / "base.db") as base:
        base.execute("CREATE TABLE story (text)")
    base.close()
    return (folder / "base.db").read_bytes()


STRUCTURED: list[tuple[str, str | bytes, str]] = [
    ("a.jsonl", lines(RECORDS), "JSON Lines"),
    ("a.txt", lines(RECORDS), "JSON Lines"),
    ("a.txt", "\ufeff" + lines(RECORDS).replace("\n", "\r\n"), "JSON Lines"),
    ("a.txt", lines(RECORDS[:1]), "a JSON record"),
    ("a.txt", lines(RECORDS) + "cut sh\n", "JSON Lines"),
    ("a.txt", lines([{"text": PROSE * 2000}] * 3), "a JSON document"),
    ("a.txt", lines([{"text": PROSE * 20}] * 100), "JSON Lines"),
    ("a.txt", "".join(json.dumps(["text", 1]) + "\n" for _ in range(9)), "JSON Lines"),
    ("a", json.dumps(RECORDS, indent=2), "a JSON document"),
    ("a.json", json.dumps(RECORDS * 1000, indent=2), "a JSON document"),
    ("a.json", json.dumps({"version": 1, "data": RECORDS}, indent=2), "a JSON document"),
    ("a.csv", "text\none\ntwo\n", "comma-separated values"),
    ("a.txt", table(","), "comma-separated values"),
    ("a.txt", table("\t"), "tab-separated values"),
    ("a.dat", table(";") * 1, "semicolon-separated values"),
    ("a.txt", "text,number\n" + '"line, one",1\n' * 9000, "comma-separated values"),
    ("a.txt", gzip.compress(PROSE.encode(), mtime=0), "compressed with gzip"),
    ("a.txt", bz2.compress(PROSE.encode()), "compressed with bzip2"),
    ("a.txt", lzma.compress(PROSE.encode()), "compressed with xz"),
    ("a.txt", archive(zipped), "a zip archive"),
    ("a.DOCX", archive(zipped), "a Word document"),
    ("a.txt", archive(tarred), "a tar archive"),
    ("a.txt", b"PAR1\x15\x04\x15\x10" + bytes(50) + b"PAR1", "a Parquet table"),
    ("a.parquet", b"PAR1", "a Parquet table"),
    ("a.txt", b"ARROW1\x00\x00" + bytes(50), "an Arrow file"),
    ("a.txt", b"\xff\xff\xff\xff\x10\x00\x00\x00" + bytes(50), "an Arrow stream"),
    ("a.txt", b"%PDF-1.7\n1 0 obj\n<< >>\nendobj\n", "a PDF document"),
    ("a.txt", archive(lambda out: np.save(out, np.ones(9))), "a NumPy array"),
]


@pytest.mark.parametrize(("name", "content", "what"), STRUCTURED, ids=lambda value: str(value)[:24])
def test_files_that_are_no_text_are_recognised(tmp_path: Path, name: str, content: str | bytes, what: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    found = recognise(path)
    assert found is not None
    assert found.what == what
    with pytest.raises(DataError, match=f"{name} is {what}, which would be trained on as if it were prose; "):
        text.build(tmp_path / "out", [path], context=8)


def test_a_database_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(database(tmp_path))
    assert str(recognise(tmp_path / "a.txt")).startswith("an SQLite database")


@pytest.mark.parametrize(
    "content",
    [
        PROSE,
        '{ "Curly," he said } ' + PROSE,
        '{"a": 1} is how a record is written.\n' + PROSE,
        '{"a": 1}\n' + PROSE * 10,
        "[1] A footnote.\n[2] Another.\n",
        "[1]\n[2]\n[3]\n",
        "{{ template }}\n" + PROSE,
        "[Enter Hamlet]\n" + PROSE,
        "Roses are red, violets are blue\nSugar is sweet, and so are you\nAnd so on, and so on\n",
        "one,two\nthree, four\nfive\n",
        "1,2,3\n" * 100,
        "ORCHARDS are trees.\n" + PROSE,
        "BZh9 was the key.\n" + PROSE,
        "def f(a, b):\n\treturn a\n\ndef g(a, b):\n\treturn b\n",
        "name,value\n",
        "# Title\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
        "<html><body>" + PROSE + "</body></html>",
        "語" * (HEAD_BYTES // 3 + 7),
        "",
    ],
    ids=lambda value: value[:24],
)
def test_prose_is_text(tmp_path: Path, content: str) -> None:
    (tmp_path / "story.txt").write_text(content)
    assert recognise(tmp_path / "story.txt") is None


def test_a_folder_names_the_first_file_and_counts_the_others(tmp_path: Path) -> None:
    (tmp_path / "story.txt").write_text(PROSE * 100)
    for number in range(3):
        (tmp_path / f"x{number}.jsonl").write_text(lines([{"text": str(number)}] * 5))
    with pytest.raises(DataError, match=r"x0\.jsonl is JSON Lines, .* \(and 2 more files that are no text\)"):
        text.find([tmp_path])
    assert len(text.find([f"{tmp_path}/*.txt"])) == 1
