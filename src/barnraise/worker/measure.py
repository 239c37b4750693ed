"""Measurements of a worker's link from the times of its own transfers.

Pure functions of a report. A transfer that takes little longer than a round trip says only that the link is at least so
fast; a longer one measures its speed. Rates are bytes a second, times seconds.
"""

from __future__ import annotations

from msgspec.structs import replace

from barnraise.core.types import LinkReport

SMOOTHING = 0.5
"""Weight of the newest rate."""

CREEP = 0.1
"""Share of the way by which a longer round trip raises the shortest one."""

FEWEST = 16_384
"""Bytes of a transfer that measures a line's speed. Fewer fit into the first window of TCP (RFC 6928: ten segments) and
arrive at once, so they only give a lower bound."""

RESOLUTION = 1e-6
"""Seconds by which two round trips count as equal."""


def round_trip(link: LinkReport, seconds: float) -> LinkReport:
    """Record the round trip of a small message: near the shortest seen, and slowly up when the link has changed."""
    known = link.round_trip
    if seconds < 0.0 or abs(seconds - known) < RESOLUTION:
        return link
    return replace(link, round_trip=seconds if not known or seconds < known else known + CREEP * (seconds - known))


def uploaded(link: LinkReport, num_bytes: int, seconds: float) -> LinkReport:
    """Record a payload of `num_bytes` that was acknowledged `seconds` after it was begun."""
    rate = _rate(link.up, num_bytes, seconds, link.round_trip)
    return link if rate == link.up else replace(link, up=rate)


def downloaded(link: LinkReport, num_bytes: int, seconds: float) -> LinkReport:
    """Record blobs of `num_bytes` in all that came `seconds` after their request."""
    rate = _rate(link.down, num_bytes, seconds, link.round_trip)
    return link if rate == link.down else replace(link, down=rate)


def _rate(known: float, num_bytes: int, seconds: float, round_trip: float) -> float:
    if seconds <= 0.0 or num_bytes <= 0 or seconds < round_trip:  # it was here already: nothing crossed the link
        return known
    sample = num_bytes / max(seconds - round_trip, 0.1 * seconds)
    if num_bytes < FEWEST or seconds < 2.0 * round_trip:
        return max(known, sample)
    return sample if not known else known + SMOOTHING * (sample - known)
