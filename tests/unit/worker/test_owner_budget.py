"""The limit that an owner sets to what differential privacy spends of the own rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.state_machine.engine import told
from tests.tasks import train

from barnraise.core.errors import CorruptionError, InputError, StorageError
from barnraise.core.sites import PrivacyLimit, Releases
from barnraise.core.types import RowRange, Train
from barnraise.privacy.accounting import epsilon, gaussian_epsilon
from barnraise.wire.messages import Masks, WorkerSettings
from barnraise.wire.private import Private
from barnraise.worker.owner_budget import FILE, OwnerBudget

LIMIT = PrivacyLimit(3.0)
EXAMPLE, UPDATE = Private(1.0, 2.0, 0.25), Private(1.0, 4.0)
MASKS = Masks(value_bits=12, most_members=8, limit=0.5, size=300, colluding=1, group=0, least=2, deviation=0.1)
ROWS = [RowRange(0, 0, 10)]


def settings(private: Private | None, **changes: Any) -> WorkerSettings:
    return told(private=private, **changes)


def task(steps: int) -> Train:
    return train(steps=steps)


def budget(folder: Path, private: Private = EXAMPLE, rows: str = "a" * 64, **limit: float) -> OwnerBudget:
    return OwnerBudget(
        folder, PrivacyLimit(**({"epsilon": 3.0} | limit)), settings(private), Releases(held_out="off"), rows
    )


def spend(found: OwnerBudget, rows: list[RowRange], steps: int) -> int:
    """Begin tasks until one is refused, and return their number."""
    count = 0
    while not found.begin(task(steps), rows):
        count += 1
    return count


def test_tasks_begin_until_the_next_one_would_spend_more_than_the_limit(tmp_path: Path) -> None:
    found = budget(tmp_path)
    tasks = spend(found, ROWS, 4)
    assert tasks > 1
    assert epsilon(2.0, 0.25, 4 * tasks, 1e-5) == found.spent <= 3.0 < epsilon(2.0, 0.25, 4 * tasks + 4, 1e-5)
    assert "epsilon 3 at delta 1e-05 has no room for the task" in found.begin(task(4), ROWS)
    assert not found.begin(task(4), [RowRange(0, 10, 20)]), "other rows have all of their budget"
    assert found.begin(task(4), [RowRange(0, 9, 12)])
    assert not found.begin(task(4), []), "a task without rows spends nothing"


def test_each_task_counts_where_the_update_is_noised(tmp_path: Path) -> None:
    tasks = spend(budget(tmp_path, UPDATE), ROWS, 50)
    assert gaussian_epsilon(4.0, tasks, 1e-5) <= 3.0 < 1.001 * gaussian_epsilon(4.0, tasks + 1, 1e-5)
    assert budget(tmp_path, UPDATE).begin(task(1), [RowRange(0, 90, 99)]), "the unit is all rows of the site"


def test_another_process_goes_on_with_the_count(tmp_path: Path) -> None:
    tasks = spend(budget(tmp_path), ROWS, 4)
    again = budget(tmp_path)
    assert again.spent == epsilon(2.0, 0.25, 4 * tasks, 1e-5)
    assert again.begin(task(4), ROWS)
    assert (tmp_path / FILE).stat().st_mode & 0o77 == 0


def test_other_rows_begin_with_the_largest_count(tmp_path: Path) -> None:
    spend(budget(tmp_path), ROWS, 4)
    changed = budget(tmp_path, rows="b" * 64)
    assert changed.begin(task(4), [RowRange(0, 500, 510)])
    assert changed.spent > 2.0


def test_other_noise_is_refused(tmp_path: Path) -> None:
    budget(tmp_path).begin(task(4), ROWS)
    with pytest.raises(InputError, match=r"noise is now 1\.9 times a clip of 1 .* but it was 2 times a clip of 1"):
        budget(tmp_path, Private(1.0, 1.9, 0.25))
    budget(tmp_path)


@pytest.mark.parametrize(
    ("terms", "releases", "said"),
    [
        (settings(None), Releases(), "adds no noise of differential privacy, but --epsilon 3 asks for it"),
        (settings(UPDATE, uplink={"masks": MASKS}), Releases(), "share their noise"),
        (settings(Private(1.0, 0.0, 0.25)), Releases(), "noise is 0 times a clip of 1 .* no epsilon is known"),
        (settings(Private(1.0, 1e-3, 0.25)), Releases(), "no epsilon is known"),
        (settings(Private(0.0, 1.0, 0.25)), Releases(), "a clip of 0"),
        (settings(Private(1.0, 1.0, 1.5)), Releases(), "no epsilon is known"),
        (settings(Private(1.0, 0.3, 1.0)), Releases(), "first step spends epsilon .* but --epsilon is 3; ask"),
        (settings(UPDATE), Releases(), "give --release held_out=off"),
    ],
    ids=["none", "shared", "without noise", "too little", "no clip", "rate", "above the limit", "held-out loss"],
)  # fmt: skip
def test_terms_that_cannot_hold_the_limit_are_refused(
    terms: WorkerSettings, releases: Releases, said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        OwnerBudget(tmp_path, LIMIT, terms, releases, "a" * 64)


def test_a_damaged_count_is_said(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"private": {"clip": 1.0}')
    with pytest.raises(CorruptionError, match=r"privacy\.json is damaged .* delete the file to begin again at 0"):
        budget(tmp_path)


def test_a_task_that_cannot_be_counted_does_not_begin(tmp_path: Path) -> None:
    found = budget(tmp_path / "gone")
    with pytest.raises(StorageError, match="cannot be written"):
        found.begin(task(4), ROWS)
