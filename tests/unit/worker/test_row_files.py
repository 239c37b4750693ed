"""The files that a task's rows are in."""

from __future__ import annotations

from tests.tasks import train

from barnraise.core.types import Audit, Blob, Evaluate, RowRange
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


def test_own_rows_are_not_audited_nor_measured_where_their_loss_is_not_released() -> None:
    audit = Audit(id=2, base=0, train=train(1), seed=0)
    measuring = Evaluate(id=3, base=0, held_out=RowRange(0, 0, 2), batch_size=2, tokens=32)
    assert "repeats work" in RowFiles(FILES, own=True).fault(audit)
    assert "does not release" in RowFiles(FILES, own=True, silent=True).fault(measuring)
    assert not RowFiles(FILES, own=True).fault(measuring)
    assert not RowFiles(FILES).fault(audit)
