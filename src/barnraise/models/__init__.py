"""Hugging Face causal language models: described, built, held as one flat vector, measured, exported.

Submodules are imported when first used, so `import barnraise.models` costs nothing. Without torch: `architectures`,
`config`, `exchange` but for its `module`, `memory`. With it: `build`, `flat`, `export`.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["architectures", "build", "config", "exchange", "export", "flat", "memory"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"barnraise.models.{name}")
    raise AttributeError(f"module 'barnraise.models' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
