"""The inner optimizers over the flat vector of the parameters.

>>> optimizer = create("sgd", {"momentum": 0.5, "beta1": 0.9})
>>> optimizer.moment_names
('momentum',)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from barnraise.training.catalog import INNER as CATALOG

if TYPE_CHECKING:
    from .base import InnerOptimizer

__all__ = ["CATALOG", "create"]


def create(name: str, options: Mapping[str, float]) -> InnerOptimizer:
    """Create the inner optimizer `name`, with those of `options` that it takes; `bind` gives it the parameters."""
    known = CATALOG.entry(name).known_options
    given = {key: value for key, value in options.items() if key in known}
    return cast("InnerOptimizer", CATALOG.create(name, **given))
