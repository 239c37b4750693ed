"""Handling of SIGINT and SIGTERM: the first asks for a good end, a later one ends the process at once.

Only a process's main thread receives signals: in other threads these functions change nothing. Handlers of the
interpreter receive both, and do not wait for a busy event loop.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM)

INTERRUPTED = 130
"""Exit code of a command that a signal ended."""

COME_AGAIN = 75
"""Exit code of a worker whose owner wanted the machine back: it may come again (EX_TEMPFAIL of sysexits.h)."""

FORCED = 1
"""Exit code of a command that could not end in time by itself."""

REPEATED = 1.0
"""Seconds within which a second signal counts as the first, sent twice (to a process and to its group)."""


AGAIN = 0.5
"""Seconds after which an interrupt that did not end anything is raised again."""


@contextlib.contextmanager
def on_signals(
    ask: Callable[[str], None], last_words: Callable[[], None], at_once: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Call `ask` with the name of the first signal in the body; on a later one call `last_words` and exit at once.

    The process must tolerate that end as it tolerates kill -9. For a coroutine: the event loop calls `ask` as soon as
    it can; the signal's handler calls `at_once` before that.
    """
    if not _heard():
        yield
        return
    import asyncio  # for coroutines alone: every command loads this module

    loop = asyncio.get_running_loop()
    asked_at: list[float] = []

    def signalled(number: int, frame: FrameType | None) -> None:
        if not asked_at:
            asked_at.append(time.monotonic())
            at_once()
            loop.call_soon_threadsafe(ask, signal.Signals(number).name)
        elif time.monotonic() - asked_at[0] > REPEATED:
            with contextlib.suppress(Exception):
                last_words()
            os._exit(INTERRUPTED)

    for number in NUMBERS:
        loop.add_signal_handler(number, lambda: None)  # a signal wakes the loop in any thread
        signal.signal(number, signalled)
    try:
        yield
    finally:
        for number in NUMBERS:
            loop.remove_signal_handler(number)


def end_within(seconds: float, last_words: Callable[[], None]) -> None:
    """End the process after `seconds`, with `last_words` and exit code FORCED, whatever its threads do then.

    It cannot be cancelled.
    """

    def end() -> None:
        with contextlib.suppress(Exception):
            last_words()
        os._exit(FORCED)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt in the body at once for both signals, in an event loop too.

    It is raised repeatedly until the body has ended, since an exception amidst an import may be lost in C code or in
    the callback of a weak reference. The interpreter's message about such a loss is not printed.
    """

    if not _heard():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)
        raise KeyboardInterrupt

    report = sys.unraisablehook

    def report_others(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            report(lost)

    numbers = (*NUMBERS, signal.SIGALRM)
    before = [signal.signal(number, interrupt) for number in numbers]
    sys.unraisablehook = report_others
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        sys.unraisablehook = report
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def handed_back() -> Iterator[None]:
    """Restore the handlers of the signals after the body, so that a caller keeps its own."""
    before = [(number, signal.getsignal(number)) for number in NUMBERS] if _heard() else []
    try:
        yield
    finally:
        for number, handler in before:
            if handler is not None:
                signal.signal(number, handler)


def _heard() -> bool:
    return threading.current_thread() is threading.main_thread()
