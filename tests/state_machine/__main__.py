"""`make histories`: random histories of masked lists, thousands of them. Exit status 1 when one fails."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from .masking import History, HostileHost

PIECE = 50
"""Seeds that one process plays at a time, each with an honest controller and with a hostile one."""


def play(seeds: range) -> tuple[Counter[str], list[str]]:
    """Play both histories of each seed; return how many ended in which way, and what was found."""
    ends, found = Counter[str](), []
    for seed in seeds:
        for kind in (History, HostileHost):
            history = kind(seed)
            try:
                history.play()
                history.check()
            except Exception as error:
                found.append(f"{kind.__name__}({seed}): {type(error).__name__}: {error}")
                continue
            ends[type(history.end).__name__ if isinstance(history, History) else f"{len(history.given)} released"] += 1
    return ends, found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.state_machine", description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000, help="how many; half have a hostile controller")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    began, ends, problems = time.monotonic(), Counter[str](), 0
    seeds = arguments.histories // 2
    pieces = [range(first, min(first + PIECE, seeds)) for first in range(0, seeds, PIECE)]
    with ProcessPoolExecutor(arguments.processes) as pool:
        for some, found in pool.map(play, pieces):
            ends += some
            problems += len(found)
            for problem in found:
                print(f"PROBLEM: {problem}\n", flush=True)
    told = ", ".join(f"{count:,} {end}" for end, count in sorted(ends.items()))
    print(f"{2 * seeds:,} histories, {time.monotonic() - began:.0f} s: {told}; {problems} found something")
    return problems > 0


if __name__ == "__main__":
    sys.exit(main())
