"""Interrupts of what runs outside an event loop."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from barnraise.assembly.signals import interruptible


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
