"""Token shards: what is written comes back, what was tampered with is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from barnraise.core.errors import DataError
from barnraise.data import shards
from barnraise.data.shards import Dataset, Format, Meta, Targets

CONTEXT = 8


def make(folder: Path, *, rows: int = 50, vocab: int = 300, seed: int = 0, shard_bytes: int = 200) -> Meta:
    form = Format(kind="text", tokenizer="bytes", context=CONTEXT, vocab_size=vocab, pad_id=0)
    train = np.arange(rows * CONTEXT).reshape(rows, CONTEXT) % vocab
    held_out = np.full((5, CONTEXT), 7) + np.arange(5)[:, None]
    chunks = iter([train[:20], train[20:20], train[20:]])
    return shards.write(
        folder, form, chunks, held_out, files={"tokenizer.json": b"{}"}, seed=seed, shard_bytes=shard_bytes
    )


def all_rows(dataset: Dataset) -> np.ndarray:
    parts = [dataset.rows(number, 0, info.rows) for number, info in enumerate(dataset.meta.shards)]
    return np.concatenate(parts)["tokens"]


def test_rows_come_back_shuffled_each_exactly_once(tmp_path: Path) -> None:
    make(tmp_path / "d")
    dataset = Dataset.open(tmp_path / "d", verify=True)
    original = np.arange(50 * CONTEXT).reshape(50, CONTEXT) % 300
    found = all_rows(dataset)
    assert dataset.num_rows == len(found) == 50
    assert not np.array_equal(found, original)
    assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, original.tolist()))
    assert sorted(dataset.held_out()["tokens"][:, 0].tolist()) == [7, 8, 9, 10, 11]
    assert np.array_equal(dataset.held_out(2), dataset.held_out()[:2])
    assert max(info.bytes for info in dataset.meta.shards) <= 200


@pytest.mark.parametrize(("vocab", "dtype"), [(1 << 16, "uint16"), ((1 << 16) + 1, "uint32")])
def test_dtype_is_the_smallest_that_holds_the_vocabulary(tmp_path: Path, vocab: int, dtype: str) -> None:
    form = Format(kind="text", tokenizer="bytes", context=CONTEXT, vocab_size=vocab)
    top = np.full((3, CONTEXT), vocab - 1)
    meta = shards.write(tmp_path / "d", form, [top], top)
    assert meta.dtype == dtype
    rows = Dataset.open(tmp_path / "d").rows(0, 0, 3)["tokens"]
    assert rows.dtype == dtype
    assert (rows == vocab - 1).all()


def test_same_seed_same_bytes_other_seed_other_order(tmp_path: Path) -> None:
    first, again, other = make(tmp_path / "a"), make(tmp_path / "b"), make(tmp_path / "c", seed=1)
    assert first == again
    assert first.shards != other.shards


def test_a_worker_gets_by_with_the_listed_files(tmp_path: Path) -> None:
    make(tmp_path / "d")
    there = tmp_path / "there"
    there.mkdir()
    for info in Dataset.open(tmp_path / "d").files():
        content = (tmp_path / "d" / info.name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (info.bytes, info.sha256)
        (there / info.name).write_bytes(content)
    assert np.array_equal(all_rows(Dataset.open(there, verify=True)), all_rows(Dataset.open(tmp_path / "d")))


def test_partial_opens_without_the_shards_and_names_the_missing_one(tmp_path: Path) -> None:
    make(tmp_path / "d")
    (tmp_path / "d" / "train-00001.bin").unlink()
    with pytest.raises(DataError, match=r"train-00001\.bin is missing"):
        Dataset.open(tmp_path / "d")
    dataset = Dataset.open(tmp_path / "d", partial=True)
    assert len(dataset.rows(0, 0, 2)) == 2
    with pytest.raises(DataError, match=r"train-00001\.bin is missing"):
        dataset.rows(1, 0, 2)


def test_many_shards_are_read_with_few_mappings(tmp_path: Path) -> None:
    make(tmp_path / "d", rows=200, shard_bytes=CONTEXT * 2)
    dataset = Dataset.open(tmp_path / "d")
    kept = dataset.rows(0, 0, 1)["tokens"]
    before = kept.tolist()
    assert len(dataset.meta.shards) == len(all_rows(dataset)) == 200
    assert len(dataset._maps) <= 64
    assert kept.tolist() == before


def test_a_failed_write_leaves_the_old_dataset_and_a_good_one_replaces_it(tmp_path: Path) -> None:
    old = make(tmp_path / "d")
    form = Format(kind="text", tokenizer="bytes", context=CONTEXT, vocab_size=10)
    with pytest.raises(DataError, match="no training row of 8 tokens"):
        shards.write(tmp_path / "d", form, [], np.zeros((1, CONTEXT), int))
    with pytest.raises(DataError, match="no held-out row of 8 tokens"):
        shards.write(tmp_path / "d", form, [np.zeros((1, CONTEXT), int)], np.zeros((0, CONTEXT), int))
    assert Dataset.open(tmp_path / "d", verify=True).meta == old
    new = make(tmp_path / "d", seed=3)
    assert Dataset.open(tmp_path / "d", verify=True).meta == new != old
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_other_peoples_files_are_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("chapter 1")
    with pytest.raises(DataError, match=r"holds other files \(thesis\.tex\); give an empty or new folder"):
        make(tmp_path)
    make(tmp_path / "d")
    (tmp_path / "d" / "notes").write_text("mine")
    with pytest.raises(DataError, match="notes"):
        make(tmp_path / "d")
    (tmp_path / "d" / "meta.json").write_text("[]")
    with pytest.raises(DataError, match=r"holds other files \(meta\.json\); give an empty or new folder"):
        make(tmp_path / "d")


def test_writing_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="check the path and its permissions"):
        make(tmp_path / "file" / "d")


@pytest.mark.parametrize("bad", [-1, 10])
def test_token_ids_outside_the_vocabulary_are_refused(tmp_path: Path, bad: int) -> None:
    form = Format(kind="text", tokenizer="bytes", context=2, vocab_size=10)
    with pytest.raises(DataError, match="the vocabulary has 10"):
        shards.write(tmp_path / "d", form, [np.array([[0, bad]])], np.zeros((1, 2), int))
    with pytest.raises(DataError, match="rows of 2 tokens"):
        shards.write(tmp_path / "d", form, [np.zeros((1, 3), int)], np.zeros((1, 2), int))


def test_tampered_files_are_noticed(tmp_path: Path) -> None:
    make(tmp_path / "d")
    shard = tmp_path / "d" / "train-00000.bin"
    content = shard.read_bytes()
    shard.write_bytes(b"\x01" + content[1:])
    Dataset.open(tmp_path / "d")
    with pytest.raises(DataError, match=r"train-00000\.bin does not match its sha256"):
        Dataset.open(tmp_path / "d", verify=True)
    shard.write_bytes(b"\xff\xff" + content[2:])
    with pytest.raises(DataError, match="token id 65535, but the vocabulary has 300"):
        Dataset.open(tmp_path / "d").rows(0, 0, 1)
    shard.write_bytes(content[:-2])
    with pytest.raises(DataError, match=r"train-00000\.bin has \d+ bytes, but meta\.json says"):
        Dataset.open(tmp_path / "d")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context": 1 << 30}, "context"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"vocab_size": 70_000}, "dtype is uint16"),
        ({"dtype": "object"}, "dtype"),
        ({"pad_id": 300}, "special token 300 is outside the vocabulary of 300"),
        ({"targets": {"after": 4, "until": 4}}, "same token 4"),
        ({"targets": {"after": 4, "until": 900}}, "special token 900"),
        ({"held_out": {"name": "../../etc/passwd", "rows": 5, "bytes": 80, "sha256": "0" * 64}}, "refused"),
        ({"held_out": {"name": ".bashrc", "rows": 5, "bytes": 80, "sha256": "0" * 64}}, "refused"),
        ({"held_out": {"name": "a\n", "rows": 5, "bytes": 80, "sha256": "0" * 64}}, "refused"),
        ({"held_out": {"name": "held_out.bin", "rows": 5, "bytes": 81, "sha256": "0" * 64}}, "81 bytes for 5 rows"),
        ({"held_out": {"name": "held_out.bin", "rows": 5, "bytes": 80, "sha256": "0" * 64 + "\n"}}, "sha256"),
        ({"held_out": {"name": "meta.json", "rows": 5, "bytes": 80, "sha256": "0" * 64}}, "same name"),
        ({"files": [{"name": "x", "rows": 0, "bytes": 1 << 40, "sha256": "0" * 64}]}, "a file may have"),
        ({"surprise": 1}, "surprise"),
        ({"version": 2}, "version"),
    ],
)
def test_hostile_descriptions_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    make(tmp_path / "d")
    honest = json.loads((tmp_path / "d" / "meta.json").read_text())
    Meta.decode(json.dumps(honest).encode())
    with pytest.raises(DataError, match=message):
        Meta.decode(json.dumps(honest | change).encode())


def test_a_folder_that_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not a dataset: it has no meta\.json; make one with `barnraise data`"):
        Dataset.open(tmp_path)
    (tmp_path / "meta.json").write_bytes(b"\xff\x00")
    with pytest.raises(DataError, match="not a dataset's description"):
        Dataset.open(tmp_path)


@pytest.mark.parametrize(("shard", "start", "stop"), [(-1, 0, 1), (99, 0, 1), (0, 0, 13), (0, 3, 3), (0, -1, 2)])
def test_rows_that_do_not_exist(tmp_path: Path, shard: int, start: int, stop: int) -> None:
    make(tmp_path / "d")
    with pytest.raises(DataError, match="asked for"):
        Dataset.open(tmp_path / "d").rows(shard, start, stop)


def test_labels_of_regions() -> None:
    after, until, pad = 1, 2, 0
    form = Format(
        kind="sat",
        tokenizer="sat",
        context=10,
        vocab_size=10,
        pad_id=pad,
        targets=Targets(after=after, until=until),
    )
    rows = np.array([[5, 1, 6, 7, 2, 5, 1, 8, 2, 0], [2, 5, 1, 1, 9, 0, 0, 0, 0, 0]], dtype=np.uint16)
    n = shards.IGNORED
    assert shards.labels(rows, form).tolist() == [
        [n, n, 6, 7, 2, n, n, 8, 2, n],
        [n, n, n, 1, 9, n, n, n, n, n],
    ]
    plain = Format(kind="text", tokenizer="bytes", context=10, vocab_size=10, pad_id=0)
    assert shards.labels(rows, plain)[1].tolist() == [2, 5, 1, 1, 9, n, n, n, n, n]
