"""A thread for each tracker, so that one that hangs holds up no other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from barnraise.account.tracking.base import Tracker, VersionFigures
from barnraise.core.text import printable

MOST_WAITING = 1000
"""Points that a tracker may have left from earlier calls; with as many left, and none taken meanwhile, it hangs."""


class TrackerThread:
    """Opens a tracker, gives it points and closes it, all on one thread that the end of the process does not wait for.

    `taken` is the row of the last point that the tracker took. Once `failure` is set it gets no further points.
    """

    def __init__(self, open_tracker: Callable[[], Tracker], taken: int) -> None:
        self.taken, self.failure = taken, ""
        self._open = open_tracker
        self._waiting = deque[VersionFigures]()
        self._changed = threading.Condition()
        self._busy, self._closing = False, False
        self._taken_before = -1  # at the last call of `give`
        self._thread = threading.Thread(target=self._work, daemon=True)

    def give(self, points: Iterable[VersionFigures]) -> None:
        """Pass points on to the tracker; the first call opens it. Does not wait."""
        with self._changed:
            if self.failure:
                return
            before, self._taken_before = self._taken_before, self.taken
            if len(self._waiting) >= MOST_WAITING and self.taken == before:
                self.failure = f"it hangs, and {len(self._waiting)} figures wait for it"
                return
            if self._thread.ident is None:
                self._busy = True  # until it is open
                self._thread.start()
            self._waiting += (point for point in points if point.row_id > self.taken)
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the tracker has taken all points or failed, for these seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: self.failure or not (self._busy or self._waiting), seconds)

    def close(self) -> None:
        """Have the tracker closed once it has taken all points. Does not wait."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def join(self, seconds: float | None = None) -> bool:
        """Wait until the tracker is closed, and return whether it is, within the seconds."""
        if self._thread.ident is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        tracker: Tracker | None = None
        try:
            tracker = self._open()
            while (point := self._next()) is not None:
                tracker.log(point)
                self.taken = point.row_id
        except BaseException as error:  # trackers raise exceptions of any type
            self._fail(error)
        try:
            if tracker is not None:
                tracker.close()
        except BaseException as error:
            self._fail(error)

    def _next(self) -> VersionFigures | None:
        """Return the next point, as soon as there is one; None when the tracker is to be closed."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._closing or self.failure)
            if self.failure or not self._waiting:
                return None
            self._busy = True
            return self._waiting.popleft()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self.failure = self.failure or text_of(error)
            self._changed.notify_all()


def text_of(error: BaseException) -> str:
    """Return the message of an exception, or its type where it has none."""
    return printable(str(error) or type(error).__name__)
