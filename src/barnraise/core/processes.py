"""Cores, process limits, and parent-death signals on Linux."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent `parent` ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended first
        os._exit(1)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def limited_memory(more: int) -> Iterator[None]:
    """Limit this process to `more` bytes of memory beyond its present use while in the body.

    Allocations beyond that fail, as on a machine without free memory (RLIMIT_DATA). Without effect where the system has
    no such limit, or a lower one.
    """
    held = _private_bytes()
    if held is None:
        yield
        return
    import resource  # absent on Windows

    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = held + more
    lower = min((limit for limit in (before, most) if limit != resource.RLIM_INFINITY), default=wanted)
    resource.setrlimit(resource.RLIMIT_DATA, (min(wanted, lower), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def _private_bytes() -> int | None:
    """Return the bytes of private writable memory, as Linux counts them for RLIMIT_DATA; None elsewhere."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmData:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return None
