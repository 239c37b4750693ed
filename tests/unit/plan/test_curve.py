"""R of a run's slowest link, and the measured curve at it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from barnraise.config import load
from barnraise.plan import Plan, Purpose, resolve
from barnraise.plan.curve import CURVE, LinkRatio, along, link_ratio

LAPTOP = {"flops_per_second": 2e12}


def planned(*workers: dict[str, Any], purpose: Purpose = Purpose.TRAIN, **sections: Any) -> Any:
    content = {
        "run": {"name": "curve"},
        "model": {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}},
        "data": {"kind": "text", "files": ["*.txt"], "context": 1024},
        "workers": [{"name": f"w{index}", **worker} for index, worker in enumerate(workers)],
        "training": {"tokens": 10_000_000, "batch_size": 16},
    }
    return resolve(load(content | sections), purpose=purpose, nodes=max(1, len(workers)))


def ratio(plan: Plan) -> LinkRatio | None:
    return link_ratio(plan.run_file, plan.purpose)


def test_r_is_flops_over_bandwidth_and_tokens_a_step() -> None:
    plan = planned(LAPTOP, network={"profile": "10mbit/50ms"})
    found = ratio(plan)
    assert found is not None
    assert found.given
    assert found.ratio == pytest.approx(2e12 / (1.25e6 * 16_384))


def test_the_slowest_link_counts() -> None:
    found = ratio(planned({**LAPTOP, "link": "100mbit/1ms"}, {**LAPTOP, "link": "1mbit/1ms"}))
    assert found is not None
    assert found.bandwidth == pytest.approx(1.25e5)


def test_a_link_that_is_not_given_counts_as_ten_mbit() -> None:
    found = ratio(planned(LAPTOP))
    assert found is not None
    assert (found.given, found.bandwidth) == (False, 1.25e6)
    assert "no link is given" in str(found)


def test_adapters_lower_r_by_their_share_of_the_parameters() -> None:
    plan = planned(LAPTOP)
    whole, adapters = link_ratio(plan.run_file, plan.purpose), link_ratio(plan.run_file, plan.purpose, exchanged=0.01)
    assert whole is not None
    assert adapters is not None
    assert adapters.ratio == pytest.approx(whole.ratio * 0.01 * 6 / 4)


def test_a_device_whose_speed_is_not_known_has_no_r() -> None:
    assert ratio(planned({"device": "cuda"})) is None
    assert ratio(planned({}, purpose=Purpose.SIMULATE)) is None


def test_a_host_without_workers_measures_its_own_speed() -> None:
    found = ratio(planned(purpose=Purpose.SERVE))
    assert found is not None
    assert found.flops > 0


def test_the_curve_has_no_figure_beyond_its_end() -> None:
    (first, least), (last, most) = CURVE[0], CURVE[-1]
    assert along(CURVE, first / 10) == least
    assert along(CURVE, last) == most
    assert along(CURVE, last * 1.01) is None
    assert "the curve ends at" in str(LinkRatio(1e15, 1e6, True, 512))


def test_the_curve_rises_with_r() -> None:
    figures = [figure for pair in CURVE for figure in pair]
    assert all(math.isfinite(figure) and figure > 0 for figure in figures)
    assert [ratio for ratio, _ in CURVE] == sorted(ratio for ratio, _ in CURVE)
