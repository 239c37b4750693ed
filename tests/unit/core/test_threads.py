"""Crews of threads that share items."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from barnraise.core.threads import Crew


@pytest.mark.parametrize("gives_way", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_crew_returns_results_in_order_and_takes_each_item_once(threads: int, *, gives_way: bool) -> None:
    taken: list[int] = []

    def work(number: int) -> int:
        taken.append(number)
        return number * number

    assert Crew(threads, gives_way=gives_way).each(work, iter(range(1000))) == [
        number * number for number in range(1000)
    ]
    assert sorted(taken) == list(range(1000))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_crew_raises_the_exception_of_the_first_item_that_failed_and_works_on(threads: int) -> None:
    crew = Crew(threads)

    def work(number: int) -> int:
        if number >= 3:
            raise ValueError(number)
        return number

    for _ in range(20):
        with pytest.raises(ValueError, match=r"^3$"):
            crew.each(work, range(100))
    assert crew.each(work, range(3)) == [0, 1, 2]


def test_the_threads_of_a_crew_work_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=20)
    assert len(Crew(2).each(lambda _: both.wait(), range(2))) == 2


def test_a_crew_of_no_items_has_no_results() -> None:
    nothing: Iterator[int] = iter(())
    assert Crew(2).each(lambda number: number, nothing) == []
