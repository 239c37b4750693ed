"""Thread pools for work on many items with results in their order, and for work that another thread carries out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


SPAN = 1 << 18
"""Elements of a vector that fit a processor's cache and are worth a call."""

SERIAL = 1 << 15
"""Elements that torch processes without starting threads of its own."""


def spans(size: int, length: int = SPAN) -> list[slice]:
    """Return slices of `length` elements that cover a vector of `size` elements.

    >>> spans(5, 3)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return [slice(start, min(start + length, size)) for start in range(0, size, length)]


class Crew:
    """A crew of `threads` threads that share items, such as the spans of a vector; with 1, the caller works alone.

    Work on an item must neither need nor change another item, so that results do not depend on `threads`. Use numpy, or
    torch for at most `SERIAL` elements: for more, torch starts threads of its own. The threads treat subnormal numbers
    as the first caller does, so a crew is for callers on one thread. A crew that `gives_way` leaves its cores to other
    threads after each item: else they take milliseconds to wake up.

    >>> Crew(2).each(lambda number: number * number, range(4))
    [0, 1, 4, 9]
    """

    def __init__(self, threads: int = 1, *, gives_way: bool = False) -> None:
        self._threads, self._gives_way = threads, gives_way
        self._pool = ThreadPoolExecutor(threads, "crew") if threads > 1 else None

    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Return the results of `work` on each of `items`, in order; raises the exception of the first that failed."""
        if self._pool is None:
            return [self._done(work(item)) for item in items]
        given = list(items)
        waiting, results, failed = iter(range(len(given))), dict[int, Result](), dict[int, BaseException]()

        def share() -> None:  # a thread takes one item after the other: a future for each costs more than short work
            while not failed and (number := next(waiting, None)) is not None:
                try:
                    results[number] = self._done(work(given[number]))
                except BaseException as error:
                    failed[number] = error

        for done in [self._pool.submit(share) for _ in range(self._threads)]:
            done.result()
        if failed:
            raise failed[min(failed)]
        return [results[number] for number in range(len(given))]

    def _done(self, result: Result) -> Result:
        if self._gives_way and hasattr(os, "sched_yield"):
            os.sched_yield()
        return result


class WorkQueue:
    """Carries work out one after the other: at once, or on the thread of a pool after `move_to`.

    >>> WorkQueue().submit(lambda: 5).result()
    5
    """

    def __init__(self) -> None:
        self._pool: Executor | None = None

    def move_to(self, pool: Executor) -> None:
        """Carry out all further work on `pool`, which has one thread."""
        self._pool = pool

    @property
    def beside(self) -> bool:
        """Return whether the work is carried out on another thread."""
        return self._pool is not None

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Return the future result of `work`; without a pool it is there, and exceptions are raised here."""
        return self._pool.submit(work) if self._pool is not None else finished(work())


def finished(result: Result) -> Future[Result]:
    """Return a future that has this result already."""
    future: Future[Result] = Future()
    future.set_result(result)
    return future


LATER = 10
"""The niceness of work for which no other thread of the process waits: it has a tenth of another one's share."""


def yield_to_others(niceness: int = 0) -> None:
    """Mark the thread as batch work: it keeps a core for longer, and heartbeats never wait for it.

    Linux adds `niceness` to that of the thread, and of those that it starts.
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + niceness)
