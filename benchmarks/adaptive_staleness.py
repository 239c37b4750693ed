"""Measure the gain of the adaptive staleness bound where speeds differ 100 times, and its cost in loss.

    python benchmarks/adaptive_staleness.py            costed fleet, live run, real tensors: about eight minutes

1. 300 costed nodes whose speeds are evenly spread (in logarithm) over 1 to 100: the fixed and the adaptive bound, with
   the buffer size K pinned to 1 (where the fixed bound accepts under half) and automatic. Under a pinned K no bound in
   proportion to 1 / speed does better than the fixed one: staleness is in proportion to 1 / speed too, and at the
   median both bounds are max_staleness. The adaptive bound permits a small automatic K, that is, many versions.
2. Five live workers over sockets, 100 times apart.
3. Real tensors in virtual time: eight nodes 100 times apart, asynchronous with the adaptive bound against synchronous
   rounds that wait for all nodes, at equal tokens; the better of two outer optimizers for the synchronous side.

Targets: >= 99% accepted; the loss at most 1% above the synchronous one (3 seeds).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnraise.assembly.simulation import simulate
from barnraise.assembly.simulation_report import Report
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.emulation.fleet import Machine
from barnraise.plan import Purpose, resolve
from barnraise.transport.links.presets import parse

SOURCES = str(Path(__file__).parents[1] / "src/**/*.py")
MODEL = {"architecture": "gpt_neo", "config": {"hidden_size": 64, "num_layers": 2, "num_heads": 4}}
SPREAD = 100.0
SLOWEST = 1.0
"""Tokens a second of the slowest of many costed nodes: with a version for each contribution the controller keeps up."""


def fleet(nodes: int, slowest: float) -> list[Machine]:
    """Machines from `slowest` tokens a second to `SPREAD` times that, evenly in logarithm."""
    step = SPREAD ** (1.0 / (nodes - 1))
    return [Machine(f"node-{index:03d}", slowest * step**index, parse("none")) for index in range(nodes)]


def run_file(tokens: int, controller: dict[str, Any], **training: Any) -> dict[str, Any]:
    return {
        "run": {"name": "staleness"},
        "model": MODEL,
        "data": {"kind": "text", "files": [SOURCES], "context": 64},
        "controller": {"evaluations": 1, "checkpoint_seconds": 1e6, **controller},
        "training": {"tokens": tokens, "batch_size": 8, "local_steps": 16, **training},
    }


def play(content: dict[str, Any], nodes: int, slowest: float, **trial: Any) -> Report:
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=nodes)
    return simulate(plan, Trial(nodes, fleet=fleet(nodes, slowest), **trial))


def costed(nodes: int, tasks: float) -> None:
    """Run part 1: each node submits about `tasks` contributions times its speed over the slowest node's."""
    hours = tasks * 16 * 8 * 64 / SLOWEST / 3600
    print(f"{nodes} costed nodes, speeds 1 to {SPREAD:.0f}, max_staleness 50")
    for size in (1, "auto"):
        for adaptive in (False, True):
            controller = {"adaptive_staleness": adaptive, "buffer_size": size}
            found = play(run_file(10**12, controller), nodes, SLOWEST, hours=hours)
            bound, verdicts = "adaptive" if adaptive else "fixed", found.verdicts
            print(
                f"  K {size!s:5}{bound:9}accepted {verdicts.acceptance_rate:7.2%}"
                f" of {verdicts.accepted + verdicts.refused:,}"
                f"   staleness {verdicts.staleness_mean:6.1f}, at most {verdicts.staleness_max}"
                f"   work used {found.utilisation:6.1%}   versions {found.versions:,}",
                flush=True,
            )


SIDES = ((1, False), ("auto", False), ("auto", True))


def live(tokens: int, sides: Sequence[tuple[int | str, bool]] = SIDES) -> None:
    """Part 2: five workers over sockets, on this machine."""
    print(f"five live workers, speeds 1 to {SPREAD:.0f}, max_staleness 50, {tokens:,} tokens")
    workers = [{"name": f"w{index}", "speed": SPREAD ** (-index / 4)} for index in range(5)]
    for size, adaptive in sides:
        controller = {"adaptive_staleness": adaptive, "buffer_size": size}
        with tempfile.TemporaryDirectory() as folder:
            content = run_file(tokens, controller)
            content["workers"], content["run"]["dir"] = workers, folder
            path = Path(folder) / "run.yaml"
            path.write_text(json.dumps(content))
            command = [sys.executable, "-m", "barnraise.cli.main", "train", str(path), "--json"]
            result = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(result.stdout.splitlines()[-1])
        judged = found["accepted"] + found["refused"]
        bound = "adaptive" if adaptive else "fixed"
        print(
            f"  K {size!s:5}{bound:9}accepted {found['accepted'] / judged:7.2%} of {judged:,}"
            f"   workers {found['workers']}   loss {found['final_loss']:.4f}",
            flush=True,
        )


def losses(tokens: int, seeds: int) -> None:
    """Part 3: held-out loss at equal tokens, real tensors."""
    waits = {"use_async_training": False, "sync_window": 1e6, "sync_longest_wait": 1e6}
    sides: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "adaptive, asynchronous": ({"adaptive_staleness": True}, {}),
        "synchronous, sgd 1.0": (waits, {}),
        "synchronous, nesterov": (waits, {"outer_optimizer": "nesterov"}),
    }
    print(f"eight nodes, speeds 1 to {SPREAD:.0f}, real tensors, {tokens:,} tokens: held-out loss, nats a token")
    found: dict[str, list[float]] = {side: [] for side in sides}
    for seed in range(seeds):
        for side, (controller, training) in sides.items():
            content = run_file(tokens, controller, **training)
            content["run"]["seed"] = seed
            report = play(content, 8, 1000.0, seed=seed, real=True)
            assert report.losses.final_loss is not None
            found[side].append(report.losses.final_loss)
            print(
                f"  seed {seed}  {side:24}{report.losses.final_loss:.4f}"
                f"   accepted {report.verdicts.acceptance_rate:7.2%}"
                f"   virtual {report.duration.virtual_seconds:,.0f} s   nodes' work used {report.utilisation:.1%}",
                flush=True,
            )
    ours, *theirs = found.values()
    best = min(theirs, key=statistics.mean)
    excess = [a / b - 1.0 for a, b in zip(ours, best, strict=True)]
    print(f"loss above the better synchronous side: {', '.join(f'{x:+.1%}' for x in excess)} (target: at most +1%)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=600_000, help="of each run with real tensors")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        costed(8, 1.0)
        live(40_000, SIDES[-1:])
        losses(40_000, 1)
        return
    costed(300, 3.0)
    live(1_000_000)
    losses(options.tokens, options.seeds)


if __name__ == "__main__":
    main()
