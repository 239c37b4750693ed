"""Measure how well the end of a run is forecast from its first 30% and 50%: real runs, and virtual ones with churn.

    python benchmarks/forecast.py [--lab 10] [--live 3] [--virtual 20] [--results FILE]

Each lab run (as root) trains a tiny model with three or four worker processes of unequal speeds behind emulated links
of 1 to 4 Mbit/s; seven of ten are asynchronous. With --adaptive their tasks grow where links are slow, so that these
short runs speed up to three times from beginning to end. Live runs are the same without links: their workers compete
for this machine's cores. The benchmark cuts each ledger where 30% and 50% of the tokens were counted, makes the
forecast of `barnraise forecast` from that part alone, and compares it with the time at which the run finished. Virtual
runs have eight machines behind links of several kinds; their speeds drift, and half of the machines leave and return.
Targets for lab runs: an error below 10% in each of ten, and 7 to 9 of ten ends within the 80% interval. The error is
that of the finish time, as a share of the run's whole time; the error of the time that was left is printed too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import _machine

import barnraise
from barnraise.account.calibration import Calibration, calibrate, of_decisions
from barnraise.assembly.run_forecast import RunForecast
from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.config.document import Document, read
from barnraise.emulation.churn import HOUR
from barnraise.emulation.fleet import Machine
from barnraise.emulation.simulator import Simulator
from barnraise.ledger import Decision, LedgerView, Noted, RunDirectory, notes
from barnraise.plan import Purpose, resolve
from barnraise.transport.links.presets import parse

SHARES = (0.3, 0.5)
"""Shares of a run's tokens after which it is forecast."""

LIVE: dict[str, Any] = {
    "model": {"architecture": "llama", "config": {"hidden_size": 64, "num_layers": 2, "num_heads": 4}},
    "data": {"kind": "text", "files": [str(Path(__file__).parents[1] / "docs/**/*.md")], "context": 64},
    "controller": {"evaluations": 4},
}
STEP_TOKENS, PAYLOAD = 8 * 64, 280_000
"""Tokens of a step, and bytes of a contribution of the same model in bf16."""

VIRTUAL: dict[str, Any] = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 64, "num_layers": 2, "num_heads": 2}},
    "data": {"kind": "text", "files": ["none.txt"], "context": 64},
    "training": {"batch_size": 4, "local_steps": 50, "compression": "sparse_loco"},
    "controller": {"evaluations": 4},
}
LINKS = ("good", "dsl", "cellular", "degraded")
STAYS, AWAY = 0.5 * HOUR, 0.1 * HOUR
"""Mean seconds for which half of the virtual machines are there, and are away."""

DRIFT, SIGMA, EVERY = 0.9, 0.1, 60.0
"""The load's logarithm on a virtual machine: the share that remains after a minute, and its standard deviation."""


@dataclass(frozen=True)
class Found:
    """A forecast and what came: seconds of the run's clock. `share` is that of the tokens by then."""

    sort: str
    seed: int
    share: float
    now: float
    at: float
    low: float
    high: float
    end: float
    simulated: float | None

    @property
    def error(self) -> float:
        return (self.at - self.end) / self.end

    @property
    def left_error(self) -> float:
        return (self.at - self.end) / (self.end - self.now)

    @property
    def held(self) -> bool:
        return self.low <= self.end <= self.high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lab", type=int, default=10, help="real runs behind emulated links; they need root")
    parser.add_argument("--lab-seconds", type=float, default=75.0, help="about how long one trains")
    parser.add_argument("--adaptive", action="store_true", help="lab runs whose tasks adapt to links, which is usual")
    parser.add_argument("--live", type=int, default=3, help="real runs without links")
    parser.add_argument("--live-tokens", type=int, default=1_500_000)
    parser.add_argument("--virtual", type=int, default=20, help="virtual runs")
    parser.add_argument("--virtual-tokens", type=int, default=40_000_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--results", type=Path, help="a file that gets a line of JSON for each forecast")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.lab, options.live, options.virtual = 1, 1, 1
        options.lab_seconds, options.live_tokens, options.virtual_tokens = 10.0, 60_000, 4_000_000
    if options.lab and os.geteuid():
        print("lab runs are left out: they need root")
        options.lab = 0
    print(_machine.look())
    found: list[Found] = []
    for seed in range(options.first, options.first + options.virtual):
        found += keep(virtual(seed, options.virtual_tokens), options.results)
    for seed in range(options.first, options.first + options.lab):
        found += keep(lab(seed, options.lab_seconds, options.adaptive), options.results)
    for seed in range(options.first, options.first + options.live):
        found += keep(live(seed, options.live_tokens), options.results)
    tell(found)


def lab(seed: int, seconds: float, adaptive: bool) -> list[Found]:
    """Run real workers behind emulated links, and forecast the run from the first parts of its ledger."""
    rng = random.Random(f"lab {seed}")
    told = _run(rng, seed % 10 < 7)
    rate = 0.0
    for worker in told["workers"]:
        up = rng.choice((1, 2, 4))
        worker["link"] = f"{up}mbit/{5 * up}mbit/{rng.choice((20, 50, 100))}ms"
        rate += told["training"]["local_steps"] * STEP_TOKENS / (PAYLOAD / (125_000 * up) + 0.5)
    told["training"] |= {"tokens": int(seconds * rate), "compression": "bf16", "downlink_compression": "int8"}
    told["exchange"] = {"auto_tune": adaptive}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.yaml"
        file.write_text(json.dumps(told | {"run": {"name": "forecast", "seed": seed, "dir": folder}}))
        command = [sys.executable, "-m", "barnraise.cli.main", "lab", str(file), "--plain", "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"lab run {seed} failed: {done.stderr[-2000:]}")
        return _of_run(
            "adaptive" if adaptive else "lab",
            seed,
            RunDirectory.open(Path(json.loads(done.stdout.splitlines()[-1])["run_dir"])),
        )


def live(seed: int, tokens: int) -> list[Found]:
    """Run real workers without links, and forecast the run from the first parts of its ledger."""
    told = _run(random.Random(f"forecast {seed}"), seed % 3 < 2)
    told["training"]["tokens"] = tokens
    with tempfile.TemporaryDirectory() as folder:
        done = barnraise.train(told | {"run": {"name": "forecast", "seed": seed, "dir": folder}})
        return _of_run("live", seed, done.account.run)


def _run(rng: random.Random, asynchronous: bool) -> dict[str, Any]:
    workers = [
        {"name": f"worker-{number}", "speed": 1.0 if number == 0 else round(rng.uniform(0.15, 0.9), 2)}
        for number in range(rng.choice((3, 4)))
    ]
    training = {"batch_size": 8, "local_steps": rng.choice((5, 10))}
    controller = LIVE["controller"] | {"use_async_training": asynchronous}
    return LIVE | {"workers": workers, "training": training, "controller": controller}


def _of_run(sort: str, seed: int, run: RunDirectory) -> list[Found]:
    """Forecast a run that is over from the first parts of its ledger."""
    with LedgerView(run.ledger) as view:
        end, tokens = view.events(notes.Finished)[0][0], load(run.run_file).training.tokens
        whole = calibrate(view)
        cuts = {share: _time_of(whole, share * tokens) for share in SHARES}
        parts = {share: calibrate(view, until=cut) for share, cut in cuts.items()}
    document = read(run.run_file)
    return [_found(sort, seed, share, document, parts[share], cuts[share], end) for share in SHARES]


def virtual(seed: int, tokens: int) -> list[Found]:
    """Simulate a run with churn and drifting speeds, and forecast it from its first decisions."""
    rng = random.Random(f"forecast {seed}")
    told = VIRTUAL | {"run": {"seed": seed}, "training": VIRTUAL["training"] | {"tokens": tokens}}
    fleet = [
        Machine(f"node-{number}", 2000.0 * math.exp(rng.gauss(0.0, 0.8)), parse(rng.choice(LINKS)))
        for number in range(8)
    ]
    rows: list[Decision] = []

    @contextlib.contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        simulator.observers.append(lambda _, decision: rows.append(decision))
        drifting = Drifting(simulator, seed)
        simulator.at(EVERY, Drifting.drift, drifting, 0, None)
        yield

    with _churn(seed) as trace:
        simulate(
            resolve(load(told), purpose=Purpose.SIMULATE, nodes=8), Trial(8, seed=seed, fleet=fleet, churn=trace), watch
        )
    end = next(row.time for row in rows if isinstance(row, Noted) and isinstance(row.note, notes.Finished))
    whole = of_decisions(rows)
    found = []
    for share in SHARES:
        cut = _time_of(whole, share * tokens)
        part = of_decisions(row for row in rows if row.time <= cut)
        found.append(_found("virtual", seed, share, Document("virtual", told), part, cut, end))
    return found


@contextlib.contextmanager
def _churn(seed: int) -> Iterator[str]:
    """Write a trace in which the second half of the machines leave and return."""
    rng = random.Random(f"churn {seed}")
    lines = []
    for number in range(4, 8):
        now, up = 0.0, True
        lines.append(f"node-{number},0,up")
        while (now := now + rng.expovariate(1.0 / (STAYS if up else AWAY))) < 100 * HOUR:
            up = not up
            lines.append(f"node-{number},{now:.3f},{'up' if up else 'down'}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        path.write_text("\n".join(lines) + "\n")
        yield str(path)


class Drifting:
    """The other load on the machines of a simulation."""

    def __init__(self, simulator: Simulator, seed: int) -> None:
        self.simulator, self.rng = simulator, random.Random(f"load {seed}")
        self.rates = {name: node.spec.rate for name, node in simulator.nodes.items()}
        self.loads = dict.fromkeys(self.rates, 0.0)

    def drift(self, _: int, nothing: None) -> None:
        for name, node in self.simulator.nodes.items():
            self.loads[name] = DRIFT * self.loads[name] + self.rng.gauss(0.0, SIGMA * math.sqrt(1 - DRIFT**2))
            node.spec = replace(node.spec, rate=self.rates[name] * math.exp(self.loads[name]))
        self.simulator.at(self.simulator.now + EVERY, Drifting.drift, self, 0, None)


def _time_of(whole: Calibration, tokens: float) -> float:
    """Return when `tokens` tokens were counted."""
    counted = 0
    for time, number in sorted(whole.arrivals.values()):
        counted += number
        if counted >= tokens:
            return time
    raise ValueError(f"{tokens} tokens were never counted")


def _found(sort: str, seed: int, share: float, document: Document, part: Calibration, cut: float, end: float) -> Found:
    told = RunForecast(document, part, cut).unchanged
    return Found(sort, seed, share, cut, told.at, told.low, told.high, end, told.simulated)


def keep(found: list[Found], file: Path | None) -> list[Found]:
    """Print forecasts, and append them to a file."""
    for one in found:
        interval = f"({one.low:.1f} to {one.high:.1f}){'' if one.held else ', outside'}"
        errors = f"{one.error:+.1%} of all, {one.left_error:+.1%} of the rest"
        print(f"{one.sort:8} seed {one.seed:3}, at {one.share:.0%}: {one.at:9.1f} s {interval}", end="")
        print(f"; ended at {one.end:.1f} s: {errors}", flush=True)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as lines:
                lines.write(json.dumps(asdict(one)) + "\n")
    return found


def tell(found: Sequence[Found]) -> None:
    print(f"\n{'':20}{'runs':>6}{'within 10%':>12}{'median error':>14}{'largest':>10}{'of the rest':>13}{'in 80%':>8}")
    for sort in dict.fromkeys(one.sort for one in found):
        for share in SHARES:
            some = [one for one in found if (one.sort, one.share) == (sort, share)]
            errors = [abs(one.error) for one in some]
            rest = statistics.median(abs(one.left_error) for one in some)
            print(
                f"{f'{sort}, at {share:.0%}':20}{len(some):6}{sum(error <= 0.1 for error in errors):12}"
                f"{statistics.median(errors):14.1%}{max(errors):10.1%}{rest:13.1%}{sum(one.held for one in some):8}"
            )


if __name__ == "__main__":
    main()
