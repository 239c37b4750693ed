"""The automatic choice of `training.batch_size`: enough tokens a step for the slowest link.

R = FLOP/s / (bandwidth in bytes/s * tokens a step) falls with the tokens of a step. A larger step needs more tokens for
the same loss: up to the largest R that was measured, the smallest steps were best. More rows are chosen beyond it.
"""

from __future__ import annotations

from barnraise.config.schema import RunFile
from barnraise.config.values import USUAL_BATCH
from barnraise.plan.choices import AUTO
from barnraise.plan.curve import link_ratio
from barnraise.plan.dataset import mean_row
from barnraise.plan.purpose import Purpose

MOST_RATIO = 1000.0
"""R up to which the fewest tokens a step are best (`python benchmarks/reach.py`; docs/research/experiments.md)."""

LEAST_STEPS = 1000
"""Steps of all workers together that a run keeps: its tokens over those of a step."""

MOST_ROWS = 1 << 12

DEVICE_FLOPS = 2e12
"""FLOP/s of an accelerator whose `flops_per_second` is not given: those of a laptop's."""


def settled_batch(run_file: RunFile, purpose: Purpose) -> tuple[RunFile, str]:
    """Return `run_file` with a number in place of `batch_size: auto`, and the reason; empty where it gives a number."""
    training = run_file.training
    if training.batch_size != AUTO:
        return run_file, ""
    rows, why = _rows(run_file, purpose)
    return run_file.model_copy(update={"training": training.model_copy(update={"batch_size": rows})}), why


def fewest_rows(ratio: float, row: int, tokens: int, least: int = USUAL_BATCH) -> tuple[int, bool]:
    """Return the rows of a step at which R is `MOST_RATIO` at most, and whether the run's tokens allow as many.

    `ratio` is R with `least` rows of `row` tokens a step.

    >>> fewest_rows(1500.0, 1024, 10**9), fewest_rows(20000.0, 1024, 10**8)
    ((16, True), (64, False))
    """
    wanted = least
    while ratio * least / wanted > MOST_RATIO and wanted < MOST_ROWS:
        wanted *= 2
    rows = wanted
    while rows > least and rows * row * LEAST_STEPS > tokens:
        rows //= 2
    return rows, rows == wanted


def _rows(run_file: RunFile, purpose: Purpose) -> tuple[int, str]:
    training, row = run_file.training, mean_row(run_file)
    if training.adapter or training.train:
        return USUAL_BATCH, "a part of the parameters travels"
    device_flops = DEVICE_FLOPS if any(worker.device != "cpu" for worker in run_file.workers) else None
    found = link_ratio(run_file, purpose, step_tokens=USUAL_BATCH * row, device_flops=device_flops)
    if found is None:
        return USUAL_BATCH, "no worker's flops_per_second is given"
    rows, allowed = fewest_rows(found.ratio, row, training.tokens)
    ratio = found.ratio * USUAL_BATCH / rows
    if not allowed:
        return rows, f"more would leave fewer than {LEAST_STEPS:,} steps of training.tokens; R is {ratio:.3g}"
    return rows, f"R is {ratio:.3g} with it"
