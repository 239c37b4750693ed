"""Modules that must load without torch do.

It takes seconds to import, and the command line answers in less than one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
CATALOGS = sorted(SOURCE.glob("barnraise/*/catalog.py"))
FAMILIES = [f"barnraise.{catalog.parent.name}" for catalog in CATALOGS]
LIGHT = ["barnraise", "barnraise.core", "barnraise.config", "barnraise.plan", "barnraise.cli.main", *FAMILIES]
LIGHT += ["barnraise.assembly", "barnraise.assembly.calls", "barnraise.account", "barnraise.account.report"]
HEAVY = {"torch", "transformers", "matplotlib", "scipy"}
UNUSED = {"cryptography", "asyncio", "ssl"}
"""Modules of several megabytes each that a simulation of sizes alone does not need: its memory has a target."""

SIMULATION = """
from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.plan import Purpose, resolve

run = {
    "run": {"name": "light"},
    "model": {"architecture": "gpt2", "config": {"hidden_size": 64, "num_layers": 2, "num_heads": 2}},
    "data": {"kind": "text", "files": ["*.txt"], "context": 64},
    "training": {"tokens": 200_000, "batch_size": 4, "local_steps": 20},
}
report = simulate(resolve(load(run), purpose=Purpose.SIMULATE, nodes=4), Trial(4))
assert report.versions, report
"""
"""A run of sizes alone, to its end."""


def heavy_modules_after(statement: str, heavy: set[str] = HEAVY) -> set[str]:
    """Which of the `heavy` modules a fresh interpreter holds after `statement`."""
    code = f"import sys\n{statement}\nprint(*(set(sys.modules) & {heavy!r}))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("module", LIGHT)
def test_loads_without_torch(module: str) -> None:
    assert heavy_modules_after(f"import {module}") == set()


@pytest.mark.parametrize("family", FAMILIES)
def test_catalog_loads_without_torch(family: str) -> None:
    assert heavy_modules_after(f"from {family}.catalog import CATALOG; CATALOG.names()") == set()


def test_a_costed_simulation_runs_without_torch_and_scipy() -> None:
    assert heavy_modules_after(SIMULATION, HEAVY | UNUSED) == set()


def test_heavy_modules_are_noticed() -> None:
    assert heavy_modules_after("import matplotlib") == {"matplotlib"}


def test_families_have_catalogs() -> None:
    assert {"barnraise.aggregation", "barnraise.compression", "barnraise.matching"} <= set(FAMILIES)
