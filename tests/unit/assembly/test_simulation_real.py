"""Real tensors in virtual time: the same seed, the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from barnraise.assembly.simulation import simulate
from barnraise.assembly.simulation_report import Report
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.plan import Purpose, resolve


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Simulate a few tasks of a small model with dropout."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text("once upon a time\n" * 100)
    return again()


def again(real: bool = True, **controller: Any) -> Report:
    shape = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "resid_pdrop": 0.2}
    run_file = load(
        {
            "model": {"architecture": "gpt2", "config": shape},
            "data": {"kind": "text", "files": ["story.txt"], "context": 16},
            "training": {"tokens": 1024, "batch_size": 2, "local_steps": 2},
            "controller": controller,
        }
    )
    trial = Trial(3, real=real, tokens_per_second=1000.0)
    return simulate(resolve(run_file, purpose=Purpose.SIMULATE, nodes=3), trial)


def test_a_simulation_with_dropout_repeats(run: Report) -> None:
    repeated = again()
    assert repeated.losses.final_loss == run.losses.final_loss
    assert repeated.ledger_hash == run.ledger_hash


@pytest.mark.parametrize("real", [True, False])
def test_workers_measure_in_virtual_time_too(run: Report, real: bool) -> None:
    """The losses are the controller's for equal parameters, of which version 0 has those of every run."""
    measured = again(real, evaluated_by="workers")
    assert measured.ledger_hash == again(real, evaluated_by="workers").ledger_hash
    assert measured.tokens == run.tokens
    if real:
        assert measured.losses.curve[0].loss == pytest.approx(run.losses.curve[0].loss, abs=1e-5)
        assert [measured.losses.curve[0].tokens, measured.losses.curve[-1].tokens] == [0, run.tokens]
        assert len(measured.losses.curve) > 2


def test_a_version_is_measured_as_it_was_when_that_began(run: Report) -> None:
    assert [run.losses.curve[0].seconds, run.losses.curve[0].tokens] == [0.0, 0]
    assert run.losses.curve[-1].tokens == run.tokens
    assert run.losses.curve[-1].seconds < run.duration.virtual_seconds


def test_a_simulation_leaves_the_process_as_it_was(run: Report) -> None:
    assert float(torch.tensor(1e-40) * 0.5) > 0.0


def test_deltas_that_are_equal_are_there_for_each_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fragment in which no node moved an element by much is a delta of zeros, one blob for many versions."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text("once upon a time there was a barn that nobody could raise alone\n" * 400)
    run_file = load(
        {
            "model": {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}},
            "data": {"kind": "text", "files": ["story.txt"], "context": 32},
            "training": {
                "tokens": 12_000,
                "local_steps": 3,
                "compression": "int8",
                "aggregation_rule": ["nnm", "trimmed_mean"],
                "aggregation_f": 1,
                "fragments": 3,
                "error_feedback_keep": 1.0,
            },
        }
    )
    plan = resolve(run_file, purpose=Purpose.SIMULATE, nodes=6)
    found = simulate(plan, Trial(6, real=True, tokens_per_second=2000.0))
    assert found.losses.final_loss is not None
    assert found.losses.first_loss is not None
    assert found.losses.final_loss < found.losses.first_loss
