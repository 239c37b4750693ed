"""Measure the bytes and the time of each codec, beside one copy of the vector and one torch.topk.

    python benchmarks/codecs.py

10 million float32 on one thread. Times are multiples of one `copy_` of the vector (the best any codec could do is about
one: it must read all of it), medians of `REPEATS` with the copy measured in between, in CPU time of the thread.
Bytes are those of a real payload, beside what the codec declares. Targets: sparse_loco encodes in <= 18 copies and adds
in <= 1, int8 encodes in <= 6, fp16 in <= 2; real bytes within 2% of the declared ones; sparse_loco <= 0.22 bits a
parameter.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from barnraise import compression

SIZE = 10_000_000
REPEATS = 9
OTHERS: dict[str, list[dict[str, Any]]] = {
    "int8": [{"rounding": "stochastic"}],
    "int4": [{"rounding": "stochastic"}],
    "entropy_coded": [{"bits": 1.6}],
}
"""Options that are measured beside a codec's defaults."""

CODECS = [(name, options) for name in compression.CATALOG.entries for options in [{}, *OTHERS.get(name, [])]]


def copies(work: Callable[[], Any], copy: Callable[[], Any], repeats: int) -> float:
    """Median CPU seconds of `work` over those of `copy`, taken in turns."""
    work()
    taken: dict[Callable[[], Any], list[float]] = {work: [], copy: []}
    for _ in range(repeats):
        for each in (copy, work):
            began = time.thread_time()
            each()
            taken[each].append(time.thread_time() - began)
    return statistics.median(taken[work]) / statistics.median(taken[copy])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    quick = parser.parse_args().quick
    measure(SIZE // 50 if quick else SIZE, 1 if quick else REPEATS)


def measure(size: int, repeats: int) -> None:
    """Every codec on a vector of `size`."""
    torch.set_num_threads(1)
    vector = torch.randn(size, generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(vector)

    def copy() -> None:
        out.copy_(vector)

    def topk() -> None:
        for start in range(0, size - (1 << 16), 1 << 16):
            vector[start : start + (1 << 16)].view(-1, 4096).abs().topk(64, dim=1)

    times = []
    for _ in range(2 * repeats):
        began = time.thread_time()
        copy()
        times.append(time.thread_time() - began)
    print(f"{size:,} float32, one thread; one copy_ takes {1000 * statistics.median(times):.1f} ms")
    print(f"torch.topk of 64 of each 4096, alone: {copies(topk, copy, repeats):.1f} copies\n")
    print(f"{'codec':<26}{'bits/param':>11}{'declared':>10}{'smaller':>9}{'encode':>8}{'decode':>8}{'add':>7}  error")
    for name, options in CODECS:
        codec = compression.create(name, **options)
        encoded = codec.encode(vector)
        error = float((codec.decode(encoded) - vector).norm() / vector.norm())
        label = name + "".join(f" {value}" for value in options.values())
        encode = copies(lambda codec=codec: codec.encode(vector), copy, repeats)
        decode = copies(lambda codec=codec, encoded=encoded: codec.decode(encoded, out=out), copy, repeats)
        add = copies(lambda codec=codec, encoded=encoded: codec.decode_add(encoded, out), copy, repeats)
        print(
            f"{label:<26}{8 * encoded.num_bytes / size:11.4f}{8 * codec.max_bytes(size) / size:10.4f}"
            f"{4 * size / encoded.num_bytes:8.1f}x{encode:8.1f}{decode:8.1f}{add:7.2f}  {error:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
