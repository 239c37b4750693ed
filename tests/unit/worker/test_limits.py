"""The refusals of a worker: for its owner's terms, and for its memory."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from barnraise.core.types import Batches, Blob, Flush, News, ParameterRange, RowRange, Task
from barnraise.core.units import bytes_text
from barnraise.wire.messages import Assign, Decline, Newer, RequestTask
from barnraise.worker.incoming import MOST_QUEUED
from barnraise.worker.limits import LEAST_BYTES, Limits

from ...state_machine.bench import SHARDS, SNAPSHOT, Bench, delta, make_audit, make_evaluation, make_task, snapshot
from ...state_machine.engine import digest, overlap
from ...tasks import train

DELTA = delta(1).blob.num_bytes


def asking(**given: Any) -> Bench:
    """A worker of these limits and kinds that asks for its first task."""
    bench = Bench(overlap(True), **given)
    while bench.asked is None:
        for step in bench.due():
            step()
    return bench


def give(bench: Bench, task: Task) -> None:
    bench.asked = None
    bench.hear(Assign(task))


def declined(bench: Bench, task: Task) -> str:
    """Why it is given back, when it is."""
    fetching = dict(bench.fetching)
    give(bench, task)
    (decline,) = [message for message in bench.sent if isinstance(message, Decline) and message.assignment == task.id]
    assert bench.fetching == fetching, "nothing is fetched for it"
    assert bench.training is None
    return decline.reason


def test_the_worker_itself_keeps_to_the_kinds_of_work_that_its_owner_lends_it_for() -> None:
    bench = asking(kinds=("evaluate",))
    assert (
        declined(bench, make_task(1, 0, (snapshot(0),))) == "its owner lends this machine for evaluate, not for train"
    )
    assert "not for audit" in declined(bench, make_audit(2, 0, (snapshot(0),), 0))
    assert "not for flush" in declined(bench, Flush(id=3, base=0, parameters=ParameterRange(0, 100)))
    give(bench, make_evaluation(4, 0, (snapshot(0),)))
    assert bench.worker.tasks.waiting is not None


def test_a_task_that_was_refused_does_not_keep_a_worker_from_asking() -> None:
    bench = asking(kinds=("evaluate",))
    asked = len([message for message in bench.sent if isinstance(message, RequestTask)])
    declined(bench, make_task(1, 0, (snapshot(0),)))
    assert len([message for message in bench.sent if isinstance(message, RequestTask)]) > asked


def test_rows_that_are_too_long_for_its_memory_are_for_others() -> None:
    lengths = tuple(range(8, 8 + len(SHARDS)))
    bench = asking(limits=Limits(lengths=lengths, longest=8, longest_measured=max(lengths) - 1))
    assert "rows of 9 tokens need more memory" in declined(bench, make_task(1, 0, (snapshot(0),), shard=1))
    assert "rows of" in declined(bench, make_evaluation(2, 0, (snapshot(0),)))
    give(bench, make_task(3, 0, (snapshot(0),), shard=0))
    assert bench.fetching


@pytest.mark.parametrize(
    "batches",
    [
        Batches((RowRange(0, 0, 240_000),) * 256, 4, 1),
        Batches((RowRange(0, 0, 2**40),), 2**40, 1),
        Batches((RowRange(0, 0, 500_000),), 1, 1),
        Batches((RowRange(0, 0, 400_000),), 400_000, 1),
    ],
    ids=["the same rows again and again", "more than there are", "many small batches", "one large batch"],
)
def test_batches_that_need_more_memory_than_there_is_are_for_others(batches: Batches) -> None:
    bench = asking(limits=Limits(batches=LEAST_BYTES, lengths=(64,) * len(SHARDS)))
    task = msgspec.structs.replace(train(1, updates=(snapshot(0),)), batches=batches)
    assert "of memory, but this worker may take 33.6 MB" in declined(bench, task)
    task = msgspec.structs.replace(task, id=2, batches=Batches((RowRange(0, 0, 16_000),) * 8, 32, 1))
    give(bench, task)
    assert bench.fetching


def test_rows_that_are_copied_as_they_are_read_take_memory() -> None:
    """A controller may name the same rows of a packed file again and again."""
    task = msgspec.structs.replace(
        train(1, updates=(snapshot(0),)), batches=Batches((RowRange(0, 0, 1_000),) * 256, 32, 1)
    )
    lengths = (64,) * len(SHARDS)
    give(asking(limits=Limits(batches=LEAST_BYTES, lengths=lengths)), task)
    bench = asking(limits=Limits(batches=LEAST_BYTES, lengths=lengths, copied=64 * 4))
    assert "of memory, but this worker may take 33.6 MB" in declined(bench, task)


def test_rows_that_the_disk_has_no_room_for_are_for_others() -> None:
    bench = asking(limits=Limits(disk=SHARDS[0].num_bytes + SHARDS[1].num_bytes - 1))
    rows = tuple(RowRange(shard, 0, 8) for shard in (0, 1, 0))
    task = msgspec.structs.replace(train(1, updates=(snapshot(0),)), batches=Batches(rows, 2, 1))
    assert re.fullmatch(r"its rows need .* of disk, but this worker may take .*", declined(bench, task))
    give(bench, make_task(2, 0, (snapshot(0),), shard=0))
    while bench.training is None:
        for step in bench.due():
            step()
    give(bench, make_task(3, 0, (), shard=1))
    assert bench.worker.tasks.waiting is None, "beside the file of the task that runs"
    give(bench, make_task(4, 0, (), shard=0))
    assert bench.worker.tasks.waiting is not None, "of the same file"


def test_deltas_that_memory_has_no_room_for_are_not_fetched() -> None:
    """The worker asks for a snapshot instead."""
    bench = asking(limits=Limits(fetched=SNAPSHOT + DELTA // 2))
    bench.assign()
    while bench.training is None:
        for step in bench.due():
            step()
    many = tuple(delta(version) for version in range(1, 8))
    bench.nearly()
    give(bench, make_task(9, 7, many))
    assert not bench.fetching
    assert bench.worker.incoming.have == -1, "which the next greeting says"
    assert not bench.worker.contact.greeted
    assert bench.worker.tasks.waiting is None


def test_a_version_that_memory_has_no_room_for_ends_it_with_both_numbers() -> None:
    bench = asking(limits=Limits(fetched=SNAPSHOT - 1))
    give(bench, make_task(1, 0, (snapshot(0),)))
    assert bench.quit is not None
    assert (
        bench.quit.reason
        == f"a version of {SNAPSHOT:,} bytes is too large for the {SNAPSHOT - 1:,} that are left for it"
    )


def test_an_audit_is_declined_when_its_deltas_exceed_the_limit() -> None:
    bench = asking(limits=Limits(fetched=SNAPSHOT + DELTA // 2))
    assert f"its deltas need {bytes_text(6 * DELTA)} of memory, but" in declined(
        bench, make_audit(1, 6, (snapshot(6),), 6)
    )


def test_news_without_end_are_not_kept() -> None:
    bench = asking(limits=Limits(fetched=SNAPSHOT + 11 * DELTA))
    bench.assign()
    while bench.training is None:
        for step in bench.due():
            step()
    for version in range(1, 100):
        bench.watched = None
        bench.hear(Newer(News((delta(version),))))
    assert sum(blob.num_bytes for blob in bench.fetching.values()) <= SNAPSHOT + 11 * DELTA
    empty = tuple(msgspec.structs.replace(delta(v), blob=Blob(digest(v), 0)) for v in (1, 2))
    bench = asking()
    bench.assign()
    for _ in range(100):
        bench.watched = None
        bench.hear(Newer(News(empty)))
    assert len(bench.worker.incoming.queue) <= MOST_QUEUED
    assert {digest(1), digest(2)} <= bench.fetching.keys()
