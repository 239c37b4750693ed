"""Staleness policies: the largest age of a contribution's base, and the weight by age.

>>> create("adaptive", max_staleness=50).bound(speed=0.3)
167
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from .catalog import CATALOG

if TYPE_CHECKING:
    from .base import StalenessPolicy

__all__ = ["CATALOG", "create", "names"]


def create(name: str, **options: Any) -> StalenessPolicy:
    """Create the policy `name`; UnknownNameError or OptionError, with the nearest known spelling, for others."""
    return cast("StalenessPolicy", CATALOG.create(name, **options))


def names() -> list[str]:
    """Return the names of all policies."""
    return CATALOG.names()
