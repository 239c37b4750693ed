"""Check whether the machine is idle before a benchmark begins, so that a reader of its figures knows."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

SPIN_SECONDS = 0.5

IDLE_SHARE = 0.95
"""Least share of the cores that processes get on an idle machine."""

_SPIN = f"""
import time
end = time.monotonic() + {SPIN_SECONDS}
began, used = time.monotonic(), time.process_time()
while time.monotonic() < end:
    pass
print((time.process_time() - used) / (time.monotonic() - began))
"""


@dataclass(frozen=True)
class Machine:
    """A machine with `cores`. `load` is its load average of the last minute; `share` is which part of the cores one
    process for each of them got, all at the same time."""

    cores: int
    load: float
    share: float

    @property
    def idle(self) -> bool:
        """Whether other processes take none of the cores' time that a benchmark would notice."""
        return self.share >= IDLE_SHARE

    def __str__(self) -> str:
        state = "idle" if self.idle else "busy"
        cores = f"{self.cores} core{'s' * (self.cores != 1)}"
        return f"machine: {state} ({cores}, load {self.load:.1f}; spinning processes got {self.share:.0%} of them)"


def look() -> Machine:
    """Measure the state of this machine; takes less than two seconds of all cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0]
    command = [sys.executable, "-S", "-c", _SPIN]
    spins = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(cores)]
    return Machine(cores, load, sum(float(spin.communicate()[0]) for spin in spins) / cores)
