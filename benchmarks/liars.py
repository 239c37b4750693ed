"""Measure how soon the controller finds liars, its false alarms and the cost: by audits of stateless tasks, or scores.

    python benchmarks/liars.py [--seeds 3] [--audits 0.05 | --scores 0.2] [--only lazy,zero] [--results FILE]

Ten workers whose speeds are a hundred times apart, two of which attack. Contributions in 4 bits, versions in 8. With
`--audits` tasks are stateless, and another node repeats each contribution with that probability, newcomers' four times
as often. With `--scores` tasks are stateful, and the controller scores that share of the contributions of known nodes.

The benchmark counts a liar's contributions until the controller convicts or discredits it, the honest nodes that the
controller convicts or discredits, the liars' share of all contributions (by their speeds 17.6%), and the share of all
tokens that nodes train on again. For scores it counts how many of the honest nodes' scores pass, the fewest of one
node, how many of the liars' pass, and after how many honest contributions the loss on other nodes' rows is lower (a
gate on the held-out loss would use that).

With `none` no node lies: each finding is then a false alarm. With *two classes* every other node takes a row at a time
through the model, which adds up in another order, as another device would. The last lines cover all runs: recall is
the share of the liars that the controller finds, precision is the share of the found nodes that lie. False alarms count
honest nodes in a run, with the exact bound on their rate (Clopper and Pearson 1934, one-sided, 95%).
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from _races import Known, files
from scipy.stats import beta

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.controller.state.actions import Journal
from barnraise.core.types import Audit, name_of
from barnraise.data.shards import Dataset
from barnraise.emulation import simulator
from barnraise.ledger import notes
from barnraise.ledger.decisions import Assigned, Decision, Judged, Noted
from barnraise.plan import Purpose, resolve
from barnraise.training.local import LocalTrainer
from barnraise.wire.messages import WorkerSettings
from barnraise.worker.executor import WorkerExecutor

NONE, SKEWED, CLASSES = "none", "none, skewed data", "none, two classes"
PLAIN: dict[str, dict[str, Any]] = {NONE: {}, CLASSES: {}}
HONEST: dict[str, dict[str, Any]] = {
    "none, 100 steps": {"local_steps": 100},
    "none, 3 steps": {"local_steps": 3},
    "none, a tenth of the rate": {"learning_rate": 0.0003},
    "none, sparse_loco": {"compression": "sparse_loco"},
    "none, topk 1%": {"compression": "topk", "compression_ratio": 0.01},
    SKEWED: {},
}
"""Settings of scores under which comparisons say less."""

ATTACKS: dict[str, dict[str, Any]] = {
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
    "ipm 0.5": {"kind": "ipm", "epsilon": 0.5},
    "alie": {"kind": "alie"},
    "optimised_alie": {"kind": "optimised_alie"},
    "min_max": {"kind": "min_max"},
    "mimic": {"kind": "mimic"},
    "reputation, then sign_flip": {"kind": "reputation", "after": 20, "of": {"kind": "sign_flip"}},
    "backdoor": {"kind": "backdoor", "trigger": "##", "output": "!!", "boost": 4},
    "instant": {"kind": "instant"},
}
NUM_WORKERS, NUM_LIARS = 10, 2
LIARS = {"n4", "n7"}
FEW = 20
"""Comparisons of a node below which its own rate says nothing."""

RATE = 100.0
"""Tokens a second of speed 1.0: a task takes seconds, as it does where controllers are not idle."""

SPEEDS = [100 ** (place / (NUM_WORKERS - 1)) / 10 for place in range(NUM_WORKERS)]


@dataclass(frozen=True)
class Found:
    """The outcome of one run.

    `until` counts each liar's contributions up to its conviction (None: not convicted). `honest` counts the accepted
    contributions of honest nodes, `wronged` their convictions. `farthest` is the largest distance of an audited honest
    contribution from its repetition. `audited` counts those of the `tokens` that nodes trained on again.
    """

    until: tuple[int | None, ...]
    handed_in: int
    honest: int
    wronged: int
    farthest: float
    audits: int
    audited: int
    tokens: int
    passed: dict[str, tuple[int, int]] = field(default_factory=dict)  # scores that passed, and all scores, by node
    helped: int = 0  # honest contributions after which the loss on others' rows was lower


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--audits", type=float, default=0.05)
    parser.add_argument("--scores", type=float, default=0.0, help="score that share instead, of stateful tasks")
    parser.add_argument("--only", default="", help="some of the attacks, by their names, with ; between")
    parser.add_argument("--tokens", type=int, default=1_500_000)
    parser.add_argument("--results", type=Path, help="a file of what was found before, which is added to")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.tokens = 1, 60_000
    known = Known(options.results)
    sides = PLAIN | HONEST | ATTACKS if options.scores else PLAIN | ATTACKS
    names = [name for name in sides if not options.only or name in options.only.split(";")]
    how = ["scores", options.scores] if options.scores else ["audits", options.audits]
    keys = [(name, *how, options.tokens, seed) for name in names for seed in range(options.seeds)]
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        runs = {key: known.get(list(key), Found) for key in keys}
        futures = {key: pool.submit(play, *key) for key, run in runs.items() if run is None}
        for key, future in futures.items():
            runs[key] = future.result()
            known.add(list(key), runs[key])
    print(f"{options.seeds} seeds, {NUM_LIARS} of {NUM_WORKERS} workers lie, {how[0]} {how[1]:g}")
    head = f"{'':28}{'found':>10}{'after (median, most)':>22}{'honest: work':>14}{'wronged':>9}{'theirs':>8}"
    print(
        head
        + (f"{'pass':>8}{'least':>8}{'liars':>8}{'help':>8}" if options.scores else f"{'farthest':>10}{'again':>8}")
    )
    for name in names:
        found = [run for key, run in runs.items() if key[0] == name and run is not None]
        print(f"{name:28}{told(found)}{passes(found) if options.scores else again(found)}")
    print(summary([run for run in runs.values() if run is not None]))


def told(found: list[Found]) -> str:
    """Return columns: liars found, contributions until then, honest contributions, false alarms, the liars' share."""
    until = [count for run in found for count in run.until]
    caught = sorted(count for count in until if count is not None)
    after = f"{statistics.median(caught):g}, {caught[-1]}" if caught else "-"
    honest, wronged = sum(run.honest for run in found), sum(run.wronged for run in found)
    theirs = (handed_in := sum(run.handed_in for run in found)) / (honest + handed_in)
    return f"{f'{len(caught)} of {len(until)}' if until else '-':>10}{after:>22}{honest:>14,}{wronged:>9}{theirs:>8.1%}"


def summary(found: list[Found]) -> str:
    """Recall, precision and false alarms."""
    until = [count for run in found for count in run.until]
    caught, wronged = sum(count is not None for count in until), sum(run.wronged for run in found)
    honest = sum(NUM_WORKERS - len(run.until) for run in found)
    most = beta.ppf(0.95, wronged + 1, honest - wronged) if wronged < honest else 1.0
    alarms = f"{wronged} false alarms of {honest} honest nodes (at most {most:.2%})"
    if not until:
        return alarms
    precision = f"{caught / (caught + wronged):.0%}" if caught else "-"
    return f"recall {caught}/{len(until)} = {caught / len(until):.0%}, precision {precision}; {alarms}"


def again(found: list[Found]) -> str:
    """Return columns: the largest distance of an honest result from its repetition, the share of repeated tokens."""
    share = sum(run.audited for run in found) / sum(run.tokens for run in found)
    return f"{max(run.farthest for run in found):>10.1e}{share:>8.1%}"


def passes(found: list[Found]) -> str:
    """Return columns: comparisons passed of all honest nodes, of the honest node with the fewest, and of the liars.

    The last column counts the honest contributions after which the loss on other nodes' rows was lower.
    """
    lied = bool(found[0].until)
    honest = [counts for run in found for node, counts in run.passed.items() if not lied or node not in LIARS]
    liars = [counts for run in found for node, counts in run.passed.items() if lied and node in LIARS]
    least = min((passed / count for passed, count in honest if count >= FEW), default=float("nan"))
    rates = [sum(passed for passed, _ in each) / max(1, sum(count for _, count in each)) for each in (honest, liars)]
    helped = sum(run.helped for run in found) / max(1, sum(count for _, count in honest))
    return f"{rates[0]:>8.1%}{least:>8.1%}" + (f"{rates[1]:>8.1%}" if liars else f"{'-':>8}") + f"{helped:>8.1%}"


def play(name: str, how: str, share: float, tokens: int, seed: int) -> Found:
    """Play one run."""
    attack = ATTACKS.get(name, {})
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
            "compression": "int4",
            "downlink_compression": "int8",
            how: share,
        }
        | ({"tasks": "stateless"} if how == "audits" else {})
        | HONEST.get(name, {}),
    }
    counted = _Count(liars)
    journal = simulator._ACTIONS[Journal]

    def watched(playing: Any, action: Any) -> None:
        journal(playing, action)
        counted.add(action.decision)

    simulator._ACTIONS[Journal] = watched
    try:
        plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=NUM_WORKERS)
        skew = 0.3 if name == SKEWED else None
        trial = Trial(NUM_WORKERS, real=True, seed=seed, skew=skew, tokens_per_second=RATE)
        others = {f"n{place}": by_row for place in range(1, NUM_WORKERS, 2)} if name == CLASSES else {}
        report = simulate(plan, trial, executors=others)
    finally:
        simulator._ACTIONS[Journal] = journal
    return counted.found(report.tokens)


def by_row(trainer: LocalTrainer, dataset: Dataset, settings: WorkerSettings, slowdown: float, /) -> WorkerExecutor:
    """Return the executor of a node of another class: it takes a row at a time through the model."""
    trainer.tokens_at_once = 1
    return WorkerExecutor(trainer, dataset, settings, slowdown)


class _Count:
    def __init__(self, liars: set[str]) -> None:
        self.liars, self.until, self.accepted = liars, dict[str, int](), Counter[str]()
        self.wronged, self.farthest, self.audits, self.audited = 0, 0.0, 0, 0
        self._audits: dict[int, int] = {}
        self.passed: dict[str, tuple[int, int]] = {}
        self.helped = 0

    def add(self, decision: Decision) -> None:
        if isinstance(decision, Assigned) and decision.kind == name_of(Audit):
            self._audits[decision.assignment] = decision.tokens
        elif isinstance(decision, Judged) and decision.verdict == "accepted":
            if decision.assignment in self._audits:
                self.audits, self.audited = self.audits + 1, self.audited + self._audits[decision.assignment]
            elif decision.brings:
                self.accepted[decision.node] += 1
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Sentence):
            if decision.node in self.liars:
                self.until.setdefault(decision.node, self.accepted[decision.node])
            else:
                self.wronged += 1
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Audited):
            sound = decision.note.sound and decision.node not in self.liars
            self.farthest = max(self.farthest, decision.note.distance if sound else 0.0)
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Scored):
            passed, count = self.passed.get(decision.node, (0, 0))
            self.passed[decision.node] = passed + decision.note.passed, count + 1
            self.helped += decision.node not in self.liars and (decision.note.others or 0.0) > 0.0

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
            passed=self.passed,
            helped=self.helped,
        )


if __name__ == "__main__":
    main()
