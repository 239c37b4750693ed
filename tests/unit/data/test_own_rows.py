"""Datasets of rows that a problem makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.problems import Line

from barnraise.core.errors import DataError
from barnraise.data import own_rows
from barnraise.data.shards import Dataset


def build(folder: Path, rows: Any) -> Dataset:
    own_rows.build(folder, Line().form, rows, name="line", seed=1)
    return Dataset.open(folder, verify=True)


def test_rows_come_back_as_they_were_made(tmp_path: Path) -> None:
    train, held_out = Line().rows(0)
    dataset = build(tmp_path / "data", (train, held_out))
    rows = dataset.rows(0, 0, dataset.num_rows)
    order, expected = np.argsort(rows["y"]), np.argsort(train["y"])
    np.testing.assert_array_equal(rows["x"][order], train["x"][expected])
    assert len(dataset.held_out()) == len(held_out["y"])


X, Y = np.zeros((4, 3), np.float32), np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (None, "no pair"),
        (({"x": X, "y": Y},), "no pair"),
        (({"x": X}, {"x": X, "y": Y}), "columns x given, but the problem has x, y"),
        (({"x": X, "y": Y, "z": Y}, {"x": X, "y": Y}), "columns x, y, z given"),
        (({"x": X[:, :2], "y": Y}, {"x": X, "y": Y}), r"column x of shape \[4, 2\] given, but it has \[4, 3\]"),
        (({"x": X, "y": Y[:3]}, {"x": X, "y": Y}), "different numbers of rows: x 4, y 3"),
        (({"x": X, "y": Y}, {"x": X[:0], "y": Y[:0]}), "no held-out row"),
        (({"x": X, "y": np.full(4, np.nan)}, {"x": X, "y": Y}), "column y holds numbers that are not finite"),
        (({"x": X, "y": np.full(4, 1e300)}, {"x": X, "y": Y}), "column y holds numbers that are not finite in float32"),
    ],
    ids=["nothing", "no held-out", "missing", "more", "shape", "counts", "empty", "NaN", "too large"],
)
def test_rows_that_do_not_fit_are_refused(rows: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"the rows of the problem 'line'.*{said}"):
        build(tmp_path / "data", rows)
