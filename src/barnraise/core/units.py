"""Quantities as text for users, and back."""

from __future__ import annotations

import math
import re

from barnraise.core.errors import InputError

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
LONGEST = 10.0 * 365 * 86_400


def bytes_text(num_bytes: float) -> str:
    """Format a number of bytes in decimal units.

    >>> bytes_text(999), bytes_text(1_569_812), bytes_text(2.5e12)
    ('999 B', '1.6 MB', '2.5 TB')
    """
    value, units = float(num_bytes), ["B", "kB", "MB", "GB", "TB", "PB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" or value >= 99.95 else f"{value:.1f} {units[0]}"


def duration_text(seconds: float) -> str:
    """Format seconds as the two largest units that matter.

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


def seconds_of(text: str, name: str) -> float:
    """Return the seconds of a duration such as 90min, for the option `name`. Raises InputError.

    >>> seconds_of("90min", "--expires"), seconds_of("1.5 h", "--expires"), seconds_of("2d", "--expires")
    (5400.0, 5400.0, 172800.0)
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([a-z]{0,3})", text.strip())
    if found is None or found[2] not in _SECONDS:
        unit = f"{found[1]}h or {found[1]}d" if found is not None and not found[2] else "90min, 36h or 2d"
        raise InputError(f"{name} {text[:40]!r} is no time: write it with a unit, as {unit}")
    seconds = float(found[1]) * _SECONDS[found[2]]
    if not 0.0 < seconds <= LONGEST:
        raise InputError(f"{name} {text!r} must be more than nothing, and at most 10 years (3650d)")
    return seconds


def count_text(count: int, noun: str) -> str:
    """Format a count with its noun.

    >>> count_text(1, "worker"), count_text(4, "worker")
    ('1 worker', '4 workers')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def loss_text(loss: float) -> str:
    """Format a loss in nats with three decimals; a small one with two significant digits.

    >>> loss_text(4.2513), loss_text(0.0314), loss_text(0.000214), loss_text(0.0)
    ('4.251', '0.031', '0.00021', '0.000')
    """
    if 0.0 < abs(loss) < 0.01:
        return f"{loss:.2g}" if abs(loss) < 1e-4 else f"{loss:.{1 - math.floor(math.log10(abs(loss)))}f}"
    return f"{loss:.3f}"
