"""Numbers of values that a trimmed mean drops a side, and of updates that it needs; imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from barnraise.core.errors import OptionError

DEFAULT_TRIM_RATIO = 0.25  # the interquartile mean
_SLACK = 1e-9  # tolerance: 0.29 * 100 is 28.999999999999996
_MANY = 1e15  # for a share of nearly 0


def trimmed_per_side(options: Mapping[str, Any], num_updates: int) -> int:
    """Return how many of `num_updates` values are dropped a side: f, or floor(trim_ratio * n).

    >>> trimmed_per_side({"f": None, "trim_ratio": 0.3}, 10)
    3
    """
    if options["f"] is not None:
        return int(options["f"])
    return share_of(_ratio(options), num_updates)


def share_of(share: float, num_updates: int) -> int:
    """Return how many of `num_updates` a share amounts to, rounded down.

    >>> share_of(0.29, 100), share_of(0.3, 3)
    (29, 0)
    """
    return math.floor(share * num_updates + _SLACK)


def fewest_for_one(share: float) -> int:
    """Return the fewest updates of which a share is at least one.

    >>> fewest_for_one(0.2), fewest_for_one(0.3)
    (5, 4)
    """
    return math.ceil(min(1 / share, _MANY) - _SLACK)


def trim_minimum(options: Mapping[str, Any]) -> int:
    """Return the fewest updates of which at least one a side is dropped and at least one is left.

    >>> trim_minimum({"f": None, "trim_ratio": 0.3}), trim_minimum({"f": 2, "trim_ratio": None})
    (4, 5)
    """
    if options["f"] is None:
        return fewest_for_one(_ratio(options))
    if options["trim_ratio"] is not None:
        raise OptionError(
            f"aggregation rule 'trimmed_mean' has both f and trim_ratio={options['trim_ratio']}, but takes one of them"
        )
    return 2 * int(options["f"]) + 1


def trim_limit(options: Mapping[str, Any]) -> str:
    """Return the minimum as a formula."""
    return "n >= 1/trim_ratio" if options["f"] is None else "n >= 2f+1"


def _ratio(options: Mapping[str, Any]) -> float:
    ratio = DEFAULT_TRIM_RATIO if options["trim_ratio"] is None else float(options["trim_ratio"])
    if not 0 < ratio < 0.5:
        raise OptionError(
            f"aggregation rule 'trimmed_mean': trim_ratio is {ratio} a side, but must be above 0 and below 0.5"
        )
    return ratio
