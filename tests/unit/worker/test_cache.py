"""The files that a worker keeps: right, whole, and no more of them than its owner lends disk for."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from barnraise.core.errors import StorageError
from barnraise.core.types import Blob
from barnraise.worker.cache import Cache, delete

CONTENTS = [bytes([number]) * 100 for number in range(6)]


def blob(content: bytes) -> Blob:
    return Blob(hashlib.sha256(content).hexdigest(), len(content))


def cache(folder: Path, limit: float) -> Cache:
    made = Cache(limit)
    for number, content in enumerate(CONTENTS):
        made.place(blob(content).digest, folder / str(number))
    return made


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def test_the_least_recently_used_blob_is_deleted(tmp_path: Path) -> None:
    kept, deleted = cache(tmp_path, 320.0), list[str]()
    kept.on_deleted = deleted.append
    for content in CONTENTS[:3]:
        assert not kept.holds(blob(content))
        kept.keep(blob(content).digest, content)
    assert kept.holds(blob(CONTENTS[0]))
    kept.keep(blob(CONTENTS[3]).digest, CONTENTS[3])
    assert deleted == ["1"]
    assert sizes(tmp_path) == {"0": 100, "2": 100, "3": 100}
    assert not kept.holds(blob(CONTENTS[1])), "it would be fetched again"


def test_files_of_an_earlier_process_count(tmp_path: Path) -> None:
    for content in CONTENTS[:4]:
        cache(tmp_path, 400.0).keep(blob(content).digest, content)
    later = cache(tmp_path, 250.0)
    assert all(later.holds(blob(content)) for content in CONTENTS[2:4])
    later.keep(blob(CONTENTS[4]).digest, CONTENTS[4])
    assert sizes(tmp_path) == {"3": 100, "4": 100}


@pytest.mark.parametrize("content", [b"", CONTENTS[0][:50], b"x" * 100, CONTENTS[0] + b"x"])
def test_a_file_that_is_not_right_is_as_good_as_absent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "0").write_bytes(content)
    found = cache(tmp_path, 250.0)
    assert not found.holds(blob(CONTENTS[0]))
    found.keep(blob(CONTENTS[0]).digest, CONTENTS[0])
    assert found.holds(blob(CONTENTS[0]))
    assert sizes(tmp_path) == {"0": 100}


def test_a_disk_that_takes_no_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    with pytest.raises(StorageError, match=r"0 cannot be written \(Is a directory\): free some space"):
        cache(tmp_path, 250.0).keep(blob(CONTENTS[0]).digest, CONTENTS[0])
    with pytest.raises(StorageError, match=r"a file of the run has 100 B, but 99 B are lent .* \(--max-disk\)"):
        cache(tmp_path, 99.0).keep(blob(CONTENTS[1]).digest, CONTENTS[1])


def test_nothing_stays_of_a_run_that_is_over(tmp_path: Path) -> None:
    folder, moments, keys = tmp_path / "data", tmp_path / "moments", tmp_path / "keys"
    folder.mkdir()
    cache(folder, 400.0).keep(blob(CONTENTS[0]).digest, CONTENTS[0])
    for path in (moments, keys):
        path.touch()
    delete(folder, moments)
    assert list(tmp_path.iterdir()) == [keys]
    delete(folder, moments)


def test_a_copy_elsewhere_is_adopted_by_its_digest(tmp_path: Path) -> None:
    content = b"the parameters of a base model"
    blob = Blob(hashlib.sha256(content).hexdigest(), len(content))
    cache = Cache()
    cache.place(blob.digest, tmp_path / "place")
    cache.own = tmp_path / "not there"
    assert not cache.holds(blob)
    cache.own = tmp_path / "own"
    cache.own.mkdir()
    (cache.own / "folder").mkdir()
    assert not cache.holds(blob)
    (cache.own / "other.safetensors").write_bytes(b"the parameters of a case model")
    assert not cache.holds(blob), "as long, but another model"
    (cache.own / "whole.safetensors").write_bytes(content)
    assert cache.holds(blob)
    assert (tmp_path / "place").read_bytes() == content
    assert cache.holds(blob)
    cache.keep(blob.digest, content)
    assert (tmp_path / "own" / "whole.safetensors").read_bytes() == content, "the owner's file stays"


def test_files_of_the_same_content_are_all_there(tmp_path: Path) -> None:
    """Rows that are all alike: the shard and the held-out rows have one digest."""
    content = b"the same rows"
    blob = Blob(hashlib.sha256(content).hexdigest(), len(content))
    cache = Cache()
    for name in ("train-00000.bin", "held_out.bin"):
        cache.place(blob.digest, tmp_path / name)
    assert not cache.holds(blob)
    cache.keep(blob.digest, content)
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == [content, content]
    again = Cache()
    for name in ("train-00000.bin", "held_out.bin"):
        again.place(blob.digest, tmp_path / name)
    (tmp_path / "held_out.bin").unlink()
    assert again.holds(blob)
    assert (tmp_path / "held_out.bin").read_bytes() == content
