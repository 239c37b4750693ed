"""The staleness policies by name; imports no torch."""

from __future__ import annotations

from barnraise.core.registry import Catalog, Entry, Option

_MAX = Option("max_staleness", int, 50, "Largest staleness of a node of median speed.", minimum=0, maximum=1_000_000)
_WEIGHTING = Option("weighting", str, "constant", "How staleness lowers a weight (`staleness.weighting`).")

FIXED, ADAPTIVE = "fixed", "adaptive"

CATALOG = Catalog(
    "staleness policy",
    "barnraise.staleness",
    [
        Entry(
            FIXED,
            "barnraise.staleness.fixed:Fixed",
            "one bound for all nodes",
            options=(_MAX, _WEIGHTING),
        ),
        Entry(
            ADAPTIVE,
            "barnraise.staleness.adaptive:Adaptive",
            "slower nodes may be staler",
            options=(
                _MAX,
                Option("min_staleness", int, 5, "The bound is never below this.", minimum=0, maximum=1_000_000),
                Option(
                    "max_staleness_multiplier",
                    float,
                    10.0,
                    "The bound is never above max_staleness times this.",
                    minimum=1,
                    maximum=1e6,
                ),
                _WEIGHTING,
            ),
        ),
    ],
)
