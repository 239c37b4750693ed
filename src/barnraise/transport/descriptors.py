"""File descriptors: how many this process may have, and how many of them connections may take."""

from __future__ import annotations

import resource

WANTED = 16_384
"""What the soft limit is raised to where the hard one allows it: a login shell's is often 1,024."""

RESERVED = 256
"""Descriptors that no connection takes: the run's own files, its workers' pipes, and connections not yet counted."""


def raise_limit() -> int:
    """Let this process have as many descriptors as it wants and may; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= WANTED:
        return WANTED if soft == resource.RLIM_INFINITY else soft
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # some systems have a limit of their own below the hard one
        return soft
    return wanted


def for_connections(at_most: int) -> int:
    """Connections that one listener may have beside another: half of what is not reserved, `at_most` at the most."""
    return max(16, min(at_most, (raise_limit() - RESERVED) // 2))
