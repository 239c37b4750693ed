"""Many seeds, one after the other; and what is said of one that fails."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from barnraise.account import story
from barnraise.ledger import Ledger, LedgerView
from barnraise.ledger.copying import TERM
from barnraise.ledger.decisions import Judged

from .cluster import VARIED, Case, Cluster, case_of
from .cuts import FAILING
from .takeover import Takeover

SomeCluster = TypeVar("SomeCluster", bound=Cluster)

EACH = 25
"""Numbers of which one has a cluster with a standby too: such a run is long."""

LAST = 12
"""Lines of each node's story, where no assignment is to blame."""


class Failed(Exception):
    """A seed that found something: how to replay it, its plan, and the story of what it was about."""


@dataclass
class Done:
    """The counts of a played campaign."""

    seeds: int = 0
    events: int = 0
    faults: int = 0
    restarts: int = 0


def play(seed: str) -> Cluster:
    """One seed, to its end. Raises Failed."""
    if seed.startswith(FAILING):
        return finished(Takeover(int(seed.removeprefix(FAILING))))
    return finished(Cluster(case_of(seed)))


def finished(cluster: SomeCluster) -> SomeCluster:
    """The cluster, played to its end. Raises Failed."""
    try:
        cluster.play()
    except Exception as error:
        raise Failed(told(cluster, error)) from error
    return cluster


def campaign(seeds: Iterable[int]) -> Done:
    """Play two clusters for each: one of the modes, one that varies what these hold fixed; and for each 25th one more,
    with a standby. Raises Failed at the first that finds something."""
    numbers = list(seeds)
    names = [name for number in numbers for name in (str(number), f"{VARIED}{number}")]
    names += [f"{FAILING}{number // EACH}" for number in numbers if not number % EACH]
    done = Done()
    for seed in names:
        cluster = play(seed)
        done.seeds += 1
        done.events += cluster.events
        done.faults += len(cluster.case.faults)
        done.restarts += cluster.epoch // TERM + cluster.epoch % TERM - 1  # take-overs, and returns
    return done


def told(cluster: Cluster, error: Exception) -> str:
    """Return the report of a failure."""
    case = cluster.case
    lines = [
        f"{type(error).__name__} after {cluster.now:.2f} s of seed {case.seed}: {error}",
        f"replay it with: python -m tests.chaos --replay {case.seed}",
        described(case),
        *story_of(cluster, {int(number) for number in re.findall(r"\b\d+\b", str(error))}),
    ]
    return "\n".join(lines)


def described(case: Case) -> str:
    """The case, with its faults as a run file has them."""
    nodes = ", ".join(f"{machine.name} ({machine.rate:g} tokens/s)" for machine in case.machines)
    churn = f", churn: {case.churn.summary}" if case.churn else ""
    extras = churn + f", {case.spoiled:.0%} spoiled" * bool(case.spoiled)
    plan = yaml.safe_dump({"faults": case.faults}, sort_keys=False, default_flow_style=None, width=200)
    return f"{case.label}{extras}: {nodes}\n{plan}"


def story_of(cluster: Cluster, numbers: set[int]) -> list[str]:
    """Return the ledger's rows about the assignments `numbers`, or each node's last days where there are none."""
    decisions = cluster.journal.decisions
    if not decisions:
        return ["the ledger is empty"]
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        path = Path(folder) / "ledger.sqlite"
        ledger = Ledger(path, Path(folder) / "segments", run="chaos")
        ledger.commit(decisions, {d.assignment: b"-" for d in decisions if isinstance(d, Judged) and d.brings})
        ledger.close()
        with LedgerView(path) as view:
            found = [(str(number), story.of_assignment(view, number)) for number in sorted(numbers)]
            if not any(lines for _, lines in found):
                found = [(name, story.of_node(view, name, LAST)) for name in view.names()]
    return [
        text
        for what, lines in found
        for text in [f"the story of {what}:" * bool(lines), *(f"{line.time:10.2f} s  {line.text}" for line in lines)]
        if text
    ]
