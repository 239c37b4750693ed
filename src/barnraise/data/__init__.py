"""Datasets: SAT formulas with reasoning traces, text, and the token shards they become.

Submodules are imported when first used, so `import barnraise.data` costs nothing.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = [
    "examples",
    "gathering",
    "lengths",
    "meta",
    "ranges",
    "sat",
    "shards",
    "text",
    "tokenizers",
]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"barnraise.data.{name}")
    raise AttributeError(f"module 'barnraise.data' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
