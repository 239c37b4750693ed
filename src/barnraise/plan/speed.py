"""The speed at which this machine's CPU trains, from the measured speed of a matrix product."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cache

from barnraise.config.trial_sections import WorkerSection
from barnraise.core.processes import usable_cores

EFFICIENCY = 0.4
"""Share of a matrix product's speed that training a small model on a CPU reaches."""


def cpu_flops(workers: Sequence[WorkerSection]) -> float:
    """Return the FLOP/s of local CPU workers that share the machine, all together; of one core where there are none."""
    fastest = max((worker.speed for worker in workers), default=1.0)
    threads = sum(worker.threads * worker.speed / fastest for worker in workers) or 1.0
    return EFFICIENCY * _operations_per_second() * min(usable_cores(), threads)


@cache
def _operations_per_second(size: int = 64, repeats: int = 200) -> float:
    """Measure the operations a second of a float32 matrix product on one core, once; the best of a few.

    It is small enough that no library splits it.
    """
    import numpy as np

    matrix = np.full((size, size), 0.5, dtype=np.float32)
    out = matrix @ matrix
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        np.matmul(matrix, matrix, out=out)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
