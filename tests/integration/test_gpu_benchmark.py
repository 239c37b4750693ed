"""Try the benchmark that `make gpu` runs on a card, as far as a machine without a card can."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HEAD = "tokens/s", "of AdamW", "MFU", "card GiB", "card idle |"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def gpu(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=250)


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import _cards

    return _cards


def test_without_a_card_it_says_so_in_a_line() -> None:
    found = gpu()
    assert found.returncode == 0
    assert found.stdout.startswith("skipped: torch ")
    assert found.stdout.count("\n") == 1


def table(text: str) -> list[list[str]]:
    return [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]


@pytest.mark.campaign
def test_the_rehearsal_passes_every_part_but_the_runs() -> None:
    """Whole runs, and options of training, are in other tests; `make bench-quick` rehearses all."""
    found = gpu("--quick", "--parts", "replicas", "speed", "adamw", "tasks", "exchange")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "rehearsal on the CPU: these figures say nothing" in found.stdout
    assert "1 digest of all replicas and the server's parameters" in found.stdout
    assert "worker over plain loop: " in found.stdout
    parts = "copy from the card", "update in main memory", "update on the card", "take a version in"
    assert all(part in found.stdout for part in parts)
    assert re.search(r"exchange in main memory, \d+\.\d% of the time in steps", found.stdout)
    head, _, *rows = table(found.stdout)
    assert head == ["| rehearsal on the CPU: these figures say nothing", *HEAD]
    assert [row[0] for row in rows] == ["| adamw", "| tasks of 3 steps"]


@pytest.mark.campaign
def test_the_rehearsal_passes_every_option_of_training() -> None:
    options = ["muon", "8-bit", "offload", "checkpointing", "compile", "lora", "qlora"]
    found = gpu("--quick", "--parts", *options)
    assert found.returncode == 0, found.stdout + found.stderr
    assert [row[0].removeprefix("| ") for row in table(found.stdout)[2:]] == options


@pytest.mark.campaign
def test_measurements_are_kept_when_the_time_is_over() -> None:
    found = gpu("--quick", "--deadline", "0")
    assert found.returncode == 0
    assert found.stdout.count("no time left") == 13


def test_the_operations_of_gpt2(cards: Any) -> None:
    """6 N + 12 L H T: 0.86e9 operations a token at 1024 tokens."""
    assert cards.operations_a_token(124_439_808, 12, 768, 1024) == pytest.approx(0.8599e9, rel=1e-3)


def test_the_operations_of_frozen_parameters(cards: Any) -> None:
    whole, frozen = (cards.operations_a_token(10**6, 2, 64, 128, frozen=given) for given in (False, True))
    assert whole - frozen == 2e6


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("A card of tomorrow", None),
    ],
)
def test_the_peak_of_a_card(cards: Any, name: str, peak: float | None) -> None:
    assert cards.peak_operations(name) == peak
