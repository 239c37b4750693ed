"""The cost of protections by the newest report of each worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.account.overheads import Overheads
from barnraise.ledger import Ledger, Noted, notes


def sampled(node: str, **said: float) -> Noted:
    return Noted(1.0, notes.Sampled(1.0, 0.0, 0.0, 1.0, said), node)


def test_the_median_of_newest_reports_is_kept(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite", tmp_path / "segments", run="barn") as ledger:
        found = Overheads()
        assert found.median is None
        rows = [
            sampled("a", overhead=5.0),
            sampled("b", overhead=1.2),
            sampled("c", cpu=1.0),
            sampled("a", overhead=1.4),
        ]
        for number, row in enumerate(rows):
            found.add(number, row, ledger)
    assert found.alphas == {"a": 1.4, "b": 1.2}
    assert found.median == pytest.approx(1.3)
