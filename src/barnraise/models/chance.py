"""torch's random numbers, which all threads of a process share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

ONE_AT_A_TIME = threading.RLock()
"""Held while a model is built, or a loss is computed that may draw: torch's generator is the process's."""


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Draw the random numbers of `seed`, undisturbed by other threads that use this; then as if none were drawn."""
    with ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
