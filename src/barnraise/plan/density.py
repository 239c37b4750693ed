"""The automatic choice of the downlink's density: the densest versions that arrive beside the steps of a task.

A version of b bytes a parameter takes b R / 6 steps of a worker (see `curve`). All nodes get the same payload, so the
slowest link decides, before the run begins. The density of what a node sends is chosen during the run, for each node
(`training/tuning.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnraise.compression.catalog import CATALOG
from barnraise.config.schema import RunFile
from barnraise.plan.batch_size import DEVICE_FLOPS
from barnraise.plan.choices import AUTO
from barnraise.plan.curve import link_ratio
from barnraise.plan.purpose import Purpose

RATIO = "ratio"
"""The option of a codec that is its density."""

SHARE = 0.4
"""Share of a task's steps that a version may take on the slowest link."""

RATIOS = tuple(2.0**-power for power in range(2, 7))
"""Densities to choose from, the densest first: sparse codecs do not pay beyond it."""

_VALUES = 1 << 20


def settled_density(run_file: RunFile, purpose: Purpose) -> tuple[RunFile, str]:
    """Return `run_file` with a number in place of `ratio: auto` of the downlink, and the reason; else "" for it.

    A codec that has no such option is left for the codec's own check.
    """
    exchange = run_file.exchange
    given, codec = exchange.downlink_options, exchange.downlink_compression
    if given.get(RATIO) != AUTO or RATIO not in CATALOG.entry(codec).known_options:
        return run_file, ""
    options = {name: value for name, value in given.items() if name != RATIO}
    ratio, why = _chosen(run_file, purpose, options)
    exchange = exchange.model_copy(update={"downlink_options": options | {RATIO: ratio}})
    return run_file.model_copy(update={"exchange": exchange}), why


def densest(codec: str, options: Mapping[str, Any], ratio: float, steps: int) -> float:
    """Return the largest of `RATIOS` at which a version takes `SHARE` of `steps` steps at R = `ratio`, else the least.

    >>> [densest("sparse_loco", {}, ratio, 3) for ratio in (10.0, 100.0, 1000.0)]
    [0.25, 0.0625, 0.015625]
    """
    entry = CATALOG.entry(codec)
    for share in RATIOS:
        resolved = CATALOG.resolve(codec, {**options, RATIO: share})
        if entry.declares.max_bytes(resolved, _VALUES) / _VALUES * ratio / 6 <= SHARE * steps:
            return share
    return RATIOS[-1]


def _chosen(run_file: RunFile, purpose: Purpose, options: Mapping[str, Any]) -> tuple[float, str]:
    training, codec = run_file.training, run_file.exchange.downlink_compression
    if training.adapter or training.train:
        return RATIOS[0], "a part of the parameters travels"
    device_flops = DEVICE_FLOPS if any(worker.device != "cpu" for worker in run_file.workers) else None
    found = link_ratio(run_file, purpose, device_flops=device_flops, down=True)
    if found is None:
        return float(CATALOG.resolve(codec, options)[RATIO]), "no worker's flops_per_second is given"
    return densest(codec, options, found.ratio, training.local_steps), f"R is {found.ratio:.3g}"
