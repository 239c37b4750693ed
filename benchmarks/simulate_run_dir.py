"""Measure how much slower a simulation is that leaves a run directory: 10,000 nodes, work costed only.

    python benchmarks/simulate_run_dir.py [--nodes 10000] [--hours 0.25] [--turns 3] [--json]

Each turn is the run of `benchmarks/simulate.py`, once without and once with `--run-dir`, in processes of their own; the
order changes from turn to turn. CPU seconds are those of all threads of the process, which other work on the machine
disturbs less than seconds of the clock. The ratio is the median over the turns of with over without. Both write the
same history: their ledger hashes are equal, and that of the rows in the folder, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

from _machine import look
from simulator_speed import run

from barnraise.core.units import bytes_text
from barnraise.ledger import LedgerHash, LedgerView, RunDirectory

TARGET = 1.25
"""Most seconds with a run directory over those without."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=0.25)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.nodes, options.hours, options.turns = 200, 0.2, 1
    shared = ["--nodes", str(options.nodes), "--hours", str(options.hours)]
    turns, machine = [], look()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        for turn in range(options.turns):
            place = Path(folder) / f"turn-{turn}"
            forms = {"without": shared, "with": [*shared, "--run-dir", str(place)]}
            names = ["without", "with"] if turn % 2 == 0 else ["with", "without"]
            found = {name: run(forms[name]) for name in names}
            ledger = RunDirectory(place).ledger
            with LedgerView(ledger) as view:
                rows, kept = view.head.rows, LedgerHash(decision for _, decision in view.replay()).hexdigest()
            hashes = {kept, *(one["ledger_hash"] for one in found.values())}
            if len(hashes) != 1:
                raise SystemExit(f"the histories differ: {', '.join(sorted(hashes))}")
            size = ledger.stat().st_size
            turns.append(found)
    ratios = {
        name: [one["with"][name] / one["without"][name] for one in turns] for name in ("cpu_seconds", "whole_seconds")
    }
    if options.json:
        print(json.dumps({"rows": rows, "bytes": size, "ratios": ratios, "turns": turns}))
        return
    print(machine)
    print(f"{options.nodes:,} nodes for {options.hours:g} virtual h, {turns[0]['with']['events']:,} events")
    print(f"a ledger of {rows:,} rows, {bytes_text(size)}; its hash is that of the simulation, {hashes.pop()[:12]}")
    print(f"{'':14}{'without':>12}{'with':>12}{'ratio':>10}{'from, to':>16}{'target':>12}")
    for name, label in (("cpu_seconds", "CPU seconds"), ("whole_seconds", "seconds")):
        without, with_it = (statistics.median(one[form][name] for one in turns) for form in ("without", "with"))
        spread = f"{min(ratios[name]):.2f}, {max(ratios[name]):.2f}"
        ratio = statistics.median(ratios[name])
        print(f"{label:14}{without:>12.1f}{with_it:>12.1f}{ratio:>10.2f}{spread:>16}{f'<= {TARGET}':>12}")


if __name__ == "__main__":
    main()
