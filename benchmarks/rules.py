"""What each aggregation rule costs in time and memory, beside the same rule of byzfl.

    python benchmarks/rules.py

32 updates of 10 million float32, f = 6, on one thread; the best of `REPEATS`, in CPU seconds of the thread. The floor
is one sum of all updates. Extra memory is the peak above the updates, output included. byzfl (0.0.11) is measured where
it is installed (`pip install '.[bench]'`), its rules alone, with their own defaults. Targets: Krum, geometric median 20
times as fast, Multi-Krum 14, trimmed mean and median 10, centered clipping 6; nnm+trimmed_mean and bulyan within 1.6 s;
64 MB.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from barnraise import aggregation

ROWS, SIZE, F, REPEATS = 32, 10_000_000, 6, 2
RULES: list[tuple[Any, dict[str, Any], Callable[[ModuleType], Any] | None]] = [
    ("krum", {"f": F}, lambda byzfl: byzfl.Krum(F)),
    ("multi_krum", {"f": F}, lambda byzfl: byzfl.MultiKrum(F)),
    ("geometric_median", {}, lambda byzfl: byzfl.GeometricMedian()),
    ("centered_clipping", {}, lambda byzfl: byzfl.CenteredClipping()),
    ("trimmed_mean", {"f": F}, lambda byzfl: byzfl.TrMean(F)),
    ("median", {}, lambda byzfl: byzfl.Median()),
    ("monna", {"f": F}, lambda byzfl: byzfl.MoNNA(F)),
    ("dnc", {"f": F}, None),
    ("bulyan", {"f": F}, None),
    (["nnm", "trimmed_mean"], {"f": F}, None),
    (["bucketing", "krum"], {"f": F}, None),
    (["worker_momentum", "centered_clipping"], {}, None),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    parser.add_argument("--size", type=int, default=SIZE, help="elements of an update")
    args = parser.parse_args()
    torch.set_num_threads(1)
    size, repeats = (100_000, 1) if args.quick else (args.size, REPEATS)
    updates = torch.randn(ROWS, size, generator=torch.Generator().manual_seed(0))
    byzfl = peer()
    floor, _ = cost(lambda: updates.sum(0), repeats)
    print(f"{ROWS} updates of {size:,}; the floor is {floor:.3f} s{'' if byzfl else '; byzfl is not installed'}\n")
    print(f"{'rule':36}{'s':>8}{'floors':>8}{'MB':>8}{'byzfl s':>10}{'times':>8}{'byzfl MB':>10}")
    for name, options, theirs in RULES:
        rule = aggregation.create(name, **options)
        seconds, extra = cost(lambda rule=rule: rule(updates), repeats)
        told = "+".join([name] if isinstance(name, str) else name)
        line = f"{told:36}{seconds:8.3f}{seconds / floor:8.1f}{extra / 1e6:8.0f}"
        if byzfl is not None and theirs is not None:
            other = theirs(byzfl)
            their_seconds, their_extra = cost(lambda other=other: other(updates), 1)
            line += f"{their_seconds:10.3f}{their_seconds / seconds:8.1f}{their_extra / 1e6:10.0f}"
        print(line, flush=True)


def cost(work: Callable[[], Tensor], repeats: int) -> tuple[float, int]:
    """CPU seconds, at best, and bytes that it takes at most."""
    best, most = float("inf"), 0
    for _ in range(repeats):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, began = _status("VmRSS"), time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
        most = max(most, _status("VmHWM") - before)
    return best, most


def _status(key: str) -> int:
    found = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return 1024 * int(found.split()[1])


def peer() -> ModuleType | None:
    """byzfl's rules, without its trainings and what these import; None where it is not installed."""
    spec = importlib.util.find_spec("byzfl")
    if spec is None:
        return None
    package = ModuleType("byzfl")
    package.__path__ = list(spec.submodule_search_locations or [])
    sys.modules["byzfl"] = package
    return importlib.import_module("byzfl.aggregators")


if __name__ == "__main__":
    main()
