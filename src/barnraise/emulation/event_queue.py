"""Virtual time: calls in the order of the times they are planned for."""

from __future__ import annotations

import gc
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import Any

Call = Callable[[Any, int, Any], None]
"""A planned call: a function of its target, the target's incarnation at the time of planning, and an argument."""

Entry = tuple[float, int, Call, Any, int, Any]

SLICES_A_SECOND = 16
COLLECT_EVERY = 200_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Search seldom for cycles of objects in the body.

    Machines and calls make none, and the search among a simulation's objects takes a tenth of its time.
    """
    usual = gc.get_threshold()
    gc.set_threshold(COLLECT_EVERY)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


class EventQueue:
    """Planned calls; those for one time run in the order of planning.

    Time is cut into slices. A call for a later slice is only appended to it; the calls of the current slice are a heap,
    small enough to stay in a processor's cache when a million calls are planned.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.stopped = False
        self._soon: deque[tuple[Call, Any, int, Any]] = deque()
        self._slice: list[Entry] = []  # a heap: everything before slice `_next`
        self._next = 0
        self._later: dict[int, list[Entry]] = {}
        self._numbers: list[int] = []  # numbers of the slices in `_later`, a heap
        self._count = 0

    def at(self, time: float, call: Call, target: Any, incarnation: int, argument: Any) -> None:
        """Plan a call for `time` (finite)."""
        self._count += 1
        entry = (time, self._count, call, target, incarnation, argument)
        number = int(time * SLICES_A_SECOND)
        if number < self._next:
            heappush(self._slice, entry)
            return
        later = self._later.get(number)
        if later is None:
            self._later[number] = [entry]
            heappush(self._numbers, number)
        else:
            later.append(entry)

    def soon(self, call: Call, target: Any, incarnation: int, argument: Any) -> None:
        """Plan a call for now, after the current one."""
        self._soon.append((call, target, incarnation, argument))

    def advance(self, until: float = math.inf) -> None:
        """Make the calls until nothing is left, `stopped` is set, or the next one is after `until`."""
        with seldom_collected():
            self._make_calls(until)

    def _make_calls(self, until: float) -> None:
        soon, under_way = self._soon, self._slice
        while not self.stopped:
            if soon:
                call, target, incarnation, argument = soon.popleft()
            elif under_way:
                if under_way[0][0] > until:
                    return
                self.now, _, call, target, incarnation, argument = heappop(under_way)
            elif self._open_slice():
                under_way = self._slice
                continue
            else:
                return
            call(target, incarnation, argument)

    def _open_slice(self) -> bool:
        """Open the next slice with calls in it; False when there is none."""
        if not self._numbers:
            return False
        number = heappop(self._numbers)
        self._slice, self._next = self._later.pop(number), number + 1
        heapify(self._slice)
        return True
