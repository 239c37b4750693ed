"""The rows of a step that `training.batch_size: auto` stands for."""

from __future__ import annotations

from typing import Any

import pytest

from barnraise.config import load
from barnraise.config.load import dump
from barnraise.config.values import USUAL_BATCH
from barnraise.core.errors import RunFileError
from barnraise.plan import Plan, Purpose, resolve
from barnraise.plan.batch_size import MOST_RATIO
from barnraise.plan.curve import link_ratio
from barnraise.plan.resolve import BATCH_SIZE

LAPTOP = {"name": "laptop", "flops_per_second": 2e12}


def planned(*workers: dict[str, Any], purpose: Purpose = Purpose.TRAIN, **training: Any) -> Plan:
    content = {
        "run": {"name": "auto"},
        "model": {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}},
        "data": {"kind": "text", "files": ["*.txt"], "context": 1024},
        "workers": list(workers),
        "training": {"tokens": 1_000_000_000, "batch_size": "auto"} | training,
    }
    return resolve(load(content), purpose=purpose, nodes=max(1, len(workers)))


def rows(plan: Plan) -> int:
    assert isinstance(plan.run_file.training.batch_size, int)
    return plan.run_file.training.batch_size


def test_a_slow_link_has_the_fewest_rows_at_which_the_curve_covers_it() -> None:
    plan = planned({**LAPTOP, "link": "1mbit/50ms"})
    found = link_ratio(plan.run_file, plan.purpose)
    assert found is not None
    assert rows(plan) == 16
    assert found.ratio <= MOST_RATIO < 2 * found.ratio
    assert plan.reasons[BATCH_SIZE] == f"R is {found.ratio:.3g} with it"


def test_the_slowest_link_decides() -> None:
    assert rows(planned(LAPTOP, {**LAPTOP, "name": "far", "link": "0.1mbit/50ms"})) == 256


def test_a_fast_link_has_the_usual_rows() -> None:
    assert rows(planned({**LAPTOP, "link": "1gbit/1ms"})) == USUAL_BATCH


def test_a_short_run_keeps_its_steps() -> None:
    plan = planned({**LAPTOP, "link": "0.1mbit/50ms"}, tokens=50_000_000)
    assert rows(plan) == 32
    assert "fewer than 1,000 steps" in plan.reasons[BATCH_SIZE]


def test_an_accelerator_of_unknown_speed_counts_as_a_laptop_one() -> None:
    assert rows(planned({"name": "card", "device": "cuda", "link": "1mbit/50ms"})) == 16


def test_a_cpu_beside_an_accelerator_counts_by_its_own_speed() -> None:
    far = {"bandwidth_bytes_per_second": 1e12}
    mixed = planned({"name": "cpu"}, {"name": "card", "device": "cuda", **far})
    assert rows(mixed) == rows(planned({"name": "cpu"})) == USUAL_BATCH


def test_adapters_and_unknown_machines_have_the_usual_rows() -> None:
    assert rows(planned({**LAPTOP, "link": "1mbit/50ms"}, train={"layers": [0]})) == USUAL_BATCH
    plan = planned({"name": "some"}, purpose=Purpose.SIMULATE)
    assert rows(plan) == USUAL_BATCH
    assert plan.reasons[BATCH_SIZE] == "no worker's flops_per_second is given"


def test_a_number_is_kept_and_the_kept_run_file_has_a_number() -> None:
    assert rows(planned({**LAPTOP, "link": "1mbit/50ms"}, batch_size=3)) == 3
    assert "batch_size: 16" in dump(planned({**LAPTOP, "link": "1mbit/50ms"}).run_file)


def test_another_word_is_refused() -> None:
    with pytest.raises(RunFileError, match="batch_size"):
        planned(LAPTOP, batch_size="large")
