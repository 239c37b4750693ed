"""Segment files: what is in them, what is torn, what is damaged, and that they go away."""

from __future__ import annotations

import array
import errno
import random
import re
import subprocess
import zlib
from pathlib import Path

import pytest

from barnraise.core.errors import CorruptionError
from barnraise.ledger.records import HEADER_BYTES, Place, pack_header
from barnraise.ledger.segments import Position, Segments

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
    assert path.stat().st_size == position.offset + keep  # looking changes nothing
    assert len(segments) == 9
    after = segments.append({10: b"goes on"})
    assert path.stat().st_size == position.offset
    assert after == Position(2, HEADER_BYTES + 7)
    assert Segments(tmp_path, after).read(10) == b"goes on"


def test_a_file_that_nothing_acknowledged_mentions_is_dropped(tmp_path: Path) -> None:
    position = write(tmp_path, range(1, 10))
    (tmp_path / "00000002.seg").write_bytes(b"torn")
    (tmp_path / "notes.seg").write_bytes(b"not ours")
    segments = Segments(tmp_path, position)
    segments.retain(range(1, 10))
    assert files(tmp_path) == ["00000001.seg", "00000002.seg", "notes.seg"]
    assert segments.append({10: b"x"}) == Position(2, HEADER_BYTES + 1)
    assert files(tmp_path) == ["00000001.seg", "00000002.seg", "notes.seg"]


@pytest.mark.parametrize("last_assignment", [9, 50])
def test_more_than_a_crash_leaves_behind_is_refused_and_kept(tmp_path: Path, last_assignment: int) -> None:
    """The ledger ends at contribution 9, as an older copy does.

    Two commits, or an assignment that it never made, lie after that.
    """
    position = write(tmp_path, range(1, 10))
    later = Segments(tmp_path, position)
    for k in range(10, 11 + (last_assignment == 50)):
        later.append({k: content(k, 300)})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"payloads that the ledger does not list.* put back the ledger"):
            Segments(tmp_path, position, last_assignment=last_assignment)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    again = Segments(tmp_path, Position(2, len(before["00000002.seg"])), last_assignment=last_assignment)
    assert again.read(10) == content(10, 300)


def test_the_remedy_of_the_refusal_works(tmp_path: Path) -> None:
    write(tmp_path, range(1, 10), segment_bytes=3000)
    ends = len((tmp_path / "00000001.seg").read_bytes()) - 1
    position = Position(1, HEADER_BYTES + len(content(1)))
    assert position.offset < ends
    with pytest.raises(CorruptionError) as refused:
        Segments(tmp_path, position)
    advice = re.search(r"in that folder: ([^)]*)\)", str(refused.value))
    assert advice
    subprocess.run(advice[1], shell=True, cwd=tmp_path, check=True)
    assert Segments(tmp_path, position).read(1) == content(1)


def test_one_commit_of_several_payloads_is_what_a_crash_leaves(tmp_path: Path) -> None:
    position = write(tmp_path, range(1, 10))
    Segments(tmp_path, position).append({k: content(k) for k in range(10, 20)})
    segments = Segments(tmp_path, position, last_assignment=30)
    assert len(segments) == 9
    assert segments.orphans == list(range(10, 20)), "so that it can be said what is dropped"
    segments.append({40: b"goes on"})
    assert [40 in segments, 10 in segments] == [True, False]


@pytest.mark.parametrize("field", [0, 4, 12, 20, 24])
def test_a_damaged_header_costs_its_own_record(tmp_path: Path, field: int) -> None:
    """It is named with file and offset when its payload is read, and those after it are found."""
    first = write(tmp_path / "one", range(1, 2)).offset
    position = write(tmp_path, range(1, 10))
    path = tmp_path / "00000001.seg"
    data = bytearray(path.read_bytes())
    data[first + field] ^= 0x40
    path.write_bytes(data)
    segments = Segments(tmp_path, position)
    assert len(segments.damage) == 1
    with pytest.raises(
        CorruptionError, match=rf"contribution 2 is missing .*00000001\.seg is damaged at byte {first}: a record's"
    ):
        segments.read(2)
    assert [segments.read(k) for k in (1, *range(3, 10))] == [content(k) for k in (1, *range(3, 10))]


def test_a_payload_that_imitates_a_record_takes_no_place(tmp_path: Path) -> None:
    """Its own header damaged, a hostile payload is searched for the next record; contribution 1 was found before."""
    fake = pack_header(1, Place(1, 0, 5, zlib.crc32(b"wrong")), True) + b"wrong"
    segments = Segments(tmp_path, NOTHING)
    start = segments.append({1: b"right"}).offset
    position = segments.append({2: b"x" * 100 + fake, 3: b"neighbour"})
    path = tmp_path / "00000001.seg"
    data = bytearray(path.read_bytes())
    data[start] ^= 1
    path.write_bytes(data)
    again = Segments(tmp_path, position)
    assert (again.read(1), again.read(3)) == (b"right", b"neighbour")


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


def test_a_file_that_lost_its_end_lost_the_last_payload(tmp_path: Path) -> None:
    position = write(tmp_path, range(1, 10))
    with (tmp_path / "00000001.seg").open("r+b") as file:
        file.truncate(position.offset - 1)
    segments = Segments(tmp_path, position)
    with pytest.raises(CorruptionError, match=rf"at byte {position.offset - 1}: the file ends before"):
        segments.read(9)
    assert segments.read(8) == content(8)


def test_a_length_is_checked_before_anything_is_allocated(tmp_path: Path) -> None:
    segments = Segments(tmp_path, NOTHING)
    huge = segments.append({1: b"x"})
    path = tmp_path / "00000001.seg"
    place = Place(1, HEADER_BYTES, 2**62, 0)
    path.write_bytes(pack_header(1, place, True) + b"x")
    with pytest.raises(CorruptionError, match="does not fit the file"):
        Segments(tmp_path, huge).read(1)


def test_the_folder_may_be_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Exception, match=r"cannot open .*file/segments: Not a directory") as raised:
        Segments(tmp_path / "file" / "segments", NOTHING)
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno == errno.ENOTDIR


def test_where_all_are_kept_nothing_is_forgotten(tmp_path: Path) -> None:
    segments = Segments(tmp_path, Position(0, 0), segment_bytes=1)
    segments.keep_all = True
    for number in (1, 2, 3):
        segments.append({number: b"payload"})
    segments.forget([1])
    segments.retain([])
    assert [segments.read(number) for number in (1, 2, 3)] == [b"payload"] * 3
    segments.close()
