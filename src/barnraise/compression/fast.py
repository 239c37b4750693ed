"""Compiled loops for large vectors, on machines that have numba (the extra `fast`); numpy does the same elsewhere.

Both give the same bytes. The first use of a loop on a machine compiles it, which takes seconds; later processes load it
from numba's cache. A small vector never needs numba's import.
"""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

WORTH = 1 << 24
"""Elements of a vector from which compiling pays within a few exchanges."""


def loops(size: int) -> ModuleType | None:
    """Return the module `loops` for a vector of `size` elements; None where numpy is to do the work."""
    return _loaded() if size >= WORTH else None


@cache
def _loaded() -> ModuleType | None:
    try:
        return importlib.import_module("barnraise.compression.loops")
    except (ImportError, RuntimeError):  # numba is missing, does not fit numpy, or finds no folder for its cache
        return None
