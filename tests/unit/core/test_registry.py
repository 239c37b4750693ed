"""Algorithms of packages that were installed beside this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.core.errors import RunFileError
from barnraise.matching import CATALOG
from barnraise.plan import Purpose, resolve

MODULE = """
from barnraise.core.registry import Entry, Option
from barnraise.matching.fifo import Fifo

class Nearest(Fifo):
    asked = 0

    def __init__(self, miles: int) -> None:
        super().__init__()
        self.miles = miles

    def assign(self, tasks, nodes):
        Nearest.asked += 1
        return super().assign(tasks, nodes)

NEAREST = Entry(
    "nearest", "next_door:Nearest", "the node next door first", options=(Option("miles", int, 3, "how far", minimum=1),)
)
"""
RUN: dict[str, Any] = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
    "data": {"kind": "sat", "examples": 200, "held_out": 20},
    "controller": {"scheduler": "nearest", "scheduler_options": {"miles": 5}},
    "training": {"tokens": 20_000, "batch_size": 4, "local_steps": 4},
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "next_door.py").write_text(MODULE)
    info = tmp_path / "next_door-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: next-door\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[barnraise.matching]\nnearest = next_door:NEAREST\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(CATALOG, "entries", dict(CATALOG.entries))


@pytest.mark.usefixtures("installed")
def test_a_run_file_may_name_a_scheduler_of_another_package() -> None:
    plan = resolve(load(RUN), purpose=Purpose.SIMULATE, nodes=3)
    assert (plan.scheduler.name, plan.scheduler.options) == ("nearest", {"miles": 5})
    assert simulate(plan, Trial(3, tokens_per_second=2000.0)).tokens >= 20_000
    assert CATALOG.load("nearest").asked > 0
    wrong = RUN | {"controller": {"scheduler": "nearest", "scheduler_options": {"miles": 0}}}
    with pytest.raises(RunFileError, match="option 'miles' is 0, but must be at least 1"):
        resolve(load(wrong), purpose=Purpose.SIMULATE, nodes=3)


def test_without_its_package_it_is_refused() -> None:
    with pytest.raises(RunFileError, match="'nearest'"):
        resolve(load(RUN), purpose=Purpose.SIMULATE, nodes=3)
