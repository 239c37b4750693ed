"""Aggregation rules: n updates to one.

>>> import torch
>>> rule = create("trimmed_mean", f=1)
>>> rule(torch.tensor([[1.0], [2.0], [3.0], [1e8]])).tolist()
[2.5]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .catalog import (
    CATALOG,
    Inputs,
    beside_overview,
    falls_back,
    guaranteed,
    inputs,
    minimum,
    require,
    resolve,
    withstood,
)

if TYPE_CHECKING:
    from .base import Rule

__all__ = [
    "CATALOG",
    "Inputs",
    "beside_overview",
    "create",
    "falls_back",
    "guaranteed",
    "inputs",
    "minimum",
    "names",
    "require",
    "resolve",
    "withstood",
]


def create(
    name: str | Sequence[str], *, unguaranteed: bool = False, fallback: str | None = None, **options: Any
) -> Rule:
    """Build the rule `name`, or a chain such as ["nnm", "trimmed_mean"]: each member takes the options it knows.

    `unguaranteed`: it accepts as few updates as it can be computed from, below those for which its guarantee holds.
    `fallback`: the rule for fewer updates than it takes.

    Raises UnknownNameError or OptionError, with the nearest known spelling or the limit.
    """
    members = resolve(name, options, unguaranteed=unguaranteed)
    from .fallback import build

    return build(members, fallback)


def names() -> list[str]:
    """Return the names of all rules and pre-aggregations."""
    return CATALOG.names()
