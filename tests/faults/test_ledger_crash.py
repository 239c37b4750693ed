"""The ledger under kill -9 and on full disks: what was reported as committed is there, whole, and nothing else is torn.

A child process commits in a loop and reports each commit, once it returned, over a pipe; it is killed after a seeded
number of reports, wherever it is by then. A crash of the process leaves the page cache alone, so what a power loss
does to bytes not yet synced is tried by damaging everything after the durable position by hand.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnraise.core.errors import StorageError
from barnraise.core.types import ParameterRange
from barnraise.ledger import (
    Assigned,
    Checkpoints,
    Claim,
    Decision,
    Judged,
    Ledger,
    LedgerView,
    Noted,
    Terms,
    VersionClosed,
    VersionMade,
    Weighing,
    notes,
)
from barnraise.ledger.records import HEADER_BYTES

ROUNDS = 20
SEGMENT_BYTES = 200_000


def payload(assignment: int) -> bytes:
    generator = random.Random(assignment)
    return generator.randbytes(50) * generator.choice([0, 1, 20, 600, 3000])


SPAN = ParameterRange(0, 100)
HANDED_OUT = Assigned(
    time=0.0, assignment=10**6, node="node-0", kind="train", base=0, tokens=0, local_steps=1, rows=(), cursor=0,
    terms=Terms(max_staleness=9, learning_rate=0.1, parameters=SPAN),
)  # fmt: skip
"""All assignments up to this one were made."""


def judged(assignment: int) -> Judged:
    return Judged(
        time=float(assignment),
        assignment=assignment,
        node=f"node-{assignment % 7}",
        verdict="accepted",
        reason="",
        claim=Claim(base=0, steps=20, loss=2.5, seconds=4.0, digest="ab" * 32),
        version=0,
        staleness=0,
        tokens=1000,
        norm=0.1,
        parameters=SPAN,
        weighing=Weighing(1.0),
    )


def batch(first: int) -> list[Decision]:
    """One to five contributions and the version they make, determined by the first."""
    assignments = range(first, first + random.Random(first).randint(1, 5))
    return [
        *map(judged, assignments),
        VersionClosed(time=0.0, version=first, contributions=tuple(assignments), num_nodes=1, tokens=0, reason="full"),
        VersionMade(time=0.0, version=first, digest="cd" * 32, delta_bytes=0),
    ]


def payloads_of(decisions: list[Decision]) -> dict[int, bytes]:
    return {item.assignment: payload(item.assignment) for item in decisions if isinstance(item, Judged)}


def accepted(ledger: Ledger | LedgerView) -> list[int]:
    return [decision.assignment for _, decision in ledger.replay() if isinstance(decision, Judged)]


def report(*values: object) -> None:
    sys.stdout.write(" ".join(map(str, values)) + "\n")
    sys.stdout.flush()


def commit_until_killed(path: Path) -> None:
    """Commit in the child process, from the end of the ledger on."""
    with Ledger(path, segment_bytes=SEGMENT_BYTES) as ledger:
        if not ledger.last_id:
            ledger.commit([HANDED_OUT])
        first = max(accepted(ledger), default=0) + 1
        while True:
            decisions = batch(first)
            last_id = ledger.commit(decisions, payloads_of(decisions))
            first += len(decisions) - 2
            report(last_id, first - 1)


def check(path: Path, last_id: int, last_assignment: int) -> None:
    """All that was reported is there; what is there comes in whole batches, each payload intact."""
    with LedgerView(path) as view:  # reads the records of the dead process before any process recovers them
        assert len(list(view.replay())) >= last_id
    with Ledger(path, segment_bytes=SEGMENT_BYTES) as ledger:
        there = accepted(ledger)
        assert ledger.last_id >= last_id
        assert there == list(range(1, len(there) + 1))
        assert len(there) >= last_assignment
        expected, first = [], 1
        while first <= len(there):
            expected += batch(first)
            first += len(batch(first)) - 2
        assert [decision for _, decision in ledger.replay() if decision != HANDED_OUT] == expected
        assert set(there) == {assignment for assignment in range(len(there) + 10) if assignment in ledger.segments}
        assert all(ledger.read(assignment) == payload(assignment) for assignment in there)


def start(function: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, function, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def reports(process: subprocess.Popen[str]) -> Iterator[tuple[int, int]]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith("\n"):  # the last may have been cut by the kill
            last_id, last_assignment = map(int, line.split())
            yield last_id, last_assignment


def test_nothing_that_was_committed_is_lost_to_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    generator = random.Random(2026)
    last = (0, 0)
    for _ in range(ROUNDS):
        process = start("commit_until_killed", path)
        patience = generator.randint(1, 12)
        for number, last in enumerate(reports(process), 1):  # noqa: B007, the last one counts
            if number == patience:
                process.send_signal(signal.SIGKILL)  # and read on to the last report
        assert process.wait() == -signal.SIGKILL
        check(path, *last)
    with Ledger(path) as ledger:
        assert ledger.epoch == 2 * ROUNDS + 1


def commit_and_die_between_payload_and_rows(path: Path) -> None:
    """The child: its payload is on disk, and it dies before the row is."""
    with Ledger(path, segment_bytes=SEGMENT_BYTES) as ledger:
        decisions = batch(max(accepted(ledger), default=0) + 1)
        ledger.segments.append(payloads_of(decisions))
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_payload_without_its_row_never_was(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path, segment_bytes=SEGMENT_BYTES) as ledger:
        ledger.commit([HANDED_OUT])
        decisions = batch(1)
        reported = ledger.commit(decisions, payloads_of(decisions)), len(decisions) - 2
    for _ in range(3):
        process = start("commit_and_die_between_payload_and_rows", path)
        assert process.wait() == -signal.SIGKILL
        process.communicate()
        check(path, *reported)
        with Ledger(path) as ledger:
            assert len(accepted(ledger)) == reported[1]


@pytest.mark.parametrize("seed", range(5))
def test_unsynced_bytes_that_a_power_loss_damages_do_no_harm(tmp_path: Path, seed: int) -> None:
    """Pages of an unfinished append reach the disk in any order: cut, zeroed or scrambled, they are not counted."""
    path = tmp_path / "ledger.sqlite"
    generator = random.Random(seed)
    with Ledger(path, segment_bytes=10**9) as ledger:
        reported = ledger.commit([HANDED_OUT]), 0
        for _ in range(5):
            decisions = batch(reported[1] + 1)
            reported = ledger.commit(decisions, payloads_of(decisions)), reported[1] + len(decisions) - 2
        durable = (tmp_path / "segments" / "00000001.seg").stat().st_size
        ledger.segments.append({assignment: payload(assignment) for assignment in range(100, 110)})
    segment = tmp_path / "segments" / "00000001.seg"
    data = bytearray(segment.read_bytes())
    del data[generator.randint(durable, len(data)) :]
    for start in range(durable, len(data), 4096):
        page = slice(start, min(start + 4096, len(data)))
        length = page.stop - page.start
        data[page] = generator.choice([bytes(length), generator.randbytes(length), bytes(data[page])])
    segment.write_bytes(data)
    check(path, *reported)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"cannot mount a small tmpfs here (it takes root): {mount.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path, leave: int) -> None:
    """Fill the file system but for `leave` bytes."""
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                break
        file.truncate(max(0, file.tell() - leave))


@pytest.mark.parametrize(("leave", "failing"), [(0, "segments"), (100_000, "segments"), (450_000, r"ledger\.sqlite")])
def test_a_full_disk_is_a_clear_error_and_costs_nothing(small_disk: Path, leave: int, failing: str) -> None:
    """With no room the payload cannot be written; with some, the rows cannot. Both times a later commit succeeds."""
    path = small_disk / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.commit([judged(1)], {1: bytes(1000)})
        fill(small_disk / "others", leave)
        big = {2: random.Random(2).randbytes(400_000)}
        rows = [judged(2), *(Noted(0.0, notes.Advice("y" * 1000)) for _ in range(200))]
        with pytest.raises(StorageError, match=rf"cannot write .*{failing}.* bytes free .*free some space there"):
            ledger.commit(rows, big)
        assert accepted(ledger) == [1]
        with pytest.raises(StorageError):
            ledger.commit(rows, big)
        (small_disk / "others").unlink()
        assert ledger.commit(rows, big) == 202
        assert ledger.read(1) == bytes(1000)
    with Ledger(path) as ledger:
        assert [decision for _, decision in ledger.replay()] == [judged(1), *rows]
        assert [ledger.read(assignment) for assignment in (1, 2)] == [bytes(1000), big[2]]


@pytest.mark.parametrize("leave", [100_000, 450_000])
def test_other_batches_may_follow_one_that_did_not_fit(small_disk: Path, leave: int) -> None:
    """The ledger takes the rest of a failed write neither for a record nor for damage, now or after reopening."""
    path = small_disk / "ledger.sqlite"
    with Ledger(path, segment_bytes=1) as ledger:
        fill(small_disk / "others", leave)
        rows = [judged(1), *(Noted(0.0, notes.Advice("y" * 1000)) for _ in range(200))]
        with pytest.raises(StorageError):
            ledger.commit(rows, {1: bytes(400_000)})
        written = sum(file.stat().st_size for file in (small_disk / "segments").iterdir())
        assert written == (0 if leave == 100_000 else 400_000 + HEADER_BYTES)  # half a payload is taken back
        (small_disk / "others").unlink()
        ledger.commit([judged(2)], {2: b"second"})
        ledger.commit([judged(3)], {3: b"third"})
    with Ledger(path) as ledger:
        assert [row_id for row_id, _ in ledger.replay()] == [1, 2]
        assert (accepted(ledger), ledger.read(2), ledger.read(3)) == ([2, 3], b"second", b"third")


def test_a_full_disk_cannot_be_opened_for_writing_but_read(small_disk: Path) -> None:
    path = small_disk / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.commit([judged(1)], {1: b"x"})
    fill(small_disk / "others", 0)
    with pytest.raises(StorageError, match=r"free some space|check the disk"):
        Ledger(path)
    (small_disk / "others").unlink()
    with Ledger(path) as ledger:
        assert (accepted(ledger), ledger.read(1)) == ([1], b"x")


def test_a_read_only_disk_can_be_viewed(small_disk: Path) -> None:
    path = small_disk / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.commit([judged(1)], {1: b"x"})
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with LedgerView(path) as view:
        assert (view.totals().accepted, accepted(view)) == (1, [1])
    with pytest.raises(StorageError, match=r"cannot (open|read) .*ledger\.sqlite"):
        Ledger(path)


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(small_disk: Path) -> None:
    import torch  # not above: the children would import it, too

    def save(version: int, numbers: int) -> None:
        tensors = {"parameters": {"flat": torch.ones(numbers)}}
        checkpoints.save(version, ledger_id=1, parameters_digest="ab" * 32, state=b"{}", tensors=tensors)

    checkpoints = Checkpoints(small_disk)
    save(1, 1000)
    with pytest.raises(StorageError, match=r"No space left on device .*free some space there"):
        save(2, 2_000_000)
    assert [path.name for path in small_disk.iterdir()] == ["v000001"]
    save(2, 100_000)
    latest = checkpoints.load_latest().checkpoint
    assert latest is not None
    assert torch.equal(latest.tensors("parameters")["flat"], torch.ones(100_000))


def commit_under_a_file_limit(path: Path) -> None:
    """The child: no file may grow beyond a megabyte, then beyond ten."""
    with Ledger(path) as ledger:
        ledger.commit([judged(1)], {1: bytes(1000)})
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 10 << 20))
        big = {2: bytes(2 << 20)}
        for _ in range(2):
            try:
                ledger.commit([judged(2)], big)
            except StorageError as error:
                report(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10 << 20, 10 << 20))
        report(ledger.commit([judged(2)], big))


def test_a_file_limit_is_like_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    out, _ = start("commit_under_a_file_limit", path).communicate()
    *errors, last_id = out.splitlines()
    assert last_id == "2"
    assert len(errors) == 2
    assert all("cannot write" in error and "File too large" in error for error in errors)
    with Ledger(path) as ledger:
        assert [ledger.read(assignment) for assignment in accepted(ledger)] == [bytes(1000), bytes(2 << 20)]


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
