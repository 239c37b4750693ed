"""Sites that share the noise of masked sums, as real processes, over the death of their controller."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from barnraise.core.types import Masked, name_of
from barnraise.ledger import LedgerView, RunDirectory, notes
from barnraise.ledger.decisions import Assigned
from barnraise.privacy.accounting import epsilon

from .test_privacy_budget import decisions, told

SITES, HONEST, EPSILON, DELTA, USES = ("ann", "bob", "cy"), 3, 60.0, 1e-5, 6


@pytest.mark.campaign
def test_sites_that_share_the_noise_of_masked_sums_train_until_the_budget_is_spent(
    barnraise, run_file, tmp_path: Path
) -> None:
    for name in (*SITES, "public"):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} has {n} and {n} more.\n" for n in range(400)))
    path = run_file(
        model={"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        workers=[{"name": name, "data": {"files": [str(tmp_path / f"{name}.txt")]}} for name in SITES],
        data={
            "kind": "site", "context": 32, "releases": {"held_out": "off"},
            "public_held_out": [str(tmp_path / "public.txt")],
        },
        training={"tokens": 10**9, "batch_size": 4, "local_steps": 2, "compression": "none"},
        aggregation={"rule": "mean"},
        evaluation={"times": 2, "rows": 16},
        controller={"checkpoint_seconds": 1.0},
        privacy={
            "secure_aggregation": {"trustees": 4, "colluding": 1, "least": HONEST},
            "differential_privacy": {
                "profile": "site", "epsilon": EPSILON, "delta": DELTA, "clip": 0.5, "uses": USES, "honest": HONEST,
            },
            "overhead_limit": 1000.0,
        },
    )  # fmt: skip
    train = barnraise("train", str(path), "--json")
    run = RunDirectory(Path(train.wait_for(lambda text: re.search(r"run directory (\S+)", text)).group(1)))
    train.wait_for(lambda _: len(told(run.path)) >= 2)
    train.kill()
    resumed = barnraise("resume", str(run.path), "--json")
    assert resumed.wait() == 0, resumed.text()
    with LedgerView(run.ledger) as view:
        unmasked = [note.version for _, note in view.events(notes.VersionUnmasked)]
        budget = view.events(notes.PrivacyBudget)[0][1]
        end = view.events(notes.Stopping)[-1][1]
    assert len(unmasked) == len(set(unmasked)) >= 2
    uses = Counter(d.node for d in decisions(run.path) if isinstance(d, Assigned) and d.kind == name_of(Masked))
    steps = [note.steps for note in told(run.path)]
    assert steps == sorted(set(steps)), "the count never goes back"
    assert steps[-1] == max(uses.values()) <= USES
    spent = told(run.path)[-1].epsilon
    assert spent == epsilon(budget.noise, budget.rate, steps[-1], DELTA, discrete=True) <= EPSILON
    assert "has no room for the next task" in end.reason
    for file in run.path.rglob("*"):
        if file.is_file() and file.suffix != ".log":
            assert b"ann has 3 and 3 more" not in file.read_bytes(), file
