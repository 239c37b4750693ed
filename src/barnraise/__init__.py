"""barnraise: train and fine-tune language models on machines that belong to many people.

Everything the command line does is here too: `train`, `simulate`, `serve` and `join` are calls, the policies are
packages. All of it loads on first use, so importing this costs no torch.

>>> import barnraise
>>> barnraise.compression.create("topk", ratio=0.01).name
'topk'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnraise.assembly.calls import join, serve, simulate, train
    from barnraise.data.columns import RowColumn
    from barnraise.training.problem import Problem

__version__ = "0.1.0"

_MODULES = ("aggregation", "compression", "data", "matching", "models", "staleness", "training")

_CLASSES = {"Problem": "barnraise.training.problem", "RowColumn": "barnraise.data.columns"}

__all__ = ["Problem", "RowColumn", "__version__", *_MODULES, "join", "serve", "simulate", "train"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"barnraise.{name}")
    if name in _CLASSES:
        return getattr(importlib.import_module(_CLASSES[name]), name)
    if name in __all__:
        return getattr(importlib.import_module("barnraise.assembly.calls"), name)
    raise AttributeError(f"module 'barnraise' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
