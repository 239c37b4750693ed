"""The arithmetic of the rivals in `benchmarks/_rivals.py`: the cost of an exchange, and HeLoCo's correction."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

SIZE = 100_000
"""Values of a model that is large enough for headers to be nothing."""


@pytest.fixture
def rivals(import_benchmark: Any) -> Any:
    return import_benchmark("_rivals")


def test_float32_in_a_ring_of_four_takes_r_steps_a_round(rivals: Any) -> None:
    recipe = rivals.Recipe("diloco", 0.004, steps=30)
    assert recipe.stretch(30.0, SIZE) == pytest.approx(1 + 1.5 * 4 * 30 / 6 / 30, rel=0.01)


def test_a_step_of_twice_the_rows_hides_twice_the_bytes(rivals: Any) -> None:
    small, large = (rivals.Recipe("diloco", 0.004, steps=30, batch=batch).stretch(60.0, SIZE) - 1 for batch in (1, 2))
    assert small == pytest.approx(2 * large)


def test_a_gather_of_sparse_payloads_costs_one_of_each_other_worker(rivals: Any) -> None:
    recipe = rivals.Recipe("sparse", 0.004, steps=15, codec="sparse_loco", options={"ratio": 1 / 64})
    sent = recipe.bytes_a_value(SIZE) * 1000 / 6
    assert recipe.stretch(1000.0, SIZE) == pytest.approx(1 + 3 * sent / 15)


def test_a_fragment_that_is_late_or_a_round_that_does_not_fit_is_not_streamed(rivals: Any) -> None:
    recipe = rivals.Recipe("streaming", 0.004, steps=30, codec="int4", wait=5, fragments=3)
    assert recipe.stretch(100.0, SIZE) == 1.0
    assert recipe.stretch(200.0, SIZE) == math.inf
    assert recipe.stretch(1000.0, SIZE) == math.inf


def test_a_lone_worker_does_not_depend_on_the_link(rivals: Any) -> None:
    assert rivals.Recipe("lone", 0.004, workers=1).stretch(1e6, SIZE) == 1.0


def test_an_update_along_the_momentum_is_kept(rivals: Any) -> None:
    update = torch.tensor([1.0, 0.1])
    assert rivals.corrected(update, torch.tensor([1.0, 0.0])).equal(update)


def test_an_update_against_the_momentum_is_shortened_along_it_alone(rivals: Any) -> None:
    found = rivals.corrected(torch.tensor([-1.0, 1.0]), torch.tensor([1.0, 0.0]))
    assert -1.0 < float(found[0]) < 0.0
    assert float(found[1]) == 1.0


def test_an_update_across_the_momentum_is_turned_to_it_and_keeps_its_length(rivals: Any) -> None:
    update = torch.tensor([0.0, 2.0])
    found = rivals.corrected(update, torch.tensor([1.0, 0.0]))
    assert float(found[0]) > 0.0
    assert float(found.norm()) == pytest.approx(2.0)


def test_no_momentum_yet_leaves_an_update_as_it_is(rivals: Any) -> None:
    update = torch.tensor([-1.0, 1.0])
    assert rivals.corrected(update, torch.zeros(2)).equal(update)
