"""`make intrude`: 360,000 hostile frames at a live controller, over both transports, sybils that are there first,
10,000 attempts of the intrusion kit, and 5 million hostile events for the state machines. Prints what was measured
beside what it may be; exit status 1 when something is not as it has to be.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from . import live, machines
from .arena import SLOWDOWN, WAYS
from .intruders import intrude
from .sybils import besiege

PIECE = 100_000
"""Events that one process drives at a time."""
PROCESSES = 2
PATIENCE = 60.0
"""Seconds for which slow senders hold on: longer than any client may."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def attack(arguments: argparse.Namespace) -> list[str]:
    """The live part."""
    print(
        f"One honest worker, idle for {SLOWDOWN:g} s after each second of work; one hostile member at "
        f"{arguments.pace:g} frames/s, in turns of {arguments.seconds:g} s with peace, in which it makes its frames "
        "and throws them away.",
        flush=True,
    )
    missed = []
    for way in WAYS:
        with tempfile.TemporaryDirectory(prefix="intrude-") as folder:
            verdict = asyncio.run(
                live.measure(
                    Path(folder), way, frames=arguments.frames // len(WAYS), pace=arguments.pace,
                    seconds=arguments.seconds, lying_turns=arguments.lying_turns, seed=f"{arguments.seed} {way}",
                    say=say,
                )
            )  # fmt: skip
        print("\n".join(verdict.lines()), flush=True)
        missed += verdict.misses()
    return missed


def intruded(arguments: argparse.Namespace) -> list[str]:
    """The intrusion kit, in one arena whose honest worker is behind ZMQ."""
    with tempfile.TemporaryDirectory(prefix="intrude-") as folder:
        found = asyncio.run(
            intrude(
                Path(folder), WAYS[0], attempts=arguments.attempts, pace=arguments.attempts_pace,
                seconds=arguments.seconds, seed=arguments.seed, patience=PATIENCE, say=say,
            )
        )  # fmt: skip
    print("\n".join(found.lines()), flush=True)
    return found.misses()


def besieged(arguments: argparse.Namespace) -> list[str]:
    """Sybils that are there first, beside honest nodes, one of which is a real worker."""
    missed = []
    for way in WAYS:
        with tempfile.TemporaryDirectory(prefix="intrude-") as folder:
            found = asyncio.run(
                besiege(Path(folder), way, rounds=arguments.sybil_rounds, seed=f"{arguments.seed} {way}", worker=True)
            )
        print("\n".join(found.lines()), flush=True)
        missed += found.misses()
    return missed


def drive(arguments: argparse.Namespace) -> list[str]:
    """The state machines, each for half of the events, on two processes."""
    missed, began = [], time.monotonic()
    pieces = max(1, round(arguments.events / len(machines.MACHINES) / PIECE))
    share = arguments.events // len(machines.MACHINES) // pieces
    with ProcessPoolExecutor(PROCESSES) as pool:
        running = {
            name: [pool.submit(machines.campaign, name, share, f"{arguments.seed}.{piece}") for piece in range(pieces)]
            for name in machines.MACHINES
        }
        for name, futures in running.items():
            done = []
            for future in futures:
                try:
                    done.append(future.result())
                    say(f"{name}: {len(done)} of {pieces} pieces done")
                except machines.Failed as error:
                    print(f"  PROBLEM: {error}", flush=True)
                    missed.append(str(error))
            events, histories = sum(one.events for one in done), sum(one.histories for one in done)
            print(f"{name}: {events} events in {histories} histories, {len(futures) - len(done)} failed", flush=True)
    print(f"machines: {time.monotonic() - began:.0f} s", flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.intrude", description=__doc__)
    parser.add_argument("--frames", type=int, default=360_000, help="hostile frames over both transports (0: none)")
    parser.add_argument("--pace", type=float, default=1500.0, help="frames a second")
    parser.add_argument("--seconds", type=float, default=12.0, help="length of a turn of attack or peace")
    parser.add_argument(
        "--lying-turns", type=int, default=4, help="turns under a member that lies, over each transport"
    )
    parser.add_argument(
        "--sybil-rounds", type=int, default=30, help="contributions of each node beside sybils, over each transport"
    )
    parser.add_argument("--attempts", type=int, default=10_000, help="attempts of the intrusion kit (0: none)")
    parser.add_argument("--attempts-pace", type=float, default=60.0, help="attempts a second")
    parser.add_argument("--events", type=int, default=5_000_000, help="events for both state machines (0: none)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--replay", nargs=2, metavar=("MACHINE", "SEED"), help="one history, as a failure names it")
    arguments = parser.parse_args()
    if arguments.replay:
        machines.history(*arguments.replay)
        return 0
    missed = attack(arguments) if arguments.frames or arguments.lying_turns else []
    missed += besieged(arguments) if arguments.sybil_rounds else []
    missed += intruded(arguments) if arguments.attempts else []
    missed += drive(arguments) if arguments.events else []
    print("\n".join([f"MISSED: {one}" for one in missed] or ["all as it has to be"]))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
