"""Try recipes on formulas of 4 to 6 variables that need search, and tabulate what each reaches by tokens.

    python benchmarks/sat_search.py --results runs/sat-search.jsonl --tokens 20e6      one trial after the other
    python benchmarks/sat_search.py --results FILE --device cuda --jobs 10 --limit 280  ten share a card, for 280 s
    python benchmarks/sat_search.py --results FILE --trials base learnt                 these alone
    python benchmarks/sat_search.py --results FILE --table                              the tables of what FILE has

Each trial is the loop of a lone worker: barnraise's rows, steps and scores, without a controller. All trials but `long`
have the same tokens, and a cosine over them. Each one changes one thing of `base`, the demo's recipe (see
`_sat_trials.py`). At some points of the training, and at the end, the model writes a trace for held-out formulas that
need search, 300 of each number of variables, and barnraise's checker judges them; formulas of 7 variables are beyond
training. `general` has other sets: more variables, other ratios and families; `general-literals` also crafted formulas,
and with `--uf20` SATLIB's smallest.
Targets: 95% of verdicts and 90% of whole traces.

With `--limit` the trials are cut in time for a last evaluation; the table says which were cut, before their rate had
come down. Trials with equal data share a dataset, which is made before the first trial begins, within the limit. A
trial's points are kept at each of its evaluations, also if it is killed; a finished trial is not repeated.

Trials of one card take turns, unless CUDA's multi-process service lets their kernels run at the same time: `--mps`
starts it for them. `--graphs` starts the kernels of a pass at once (CUDA graphs; not GPT-Neo's), and `--set
training.compile=auto` joins them into fewer; both take time to begin.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from _races import Known
from _sat_loop import Loop, Tried, dataset_folder, play, prepare
from _sat_tables import groups, passed, points, reached
from _sat_trials import RECIPES, content
from demo import given

from barnraise.config import load
from barnraise.plan import Purpose, resolve
from barnraise.plan.resolve import Plan

QUICK = ["--tokens", "40e3", "--points", "2", "--formulas", "4", "--set", "data.held_out=4"]
"""Options of a trial in small."""


def plan_of(name: str, options: argparse.Namespace) -> Plan:
    return resolve(load(content(name, options)), purpose=Purpose.SIMULATE, nodes=1)


def machine(device: str) -> str:
    """Return the name of the card, or of the CPU's architecture and its number of cores."""
    if device == "cpu":
        return f"{platform.machine()}, {os.cpu_count()} cores"
    return torch.cuda.get_device_name(device)


def key_of(name: str, options: argparse.Namespace) -> list[object]:
    text = json.dumps([content(name, options), options.tokens, options.points, RECIPES[name].formulas], sort_keys=True)
    return [name, options.device, hashlib.sha256(text.encode()).hexdigest()[:16]]


def try_one(name: str, options: argparse.Namespace) -> None:
    """Play one trial in this process, and keep what it finds."""
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    plan, recipe, known = plan_of(name, options), RECIPES[name], Known(options.results)
    folder = prepare(plan, options.data)
    loop = Loop(plan, folder, options.device, recipe.formulas, graphs=options.graphs)
    budget = round(options.tokens * recipe.budget)
    tried = Tried(name, machine(options.device), loop.parameters, loop.formulas, budget, [])

    def keep(found: Tried) -> None:
        known.add(key_of(name, options), found)
        print(list(points(found))[-1], found.end, flush=True)

    play(loop, tried, options.points, options.formulas, lambda: options.until - time.time(), keep)


def begin(action: str, name: str, options: argparse.Namespace) -> int:
    """Run this script for one trial or dataset in a process of its own; return its exit status."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(options.threads))
    command = [sys.executable, __file__, *sys.argv[1:], action, name, "--until", str(options.until)]
    command += ["--results", str(options.results), "--data", str(options.data)]
    status = subprocess.run(command, env=environment, check=False).returncode
    if status:
        print(f"{name}: ended with status {status}", flush=True)
    return status


def campaign(names: Sequence[str], options: argparse.Namespace) -> None:
    """Make the datasets of the trials, then play these, `--jobs` at a time."""
    began = time.monotonic()
    wanted = {dataset_folder(plan_of(name, options), options.data): name for name in names}
    missing = [name for folder, name in wanted.items() if not folder.exists()]
    with ThreadPoolExecutor(options.jobs) as pool:
        failed = sum(pool.map(lambda name: begin("--prepare", name, options), missing))
        print(f"{len(missing)} datasets made in {time.monotonic() - began:.0f} s", flush=True)
        if failed:
            raise SystemExit(f"{failed} datasets failed")

        def trial(name: str) -> int:
            if time.time() > options.until:
                print(f"{name}: no time is left for it; give more --jobs or a longer --limit", flush=True)
                return 1
            return begin("--trial", name, options)

        with service() if options.mps else contextlib.nullcontext():
            list(pool.map(trial, names))


@contextlib.contextmanager
def service() -> Iterator[None]:
    """Keep CUDA's multi-process service running while the context is open, for the processes that begin in it."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        control = "nvidia-cuda-mps-control"
        subprocess.run([control, "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run([control], input="quit\n", text=True, check=False)
            del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]


def tables(found: Sequence[Tried], curves: bool) -> None:
    """Print the tables of these trials, and their curves."""
    order = list(RECIPES)
    for here in groups(sorted((one for one in found if one.curve), key=lambda one: order.index(one.name))):
        told = "verdicts / whole traces on formulas that need search, in percent, with 95% intervals"
        print(f"\n{here[0].machine}; {told}\n")
        print("\n".join(reached(here)))
        print("\nTokens after which verdicts are first at 95% and whole traces at 90%, or the nearest miss\n")
        print("\n".join(passed(here)))
        if curves:
            print()
            print("\n".join(line for one in here for line in points(one)))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", nargs="+", choices=RECIPES, default=list(RECIPES), help="all, if left out")
    parser.add_argument("--tokens", type=float, default=20e6, help="of each trial")
    parser.add_argument("--fresh", type=float, help="tokens of rows to make, if fewer: trained on repeatedly")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="trials at the same time")
    parser.add_argument("--threads", type=int, default=1, help="of each trial")
    parser.add_argument("--limit", type=float, default=1e6, help="seconds after which all trials end")
    parser.add_argument("--points", type=int, default=8, help="evaluations of a trial")
    parser.add_argument("--formulas", type=int, default=300, help="of each number of variables in an evaluation")
    parser.add_argument("--seed", type=int, default=0, help="of the model, the formulas and the rows")
    parser.add_argument("--set", action="append", default=[], type=given, metavar="SECTION.KEY=VALUE")
    parser.add_argument("--data", type=Path, default=Path("runs/sat-search-data"), help="folder of the datasets")
    parser.add_argument("--results", type=Path, help="a file of trials that are done; new ones are added")
    parser.add_argument("--graphs", action="store_true", help="CUDA graphs")
    parser.add_argument("--mps", action="store_true", help="CUDA's multi-process service")
    parser.add_argument("--uf20", type=Path, metavar="FOLDER", help="SATLIB's uf20, for `general-literals`")
    parser.add_argument("--table", action="store_true", help="only print the tables of the results")
    parser.add_argument("--curves", action="store_true", help="print the learning curves as well")
    parser.add_argument("--quick", action="store_true", help="does it run? tiny, and its figures say nothing")
    for hidden in ("--trial", "--prepare"):
        parser.add_argument(hidden, choices=RECIPES, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    options = arguments().parse_args()
    if options.quick:
        options = arguments().parse_args([*QUICK, *sys.argv[1:]])
        options.trials = options.trials if "--trials" in sys.argv else ["base"]
    options.until = options.until or time.time() + options.limit
    if options.prepare:
        prepare(plan_of(options.prepare, options), options.data)
        return
    if options.trial:
        try_one(options.trial, options)
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.quick:
            options.data = Path(folder) / "data"
        options.results = options.results or Path(folder) / "found.jsonl"
        if not options.table:
            known = Known(options.results)
            done = {name: known.get(key_of(name, options), Tried) for name in options.trials}
            campaign([name for name, one in done.items() if one is None or one.end != "done"], options)
        tables(list(Known(options.results).every(Tried)), options.curves)


if __name__ == "__main__":
    main()
