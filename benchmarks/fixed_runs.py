"""Check whether a change of the code changes its behaviour: ten simulated runs, and the outcome of each.

    python benchmarks/fixed_runs.py --write before.json       write down versions and verdicts of all ten (two minutes)
    python benchmarks/fixed_runs.py --against before.json     and compare those of another commit with them

Five runs cost work only and are the same on every machine; five train real tensors, whose last bits may differ from one
processor or PyTorch to another: compare on one machine. The benchmark hashes the verdicts in their order,
and the bytes of the parameters of every version. It does not hash the format of the ledger or of a digest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.emulation.simulator import Simulator
from barnraise.ledger.decisions import Decision, Judged, VersionMade
from barnraise.plan import Purpose, resolve

LARGE = {"architecture": "gpt2", "config": {"hidden_size": 256, "num_layers": 4, "num_heads": 4}}
SMALL = {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}}
CORPUS = {"kind": "text", "files": ["corpus/*.txt"], "context": 256}
STORY = {"kind": "text", "files": ["story.txt"], "context": 32}
SAT = {"kind": "sat", "variables": [3, 3], "clause_ratio": 2.0, "context": 64, "examples": 400, "held_out": 40}
KILL = [{"at": 0.3, "kill": "one"}, {"at": 0.4, "join": {"name": "five", "speed": 1.0}}]
SPEEDS = {"one": 2.0, "two": 1.0, "three": 0.5, "four": 0.3}
FOUR = [{"name": name, "speed": speed} for name, speed in SPEEDS.items()]

RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "churning cellular fleet": (
        {"model": LARGE, "data": CORPUS, "network": {"profile": "cellular"}, "training": {"compression": "topk"}},
        {"nodes": 60, "hours": 6, "churn": True},
    ),
    "large fleet": (
        {
            "model": LARGE,
            "data": CORPUS,
            "training": {"compression": "int8", "tokens": 400_000_000, "local_steps": 100},
        },
        {"nodes": 1000, "hours": 0.5},
    ),
    "synchronous rounds": (
        {"model": LARGE, "data": CORPUS, "controller": {"use_async_training": False, "sync_window": 30}},
        {"nodes": 30, "hours": 1, "churn": True},
    ),
    "pinned buffer, matched pace": (
        {
            "model": LARGE,
            "data": CORPUS,
            "network": {"profile": "satellite"},
            "controller": {"buffer_size": 4, "max_staleness": 20},
            "training": {"pace": "matched", "compression": "sparse_loco"},
        },
        {"nodes": 40, "hours": 1},
    ),
    "faults and a token budget": (
        {
            "model": LARGE,
            "data": CORPUS,
            "workers": FOUR,
            "faults": KILL,
            "training": {"tokens": 20_000_000, "compression": "topk"},
        },
        {"nodes": 4},
    ),
    "real: error feedback, int4 down": (
        {
            "model": SMALL,
            "data": STORY,
            "workers": FOUR,
            "training": {"tokens": 40_000, "local_steps": 4, "compression": "topk", "downlink_compression": "int4"},
        },
        {"nodes": 4},
    ),
    "real: DiLoCo": (
        {
            "model": SMALL,
            "data": STORY,
            "workers": FOUR,
            "controller": {"use_async_training": False},
            "training": {"tokens": 40_000, "local_steps": 5, "outer_optimizer": "nesterov", "normalize_steps": True},
        },
        {"nodes": 4},
    ),
    "real: overlap, momentum of the fleet": (
        {
            "model": SMALL,
            "data": STORY,
            "workers": FOUR,
            "network": {"profile": "good"},
            "controller": {"buffer_size": 4},
            "training": {
                "tokens": 60_000,
                "local_steps": 3,
                "compression": "sparse_loco",
                "downlink_compression": "sparse_loco",
                "version_momentum": 1.0,
                "error_feedback_keep": 1.0,
                "average": 0.1,
            },
        },
        {"nodes": 4},
    ),
    "real: fragments, robust rule": (
        {
            "model": SMALL,
            "data": STORY,
            "training": {
                "tokens": 60_000,
                "local_steps": 3,
                "compression": "int8",
                "aggregation_rule": ["nnm", "trimmed_mean"],
                "aggregation_f": 1,
                "fragments": 3,
                "error_feedback_keep": 1.0,
            },
        },
        {"nodes": 6},
    ),
    "real: SAT, dropout, churn": (
        {
            "model": SMALL | {"config": SMALL["config"] | {"resid_pdrop": 0.1}},
            "data": SAT,
            "network": {"profile": "cellular"},
            "training": {
                "tokens": 60_000,
                "local_steps": 4,
                "compression": "entropy_coded",
                "downlink_compression": "int8",
                "schedule": "cosine",
            },
        },
        {"nodes": 5, "churn": True},
    ),
}
"""Name -> run file and trial."""


class Seen:
    """The verdicts and the versions of one run."""

    def __init__(self) -> None:
        self.verdicts, self.versions = hashlib.sha256(), hashlib.sha256()
        self.num_verdicts = self.num_versions = 0

    @contextmanager
    def watch(self, simulator: Simulator) -> Iterator[None]:
        update = simulator.ledger_hash.update

        def see(decision: Decision) -> None:
            update(decision)
            if isinstance(decision, Judged):
                self.num_verdicts += 1
                said = decision.assignment, decision.node, decision.verdict, decision.reason, decision.staleness
                claim = decision.claim
                counted = decision.tokens, claim.steps, decision.time, decision.weighing.weight, claim.num_bytes
                self.verdicts.update(repr((*said, *counted)).encode())
            elif isinstance(decision, VersionMade):
                self.num_versions += 1
                server = getattr(simulator.work, "server", None)
                content = server.parameters.numpy().tobytes() if server is not None else b""
                self.versions.update(repr((decision.version, decision.time)).encode() + content)

        simulator.ledger_hash.update = see  # type: ignore[method-assign]
        yield

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdicts": self.num_verdicts,
            "verdicts_hash": self.verdicts.hexdigest(),
            "versions": self.num_versions,
            "versions_hash": self.versions.hexdigest(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="a file for the outcomes of the runs")
    parser.add_argument("--against", type=Path, help="such a file, to compare with")
    parser.add_argument("--quick", action="store_true", help="does it run? one of them")
    options = parser.parse_args()
    before = json.loads(options.against.read_text()) if options.against else {}
    target, found, changed = options.write and options.write.absolute(), {}, []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("story.txt").write_text("once upon a time there was a barn that nobody could raise alone\n" * 400)
        for name in ["real: DiLoCo"] if options.quick else RUNS:
            run_file, trial = RUNS[name]
            plan = resolve(load(run_file), purpose=Purpose.SIMULATE, nodes=trial["nodes"])
            seen, real = Seen(), name.startswith("real")
            rate = 2000.0 if real else None
            report = simulate(plan, Trial(**trial, real=real, tokens_per_second=rate), seen.watch)
            found[name] = seen.as_dict() | {"final_loss": report.losses.final_loss}
            same = "" if not before else "as before" if found[name] == before.get(name) else "CHANGED"
            changed += [name] if same == "CHANGED" else []
            print(f"{name:40}{seen.num_verdicts:8} verdicts{seen.num_versions:7} versions  {same}", flush=True)
    if target:
        target.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(f"changed: {', '.join(changed)}" if changed else 0)


if __name__ == "__main__":
    main()
