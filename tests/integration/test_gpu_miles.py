"""The parts of `benchmarks/gpu_miles.py` that need no card: its order of parts, its times, and its rehearsal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(import_benchmark: Any) -> Any:
    return import_benchmark("gpu_miles")


def campaign(benchmark: Any, folder: Path, **changed: Any) -> Any:
    options = {
        "results": folder / "found.jsonl", "rehearse": True, "tokens": None, "excess": 2.0, "rates": [0.001, 0.002],
        "seeds": 2, "limit": 530,
    }  # fmt: skip
    (folder / "tokenizer-4096").mkdir(exist_ok=True)
    (folder / "tokenizer-4096" / "tokenizer.json").write_text("{}")  # there is one already
    return benchmark.Campaign(Namespace(**options | changed), benchmark.SIZES["rehearsal"], folder)


def gpu_miles(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(BENCHMARKS / "gpu_miles.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=550)


def keep(it: Any, benchmark: Any, **losses: float) -> None:
    """Store runs of a card of 1,000 tokens a second: side_rate=loss, the same for each link."""
    it._known.add([*it._of, "card"], benchmark.Card(it.name, 5_000_000, 1000.0, 10.0, 1e-6))
    for name, loss in losses.items():
        side, _, rate = name.partition("_")
        link = 10.0 if side.startswith("ours") else None
        curve = [(0.0, 0.0, 9.0), (50.0, 5e4, 9.0 - (9.0 - loss) / 2), (100.0, 1e5, loss)]
        key = it._key(side.replace("ours", "ours-"), int(rate) / 1000, 0)
        it._known.add(key, benchmark.Trained(curve, link))


def test_without_a_card_it_says_so_in_a_line() -> None:
    found = gpu_miles()
    assert found.returncode == 0
    assert found.stdout.startswith("skipped: torch ")
    assert found.stdout.count("\n") == 1


def test_a_part_is_missing_until_its_result_is_kept(benchmark: Any, tmp_path: Path) -> None:
    it = campaign(benchmark, tmp_path)
    assert dict(it.parts())["card"] == "missing"
    keep(it, benchmark, lone_1=3.0)
    again = dict(campaign(benchmark, tmp_path).parts())
    assert again["card"] == again["lone@0.001"] == "done"
    assert again["links"] == again["lone@0.002"] == "missing"
    assert again["lone.1"] == "waiting"


def test_another_seed_takes_the_rate_of_the_least_loss(benchmark: Any, tmp_path: Path) -> None:
    it = campaign(benchmark, tmp_path)
    keep(it, benchmark, lone_1=3.0, lone_2=2.5)
    assert it._chosen("lone.1") == ("lone", 0.002, 1)
    with pytest.raises(SystemExit, match="play the parts ddp@RATE before"):
        it._chosen("ddp.1")


def test_no_part_but_the_first_begins_without_the_cards_speed(benchmark: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="the part `card` comes first"):
        campaign(benchmark, tmp_path).play("lone@0.001")


@pytest.mark.campaign
def test_a_part_that_takes_too_long_is_cut_and_not_kept(tmp_path: Path) -> None:
    found = gpu_miles("--quick", "--results", str(tmp_path / "found.jsonl"), "--part", "card", "--limit", "1")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "card: cut after 1 s, nothing is kept; give fewer --tokens" in found.stdout
    assert not (tmp_path / "found.jsonl").exists()


def test_the_budget_is_the_whole_steps_that_a_part_has_time_for(benchmark: Any, tmp_path: Path) -> None:
    """0.7 x 530 s less 10 s to start, at 2 x 4 ms a token of the lone worker, are 45,125 tokens: 88 steps of 512."""
    it = campaign(benchmark, tmp_path)
    it._known.add([*it._of, "card"], benchmark.Card(it.name, 5_000_000, 1000.0, 10.0, 0.004))
    assert it.tokens == pytest.approx(88 * 512 / 1e6)


def test_time_to_the_lone_workers_loss_includes_exchanges(benchmark: Any, tmp_path: Path) -> None:
    """DDP has the loss of the target half-way; behind 10 Mbit/s its exchange takes 24 s and its step 0.5 s."""
    it = campaign(benchmark, tmp_path)
    keep(it, benchmark, lone_1=3.0, lone_2=4.0, ddp_1=-3.0, ddp_2=5.0, ours10_1=1.0, ours10_2=2.0)
    rows = {(row.side, row.ratio): row for row in it.rows()}
    step = it.size.step_tokens / 1000.0
    exchange = 1.5 * 4 * 5_000_000 / (10.0 * 125_000)
    assert rows["DDP, float32", 10.0].times == [pytest.approx(0.5 * exchange / step, rel=0.01)]
    assert rows["barnraise, tuned", 10.0].times == [pytest.approx(0.75)]
    assert ("barnraise, tuned", 100.0) not in rows
    told = "\n".join(it.report())
    assert "| side | 10 Mbit/s | 100 Mbit/s |" in told
    assert "cannot be measured here" in told


def test_a_measured_exchange_counts_instead_of_the_computed_one(benchmark: Any, tmp_path: Path) -> None:
    it = campaign(benchmark, tmp_path)
    recipe = benchmark.RECIPES["ddp"](0.001, 4, 2.0)
    assert it.exchange(recipe, 10.0, 1_000_000).seconds == pytest.approx(1.5 * 4.0 / 1.25, rel=0.01)
    measured = benchmark.Exchange("ring", int(recipe.bytes_a_value(1_000_000) * 1_000_000), 10.0, 25.0, 4, 7.0)
    it._known.add([*it._of, "links"], [measured])
    assert it.exchange(recipe, 10.0, 1_000_000).seconds == 7.0


def test_the_time_of_a_payload_follows_from_two_parts_of_it(benchmark: Any) -> None:
    import _exchanges

    assert _exchanges._parts(5, 8) == [5]
    assert _exchanges._parts(100, 8) == [2, 8]
    assert _exchanges._whole(100, {2: 1.2, 8: 1.8}, 0.01) == pytest.approx(1.0 + 100 * 0.1)
    assert _exchanges._whole(100, {2: 1.2, 8: 1.2}, 0.01) == pytest.approx(1.2 + 92 * 0.01)


def test_ddp_trains_the_rows_of_all_workers_in_each_step(benchmark: Any) -> None:
    import _rivals

    recipe = _rivals.Recipe("ddp", 0.001, batch=4)
    assert (_rivals.together(recipe).workers, _rivals.together(recipe).batch) == (1, 16)
    assert recipe.with_ring(0.5) == 1.0
    assert recipe.with_ring(8.0) == 8.0


def test_a_slow_card_times_few_steps(benchmark: Any) -> None:
    assert [benchmark._few(40, seconds) for seconds in (0.1, 5.0, 100.0)] == [40, 4, 2]


@pytest.mark.campaign
def test_the_rehearsal_plays_every_part_and_a_second_call_none(tmp_path: Path) -> None:
    command = ("--quick", "--results", str(tmp_path / "found.jsonl"))
    found = gpu_miles(*command)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "the CPU (a rehearsal): 5,014,272 parameters" in found.stdout
    kept = (tmp_path / "found.jsonl").read_text().splitlines()
    assert len(kept) == 7
    assert all(json.loads(line) for line in kept)
    again = gpu_miles(*command)
    assert again.returncode == 0
    assert "after" not in again.stdout
    assert "| barnraise, tuned |" in again.stdout
    assert len((tmp_path / "found.jsonl").read_text().splitlines()) == 7
