"""Downloads to the disk: any order of chunks, a cut at any byte, wrong bytes."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from barnraise.core.errors import StorageError, WireError
from barnraise.core.types import Blob
from barnraise.wire.downloads import WrongDigestError
from barnraise.wire.file_downloads import FileDownload

CONTENT = random.Random(5).randbytes(1000)
BLOB = Blob(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
CHUNK = 64


def download(path: Path) -> FileDownload:
    return FileDownload(BLOB, path, limit=1000, chunk=CHUNK, window=4)


def answered(found: FileDownload, content: bytes, count: int, rng: random.Random) -> list[int]:
    """Answer `count` requests in any order, and return the offsets."""
    asked, offsets = list[tuple[int, int]](), list[int]()
    while len(offsets) < count:
        asked += found.requests(0.0)
        if not asked:
            break
        offset, size = asked.pop(rng.randrange(len(asked)))
        offsets.append(offset)
        found.add(offset, content[offset : offset + size], 0.0)
    return offsets


@pytest.mark.parametrize("seed", range(5))
def test_chunks_may_come_in_any_order(tmp_path: Path, seed: int) -> None:
    found = download(tmp_path / "part")
    answered(found, CONTENT, 100, random.Random(seed))
    assert found.complete
    found.move(tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == CONTENT
    assert not (tmp_path / "part").exists()


@pytest.mark.parametrize("there", [0, 1, 63, 64, 65, 512, 959, 960, 999, 1000, 2000])
def test_it_continues_after_a_cut_at_any_byte(tmp_path: Path, there: int) -> None:
    (tmp_path / "part").write_bytes((CONTENT + bytes(1000))[:there])
    found = download(tmp_path / "part")
    if there == 2000:
        assert found.num_there == 960, "what is behind the blob is cut off"
    offsets = answered(found, CONTENT, 100, random.Random(there))
    assert found.complete
    assert min(offsets, default=1000) >= there // CHUNK * CHUNK or there == 2000
    found.move(tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == CONTENT


def test_a_process_that_ends_leaves_what_came_in_order(tmp_path: Path) -> None:
    first = download(tmp_path / "part")
    asked = first.requests(0.0)
    for offset, size in (asked[0], asked[1], asked[3]):
        first.add(offset, CONTENT[offset : offset + size], 0.0)
    assert first.num_there == 2 * CHUNK
    first.close()
    second = download(tmp_path / "part")
    assert second.num_there == 2 * CHUNK
    assert second.requests(0.0)[0] == (2 * CHUNK, CHUNK)


def test_wrong_bytes_are_fetched_again_from_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(bytes(640))
    found = download(tmp_path / "part")
    with pytest.raises(WrongDigestError):
        answered(found, CONTENT, 100, random.Random(1))
    assert found.num_there == 0
    answered(found, CONTENT, 100, random.Random(1))
    assert found.complete


def test_a_whole_file_of_other_bytes_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(bytes(1000))
    assert download(tmp_path / "part").num_there == 0


def test_a_chunk_that_was_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(WireError, match="not asked for"):
        download(tmp_path / "part").add(0, CONTENT[:CHUNK], 0.0)
    with pytest.raises(WireError, match="at most 10"):
        FileDownload(BLOB, tmp_path / "other", limit=10)


def test_a_folder_that_is_not_there_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        download(tmp_path / "none" / "part")
