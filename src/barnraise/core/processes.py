"""What a process asks of the kernel about those it started, and those that started it (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """From now on this process is killed when `parent`, the one that started it, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was faster
        os._exit(1)


@contextlib.contextmanager
def limited_memory(more: int) -> Iterator[None]:
    """In the body this process can allocate `more` bytes beside those that it has: what goes beyond fails, as where a
    machine has no memory left (RLIMIT_DATA). Without effect where the system knows no such limit, or a lower one."""
    held = _private_bytes()
    if held is None:
        yield
        return
    import resource  # there is none on Windows

    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = held + more
    lower = min((limit for limit in (before, most) if limit != resource.RLIM_INFINITY), default=wanted)
    resource.setrlimit(resource.RLIMIT_DATA, (min(wanted, lower), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def _private_bytes() -> int | None:
    """Bytes of private memory that may be written to, as Linux counts them for RLIMIT_DATA; None elsewhere."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmData:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return None
