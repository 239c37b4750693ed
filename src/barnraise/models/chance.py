"""torch's random numbers, which all threads of a process share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LOOK_AGAIN = 0.5
"""Seconds after which a waiting thread looks whether the lock it waits for is still the one that counts."""

_turn = threading.RLock()
"""Held while a model is built, or a loss is computed that may draw: torch's generator is the process's."""


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Draw the random numbers of `seed`, undisturbed by other threads that use this; then as if none were drawn."""
    with one_at_a_time(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other thread uses torch's random numbers, and keep others waiting."""
    while not (held := _turn).acquire(timeout=_LOOK_AGAIN):
        pass  # the lock that counts may be another one by now
    try:
        yield
    finally:
        held.release()


def forsake() -> None:
    """Let others use torch's random numbers though a thread that has its turn does not end."""
    global _turn
    _turn = threading.RLock()
