"""The files that a task's rows are in."""

from __future__ import annotations

from tests.tasks import train

from barnraise.core.types import Blob, RowRange
from barnraise.worker.row_files import RowFiles

FILES = (Blob("1" * 64, 10), Blob("2" * 64, 20))


def test_a_task_needs_the_files_of_its_rows() -> None:
    task = train(1, rows=(RowRange(1, 0, 2), RowRange(0, 3, 4)))
    assert RowFiles(FILES).of(task) == [FILES[1], FILES[0]]
    assert not RowFiles(FILES).fault(task)
    assert "file 2" in RowFiles(FILES).fault(train(1, rows=(RowRange(2, 0, 1),)))


def test_own_rows_are_in_none_of_the_runs_files() -> None:
    task = train(1, rows=(RowRange(17, 0, 2),))
    assert RowFiles(FILES, own=True).of(task) == []
    assert not RowFiles(FILES, own=True).fault(task)
