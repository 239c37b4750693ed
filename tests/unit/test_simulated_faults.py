"""Planned faults in a simulation: each kind does what its sentence says, the run comes to its end, and repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.config.faults import KINDS
from barnraise.controller.invariants import validate
from barnraise.emulation.faults import FaultySimulator
from barnraise.emulation.report import Report
from barnraise.emulation.simulator import Simulator
from barnraise.plan import Purpose, resolve

NAMES = ["ann", "bob", "cat", "dan"]


def play(
    *faults: dict[str, Any], see: Callable[[Simulator], None] = lambda simulator: None, **trial: Any
) -> tuple[Report, FaultySimulator]:
    """The run of four nodes of one speed, and what simulated it."""
    content = {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "sat", "examples": 20_000, "held_out": 20},
        "workers": [{"name": name} for name in NAMES],
        "training": {"tokens": 300_000, "batch_size": 4, "local_steps": 10},
        "faults": list(faults),
    }
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=4)
    simulators: list[Any] = []

    @contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        simulators.append(simulator)
        see(simulator)
        yield

    arguments = {"nodes": 4, "tokens_per_second": 500.0} | trial
    return simulate(plan, Trial(**arguments), watch), simulators[0]


EXAMPLES: dict[str, dict[str, Any]] = {
    "kill": {"do": "kill", "node": "bob"},
    "join": {"join": {"name": "eve"}},
    "hang": {"do": "hang", "node": "bob", "seconds": 30.0},
    "preempt": {"do": "preempt", "node": "bob", "seconds": 20.0},
    "partition": {"do": "partition", "nodes": ["ann", "bob"], "seconds": 30.0},
    "one_way_loss": {"do": "one_way_loss", "way": "up", "seconds": 30.0},
    "corrupt": {"do": "corrupt", "share": 0.2, "seconds": 60.0},
    "duplicate": {"do": "duplicate", "share": 0.5, "seconds": 60.0},
    "reorder": {"do": "reorder", "share": 0.3, "seconds": 60.0},
    "slow_disk": {"do": "slow_disk", "seconds": 30.0, "by_seconds": 0.5},
    "full_disk": {"do": "full_disk", "seconds": 30.0},
    "clock_jump": {"do": "clock_jump", "by_seconds": 3600.0},
    "kill_controller": {"do": "kill_controller", "seconds": 5.0},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_with_a_fault_ends_and_repeats(kind: str) -> None:
    fault = EXAMPLES[kind] | {"at_seconds": 60.0}
    found, simulator = play(fault)
    assert found.tokens >= 300_000
    assert found.end == "the token budget is met"
    validate(simulator.controller.state)
    assert repr(simulator.journal.replay()) == repr(simulator.controller.state)
    assert play(fault)[0].ledger_hash == found.ledger_hash
    assert play()[0].ledger_hash != found.ledger_hash
