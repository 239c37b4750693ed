"""How workers train and how aggregates become versions; here the outer optimizers by name.

>>> import numpy as np
>>> outer, gradient = create("nesterov", learning_rate=0.5, momentum=0.5), np.array([1.0, -1.0], np.float32)
>>> outer.begin(2)
>>> outer.step(gradient)
>>> gradient.tolist()
[0.75, -0.75]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from .catalog import CATALOG

if TYPE_CHECKING:
    from .base import OuterOptimizer

__all__ = ["CATALOG", "create", "names"]


def create(name: str, **options: Any) -> OuterOptimizer:
    """Create the outer optimizer `name`; UnknownNameError or OptionError, with the nearest known one, for others."""
    return cast("OuterOptimizer", CATALOG.create(name, **options))


def names() -> list[str]:
    """Return the names of all outer optimizers."""
    return CATALOG.names()
