"""Repeat the demo and measure its results: on an idle machine, beside busy processes, and with equal speeds.

    python benchmarks/demo.py --results runs/demo.jsonl           20 live runs, 5 of them beside four busy processes
    python benchmarks/demo.py --virtual --results runs/demo.jsonl  the same engine in virtual time: repeatable

A live run is `barnraise train examples/sat-neo.yaml` on this machine, one after the other, each with a seed of its own
(of the model, the formulas, the rows). Beside busy processes the workers' speeds grow alike, since all get an equal
share of the cores: then four workers move the model by a quarter each, where the fast one moved it by half. In virtual
time the run file's speeds and equal ones are played with real tensors, whatever else this machine does.

Targets, of 18 of 20 runs, on held-out formulas that need search: >= 92% of whole traces, >= 95% of verdicts. The
benchmark does not repeat runs that `--results` holds.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from _races import Known

from barnraise.account.scores import as_json
from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.config.aliases import canonical
from barnraise.config.load import nested
from barnraise.plan import Purpose, resolve

EXAMPLE = Path(__file__).parents[1] / "examples/sat-neo.yaml"
RATE = 7_000.0
"""Tokens a second of a worker of speed 1.0 in virtual time: what one core here trains, beside the others."""

QUICK: dict[str, dict[str, Any]] = {
    "data": {
        "examples": 500,
        "held_out": 20,
        "held_out_sets": [{"name": "search", "formulas": 4, "backtracking": {"at_least": 1}}],
    },
    "training": {"tokens": 60_000, "warmup_tokens": 3_000},
}


@dataclass(frozen=True)
class Found:
    """One run's outcome; shares as in the summary. `searched`: of the formulas whose traces take a decision back."""

    seconds: float
    loss: float
    steps: float
    traces: float
    verdicts: float
    searched_traces: float
    searched_verdicts: float

    @classmethod
    def of(cls, seconds: float, loss: float, sat: dict[str, Any]) -> Found:
        names = ("steps_accepted", "traces_accepted", "verdicts_right")
        shares = [sat["sets"][0][name] for name in names] + [sat["searched"][name] for name in names[1:]]
        return cls(seconds, loss, *shares)

    def line(self) -> str:
        shares = (self.steps, self.traces, self.verdicts, self.searched_traces, self.searched_verdicts)
        return f"{self.seconds:8.0f}{self.loss:9.4f}" + "".join(f"{share:9.1%}" for share in shares)


def content(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """The demo's run file with another seed, and with what `--set` says."""
    found: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    found["run"]["seed"] = seed
    for section, values in (QUICK if options.quick else {}).items():
        found[section] |= values
    for section, keys in canonical(nested(dict(options.set)), found).content.items():
        found[section] = found.get(section, {}) | keys
    return found


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep the given number of processes computing while the context is open."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def live(run_file: dict[str, Any], num_busy: int) -> Found:
    """A run of real processes beside `num_busy` others."""
    with tempfile.TemporaryDirectory() as folder, busy(num_busy):
        run_file["run"]["dir"] = folder
        path = Path(folder) / "run.yaml"
        path.write_text(yaml.safe_dump(run_file))
        command = [sys.executable, "-m", "barnraise.cli.main", "train", str(path), "--json"]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
    told = json.loads(result.stdout.splitlines()[-1])
    return Found.of(told["seconds"], told["final_loss"], told["sat"])


def virtual(run_file: dict[str, Any], alike: bool) -> Found:
    """A run in virtual time; with `alike` all workers have the same speed."""
    if alike:
        for worker in [*run_file["workers"], *(fault["join"] for fault in run_file["faults"] if "join" in fault)]:
            worker["speed"] = 1.0
    nodes, seed = len(run_file["workers"]), run_file["run"]["seed"]
    plan = resolve(load(run_file), purpose=Purpose.SIMULATE, nodes=nodes)
    report = simulate(plan, Trial(nodes, seed=seed, real=True, tokens_per_second=RATE))
    assert report.sat is not None
    assert report.losses.final_loss is not None
    return Found.of(report.duration.virtual_seconds, report.losses.final_loss, as_json(report.sat))


def trials(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Return the runs to play: the kind and the seed of each."""
    for seed in range(options.runs):
        if options.virtual:
            yield from (("as given", seed), ("alike", seed))
        else:
            beside = (seed + 1) * options.loaded // options.runs > seed * options.loaded // options.runs
            yield (f"{options.busy} busy" if beside else "idle"), seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, help="seeds; 20 live, 5 in virtual time")
    parser.add_argument("--loaded", type=int, default=5, help="how many live runs have busy processes beside them")
    parser.add_argument("--busy", type=int, default=4, help="how many of these")
    parser.add_argument("--virtual", action="store_true", help="real tensors in virtual time instead of processes")
    parser.add_argument(
        "--set", action="append", default=[], type=given, metavar="SECTION.KEY=VALUE", help="of the run file"
    )
    parser.add_argument("--results", type=Path, help="a file of runs that are done; new ones are added")
    parser.add_argument("--quick", action="store_true", help="does it run? tiny, and its figures say nothing")
    options = parser.parse_args()
    options.runs = options.runs or (1 if options.quick else 5 if options.virtual else 20)
    known = Known(options.results)
    found: dict[str, list[Found]] = {}
    columns = f"{'steps':>9}{'traces':>9}{'verdicts':>9}{'searched: traces, verdicts':>28}"
    print(f"{'':10}{'seed':>5}{'load':>6}{'seconds':>8}{'loss':>9}{columns}")
    for kind, seed in trials(options):
        run_file = content(seed, options)
        key = ["virtual" if options.virtual else "live", kind, seed, digest(run_file)]
        load_before = os.getloadavg()[0]
        one = known.get(key, Found)
        if one is None:
            one = (
                virtual(run_file, kind == "alike")
                if options.virtual
                else live(run_file, options.busy * (kind != "idle"))
            )
            known.add(key, one)
        found.setdefault(kind, []).append(one)
        print(f"{kind:10}{seed:5d}{load_before:6.1f}{one.line()}", flush=True)
    print()
    for kind, ones in found.items():
        for name, choose in (("median", statistics.median), ("least", min)):
            shares = "".join(f"{choose([getattr(one, at) for one in ones]):9.1%}" for at in SHARES)
            print(f"{kind:10}{name:>11}{'':17}{shares}")


SHARES = ("steps", "traces", "verdicts", "searched_traces", "searched_verdicts")


def digest(run_file: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(run_file, sort_keys=True).encode()).hexdigest()[:16]


def given(text: str) -> tuple[str, Any]:
    """`training.tokens=5000000` as key and value."""
    key, _, value = text.partition("=")
    return key, yaml.safe_load(value)


if __name__ == "__main__":
    main()
