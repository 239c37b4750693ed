"""What a worker learns of its link from how long its own transfers take. Pure functions of a report.

A transfer that takes little longer than a round trip says only that the link is at least so fast; a longer one says
how fast it is. Rates are bytes a second, times seconds.
"""

from __future__ import annotations

from msgspec.structs import replace

from barnraise.core.types import LinkReport

SMOOTHING = 0.5
"""Weight of the newest rate."""

CREEP = 0.1
"""Share of the way by which a round trip that was longer than the shortest one lifts it."""

FEWEST = 16_384
"""Bytes of a transfer that says how fast a line is. Fewer fit into the first window of TCP (RFC 6928: ten segments) and
arrive at once, so they say only that the line is at least so fast."""

RESOLUTION = 1e-6
"""Seconds by which a round trip that is no news differs at most."""


def round_trip(link: LinkReport, seconds: float) -> LinkReport:
    """A small message came back after `seconds`: near the shortest seen, and slowly up when the link has changed."""
    known = link.round_trip
    if seconds < 0.0 or abs(seconds - known) < RESOLUTION:
        return link
    return replace(link, round_trip=seconds if not known or seconds < known else known + CREEP * (seconds - known))


def uploaded(link: LinkReport, num_bytes: int, seconds: float) -> LinkReport:
    """A payload of `num_bytes` was acknowledged `seconds` after it was begun."""
    return replace(link, up=_rate(link.up, num_bytes, seconds, link.round_trip))


def downloaded(link: LinkReport, num_bytes: int, seconds: float) -> LinkReport:
    """Blobs of `num_bytes` in all came `seconds` after they were asked for."""
    return replace(link, down=_rate(link.down, num_bytes, seconds, link.round_trip))


def _rate(known: float, num_bytes: int, seconds: float, round_trip: float) -> float:
    if seconds <= 0.0 or num_bytes <= 0 or seconds < round_trip:  # it was at hand: nothing crossed the link
        return known
    sample = num_bytes / max(seconds - round_trip, 0.1 * seconds)
    if num_bytes < FEWEST or seconds < 2.0 * round_trip:
        return max(known, sample)
    return sample if not known else known + SMOOTHING * (sample - known)
