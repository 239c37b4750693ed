"""Compiled loops for large vectors, on machines that have numba (the extra `fast`); numpy does the same elsewhere.

Both give the same payloads. The first use on a machine compiles the loops, which takes seconds; later processes load
them from numba's cache. A small vector never needs numba's import.
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
    except Exception:  # numba is missing, does not fit numpy, or its cache is damaged or cannot be written
        return None
