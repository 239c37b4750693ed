"""Reconstructions are scored by their tokens at their places, over the best assignment to rows."""

from __future__ import annotations

import numpy as np
import pytest

from barnraise.privacy.attacks.updates.text import accuracy


def test_the_order_of_candidates_does_not_matter() -> None:
    rows = np.array([[1, 2, 3], [4, 5, 6]])
    assert accuracy(rows[::-1], rows) == 1.0


def test_a_candidate_serves_one_row() -> None:
    rows = np.array([[1, 2, 3], [4, 5, 6]])
    assert accuracy(np.array([[1, 2, 3], [1, 2, 3]]), rows) == pytest.approx(0.5)


def test_too_few_candidates_leave_rows_unfound() -> None:
    assert accuracy(np.array([[1, 2, 9]]), np.array([[1, 2, 3], [4, 5, 6]])) == pytest.approx(1 / 3)
