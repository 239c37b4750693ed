"""Interrupts of what runs outside an event loop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from barnraise.core.signals import FORCED, INTERRUPTED, interruptible


def _lose_one() -> None:
    """As C code does that asks whether an object has an attribute."""
    with contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    time.sleep(10)
    pytest.fail("it went on for ten seconds")


def test_an_interrupt_that_is_lost_on_its_way_is_raised_again() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
    with pytest.raises(KeyboardInterrupt), interruptible():
        _lose_one()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


LOST = """
import os, signal, time, weakref
from barnraise.core.signals import interruptible

class Lock:
    pass

with interruptible():
    try:
        lock = Lock()
        watch = weakref.ref(lock, lambda _: os.kill(os.getpid(), signal.SIGINT) or time.sleep(10))
        del lock  # the callback's interrupt is lost
        print("lost", flush=True)
        time.sleep(10)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""

BUSY = """
import asyncio, time
from barnraise.core.signals import on_signals

async def main():
    with on_signals(lambda name: print("asked", flush=True), lambda: print("last words", flush=True)):
        print("ready", flush=True)
        while True:  # the event loop hears nothing
            time.sleep(1.0)

asyncio.run(main())
"""

ENDLESS = """
import asyncio, threading, time
from barnraise.core.signals import end_within

def work():
    while True:
        time.sleep(1.0)

end_within(0.1, lambda: print("last words", flush=True))
threading.Thread(target=work).start()
"""


def test_nothing_is_printed_of_an_interrupt_that_is_lost_in_the_callback_of_a_weak_reference() -> None:
    """An import's lock has such a callback."""
    process = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, check=False)
    assert (process.stdout, process.stderr) == ("lost\ninterrupted\n", "")


def test_the_second_signal_ends_a_process_whose_event_loop_is_busy() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while process.poll() is None:  # the same signal within a second counts once
            os.kill(process.pid, signal.SIGTERM)
            time.sleep(0.1)
        assert process.stdout.read() == "last words\n"
    assert process.returncode == INTERRUPTED


def test_a_process_ends_in_time_whatever_its_threads_do() -> None:
    process = subprocess.run([sys.executable, "-c", ENDLESS], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (FORCED, "last words\n")
