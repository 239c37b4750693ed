"""Updates of one named cohort have the same elements, whatever version they began at."""

from __future__ import annotations

from typing import Any

from barnraise.core import types
from barnraise.core.types import Blob, ParameterRange, Train


def test_updates_of_one_cohort_have_one_support_whatever_their_base() -> None:
    def task(base: int, **more: Any) -> Train:
        return Train(
            id=1, base=base, batches=types.Batches((), 1, 0), tokens=0, local_steps=1, learning_rate=0.1, rung=0,
            parameters=ParameterRange(0, 4), max_staleness=9, **more,
        )  # fmt: skip

    assert [task(base).support for base in (3, 4)] == [3, 4]
    assert [task(base, cohort=77).support for base in (3, 4)] == [77, 77]
    made = types.Contribution.of(task(3, cohort=77), Blob("ab" * 32, 9), codec=0, steps=1)
    assert made.support == 77
