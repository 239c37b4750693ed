"""Quantities for people to read."""

from __future__ import annotations

import math


def bytes_text(num_bytes: float) -> str:
    """Bytes in decimal units.

    >>> bytes_text(999), bytes_text(1_569_812), bytes_text(2.5e12)
    ('999 B', '1.6 MB', '2.5 TB')
    """
    value, units = float(num_bytes), ["B", "kB", "MB", "GB", "TB", "PB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" or value >= 99.95 else f"{value:.1f} {units[0]}"


def duration_text(seconds: float) -> str:
    """Seconds as the two largest units that matter.

    >>> duration_text(4.2), duration_text(200), duration_text(8000), duration_text(2e5)
    ('4 s', '3 min 20 s', '2 h 13 min', '2 d 7 h')
    """
    if not math.isfinite(seconds):
        return "unknown"
    whole = round(seconds)
    for unit, larger, name, small in ((60, 3600, "min", "s"), (3600, 86_400, "h", "min"), (86_400, math.inf, "d", "h")):
        if unit <= whole < larger:
            rest = whole % unit // {"s": 1, "min": 60, "h": 3600}[small]
            return f"{whole // unit} {name} {rest} {small}" if rest else f"{whole // unit} {name}"
    return f"{whole} s"


def count_text(count: int, noun: str) -> str:
    """A count with its noun.

    >>> count_text(1, "worker"), count_text(4, "worker")
    ('1 worker', '4 workers')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
