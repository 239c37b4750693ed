"""What a joiner costs the others: tokens a second of those that train, before one more worker joins and while it does.

    python benchmarks/miles_joiner.py [--seconds 60] [--rate-mbit 10] [--rtt-ms 50]          as root

Processes in namespaces behind the emulated links of `miles_peers.py`. Once `--workers` have trained for a while, one
more starts: it fetches the manifest, the rows and a snapshot of the parameters over its own link. "Joining" lasts from
the start of its process to its first step. What others trained in a window is their accepted tasks' tokens, those of
tasks that reach beyond it by the share of their time that lies within.
"""

from __future__ import annotations

import time

from miles_peers import BARNRAISE, arguments, networks, prepared, run_file
from peers.runs import Barnraise

from barnraise.ledger.view import Piece

WARM_UP = 20.0
"""Seconds of training before anything is measured."""


def trained(pieces: list[Piece], node: str, start: float, stop: float) -> float:
    """Tokens a second of `node` between two moments of the ledger's clock."""
    tokens = 0.0
    for piece in pieces:
        if piece.node == node and piece.stop is not None:
            within = min(stop, piece.stop) - max(start, piece.start)
            tokens += piece.tokens * max(0.0, within) / (piece.stop - piece.start)
    return tokens / (stop - start)


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(seconds=60.0, tokens=10**8)
    options = parser.parse_args()
    workers = options.workers
    with prepared(options) as bench:
        print(f"{'':<18}{'joining, s':>11}{'before':>9}{'joining':>9}{'ratio':>8}{'least':>8}   tokens/s of each other")
        for name in options.peer or BARNRAISE:
            options.workers = workers + 1
            trial = bench.trial(name, "link", 0)
            with (
                networks(options, "link") as spaces,
                Barnraise(trial, spaces, run_file(name, options, trial.folder, 0)) as run,
            ):
                for _ in range(workers):
                    run.join()
                first = max(run.started().values()) + WARM_UP
                time.sleep(max(0.0, first + options.seconds - time.monotonic()))
                before = time.monotonic()
                run.join()
                joined = run.started()[f"w{workers}"]
                time.sleep(20.0)  # until what was trained by then is accepted
                pieces = run.pieces()
                rates = []
                for number in range(workers):
                    usual = trained(pieces, f"w{number}", first - run.offset, before - run.offset)
                    rates.append((usual, trained(pieces, f"w{number}", before - run.offset, joined - run.offset)))
            usual, then = (sum(column) / workers for column in zip(*rates, strict=True))
            least = min(after / before for before, after in rates)
            print(f"{name:<18}{joined - before:>11.1f}{usual:>9.1f}{then:>9.1f}{then / usual:>8.1%}{least:>8.1%}")


if __name__ == "__main__":
    main()
