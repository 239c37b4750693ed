"""Tests in two sizes: `make test` runs the short form, `make campaigns` the long one of the same test."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sizes(short: Any, long: Any) -> list[Any]:
    """Return the values of a parameter for the short form of a test and for its long form, which is a campaign."""
    return [pytest.param(short, id="short"), campaign(long, id="long")]


def some(short: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Return the values of one parameter, of which `make test` tests those in `short`."""
    return [value if value in short else campaign(value) for value in values]


def campaign(*values: Any, id: str | None = None) -> Any:
    """Return values of parameters that only `make campaigns` tests."""
    return pytest.param(*values, id=id, marks=pytest.mark.campaign)
