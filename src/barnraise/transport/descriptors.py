"""Limits on file descriptors of the process, and the share that connections may take."""

from __future__ import annotations

import resource

WANTED = 16_384
"""The soft limit that is set where the hard one allows it: a login shell's is often 1,024."""

RESERVED = 256
"""Descriptors that no connection takes: the run's own files, its workers' pipes, and connections not yet counted."""


def raise_limit() -> int:
    """Raise the limit of descriptors as far as wanted and allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= WANTED:
        return WANTED if soft == resource.RLIM_INFINITY else soft
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # some systems have another limit below the hard one
        return soft
    return wanted


def for_connections(at_most: int) -> int:
    """Return how many connections one of two listeners may have: half of the unreserved ones, at most `at_most`."""
    return max(16, min(at_most, (raise_limit() - RESERVED) // 2))
