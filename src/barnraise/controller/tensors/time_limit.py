"""Work of a user's code on a thread of its own, which is left behind when it takes too long."""

from __future__ import annotations

import threading
from collections.abc import Callable

from barnraise.models import chance
from barnraise.training.metrics.generation import Stopped

LOOKS_EVERY = 0.2
"""Seconds between looks whether the measurement is still wanted."""


class TookTooLongError(Exception):
    """The work did not end within its time."""


def within(seconds: float, work: Callable[[], None], stopped: Callable[[], bool]) -> None:
    """Do `work`, and raise what it raises; TookTooLongError after `seconds`, Stopped where `stopped` says so.

    In both cases its thread is left behind, since Python cannot end one. It has no turn at torch's random numbers any
    more, and ends with the process.
    """
    raised = list[BaseException]()

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=guarded, name="metric", daemon=True)
    thread.start()
    left = seconds
    while True:
        thread.join(min(LOOKS_EVERY, left))
        left -= LOOKS_EVERY
        if not thread.is_alive():
            break
        if stopped() or left <= 0:
            chance.forsake()
            raise Stopped if stopped() else TookTooLongError
    for error in raised:
        raise error
