"""Segment files: what is in them, what is torn, what is damaged, and that they go away."""

from __future__ import annotations

import array
import errno
import random
from pathlib import Path

import pytest

from barnraise.core.errors import CorruptionError
from barnraise.ledger import segments as module
from barnraise.ledger.segments import HEADER_BYTES, Position, Segments

NOTHING = Position(0, 0)


def content(assignment: int, num_bytes: int | None = None) -> bytes:
    generator = random.Random(assignment)
    return generator.randbytes(generator.randrange(2000) if num_bytes is None else num_bytes)


def write(directory: Path, assignments: range, **options: int) -> Position:
    segments = Segments(directory, NOTHING, **options)
    for assignment in assignments:
        position = segments.append({assignment: content(assignment)})
    segments.close()
    return position


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_payloads_come_back_now_and_after_reopening(tmp_path: Path) -> None:
    segments = Segments(tmp_path, NOTHING, segment_bytes=5000)
    assert segments.append({}) == NOTHING
    position = segments.append({k: content(k) for k in range(1, 20)})
    position = segments.append({k: content(k) for k in range(20, 30)})
    segments.append({30: content(30)})  # not journaled: the next process must not see it
    assert [segments.read(k) for k in range(1, 31)] == [content(k) for k in range(1, 31)]
    assert len(files(tmp_path)) == 3
    again = Segments(tmp_path, position)
    assert [again.read(k) for k in range(1, 30)] == [content(k) for k in range(1, 30)]
    assert 30 not in again


@pytest.mark.parametrize(
    "payload", [b"", b"x", bytearray(b"abc"), memoryview(array.array("f", [1.0, -2.0])), memoryview(array.array("d"))]
)
def test_any_buffer_will_do(tmp_path: Path, payload: bytes | bytearray | memoryview) -> None:
    segments = Segments(tmp_path, NOTHING)
    position = segments.append({1: payload, 2: b"neighbour"})
    assert Segments(tmp_path, position).read(1) == bytes(payload)
    assert segments.read(2) == b"neighbour"


def test_more_buffers_than_one_system_call_takes(tmp_path: Path) -> None:
    segments = Segments(tmp_path, NOTHING)
    segments.append({k: b"%d" % k for k in range(3000)})
    assert [segments.read(k) for k in range(3000)] == [b"%d" % k for k in range(3000)]


def test_appending_again_what_is_there_writes_nothing(tmp_path: Path) -> None:
    segments = Segments(tmp_path, NOTHING)
    position = segments.append({1: b"same", 2: b"old"})
    assert segments.append({1: b"same"}) == position
    after = segments.append({1: b"same", 2: b"new"})
    assert after.offset == position.offset + HEADER_BYTES + 3
    again = Segments(tmp_path, after)
    assert (segments.read(2), again.read(2), len(again)) == (b"new", b"new", 2)


def test_a_file_goes_when_all_its_records_are_forgotten(tmp_path: Path) -> None:
    segments = Segments(tmp_path, NOTHING, segment_bytes=100)
    for k in range(1, 5):
        segments.append({k: content(k, 200)})
    names = [f"{number:08d}.seg" for number in range(1, 5)]
    assert files(tmp_path) == names
    segments.forget([2, 77])
    assert files(tmp_path) == [names[0], *names[2:]]
    segments.forget([4])
    assert files(tmp_path) == [names[0], *names[2:]]  # the one being written stays
    position = segments.append({5: b"x"})
    assert files(tmp_path) == [names[0], names[2], "00000005.seg"]
    again = Segments(tmp_path, position)
    again.retain([5])
    assert files(tmp_path) == ["00000005.seg"]
    with pytest.raises(CorruptionError, match="payload of contribution 1 is missing"):
        again.read(1)


def test_disk_and_index_stay_flat_over_many_contributions(tmp_path: Path) -> None:
    segments = Segments(tmp_path, NOTHING, segment_bytes=100_000)
    payload, largest = bytes(200), 0
    for first in range(0, 100_000, 1000):
        segments.append(dict.fromkeys(range(first, first + 1000), payload))
        segments.forget(range(first - 2000, first - 1000))
        largest = max(largest, sum(path.stat().st_size for path in tmp_path.iterdir()))
        assert len(segments) <= 2000
    assert largest <= 1_000_000


@pytest.mark.parametrize("keep", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 5])
def test_a_torn_tail_is_dropped(tmp_path: Path, keep: int) -> None:
    position = write(tmp_path, range(1, 10))
    path = tmp_path / "00000001.seg"
    record = path.read_bytes()[: HEADER_BYTES + 50]
    with path.open("ab") as file:
        file.write(record[:keep])
    segments = Segments(tmp_path, position)
    assert path.stat().st_size == position.offset
    assert len(segments) == 9
    after = segments.append({10: b"goes on"})
    assert after == Position(2, HEADER_BYTES + 7)
    assert Segments(tmp_path, after).read(10) == b"goes on"


def test_a_file_that_nothing_acknowledged_mentions_is_dropped(tmp_path: Path) -> None:
    position = write(tmp_path, range(1, 10))
    (tmp_path / "00000002.seg").write_bytes(b"torn")
    (tmp_path / "notes.seg").write_bytes(b"not ours")
    segments = Segments(tmp_path, position)
    assert files(tmp_path) == ["00000001.seg", "notes.seg"]
    assert segments.append({10: b"x"}).number == 2


@pytest.mark.parametrize("field", [0, 4, 12, 20, 24])
def test_a_damaged_header_names_file_and_offset(tmp_path: Path, field: int) -> None:
    first = write(tmp_path / "one", range(1, 2)).offset
    position = write(tmp_path, range(1, 10))
    path = tmp_path / "00000001.seg"
    data = bytearray(path.read_bytes())
    data[first + field] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=rf"00000001\.seg is damaged at byte {first}: a record's header"):
        Segments(tmp_path, position)


def test_a_damaged_payload_is_found_when_it_is_read(tmp_path: Path) -> None:
    position = write(tmp_path, range(1, 10))
    path = tmp_path / "00000001.seg"
    data = bytearray(path.read_bytes())
    offset = data.index(content(5))
    data[offset] ^= 1
    path.write_bytes(data)
    segments = Segments(tmp_path, position)
    with pytest.raises(CorruptionError, match=rf"00000001\.seg is damaged at byte {offset}: .* contribution 5 fails"):
        segments.read(5)
    assert segments.read(4) == content(4)
    segments.append({5: content(5)})  # a good copy takes its place
    assert segments.read(5) == content(5)


def test_a_file_that_lost_its_end_is_damaged(tmp_path: Path) -> None:
    position = write(tmp_path, range(1, 10))
    with (tmp_path / "00000001.seg").open("r+b") as file:
        file.truncate(position.offset - 1)
    with pytest.raises(CorruptionError, match=rf"at byte {position.offset - 1}: the file ends before"):
        Segments(tmp_path, position)


def test_a_length_is_checked_before_anything_is_allocated(tmp_path: Path) -> None:
    segments = Segments(tmp_path, NOTHING)
    huge = segments.append({1: b"x"})
    path = tmp_path / "00000001.seg"
    place = module._Place(1, HEADER_BYTES, 2**62, 0)
    path.write_bytes(module._pack_header(1, place) + b"x")
    with pytest.raises(CorruptionError, match="does not fit the file"):
        Segments(tmp_path, huge)


def test_the_folder_may_be_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Exception, match=r"cannot open .*file/segments: Not a directory") as raised:
        Segments(tmp_path / "file" / "segments", NOTHING)
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno == errno.ENOTDIR
