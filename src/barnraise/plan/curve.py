"""The measured curve: how long several workers take to a lone worker's loss, by their speed and their link.

R = FLOP/s / (bandwidth in bytes/s * tokens a step) says how slow a link is for a machine. A step of B tokens takes
6 N B / FLOP/s seconds and N values of b bytes take N b / bandwidth, so that an exchange takes b R / 6 steps: the size
of the model cancels. Where a part of the model is trained and exchanged, R counts the steps that its bytes take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from barnraise.config.schema import RunFile
from barnraise.config.trial_sections import WorkerSection
from barnraise.plan.dataset import mean_row
from barnraise.plan.links import live_link
from barnraise.plan.purpose import Purpose
from barnraise.plan.speed import cpu_flops

CPU = "cpu"

ASSUMED_BYTES = 1.25e6
"""Bytes a second of a link that the run file does not describe: 10 Mbit/s."""

CURVE: tuple[tuple[float, float], ...] = ((1.0, 0.34), (10.0, 0.33), (100.0, 0.35))
"""R, and the time of four equal workers with AdamW to a lone one's loss over its time, where it trains on 1M tokens.

`python benchmarks/reach.py --tokens 1` prints them, five seeds (docs/research/experiments.md). At R = 1,000 they did
not reach the loss.
"""


@dataclass(frozen=True)
class LinkRatio:
    """The R of a run's slowest link: FLOP/s of a worker, bytes a second (`given` by the run file), tokens a step.

    `exchanged` is the share of a step's parameters that an exchange carries, by their cost.
    """

    flops: float
    bandwidth: float
    given: bool
    step_tokens: int
    exchanged: float = 1.0

    @property
    def ratio(self) -> float:
        """Return R of the worker and its link."""
        return self.exchanged * self.flops / (self.bandwidth * self.step_tokens)

    @property
    def share(self) -> float | None:
        """Return the time of four workers over a lone one's by the curve; None beyond its ends.

        Below its first point the link costs nothing that was measured: the first figure counts.
        """
        return along(CURVE, self.ratio)

    def as_dict(self) -> dict[str, float | None]:
        """Return the figures that `check --json` prints; no bandwidth where none is given."""
        bandwidth = self.bandwidth if self.given else None
        return {
            "flops": self.flops,
            "bandwidth": bandwidth,
            "step_tokens": self.step_tokens,
            "ratio": self.ratio,
            "share": self.share,
        }

    def __str__(self) -> str:
        given = "" if self.given else " (no link is given)"
        where = (
            f"R {self.ratio:.2g}: {flops_text(self.flops)} a worker, {self.bandwidth * 8e-6:.3g} Mbit/s up{given}, "
            f"{self.step_tokens:,} tokens a step"
        )
        if self.share is None:
            return f"{where}; the curve ends at R {CURVE[-1][0]:,.0f}: more tokens a step or adapters lower R"
        return (
            f"{where}; four equal workers with AdamW, tuned for slow links, take {self.share:.0%} of a lone one's time "
            "to its loss"
        )


def flops_text(flops: float) -> str:
    """Return `flops` a second in the unit that suits it.

    >>> flops_text(4.2e10), flops_text(2e12)
    ('42 GFLOP/s', '2 TFLOP/s')
    """
    return f"{flops / 1e12:.3g} TFLOP/s" if flops >= 1e12 else f"{flops / 1e9:.3g} GFLOP/s"


def along(curve: Sequence[tuple[float, float]], ratio: float) -> float | None:
    """Return the figure of `curve` at R = `ratio`, on a line between two points in the logarithm of R.

    >>> along([(1.0, 0.3), (100.0, 0.5)], 10.0), along([(1.0, 0.3)], 0.1), along([(1.0, 0.3)], 2.0)
    (0.4, 0.3, None)
    """
    if curve and ratio <= curve[0][0]:
        return curve[0][1]
    for (before, low), (after, high) in pairwise(curve):
        if ratio <= after:
            return low + (high - low) * math.log(ratio / before) / math.log(after / before)
    return None


def link_ratio(
    run_file: RunFile,
    purpose: Purpose,
    *,
    exchanged: float = 1.0,
    step_tokens: int | None = None,
    device_flops: float | None = None,
) -> LinkRatio | None:
    """Return the ratio of the worker whose link is the slowest for it; None where no machine's speed is known.

    `exchanged` is the share of the parameters that travels. `step_tokens` are the run file's if None;
    `device_flops` counts for accelerators of unknown speed. Measures this machine's speed where it counts.
    """
    workers: list[WorkerSection | None] = [*run_file.workers] or [None]
    tokens = step_tokens or run_file.training.step_rows * mean_row(run_file)
    part = exchanged * (1.0 if exchanged == 1.0 else 1.5)  # frozen: 4 operations, not 6
    here, found = _here(run_file, purpose), list[LinkRatio]()
    for index, worker in enumerate(workers):
        computes = here if worker is None or worker.device == CPU else device_flops
        flops = (worker and worker.flops_per_second) or computes
        if flops is None:
            return None
        link = live_link(run_file, index, worker)
        rate = (worker and worker.bandwidth_bytes_per_second) or (link and link.throughput(link.up))
        found.append(LinkRatio(flops, rate or ASSUMED_BYTES, bool(rate), tokens, part))
    return max(found, key=lambda one: one.ratio)


def _here(run_file: RunFile, purpose: Purpose) -> float | None:
    """Return the FLOP/s of each CPU worker on this machine; None in simulations."""
    workers = [worker for worker in run_file.workers if worker.device == CPU]
    if purpose is Purpose.SIMULATE:
        return None
    return cpu_flops(workers) / max(1, len(workers))
