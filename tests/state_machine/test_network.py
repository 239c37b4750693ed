"""Controller and workers together, through crashes of both: runs finish, nothing counts twice or is lost."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from ..campaigns import sizes
from .chances import MODES
from .engine import engine_settings
from .network import Network

EXPLORE = os.environ.get("HYPOTHESIS_PROFILE") == "explore"


@pytest.mark.parametrize("seeds", sizes(5, 1000 if EXPLORE else 60))
@pytest.mark.parametrize("mode", MODES)
def test_every_run_finishes_with_each_contribution_in_one_version(mode: str, seeds: int) -> None:
    tokens = 0
    for seed in range(seeds):
        network = Network(engine_settings(**MODES[mode]), f"{mode} {seed}", nodes=4)
        if seed % 10 == 9:
            network.clock.at(25.0, network.stop)
        network.run()
        check(network)
        tokens += network.disk.fold().totals.tokens
    assert tokens > 15 * 12 * seed  # most were not stopped early


def check(network: Network) -> None:
    assert network.finished is not None
    assert not network.finished.failed
    disk = network.disk
    state, account = disk.fold(), disk.account
    account.compare(state)
    assert state.progress.final
    assert state.progress.finished
    assert state.totals.tokens >= network.settings.tokens or state.progress.stopping
    assert state.record.checkpoint == state.newest.version == state.record.evaluations[-1][0]
    merged = Counter(number for version in account.versions.values() for number in version)
    assert set(merged.values()) <= {1}
    assert merged.keys() == account.accepted.keys()
    assert max(Counter(network.acknowledged).values(), default=1) == 1
    if state.totals.discarded == 0:
        known = merged.keys() | account.beside.keys()
        assert set(network.acknowledged) <= known
