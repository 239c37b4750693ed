"""Cases that vary what the modes hold fixed: buffer, rule's minimum, compression, audits, scores, stateless tasks,
memory, leases, matching, and how many faults come at once. Each is drawn by itself, so any may meet any."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from barnraise.config.faults import KINDS
from barnraise.controller.state.settings import (
    AuditSettings,
    EvaluationSettings,
    LeaseSettings,
    RowNeeds,
    ScoreSettings,
)
from barnraise.emulation.churn import Fit
from barnraise.emulation.fleet import Machine
from barnraise.matching import create as scheduler
from barnraise.matching.catalog import CATALOG as SCHEDULERS
from barnraise.staleness import create as staleness
from barnraise.transport.links.presets import parse

from ..state_machine.chances import MODES
from ..state_machine.engine import told
from .plans import DRAW, Section

LARGE = 300_000
"""Bytes of a payload that does not travel with its offer."""

LINKS = ["none", "10mbit/50ms", "2mbit/300ms/80ms", "10mbit/50ms/5%", "1mbit/600ms/200ms", "100mbit/5ms"]
SCHEDULES = sorted(set(SCHEDULERS.names()) - {"optimum"})
"""All that can be made without knowing the fleet beforehand."""

Changes = dict[str, Any]


def changes_of(rng: random.Random, mode: str, nodes: int) -> tuple[Changes, list[str]]:
    """The engine's settings of a case, beginning with those of `mode`, and what is special about them in words."""
    own: Changes = dict(MODES[mode])
    said = [mode]
    _versions(rng, own, said, nodes)
    _trust(rng, own, said)
    _sizes(rng, own, said)
    heartbeat = rng.choice([0.2, 1.0, 1.0, 4.0])
    lease = heartbeat * rng.choice([2.5, 5.0, 8.0])
    own["leases"] = LeaseSettings(heartbeat, lease, max(20.0, heartbeat * rng.choice([8, 20])))
    own["checkpoint_seconds"] = rng.choice([0.3, 3.0, 30.0])
    name = rng.choice(SCHEDULES) if rng.random() < 0.6 else "gale_shapley"
    own["scheduler"] = partial(scheduler, name)
    return own, [*said, name, f"heartbeat {heartbeat:g}"]


def _versions(rng: random.Random, own: Changes, said: list[str], nodes: int) -> None:
    """How many nodes make a version, and how stale what goes into one may be."""
    if rng.random() < 0.4 and "buffer_size" not in own:
        own["buffer_size"] = rng.randrange(1, nodes + 1)
        said.append(f"K {own['buffer_size']}")
    if rng.random() < 0.2 and "wanted_nodes" not in own:
        share = rng.choice([0.3, 0.6, 1.0])
        own["wanted_nodes"], own["yields"] = (lambda living: int(share * living)), rng.random() < 0.5
        said.append(f"a rule for {share:.0%} of the living")
    if rng.random() < 0.3:
        own["participation"] = False
    if rng.random() < 0.5:
        most = rng.choice([0, 1, 2, 6, 50])
        fixed = rng.random() < 0.5
        own["staleness"] = (
            staleness("fixed", max_staleness=most)
            if fixed
            else staleness("adaptive", max_staleness=max(1, most), min_staleness=1)
        )
        said.append(f"{'fixed' if fixed else 'adaptive'} bound {most}")
    own.setdefault("sync_window", rng.choice([0.5, 2.0, 10.0]))
    own.setdefault("sync_longest_wait", own["sync_window"] * rng.choice([1.5, 4.0]))


def _trust(rng: random.Random, own: Changes, said: list[str]) -> None:
    """Audits, scores and stateless tasks."""
    if "worker" not in own and rng.random() < 0.15 and not own.get("flush"):
        own["worker"] = told(stateless=True, overlap=own.get("asynchronous", True))
        said.append("stateless")
    if "audits" not in own and rng.random() < 0.35:
        own["audits"] = AuditSettings(rng.choice([0.05, 0.5, 1.0]), b"key", 0.02)
        said.append("audits")
    if "scores" not in own and rng.random() < 0.25:
        own["scores"] = ScoreSettings(rng.choice([0.1, 1.0]), b"key")
        said.append("scores")


def _sizes(rng: random.Random, own: Changes, said: list[str]) -> None:
    """Tasks, payloads, and the memory that they take."""
    own["tokens"] = rng.choice([120, 300, 600])
    own["local_steps"], own["batch_size"] = rng.choice([1, 2, 2, 4]), rng.choice([1, 2, 3])
    own["seed"] = rng.randrange(1000)
    measured = "evaluations" in own or rng.random() < 0.2
    own["evaluations"] = EvaluationSettings(
        times=rng.choice([1, 4, 9]), rows=40, row_tokens=3, file=2, by_workers=measured
    )
    if rng.random() < 0.3:
        rungs = tuple(LARGE * (index + 1) for index in range(len(own.get("rungs", [0]))))
        own |= {"rungs": rungs, "most": rungs[-1], "memory": rng.choice([1, 2, 5]) * rungs[-1]}
        own["last"] = LARGE if own.get("last") else 0
        said.append("large")
    elif rng.random() < 0.15 and "memory" not in own:
        own["memory"] = 900
        said.append("little memory")
    if rng.random() < 0.3:
        own["needs"] = RowNeeds(2, {3: 1000})
        said.append("rows that need memory")


def machines_of(rng: random.Random, names: list[str], own: Changes) -> list[Machine]:
    """The fleet: unequal, some of one owner, some with little memory where rows need it."""
    shared = rng.choice([1, 2, 3]) if rng.random() < 0.5 else 0
    poor = 2000 if "needs" in own else 1 << 30
    return [
        Machine(
            name,
            rng.choice([2.0, 5.0, 20.0, 80.0]),
            parse(rng.choice(LINKS), 0),
            rng.choice([1 << 30, 1 << 30, poor]) if place else 1 << 30,
            owner=f"owner{place // shared}" if shared else "",
        )
        for place, name in enumerate(names)
    ]


def faults_of(rng: random.Random, names: list[str], spare: int) -> list[Section]:
    """Up to 25 faults, a quarter of them at the moment of the one before."""
    found: list[Section] = []
    joined = 0
    for _ in range(rng.choice([0, 3, 6, 12, 25])):
        kind = rng.choices(list(DRAW), [weight for weight, _ in DRAW.values()])[0]
        if KINDS[kind].ends:
            if not spare:
                continue
            spare -= 1
        section = {"do": kind, **DRAW[kind][1](rng, names), "seed": rng.randrange(10**6)}
        if "seconds" in section:
            section["seconds"] = round(rng.choice([0.05, 0.7, 2.2, 5.0, 13.0, 31.0, 58.0]) * rng.uniform(0.5, 1.0), 3)
        if "share" in section:
            section["share"] = rng.choice([0.01, 0.1, 0.5, 0.99, 1.0])
        if kind == "join":
            section["join"] = {"name": f"late{joined}"}
            joined += 1
        if kind == "kill_controller" and rng.random() < 0.6:
            section["at_decisions"] = rng.randrange(1, 1200)
        elif found and "at_seconds" in found[-1] and rng.random() < 0.25:
            section["at_seconds"] = found[-1]["at_seconds"]
        else:
            section["at_seconds"] = round(rng.uniform(0.0, 150.0), 3)
        found.append(section)
    if any(section["do"] == "full_disk" for section in found):  # a controller waits a minute for room, by its clock
        for section in found:
            if length := {"clock_jump": "by_seconds", "full_disk": "seconds"}.get(section["do"]):
                section[length] = min(section[length], 25.0)
    return found


def churn_of(rng: random.Random) -> Fit | None:
    """How nodes come and go; None where they stay."""
    if rng.random() >= 0.25:
        return None
    up, down = rng.choice([(25.0, 5.0), (120.0, 30.0), (400.0, 60.0)])
    return Fit("varied", lambda rng: rng.expovariate(1 / up), lambda rng: rng.expovariate(1 / down), up, down)
