"""The density that `exchange.downlink_options: {ratio: auto}` stands for."""

from __future__ import annotations

from typing import Any

import pytest

from barnraise.compression.catalog import CATALOG
from barnraise.config import load
from barnraise.config.load import dump
from barnraise.core.errors import RunFileError
from barnraise.plan import Plan, Purpose, resolve
from barnraise.plan.curve import link_ratio
from barnraise.plan.density import RATIO, RATIOS, SHARE, densest
from barnraise.plan.resolve import DENSITY

LAPTOP = {"name": "laptop", "flops_per_second": 2e12}
CODEC = "sparse_loco"


def planned(*workers: dict[str, Any], codec: str = CODEC, ratio: Any = "auto", **sections: Any) -> Plan:
    content = {
        "run": {"name": "auto"},
        "model": {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}},
        "data": {"kind": "text", "files": ["*.txt"], "context": 1024},
        "workers": list(workers),
        "training": {"tokens": 1_000_000_000, "batch_size": 16, "local_steps": 3},
        "exchange": {"downlink_compression": codec, "downlink_options": {RATIO: ratio}},
    }
    purpose = sections.pop("purpose", Purpose.TRAIN)
    for name, section in sections.items():
        content[name] = {**content.get(name, {}), **section}
    return resolve(load(content), purpose=purpose, nodes=max(1, len(workers)))


def density(plan: Plan) -> float:
    return float(plan.downlink.options[RATIO])


def steps_of_a_version(ratio: float, share: float, values: int = 1 << 20) -> float:
    entry = CATALOG.entry(CODEC)
    num_bytes = entry.declares.max_bytes(CATALOG.resolve(CODEC, {RATIO: share}), values)
    return num_bytes / values * ratio / 6


@pytest.mark.parametrize("ratio", [0.01, 1.0, 20.0, 90.0, 98.0, 300.0, 600.0])
def test_a_version_takes_its_share_of_a_task_and_a_denser_one_takes_more(ratio: float) -> None:
    chosen = densest(CODEC, {}, ratio, 3)
    if chosen != RATIOS[-1]:
        assert steps_of_a_version(ratio, chosen) <= SHARE * 3
    if chosen != RATIOS[0]:
        assert steps_of_a_version(ratio, 2 * chosen) > SHARE * 3


def test_a_slower_link_never_has_denser_versions_and_longer_tasks_never_sparser_ones() -> None:
    ratios = [2.0**power for power in range(-2, 14)]
    found = [densest(CODEC, {}, ratio, 3) for ratio in ratios]
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (RATIOS[0], RATIOS[-1])
    assert all(densest(CODEC, {}, ratio, 30) >= short for ratio, short in zip(ratios, found, strict=True))


def test_the_slowest_way_down_decides() -> None:
    far = {**LAPTOP, "name": "far", "link": "10mbit/50ms"}
    plan = planned({**LAPTOP, "link": "1gbit/1ms"}, far)
    found = link_ratio(plan.run_file, plan.purpose, down=True)
    assert found is not None
    assert density(plan) == densest(CODEC, {}, found.ratio, 3) < RATIOS[0]
    assert plan.reasons[DENSITY] == f"R is {found.ratio:.3g}"
    assert density(planned({**LAPTOP, "link": "1gbit/1ms"})) == RATIOS[0]


def test_a_way_up_that_is_slower_does_not_count() -> None:
    plan = planned({**LAPTOP, "link": "dsl"})
    up, down = (link_ratio(plan.run_file, plan.purpose, down=way) for way in (False, True))
    assert up is not None
    assert down is not None
    assert down.ratio < up.ratio
    assert density(plan) == densest(CODEC, {}, down.ratio, 3)


def test_a_part_of_the_parameters_and_unknown_machines() -> None:
    assert density(planned({**LAPTOP, "link": "1mbit/50ms"}, training={"train": {"layers": [0]}})) == RATIOS[0]
    plan = planned({"name": "some"}, purpose=Purpose.SIMULATE)
    assert density(plan) == CATALOG.resolve(CODEC, {})[RATIO]
    assert plan.reasons[DENSITY] == "no worker's flops_per_second is given"


def test_a_number_is_kept_and_the_kept_run_file_has_a_number() -> None:
    plan = planned({**LAPTOP, "link": "1mbit/50ms"}, ratio=0.125)
    assert (density(plan), DENSITY in plan.reasons) == (0.125, False)
    kept = planned({**LAPTOP, "link": "1mbit/50ms"})
    assert f"ratio: {density(kept)}" in dump(kept.run_file)


def test_a_codec_without_a_density_and_another_word_are_refused() -> None:
    with pytest.raises(RunFileError, match=RATIO):
        planned(LAPTOP, codec="int4")
    with pytest.raises(RunFileError, match=RATIO):
        planned(LAPTOP, ratio="dense")
