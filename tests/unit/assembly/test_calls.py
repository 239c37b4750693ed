"""The commands as Python calls: what they take for a run file, and where they can be called."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import barnraise
from barnraise.config import load
from barnraise.core.errors import InputError, InviteError, OptionError, RunFileError

RUN_FILE: dict[str, Any] = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 64, "num_layers": 2, "num_heads": 2}},
    "data": {"kind": "text", "files": ["corpus/*.txt"], "context": 64},
    "workers": [{"name": "one", "speed": 2.0}, {"name": "two", "link": "10mbit/50ms"}],
    "faults": [{"at": 0.5, "join": {"name": "three"}}],
    "training": {"tokens": 200_000, "compression": "topk"},
}


def test_a_path_a_mapping_and_a_loaded_run_file_are_one_run(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(RUN_FILE))
    given = [path, str(path), RUN_FILE, load(path)]
    assert len({barnraise.simulate(run_file).ledger_hash for run_file in given}) == 1


def test_arguments_override_the_run_file() -> None:
    report = barnraise.simulate(RUN_FILE, nodes=5, hours=0.01, seed=3, network="cellular")
    assert report.duration.virtual_seconds == pytest.approx(36.0)
    assert report.nodes == 6  # with the one that joins
    assert report.ledger_hash != barnraise.simulate(RUN_FILE, nodes=5, hours=0.01, seed=4).ledger_hash


def test_warnings_are_said() -> None:
    said: list[str] = []
    run_file = RUN_FILE | {"training": {"tokens": 200_000, "aggregation_rule": "mean", "trim_ratio": 0.1}}
    barnraise.simulate(run_file, say=said.append)
    assert [line.startswith("warning: aggregation.trim_ratio: ") for line in said] == [True]


@pytest.mark.parametrize("given", [{"nodes": 0}, {"hours": -1.0}, {"hours": float("nan")}, {"tokens_per_second": 0.0}])
def test_values_out_of_range_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="must be above 0 and finite"):
        barnraise.simulate(RUN_FILE, **given)


def test_a_bad_run_file_or_invite_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    run_file = RUN_FILE | {"run": {"dir": str(tmp_path / "runs")}, "training": {"tokins": 1}}
    for call in (barnraise.train, barnraise.serve, barnraise.simulate):
        with pytest.raises(RunFileError, match="tokens"):
            call(run_file)
    with pytest.raises(InviteError, match="is not an invite"):
        barnraise.join("come and help", home=tmp_path / "home")
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_would_block_an_event_loop_says_how_it_would_not() -> None:
    async def notebook() -> None:
        barnraise.join("barnraise://")

    with pytest.raises(InputError, match=r"await asyncio\.to_thread"):
        asyncio.run(notebook())


def test_an_unknown_attribute_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'retrain'"):
        barnraise.retrain  # noqa: B018
    assert {"train", "simulate", "serve", "join", "compression"} <= set(dir(barnraise))
