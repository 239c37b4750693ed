"""The example of a mixed fleet: there it matters who gets what."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import yaml

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.matching import CATALOG
from barnraise.plan import Purpose, resolve

from ...campaigns import sizes

EXAMPLE = yaml.safe_load((Path(__file__).parents[3] / "examples" / "fleet-mixed.yaml").read_text())


SOME = ["gale_shapley", "optimum", "capability", "random", "fifo"]


def played(scheduler: str, seed: int) -> str:
    """The hash of what was decided."""
    sections = {"controller": EXAMPLE["controller"] | {"scheduler": scheduler}}
    run = EXAMPLE | sections | {"training": EXAMPLE["training"] | {"tokens": 20_000_000}}
    nodes = len(run["workers"])
    plan = resolve(load(run), purpose=Purpose.SIMULATE, nodes=nodes)
    return simulate(plan, Trial(nodes, seed=seed, churn=True, tokens_per_second=4000.0)).ledger_hash


@pytest.mark.parametrize("schedulers", sizes(SOME, list(CATALOG.entries)))
def test_any_two_schedulers_make_different_ledgers(schedulers: list[str]) -> None:
    """With one seed at least: `swarm` is `fifo` but where several nodes ask at the same moment."""
    pairs = list(combinations(schedulers, 2))
    for seed in range(4):
        hashes = {scheduler: played(scheduler, seed) for scheduler in {name for pair in pairs for name in pair}}
        pairs = [pair for pair in pairs if hashes[pair[0]] == hashes[pair[1]]]
        if not pairs:
            break
    assert pairs == []
