"""Measure how soon the demo's four unequal workers behind slow links solve as many formulas as a lone worker.

    python benchmarks/demo_links.py --results runs/demo-links.jsonl

Three sides train the demo's model (`examples/sat-neo.yaml`) on as many tokens, in virtual time with real tensors:

    four    the demo's workers, asynchronous, one killed at half and one joining, each behind 10 Mbit/s, 25 ms one way
    rounds  the same workers, kill and links in synchronous rounds, which wait for the slowest
    lone    one worker of the speed of the fastest of the four, without a link

`four` and `rounds` send 1 of 8 elements up and get 1 of 4 down, after the 8 steps of the demo's tasks; `four` hides the
exchange behind the next task. `--set` gives both other settings. The score is the share of whole traces among held-out
formulas that need search, measured at 20 points. Time counts from the first task on. The target is the lone worker's
final score, which the four should have in 60% of its time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from _races import Known
from demo import EXAMPLE, RATE, given

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.config.aliases import canonical
from barnraise.config.load import nested
from barnraise.emulation.simulator import Simulator
from barnraise.ledger.decisions import Decision, Noted, VersionClosed, VersionMade
from barnraise.ledger.measured import Measured
from barnraise.plan import Purpose, resolve

SIDES = ("lone", "four", "rounds")
SCORE, VERDICTS = "needs search/whole traces", "needs search/verdicts"
LEVELS = (0.5, 0.9)
"""Shares of whole traces whose times are told besides."""

EXCHANGE = {
    "compression": "sparse_loco",
    "compression_ratio": 1 / 8,
    "downlink_compression": "sparse_loco",
    "downlink_options": {"ratio": 1 / 4},
    "error_feedback_keep": 1.0,
    "merge_lerp": 0.0,
}


class Mark(NamedTuple):
    """A version that was measured: virtual seconds from the first task on, tokens, whole traces, verdicts."""

    seconds: float
    tokens: int
    traces: float
    verdicts: float


@dataclass(frozen=True)
class Side:
    """The outcome of a side: its points, and what the links of all workers carried after joining."""

    seconds: float
    tokens: int
    num_bytes: int
    curve: list[Mark]


class Watch:
    """The measurements of a simulated run, with the times at which their versions were made."""

    def __init__(self) -> None:
        self.marks, self._made, self._tokens = list[Mark](), dict[int, tuple[float, int]](), 0

    @contextmanager
    def __call__(self, simulator: Simulator) -> Iterator[None]:
        simulator.observers.append(self.see)
        yield

    def see(self, now: float, decision: Decision) -> None:
        if isinstance(decision, VersionClosed):
            self._tokens += decision.tokens
        elif isinstance(decision, VersionMade):
            self._made[decision.version] = now, self._tokens
        elif isinstance(decision, Noted) and isinstance(decision.note, Measured):
            note = decision.note
            made = self._made.get(note.version, (0.0, 0))
            self.marks.append(Mark(*made, note.values[SCORE], note.values[VERDICTS]))


def content(side: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the demo's run file, as this side has it."""
    found: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    found["run"]["seed"] = options.seed
    found["training"] |= {"tokens": round(options.tokens), "warmup_tokens": round(options.tokens / 20)}
    found["evaluation"] = {"times": options.points, "metrics": ["formulas"], "rows": options.formulas}
    found["data"] |= {"held_out": 64}
    found["data"]["held_out_sets"] = [
        {"name": "search", "formulas": options.formulas, "backtracking": {"at_least": 1}},
    ]
    if side == "lone":
        found["workers"] = [max(found["workers"], key=lambda worker: worker["speed"])]
        del found["faults"]
        return found
    found["training"]["tokens"] = round(options.tokens * options.excess)
    found["exchange"] = dict(EXCHANGE)
    found["network"] = {"profile": f"{options.mbit:g}mbit/{options.delay:g}ms"}
    if side == "rounds":
        found["controller"] = {"use_async_training": False, "sync_window": 1e6, "sync_longest_wait": 1e6}
        del found["staleness"]
    for section, keys in canonical(nested(dict(options.set)), found).content.items():
        found[section] = found.get(section, {}) | keys
    return found


def play(run_file: dict[str, Any]) -> Side:
    """Play a side in virtual time."""
    nodes, watch = len(run_file["workers"]), Watch()
    plan = resolve(load(run_file), purpose=Purpose.SIMULATE, nodes=nodes)
    trial = Trial(nodes, seed=run_file["run"]["seed"], real=True, tokens_per_second=RATE)
    report = simulate(plan, trial, watch)
    began = report.duration.first_task_seconds or 0.0
    curve = [mark._replace(seconds=max(0.0, mark.seconds - began)) for mark in watch.marks]
    traffic = report.traffic
    carried = traffic.bytes_up + traffic.bytes_down - traffic.joining_bytes
    return Side(report.duration.virtual_seconds - began, report.tokens, carried, curve)


def reached(curve: Sequence[Mark], score: float) -> Mark | None:
    """Return the first point with this score; None where no point has it."""
    return next((mark for mark in curve if mark.traces >= score), None)


def told(name: str, side: Side, lone: Side) -> str:
    """Return a row of the table."""
    last = side.curve[-1]
    links = "none" if name == "lone" else f"{side.num_bytes / 1e6:.0f} MB"
    cells = [name, f"{side.tokens / 1e6:.2f}M", f"{side.seconds:.0f} s", links]
    cells += [f"{last.verdicts:.1%}", f"{last.traces:.1%}"]
    for level in (*LEVELS, lone.curve[-1].traces):
        at = reached(side.curve, level)
        cells.append(f"{at.seconds / lone.seconds:.0%}, {at.tokens / 1e6:.2f}M" if at else "not reached")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--tokens", type=float, default=4e6, help="of the lone worker")
    parser.add_argument("--excess", type=float, default=1.0, help="tokens of the other sides over the lone worker's")
    parser.add_argument("--mbit", type=float, default=10.0)
    parser.add_argument("--delay", type=float, default=25.0, help="ms, one way")
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--formulas", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], type=given, metavar="SECTION.KEY=VALUE")
    parser.add_argument("--results", type=Path, help="a file of sides that are done; new ones are added")
    parser.add_argument("--quick", action="store_true", help="does it run? tiny, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.tokens, options.points, options.formulas = 60e3, 2, 4
    known, found = Known(options.results), dict[str, Side]()
    for name in ["lone", *(name for name in options.sides if name != "lone")]:
        run_file = content(name, options)
        key: list[object] = [name, hashlib.sha256(json.dumps(run_file, sort_keys=True).encode()).hexdigest()[:16]]
        side = known.get(key, Side)
        if side is None:
            side = play(run_file)
            known.add(key, side)
        found[name] = side
    lone = found["lone"]
    times = " | ".join(f"time to {level:.0%}" for level in LEVELS)
    print(f"a lone worker of the fastest one's speed takes {lone.seconds:.0f} s; times are shares of that")
    print(f"| side | tokens | time | on the links | verdicts | whole traces | {times} | time to the lone one's score |")
    print("|" + "---|" * (7 + len(LEVELS)))
    for name, side in found.items():
        print(told(name, side, lone))


if __name__ == "__main__":
    main()
