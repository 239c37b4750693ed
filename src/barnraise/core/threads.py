"""Work on many pieces at once, with results in the order of the pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


SPAN = 1 << 18
"""Elements of a vector that are worth a call, and fit a processor's cache."""

SERIAL = 1 << 15
"""Elements that torch works on without threads of its own."""


def spans(size: int, span: int = SPAN) -> list[slice]:
    """The elements of a vector, `span` at a time.

    >>> spans(5, 3)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return [slice(start, min(start + span, size)) for start in range(0, size, span)]


class Crew:
    """`threads` threads that share the pieces of a whole; with one, the caller does them itself.

    What is done to a piece must neither need another piece nor change it: then results do not depend on `threads`.
    Use numpy there, or torch for `SERIAL` elements at most, else it starts threads of its own. The threads treat
    subnormal numbers as the first caller does, so a crew is for callers on one thread.

    >>> Crew(2).each(lambda piece: piece * piece, range(4))
    [0, 1, 4, 9]
    """

    def __init__(self, threads: int = 1) -> None:
        self._pool = ThreadPoolExecutor(threads, "crew") if threads > 1 else None

    def each(self, work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> list[Result]:
        """`work` done to each of `pieces`, in order; raises what the first that failed has raised."""
        return list(self._pool.map(work, pieces) if self._pool is not None else map(work, pieces))
