"""`make chaos`: small clusters under random fault plans, thousands of them. Exit status 1 when one finds something."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from .campaign import Done, Failed, campaign, described, play

PIECE = 100
"""Seeds that one process plays at a time."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one's number")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--replay", metavar="SEED", help="one of them, as a failure names it")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        return replay(arguments.replay)
    began, failed, done = time.monotonic(), 0, Done()
    last = arguments.first + arguments.seeds
    pieces = [range(first, min(first + PIECE, last)) for first in range(arguments.first, last, PIECE)]
    with ProcessPoolExecutor(arguments.processes) as pool:
        for future in [pool.submit(campaign, piece) for piece in pieces]:
            try:
                found = future.result()
            except Failed as error:
                failed += 1
                print(f"PROBLEM: {error}\n", flush=True)
            else:
                done.seeds, done.events = done.seeds + found.seeds, done.events + found.events
                done.faults, done.restarts = done.faults + found.faults, done.restarts + found.restarts
    print(
        f"{done.seeds:,} seeds, {done.events:,} events, {done.faults:,} faults planned, {done.restarts:,} restarts of "
        f"the controller, {time.monotonic() - began:.0f} s: {failed} of {len(pieces)} pieces found something"
    )
    return failed > 0


def replay(seed: str) -> int:
    try:
        cluster = play(seed)
    except Failed as error:
        print(error)
        return 1
    print(f"{described(cluster.case)}ended after {cluster.now:.1f} s: {cluster.end}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
