"""Staleness policies: how old a contribution's base may be, and what its age costs it.

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
    """The policy `name`; UnknownNameError or OptionError, with the nearest known spelling, when there is none such."""
    return cast("StalenessPolicy", CATALOG.create(name, **options))


def names() -> list[str]:
    """The names of all policies."""
    return CATALOG.names()
