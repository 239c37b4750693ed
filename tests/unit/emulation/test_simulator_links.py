"""The simulator over links that lose, delay, repeat and go dark: repeatable, and nothing is counted twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from barnraise.assembly.simulation import simulate
from barnraise.assembly.simulation_report import Report
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.core.errors import RunFailedError
from barnraise.plan import Purpose, resolve
from barnraise.transport.links.presets import LINKS

RUN = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 1, "num_heads": 2}},
    "data": {"kind": "sat"},
    "training": {"tokens": 4_000_000, "batch_size": 16, "local_steps": 50, "compression": "topk"},
}


def play(seed: int = 0, **network: Any) -> Report:
    plan = resolve(load({**RUN, "network": network}), purpose=Purpose.SIMULATE, nodes=10)
    return simulate(plan, Trial(10, seed=seed, tokens_per_second=2000.0))


@pytest.mark.parametrize("profile", LINKS)
def test_every_preset_is_repeatable_and_finishes(profile: str) -> None:
    first, second = play(profile=profile), play(profile=profile)
    assert first.ledger_hash == second.ledger_hash
    assert first.end == "the token budget is met"
    assert first.verdicts.accepted > 0


def test_another_seed_is_another_history() -> None:
    assert play(profile="cellular").ledger_hash != play(seed=1, profile="cellular").ledger_hash


def test_worse_links_take_longer() -> None:
    seconds = [play(profile=profile).duration.virtual_seconds for profile in ("none", "cellular", "straggler")]
    assert seconds == sorted(seconds)


def test_repeated_messages_cost_no_work() -> None:
    """A Next that comes twice must not leave a node with work that it does not know of."""
    plain, repeated = play(profile="good"), play(profile="good", duplication=0.5)
    assert repeated.end == plain.end
    assert repeated.utilisation > 0.9 * plain.utilisation


def test_loss_of_small_messages_alone_loses_nodes() -> None:
    plain, lossy = play(profile="good"), play(profile="good", small_loss=0.45)
    assert lossy.end == plain.end
    assert lossy.duration.virtual_seconds > plain.duration.virtual_seconds


def test_a_simulation_whose_training_diverges_says_so(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a barn is raised by many hands.\n" * 100)
    run = {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "text", "files": [str(tmp_path / "text.txt")], "context": 32},
        "training": {"tokens": 100_000, "batch_size": 2, "local_steps": 3, "learning_rate": 1e30},
        "controller": {"evaluation_rows": 4},
    }
    plan = resolve(load(run), purpose=Purpose.SIMULATE, nodes=3)
    try:
        with pytest.raises(RunFailedError, match=r"^training diverged: .*lower the learning rate"):
            simulate(plan, Trial(3, real=True))
    finally:
        torch.set_flush_denormal(False)  # a simulation sets it for its process
