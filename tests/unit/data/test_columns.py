"""Rows with columns: what is written comes back, and what does not fit a column is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barnraise.core.errors import DataError
from barnraise.core.types import Batches
from barnraise.data import shards
from barnraise.data.batches import batches
from barnraise.data.columns import MOST_COLUMNS, RowColumn
from barnraise.data.meta import MAX_SHARD_BYTES
from barnraise.data.shards import Dataset, Format, Meta

PICTURES = Format(
    kind="pictures",
    tokenizer="none",
    context=1,
    vocab_size=1,
    columns=(
        RowColumn(name="pixels", dtype="uint8", shape=(5, 3)),
        RowColumn(name="mask", dtype="bool", shape=(5, 3)),
        RowColumn(name="label", dtype="int64", below=10),
        RowColumn(name="weight", dtype="float32"),
    ),
)
CHATS = Format(
    kind="chat",
    tokenizer="bytes",
    context=13,
    vocab_size=300,
    columns=(
        RowColumn(name="tokens", dtype="token", shape=("length",)),
        RowColumn(name="trained", dtype="bool", shape=("length",)),
    ),
)


def pictures(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "pixels": rng.integers(0, 256, (count, 5, 3), np.uint8),
        "mask": rng.random((count, 5, 3)) < 0.5,
        "label": rng.integers(0, 10, count),
        "weight": rng.random(count).astype(np.float32),
    }


def chats(count: int, length: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(length)
    return {"tokens": rng.integers(0, 300, (count, length)), "trained": rng.random((count, length)) < 0.5}


def as_tuples(rows: Any) -> list[tuple[Any, ...]]:
    names = ("pixels", "mask", "label", "weight")
    return sorted(tuple(np.asarray(rows[name][n]).tobytes() for name in names) for n in range(len(rows["label"])))


def test_rows_of_several_columns_come_back_each_once(tmp_path: Path) -> None:
    given = pictures(50)
    shards.write(tmp_path / "d", PICTURES, [given], pictures(5, 1), shard_bytes=10 * PICTURES.row_bytes(1))
    dataset = Dataset.open(tmp_path / "d", verify=True)
    assert PICTURES.row_bytes(1) == 15 + 2 + 8 + 4
    assert [info.rows for info in dataset.meta.shards] == [10] * 5
    rows = np.concatenate([dataset.rows(number, 0, 10) for number in range(5)])
    assert as_tuples(rows) == as_tuples(given)
    assert rows["mask"].dtype == bool
    assert not dataset.rows(0, 0, 3).flags.writeable
    assert dataset.held_out(2)["pixels"].shape == (2, 5, 3)


def test_columns_as_long_as_the_row_follow_its_length(tmp_path: Path) -> None:
    few, many = chats(9, 6), chats(4, 13)
    shards.write(tmp_path / "d", CHATS, [few, many], chats(2, 13), lengths=(6, 13))
    dataset = Dataset.open(tmp_path / "d", verify=True)
    assert dataset.meta.lengths == (6, 13)
    assert CHATS.row_bytes(13) == 26 + 2
    for number, info in enumerate(dataset.meta.shards):
        rows = dataset.rows(number, 0, info.rows)
        given = {6: few, 13: many}[dataset.meta.row_length(info)]
        for row in rows:
            at = given["tokens"].tolist().index(row["tokens"].tolist())
            assert row["trained"].tolist() == given["trained"][at].tolist()


def test_the_description_of_text_names_no_columns(tmp_path: Path) -> None:
    text = Format(kind="text", tokenizer="bytes", context=8, vocab_size=300)
    shards.write(tmp_path / "d", text, [np.ones((3, 8), int)], np.ones((3, 8), int))
    assert "columns" not in json.loads((tmp_path / "d/meta.json").read_text())
    assert Dataset.open(tmp_path / "d").rows(0, 0, 3).dtype.names == ("tokens",)


def test_batches_of_rows_without_padding_are_whole(tmp_path: Path) -> None:
    shards.write(tmp_path / "d", CHATS, [chats(9, 13)], chats(2, 13))
    dataset = Dataset.open(tmp_path / "d")
    found = list(batches([dataset.rows(0, 0, 9)], Batches((), 4, 0), dataset.meta))
    assert sorted(len(batch["input_ids"]) for batch in found) == [1, 4, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": np.array([10, 1])}, "10 in column label, whose numbers are from 0 to 9"),
        ({"label": np.array([-1, 1])}, "-1 in column label"),
        ({"label": np.array([0.5, 1.0])}, "column label of float64 given, but it has int64"),
        ({"pixels": np.full((2, 5, 3), 256)}, "numbers 256 to 256 given for column pixels, which has uint8"),
        (
            {"pixels": np.zeros((2, 3, 5), np.uint8)},
            r"column pixels of shape \[2, 3, 5\] given, but it has \[2, 5, 3\]",
        ),
        ({"weight": np.zeros(3, np.float32)}, r"column weight of shape \[3\] given"),
        ({"mask": np.full((2, 5, 3), 2)}, "column mask of int64 given, but it has bool"),
        (
            {"other": np.zeros(2)},
            "rows with the columns .*other given, but the dataset has pixels, mask, label, weight",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        shards.write(tmp_path / "d", PICTURES, [pictures(2) | change], pictures(2))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "columns"),
        ([{"name": "a", "dtype": "uint8"}] * 2, "two columns have the same name"),
        ([{"name": f"c{n}", "dtype": "uint8"} for n in range(MOST_COLUMNS + 1)], "length <= 16"),
        ([{"name": "../a", "dtype": "uint8"}], "name"),
        ([{"name": "a", "dtype": "object"}], "object"),
        ([{"name": "a", "dtype": "uint8", "shape": [0]}], "shape"),
        ([{"name": "a", "dtype": "uint8", "shape": [1, 1, 1, 1, 1]}], "shape"),
        ([{"name": "a", "dtype": "uint8", "shape": ["width"]}], "shape"),
        ([{"name": "a", "dtype": "float32", "shape": [1 << 20, 1 << 20]}], f"may have {MAX_SHARD_BYTES}"),
        ([{"name": "a", "dtype": "float32", "below": 3}], "only integers may"),
        ([{"name": "a", "dtype": "uint8", "more": 1}], "more"),
        ([{"name": "a", "dtype": "uint8"}], "bytes for 20 rows of 1 bytes each"),
    ],
)
def test_hostile_columns_are_refused(tmp_path: Path, columns: list[dict[str, Any]], message: str) -> None:
    shards.write(tmp_path / "d", PICTURES, [pictures(20)], pictures(20))
    content = json.loads((tmp_path / "d/meta.json").read_text())
    with pytest.raises(DataError, match=message):
        Meta.decode(json.dumps(content | {"columns": columns}).encode())


def test_numbers_beyond_a_limit_in_a_file_are_refused_when_read(tmp_path: Path) -> None:
    meta = shards.write(tmp_path / "d", PICTURES, [pictures(20)], pictures(20))
    rows = np.fromfile(tmp_path / "d/train-00000.bin", meta.stored_type(1))
    rows["label"][7] = 10
    rows.tofile(tmp_path / "d/train-00000.bin")
    dataset = Dataset.open(tmp_path / "d")
    assert len(dataset.rows(0, 0, 7)) == 7
    with pytest.raises(DataError, match=r"train-00000\.bin holds 10 in column label, whose numbers are from 0 to 9"):
        dataset.rows(0, 0, 8)
