"""Measure how soon the controller misses a dead worker, and how often a living one, for each link preset.

    python benchmarks/detection.py [--hours 1] [--seeds 3] [--nodes 60]

In virtual time, costed: a fleet behind one link preset trains; every 30 s one of its nodes dies without a word, and
starts again a minute later. A removal of a node that lives is false. The same fleet is then played with one lease for
all (`controller.longest_lease` is `controller.lease`). A fleet of 60 has heartbeats every 0.6 s and a lease of 1.8 s.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.controller.fleet.leases import Leases
from barnraise.controller.fleet.records import NodeRecord, NodeRecords
from barnraise.emulation.fleet import lognormal_fleet
from barnraise.emulation.node import Node
from barnraise.emulation.simulator import Simulator
from barnraise.ledger.decisions import Change, Decision, NodeChanged
from barnraise.ledger.rows import LedgerHash
from barnraise.plan import Purpose, resolve
from barnraise.transport.links.presets import parse

PROFILES = ("none", "cellular", "cellular/1%", "satellite", "satellite/1%", "straggler", "degraded", "brownout")
EVERY, AWAY, SETTLED = 30.0, 60.0, 120.0
LEASE = 1.2


class Coroner(LedgerHash):
    """Kill nodes of a simulation, and read on its ledger when the controller misses them."""

    def __init__(self, simulator: Simulator, seed: int) -> None:
        super().__init__()
        self.simulator, self.rng = simulator, random.Random(seed)
        self.died: dict[str, float] = {}
        self.seconds: list[float] = []
        self.suspected: list[float] = []
        self.false = 0
        simulator.ledger_hash = self
        self._plan(SETTLED)

    def update(self, decision: Decision) -> None:
        super().update(decision)
        if isinstance(decision, NodeChanged) and decision.change == Change.SILENT:
            died = self.died.pop(decision.node, None)
            if died is None:
                self.false += 1
                return
            self.seconds.append(decision.time - died)
            parts = self.simulator.controller.parts
            leases, record = parts[Leases], parts[NodeRecords][decision.node]
            frames = record.frames
            round_trip = link_report(record)
            silence = frames.detector.suspicion(leases.heartbeat, round_trip)
            self.suspected.append(frames.silent + silence - died)

    def _plan(self, time: float) -> None:
        self.simulator.at(time, Coroner._kill, self, 0, None)

    def _kill(self, _: int, nothing: None) -> None:
        name = self.rng.choice([name for name, node in self.simulator.nodes.items() if node.up])
        self.died[name] = self.simulator.now
        node = self.simulator.nodes[name]
        node.stop()
        self.simulator.at(self.simulator.now + AWAY, Coroner._start, self, 0, node)
        self._plan(self.simulator.now + self.rng.uniform(0.5, 1.5) * EVERY)

    def _start(self, _: int, node: Node) -> None:
        node.start()


def link_report(record: NodeRecord) -> float:
    return record.link.round_trip if record.link is not None else 0.0


def play(profile: str, longest: float, nodes: int, hours: float, seed: int) -> Coroner:
    content = {
        "run": {"name": "detection"},
        "model": {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "sat"},
        "controller": {"evaluations": 1, "checkpoint_seconds": 1e6, "lease": LEASE, "longest_lease": longest},
        "training": {"tokens": 10**12, "batch_size": 16, "local_steps": 50, "compression": "topk"},
    }
    fleet = lognormal_fleet(nodes, 3000.0, lambda index: parse(profile, index), random.Random(seed))
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=nodes)
    found: list[Coroner] = []

    @contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        found.append(Coroner(simulator, seed))
        yield

    simulate(plan, Trial(nodes, hours=hours, fleet=fleet, seed=seed), watch)
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0, help="virtual, of each fleet")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--profiles", nargs="+", default=PROFILES)
    parser.add_argument("--quick", action="store_true", help="a few seconds, to show that it runs")
    options = parser.parse_args()
    if options.quick:
        options.hours, options.seeds, options.nodes, options.profiles = 0.1, 1, 12, PROFILES[1:3]
    print(f"{options.nodes} nodes, {options.seeds} x {options.hours:g} h; seconds from the death on")
    print("link         lease    deaths suspected  missed, median  worst  false removals")
    for profile in options.profiles:
        for name, longest in (("adaptive", 30.0), ("fixed", LEASE)):
            runs = [play(profile, longest, options.nodes, options.hours, seed) for seed in range(options.seeds)]
            seconds = [took for run in runs for took in run.seconds]
            suspected = statistics.median(took for run in runs for took in run.suspected)
            told = f"{suspected:9.2f}" if name == "adaptive" else f"{'':9}"
            false = ", ".join(str(run.false) for run in runs)
            print(
                f"{profile:12} {name:8} {len(seconds):6} {told} {statistics.median(seconds):15.2f} "
                f"{max(seconds):6.2f} {false:>15}",
                flush=True,
            )


if __name__ == "__main__":
    main()
