"""barnraise: train and fine-tune language models on machines that belong to many people.

Everything the command line does is here too; families load on first use, so importing this costs no torch.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__version__ = "0.1.0"

_MODULES = ("aggregation", "compression", "data", "matching", "models", "staleness", "training")

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"barnraise.{name}")
    raise AttributeError(f"module 'barnraise' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
