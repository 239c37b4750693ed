"""Measure the time and the memory of each aggregation rule, beside the same rule of byzfl.

    python benchmarks/rules.py                  # dense updates in memory
    python benchmarks/rules.py --contributions  # what contributions hold, decoded span by span: n = 8 and 16, d = 1e8
    python benchmarks/rules.py --agree          # whether both come to the same, on random, tied and degenerate updates

32 updates of 10 million float32, f = 6, on one thread; the median of `REPEATS`, in CPU seconds of the thread. The floor
is one sum of all updates. Extra memory is the peak above the updates, output included. byzfl (0.0.11) is measured where
it is installed (`pip install '.[bench]'`), its rules alone, with their own defaults. Targets: Krum, geometric median 20
times as fast, Multi-Krum 14, trimmed mean and median 10, centered clipping 6; nnm+trimmed_mean and bulyan within 1.6 s;
64 MB. The rules over contributions give their result span by span, as the controller takes it: extra memory is what
lies above the payloads.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from barnraise import aggregation, compression
from barnraise.aggregation.base import Combination, Rule
from barnraise.compression.base import Reader
from barnraise.core.threads import spans

ROWS, SIZE, F, REPEATS = 32, 10_000_000, 6, 3
CASES, SORTS = 3000, ("random", "ties", "three values", "two far", "all the same")
CONTRIBUTED, CODECS = 100_000_000, (("int8", {}), ("topk", {"ratio": 0.01}))
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
    parser.add_argument("--agree", action="store_true", help="compare results with byzfl's instead of costs")
    parser.add_argument("--contributions", action="store_true", help="sparse and 8-bit ones instead of dense updates")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.agree:
        agreement(200 if args.quick else CASES)
        return
    if args.contributions or args.quick:
        contributions(1_000_000 if args.quick else CONTRIBUTED)
    if args.contributions:
        return
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


def agreement(cases: int) -> None:
    """Prints of how many cases each rule comes to what byzfl's comes to, at a relative 1e-4 of the largest element.

    Its Krum adds up one neighbour more than the paper's, n-f-1, so ours with f=1 is its with f=2; where distances are
    equal its choice of neighbours is the partition's, ours the first.
    """
    byzfl = peer()
    if byzfl is None:
        raise SystemExit("byzfl is not installed: pip install '.[bench]'")
    before = importlib.import_module("byzfl.aggregators.preaggregators")
    pairs: list[tuple[Any, dict[str, Any], Callable[[Any], Any]]] = [
        ("mean", {}, byzfl.Average()),
        ("median", {}, byzfl.Median()),
        ("trimmed_mean", {"f": 2}, byzfl.TrMean(2)),
        ("krum", {"f": 1}, byzfl.Krum(2)),
        ("multi_krum", {"f": 2}, byzfl.MultiKrum(2)),
        ("centered_clipping", {"tau": 1.5, "iterations": 2}, lambda x: byzfl.CenteredClipping(None, 2, 1.5)(x)),
        (["nnm", "trimmed_mean"], {"f": 2}, lambda x: byzfl.TrMean(2)(before.NNM(2)(x))),
        (["nnm", "median"], {"f": 2}, lambda x: byzfl.Median()(before.NNM(2)(x))),
        (["arc", "mean"], {"f": 2}, lambda x: before.ARC(2)(x).mean(axis=0)),
    ]
    print(f"{cases:,} cases, five sorts by turns; the same, by sort")
    for name, options, theirs in pairs:
        rule, same = aggregation.create(name, **options), Counter[str]()
        for number in range(cases):
            sort, x = case(number)
            found, other = rule(torch.from_numpy(x.copy())).numpy(), np.asarray(theirs(x.copy()))
            same[sort] += bool(np.abs(found - other).max() <= 1e-4 * max(1e-9, float(np.abs(other).max())))
        told = ", ".join(f"{sort} {count}" for sort, count in same.items())
        print(
            f"{'+'.join([name] if isinstance(name, str) else name):24}{same.total():6,} of {cases:,}: {told}",
            flush=True,
        )


def case(number: int) -> tuple[str, Any]:
    """Whole numbers where there are ties, so that sums are exact."""
    random = np.random.default_rng(number)
    n, size = int(random.integers(11, 17)), int(random.integers(1, 30))
    x = random.normal(size=(n, size))
    sort = SORTS[number % len(SORTS)]
    if sort == "ties":
        x = random.integers(-2, 3, size=(n, size)).astype(float)
    elif sort == "three values":
        x = random.integers(-9, 10, size=(3, size)).astype(float)[random.integers(0, 3, size=n)]
    elif sort == "two far":
        x[:2] *= 10.0 ** float(random.integers(-6, 7))
    elif sort == "all the same":
        x = np.repeat(x[:1].round(), n, axis=0)
    return sort, x


def contributions(size: int) -> None:
    """Prints what rules cost whose updates are payloads."""
    print(f"{'contributions':16}{'n':>4} {'rule':36}{'s':>8}{'MB':>8}")
    noise = torch.randn(size + 16_000, generator=torch.Generator().manual_seed(0))
    for name, options in CODECS:
        codec = compression.create(name, **options)
        payloads = [codec.encode(noise[1000 * row :][:size]) for row in range(16)]
        readers = [codec.open(payload, size) for payload in payloads]
        for num, names in ((8, "krum"), (16, "krum"), (8, ["nnm", "trimmed_mean"]), (16, ["nnm", "trimmed_mean"])):
            rule = aggregation.create(names, f=2)
            seconds, extra = cost(lambda rule=rule, given=readers[:num]: combined(rule, given, size), 1)
            told = "+".join([names] if isinstance(names, str) else names)
            print(f"{name:16}{num:4} {told:36}{seconds:8.3f}{extra / 1e6:8.0f}", flush=True)


def combined(rule: Rule, readers: list[Reader], size: int) -> Tensor:
    def read(row: int, start: int, out: Any) -> None:
        readers[row].read(start, out)

    combination, out = Combination(rule, read, len(readers), size, None), np.empty(1 << 18, np.float32)
    for span in spans(size, out.size):
        combination.into(span.start, out[: span.stop - span.start])
    return torch.from_numpy(out)


def cost(work: Callable[[], Tensor], repeats: int) -> tuple[float, int]:
    """CPU seconds, the median, and bytes that it takes at most."""
    seconds, most = [], 0
    for _ in range(repeats):
        ctypes.CDLL(None).malloc_trim(0)  # else what was freed hides what is taken
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before, began = _status("VmRSS"), time.thread_time()
        work()
        seconds.append(time.thread_time() - began)
        most = max(most, _status("VmHWM") - before)
    return statistics.median(seconds), most


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
