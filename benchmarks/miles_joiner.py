"""Measure the cost of a joiner for the others: tokens a second of training workers before and during the join.

    python benchmarks/miles_joiner.py [--seconds 60] [--rate-mbit 10] [--rtt-ms 50]          as root

Processes in namespaces behind the emulated links of `miles_peers.py`. Once `--workers` have trained for a while, one
more starts: it fetches the manifest, the rows and a snapshot of the parameters over its own link. "Joining" lasts from
the start of its process to its first step. A worker's rate is that of the tasks that were accepted between the first
and the last acceptance of a window, so tasks are short (`--local-steps 5`) and stay so.
"""

from __future__ import annotations

import time

from miles_peers import BARNRAISE, arguments, networks, prepared, run_file
from peers.runs import Barnraise

from barnraise.ledger.outcomes import AssignmentRow

WARM_UP = 20.0
"""Seconds of training before anything is measured."""


def trained(assignments: list[AssignmentRow], node: str, start: float, stop: float) -> float:
    """Return the tokens a second of `node` from `start` to `stop`, by the ledger's clock.

    The node must submit at least twice in that time.
    """
    ends = sorted((row.stop, row.tokens) for row in assignments if row.node == node and row.stop is not None)
    within = [(end, tokens) for end, tokens in ends if start <= end <= stop]
    return sum(tokens for _, tokens in within[1:]) / (within[-1][0] - within[0][0])


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(seconds=60.0, tokens=10**7, local_steps=5)
    options = parser.parse_args()
    workers = options.workers
    with prepared(options) as bench:
        print(f"{'':<18}{'joining, s':>11}{'before':>9}{'joining':>9}{'ratio':>8}{'least':>8}   tokens/s of each other")
        for name in options.peer or BARNRAISE:
            options.workers = workers + 1
            trial = bench.trial(name, "link", 0)
            content = run_file(name, options, trial.folder, 0)
            content["training"]["max_local_steps"] = options.local_steps
            with networks(options, "link") as spaces, Barnraise(trial, spaces, content) as run:
                for _ in range(workers):
                    run.join()
                first = max(run.started().values()) + WARM_UP
                while time.monotonic() < first + options.seconds:
                    time.sleep(0.25)
                    run.assignments()  # often, to know the offset between the clocks
                before = time.monotonic()
                run.join()
                joined = run.started()[f"w{workers}"]
                time.sleep(20.0)  # until what was trained by then is accepted
                assignments = run.assignments()
                rates = []
                for number in range(workers):
                    usual = trained(assignments, f"w{number}", first - run.offset, before - run.offset)
                    rates.append((usual, trained(assignments, f"w{number}", before - run.offset, joined - run.offset)))
            usual, then = (sum(column) / workers for column in zip(*rates, strict=True))
            least = min(after / before for before, after in rates)
            print(f"{name:<18}{joined - before:>11.1f}{usual:>9.1f}{then:>9.1f}{then / usual:>8.1%}{least:>8.1%}")


if __name__ == "__main__":
    main()
