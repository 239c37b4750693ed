"""Files are found by pattern, in folders and in saved datasets, in an order that does not depend on the machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from barnraise.config.data_sections import ChatData
from barnraise.core.errors import DataError
from barnraise.data.gathering import peek
from barnraise.data.sources import only_text, sources_of

SAVED = (
    Path(__file__).parent / "saved_dataset"
)  # written by datasets 5.2: DatasetDict.save_to_disk, two shards of train
CHAT = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'


def section(*files: str, **keys: Any) -> ChatData:
    return ChatData.model_validate({"kind": "chat", "files": list(files), **keys})


def names(root: Path, *files: str, **keys: Any) -> dict[str, list[str]]:
    return {source.name: [file.name for file in source.files] for source in sources_of(section(*files, **keys), root)}


def fill(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(CHAT)


def test_files_come_in_the_order_of_the_patterns_and_of_their_paths(tmp_path: Path) -> None:
    fill(tmp_path, "b/2.jsonl", "b/1.jsonl", "a.jsonl", "c.jsonl")
    assert names(tmp_path, "c.jsonl", "b", "*.jsonl") == {"files": ["c.jsonl", "b/1.jsonl", "b/2.jsonl", "a.jsonl"]}


def test_held_out_files_are_not_trained_on(tmp_path: Path) -> None:
    fill(tmp_path, "b/2.jsonl", "b/1.jsonl")
    found = names(tmp_path, "b", held_out={"files": ["b/1.jsonl"]})
    assert found == {"held_out": ["b/1.jsonl"], "files": ["b/2.jsonl"]}


def test_a_folder_gives_its_train_split_and_only_records(tmp_path: Path) -> None:
    fill(tmp_path, "r/data/train-00000-of-00001.jsonl", "r/data/test-00000-of-00001.jsonl", "r/data/more.jsonl")
    (tmp_path / "r" / "README.md").write_text("# A dataset\n")
    (tmp_path / "r" / "dataset_infos.json").write_text("{}")
    fill(tmp_path, "s/test.jsonl", "s/latest.jsonl")
    assert names(tmp_path, "r") == {"files": ["r/data/more.jsonl", "r/data/train-00000-of-00001.jsonl"]}
    assert names(tmp_path, "r/data/test*") == {"files": ["r/data/test-00000-of-00001.jsonl"]}
    assert names(tmp_path, "s") == {"files": ["s/latest.jsonl", "s/test.jsonl"]}


def test_a_dataset_saved_by_datasets_is_read() -> None:
    found = [example.messages for example in peek(section("saved_dataset"), SAVED.parent)]
    assert [messages[0]["content"] for messages in found if messages] == [f"train {n}?" for n in range(7)]
    (first, *_) = peek(section("saved_dataset/test"), SAVED.parent)
    assert str(first.source) == "saved_dataset/test/data-00000-of-00001.arrow, row 1"
    assert first.messages == [{"role": "user", "content": "test 0?"}, {"role": "assistant", "content": "0!"}]


def test_a_saved_dataset_that_is_damaged_is_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(SAVED, tmp_path / "d")
    (folder / "train" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(
        DataError, match=r"d is not whole: data-00001-of-00002\.arrow is missing; copy the folder again"
    ):
        names(tmp_path, "d")
    (folder / "train" / "state.json").write_text("{")
    with pytest.raises(DataError, match=r"state\.json cannot be read .*; save the dataset again with save_to_disk"):
        names(tmp_path, "d")
    (folder / "dataset_dict.json").write_text('{"splits": ["test", "dev"]}')
    with pytest.raises(DataError, match="d has no split named train; name one itself: d/test, d/dev"):
        names(tmp_path, "d")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["b.jsonl"], "no file matches 'b.jsonl' "),
        (["story.txt"], "story.txt is plain text, which has no records; give JSONL, CSV, Parquet or Arrow"),
        (["texts"], "texts: no file with records; give JSONL, CSV, Parquet or Arrow files"),
        (["loop"], "'loop' is a link that leads nowhere or back to itself; name a file"),
    ],
)
def test_patterns_without_records_are_refused(tmp_path: Path, files: list[str], said: str) -> None:
    (tmp_path / "texts").mkdir()
    for name in ("story.txt", "texts/story.txt"):
        (tmp_path / name).write_text("Once upon a time.\n")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(DataError) as caught:
        names(tmp_path, *files)
    assert str(caught.value).startswith(said)


def test_it_is_known_whether_all_files_are_plain_text(tmp_path: Path) -> None:
    (tmp_path / "story.txt").write_text("Once upon a time.\n")
    fill(tmp_path, "a.jsonl")
    assert only_text(["story.txt"], tmp_path)
    assert not only_text(["story.txt", "a.jsonl"], tmp_path)
