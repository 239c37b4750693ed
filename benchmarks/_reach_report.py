"""Tell the results of `reach.py`: a table in Markdown, a picture of the curve, and its figures as CSV."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

IN_USE = 0.4
"""Share of a machine's peak that training reaches, as `barnraise check` takes it."""

USUAL_STEP = 16_384
MACHINES = {
    "a phone's core, 10 Mbit/s": (106e9, 10.0),
    "a core of this machine, 10 Mbit/s": (58e9, 10.0),
    "a laptop's GPU, 10 Mbit/s": (5e12, 10.0),
    "an H100, 1 Gbit/s": (989e12, 1000.0),
    "an RTX 4090, 100 Mbit/s": (165e12, 100.0),
}
"""Peak FLOP/s, and Mbit/s. Cortex-X4 at 3.3 GHz with four FMA pipes of 128 bits in float32; an EPYC's matrix product as
measured; a laptop's GPU that does 2 TFLOP/s in use; the maker's figures for dense bf16."""


class Share(NamedTuple):
    """The time to a loss over the lone worker's; where it was not `met`, the time of the whole run."""

    time: float
    met: bool

    @property
    def rank(self) -> tuple[bool, float]:
        """Return a key by which better ones come first."""
        return not self.met, self.time


@dataclass(frozen=True)
class Row:
    """A side at one R: the best trial's time over the lone worker's, on each seed and order that is there."""

    side: str
    ratio: float
    way: str
    shares: list[Share]

    @property
    def met(self) -> bool:
        return all(share.met for share in self.shares)

    @property
    def times(self) -> list[float]:
        return [share.time for share in self.shares]

    def __str__(self) -> str:
        if not self.met:
            return f"not in {max(self.times):.0%}"
        low, high = min(self.times), max(self.times)
        return f"{statistics.fmean(self.times):.0%}" + (f" ({low:.0%} to {high:.0%})" if len(self.times) > 1 else "")


def table(found: list[Row], heading: str = "R = {:,.0f}") -> Iterator[str]:
    """Yield a table in Markdown: a row for each side, a column for each R (or what `heading` makes of it)."""
    ratios = sorted({row.ratio for row in found})
    yield f"| side | {' | '.join(map(heading.format, ratios))} |"
    yield "|" + "---|" * (len(ratios) + 1)
    for side in dict.fromkeys(row.side for row in found):
        at = {row.ratio: row for row in found if row.side == side}
        cells = [f"{at[ratio]}; {at[ratio].way}" if ratio in at else "" for ratio in ratios]
        yield f"| {side} | {' | '.join(cells)} |"


def machines() -> dict[str, float]:
    """Return R of each machine behind its link with `USUAL_STEP` tokens a step."""
    return {name: peak * IN_USE / (mbit / 8 * 1e6 * USUAL_STEP) for name, (peak, mbit) in MACHINES.items()}


def picture(found: list[Row], folder: Path) -> None:
    """Draw each side's share of the lone worker's time against R, and the table behind it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    figure, axis = plt.subplots(figsize=(11, 5), layout="constrained")
    colors = [*plt.colormaps["tab20"].colors[::2], *plt.colormaps["tab20"].colors[1::2]]  # the strong ones first
    for side, color in zip(dict.fromkeys(row.side for row in found), colors, strict=False):
        here = [row for row in found if row.side == side and row.met]
        ours = side.startswith("ours")
        axis.plot(
            [row.ratio for row in here],
            [100 * statistics.fmean(row.times) for row in here],
            "o-" if ours else ".--",
            label=side,
            color=color,
        )
        for row in here:
            if len(row.times) > 1:
                axis.vlines(row.ratio, 100 * min(row.times), 100 * max(row.times), color=color, alpha=0.4)
        missed = [row for row in found if row.side == side and not row.met]
        axis.plot(
            [row.ratio for row in missed],
            [100 * max(row.times) for row in missed],
            "^",
            fillstyle="none",
            color=color,
        )  # not before
    axis.axhline(100, color="#888888", linewidth=1)
    axis.axhline(25, color="#888888", linewidth=1, linestyle=":")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(18, 250)
    axis.set_yticks([25, 40, 60, 100, 200], ["25%", "40%", "60%", "100%", "200%"])
    axis.yaxis.set_minor_formatter(NullFormatter())
    for name, ratio in machines().items():
        axis.axvline(ratio, color="#BBBBBB", linewidth=0.8)
        axis.annotate(name, (ratio, 240), rotation=90, fontsize=7, ha="right", va="top", color="#666666")
    axis.set_xlabel("R = FLOP/s / (bytes/s * tokens a step)")
    axis.set_ylabel("time to the lone worker's loss, of its time")
    axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axis.grid(True, color="#E4E4E4")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "reach.png", dpi=120)
    plt.close(figure)
    with (folder / "reach.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["side", "R", "trial", "seeds and orders", "reached", "mean share", "least", "most"])
        for row in found:
            times = [f"{time:.4f}" for time in (statistics.fmean(row.times), min(row.times), max(row.times))]
            writer.writerow([row.side, f"{row.ratio:g}", row.way, len(row.times), row.met, *times])
