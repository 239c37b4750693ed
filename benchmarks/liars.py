"""How soon liars are found where tasks are stateless, whether anybody honest is, and what that costs.

    python benchmarks/liars.py [--seeds 3] [--audits 0.05] [--results FILE]

Ten workers whose speeds are a hundred times apart, two of which attack. Contributions in 4 bits, versions in 8; each is
audited with the given probability, newcomers' four times as often. Counted are a liar's contributions until it is
convicted, the honest who are, and the share of all tokens that is trained on again. With `none` nobody lies: what is
found then is a false alarm.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from _races import Known, files

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.controller.actions import Journal
from barnraise.core.types import Audit, name_of
from barnraise.emulation import simulator
from barnraise.ledger import notes
from barnraise.ledger.decisions import Assigned, Decision, Judged, Noted
from barnraise.plan import Purpose, resolve

NONE = "none"
ATTACKS: dict[str, dict[str, Any]] = {
    NONE: {},
    "sign_flip": {"kind": "sign_flip"},
    "scale 1.2": {"kind": "scale", "factor": 1.2},
    "noise 0.1": {"kind": "noise", "sigma": 0.1},
    "zero": {"kind": "zero"},
    "stale_replay": {"kind": "stale_replay"},
    "label_flip": {"kind": "label_flip"},
    "lazy 1/4": {"kind": "lazy", "share": 0.25},
    "lazy 9/10": {"kind": "lazy", "share": 0.9},
    "sign_flip, every 2nd": {"kind": "intermittent", "of": {"kind": "sign_flip"}, "share": 0.5},
    "sign_flip, every 10th": {"kind": "intermittent", "of": {"kind": "sign_flip"}, "share": 0.1},
}
NUM_WORKERS, NUM_LIARS = 10, 2
LIARS = {"n4", "n7"}
SPEEDS = [100 ** (place / (NUM_WORKERS - 1)) / 10 for place in range(NUM_WORKERS)]


@dataclass(frozen=True)
class Found:
    """`until` are a liar's contributions up to its conviction (None: it was not), `honest` those of the others that
    were accepted, `wronged` their convictions; `farthest` is how far an audited one of them was from what others made
    of the task; `audited` tokens were trained on again, of `tokens`."""

    until: tuple[int | None, ...]
    handed_in: int
    honest: int
    wronged: int
    farthest: float
    audits: int
    audited: int
    tokens: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--audits", type=float, default=0.05)
    parser.add_argument("--tokens", type=int, default=1_500_000)
    parser.add_argument("--results", type=Path, help="a file of what was found before, which is added to")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.tokens = 1, 60_000
    known = Known(options.results)
    keys = [(name, options.audits, options.tokens, seed) for name in ATTACKS for seed in range(options.seeds)]
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        runs = {key: known.get(list(key), Found) for key in keys}
        futures = {key: pool.submit(play, *key) for key, run in runs.items() if run is None}
        for key, future in futures.items():
            runs[key] = future.result()
            known.add(list(key), runs[key])
    print(f"{options.seeds} seeds, {NUM_LIARS} of {NUM_WORKERS} workers lie, audits {options.audits:g}")
    head = f"{'':24}{'convicted':>10}{'after (median, most)':>22}{'honest: work':>14}{'wronged':>9}"
    print(f"{head}{'farthest':>10}{'again':>8}")
    for name in ATTACKS:
        found = [run for key, run in runs.items() if key[0] == name and run is not None]
        until = [count for run in found for count in run.until]
        caught = sorted(count for count in until if count is not None)
        told = f"{statistics.median(caught):g}, {caught[-1]}" if caught else "-"
        share = sum(run.audited for run in found) / sum(run.tokens for run in found)
        print(
            f"{name:24}{f'{len(caught)} of {len(until)}' if until else '-':>10}{told:>22}"
            f"{sum(run.honest for run in found):>14,}{sum(run.wronged for run in found):>9}"
            f"{max(run.farthest for run in found):>10.1e}{share:>8.1%}"
        )


def play(name: str, audits: float, tokens: int, seed: int) -> Found:
    """One run."""
    attack = ATTACKS[name]
    liars = LIARS if attack else set()
    workers = [
        {"name": f"n{place}", "speed": speed} | ({"attack": attack} if f"n{place}" in liars else {})
        for place, speed in enumerate(SPEEDS)
    ]
    content = {
        "run": {"name": "liars", "seed": seed},
        "model": {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "text", "files": files("modules"), "context": 32},
        "controller": {"evaluations": 1, "evaluation_rows": 32, "checkpoint_seconds": 1e6},
        "workers": workers,
        "training": {
            "tokens": tokens,
            "batch_size": 4,
            "local_steps": 10,
            "learning_rate": 0.003,
            "tasks": "stateless",
            "compression": "int4",
            "downlink_compression": "int8",
            "audits": audits,
        },
    }
    counted = _Count(liars)
    journal = simulator._ACTIONS[Journal]

    def watched(playing: Any, action: Any) -> None:
        journal(playing, action)
        counted.add(action.decision)

    simulator._ACTIONS[Journal] = watched
    try:
        plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=NUM_WORKERS)
        report = simulate(plan, Trial(NUM_WORKERS, real=True, seed=seed))
    finally:
        simulator._ACTIONS[Journal] = journal
    return counted.found(report.tokens)


class _Count:
    def __init__(self, liars: set[str]) -> None:
        self.liars, self.until, self.accepted = liars, dict[str, int](), Counter[str]()
        self.wronged, self.farthest, self.audits, self.audited = 0, 0.0, 0, 0
        self._audits: dict[int, int] = {}

    def add(self, decision: Decision) -> None:
        if isinstance(decision, Assigned) and decision.kind == name_of(Audit):
            self._audits[decision.assignment] = decision.tokens
        elif isinstance(decision, Judged) and decision.verdict == "accepted":
            if decision.assignment in self._audits:
                self.audits, self.audited = self.audits + 1, self.audited + self._audits[decision.assignment]
            elif decision.brings:
                self.accepted[decision.node] += 1
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Convicted):
            if decision.node in self.liars:
                self.until.setdefault(decision.node, self.accepted[decision.node])
            else:
                self.wronged += 1
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Audited):
            sound = decision.note.sound and decision.node not in self.liars
            self.farthest = max(self.farthest, decision.note.distance if sound else 0.0)

    def found(self, tokens: int) -> Found:
        return Found(
            until=tuple(self.until.get(name) for name in sorted(self.liars)),
            handed_in=sum(self.accepted[name] for name in self.liars),
            honest=sum(count for name, count in self.accepted.items() if name not in self.liars),
            wronged=self.wronged,
            farthest=self.farthest,
            audits=self.audits,
            audited=self.audited,
            tokens=tokens,
        )


if __name__ == "__main__":
    main()
